//! Compares the requests that the XDP program hands to the one at tc with those to which `stack/reflex` replies: on
//! the frames of the corpus, on thousands of corrupted frames, and on requests for kept replies. Only a checksum is
//! not checked yet.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use twinpath_bpf::{KeptMaps, Path, ReflexPlan, Steering};
use twinpath_claims::{Answers, Context, Reflex, Table, Verdict, corpus, verdict};
use twinpath_reflex::mirror::Known;
use twinpath_reflex::{Generations as _, NotReplied, Publication, Shape, Version};
use twinpath_time::Duration;

use crate::common::xdp;
use crate::frames::{changed, stay_on_one_cpu};
use crate::mirrors::{
    PEERS, RATE, corrupted, expected, know_peers, mirrored, not_replied, request, with_reflex,
};

const PASS: u32 = 2;
const REDIRECT: u32 = 4;
/// `struct handed` of bpf/handed.h, in front of a frame.
const HANDED_LEN: usize = 32;
/// Fixed, so that a failure can be reproduced.
const SEED: u64 = 20_261_128;
const FRAMES: usize = 20_000;

/// What became of a frame.
#[derive(Debug, PartialEq, Eq)]
enum Became {
    /// It goes to the program at tc, which may reply.
    Handed,
    Workers,
    Kernels,
}

/// The XDP program, with a socket for its claims.
struct Handing {
    steering: Steering,
    socket: OwnedFd,
}

impl Handing {
    fn load(kept: Option<&Arc<KeptMaps>>) -> Self {
        stay_on_one_cpu();
        let plan = ReflexPlan { partial_checksums: true, rate: RATE, tries_worker: false };
        let fail_open = Duration::from_secs(3600);
        let mut steering = Steering::load_with_reflexes(Path::Xdp, 1, fail_open, &plan, kept).unwrap();
        know_peers(&mut steering);
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
        steering.set_queue(0, socket.as_fd()).unwrap();
        Self { steering, socket }
    }

    fn count(&self, why: NotReplied) -> u64 {
        not_replied(&self.steering, why)
    }

    /// Shows a frame to the program, again if it was made a canary.
    fn show(&self, frame: &[u8]) -> Became {
        for _ in 0..100 {
            let canaries = self.count(NotReplied::Canary);
            let became = self.once(frame);
            if self.count(NotReplied::Canary) == canaries {
                return became;
            }
            assert_eq!(became, Became::Workers, "a canary");
        }
        panic!("100 canaries in a row");
    }

    fn once(&self, frame: &[u8]) -> Became {
        let (action, out) = changed(xdp(&self.steering), frame);
        match (action, out.split_at_checked(HANDED_LEN)) {
            (REDIRECT, _) if out == frame => Became::Workers,
            (PASS, _) if out == frame => Became::Kernels,
            (PASS, Some((handed, rest))) if rest == frame => {
                let len = u32::from_ne_bytes(*handed[24..].first_chunk().unwrap());
                assert_eq!(len as usize, frame.len());
                Became::Handed
            }
            other => panic!("{other:02x?} of {frame:02x?}"),
        }
    }

    fn judge(&self, frame: &[u8], table: &Table) -> Result<Option<NotReplied>, String> {
        let expected = expected(frame, table, Known::Nothing);
        let before = NotReplied::ALL.map(|why| self.count(why));
        let claimed = matches!(verdict(frame, &Context::default(), table), Verdict::Claimed(_));
        let (wanted, why) = match expected {
            Some(Ok(_) | Err(NotReplied::Checksum)) => (Became::Handed, None),
            Some(Err(why)) => (Became::Workers, Some(why)),
            None if claimed => (Became::Workers, None),
            None => (Became::Kernels, None),
        };
        let became = self.show(frame);
        if became != wanted {
            return Err(format!("{became:?}, not {wanted:?}: {frame:02x?}"));
        }
        let moved = NotReplied::ALL
            .iter()
            .zip(before)
            .filter(|(why, count)| **why != NotReplied::Canary && self.count(**why) != *count);
        let moved: Vec<_> = moved.map(|(why, _)| *why).collect();
        if moved.as_slice() == why.as_slice() {
            Ok(why)
        } else {
            Err(format!("{moved:?}, not {why:?}: {frame:02x?}"))
        }
    }
}

#[test]
fn what_may_be_replied_to_is_handed_over_and_the_rest_is_the_workers() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let corpus = corpus::all().unwrap();
    let mut handing = Handing::load(None);
    let mut wrong = Vec::new();
    for (name, table) in &corpus.tables {
        let table = mirrored(table, 0);
        handing.steering.apply(&table).unwrap();
        let cases = corpus.cases.iter().filter(|case| case.table == *name && case.not_xdp.is_none());
        for case in cases.filter(|case| case.frame.len() >= 14) {
            if let Err(how) = handing.judge(&case.frame, &table) {
                wrong.push(format!("{}: {how}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let table = mirrored(&corpus.tables["basic"], 0);
    handing.steering.apply(&table).unwrap();
    for peer in PEERS {
        for len in 0..=1480 {
            let mut frame = request(peer, 4000, &vec![len as u8; len]);
            // As devices do with short frames.
            frame.resize(frame.len().max(60), 0);
            handing.judge(&frame, &table).unwrap_or_else(|how| panic!("{len} bytes of {peer}: {how}"));
        }
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut seen = BTreeMap::new();
    for number in 0..FRAMES {
        let frame = corrupted(&mut random);
        match handing.judge(&frame, &table) {
            Ok(why) => *seen.entry(why).or_insert(0) += 1,
            Err(how) => panic!("seed {SEED}, frame {number}: {how}"),
        }
    }
    let all = [NotReplied::Header, NotReplied::NoChecksum, NotReplied::Port, NotReplied::Peer];
    for why in all.into_iter().map(Some).chain([None]) {
        assert!(seen.contains_key(&why), "{why:?} never happened: {seen:?}");
    }
}

#[test]
fn without_a_worker_or_while_it_is_suspended_nothing_is_handed_over() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let mut handing = Handing::load(None);
    handing.steering.apply(&mirrored(&corpus::all().unwrap().tables["basic"], 0)).unwrap();
    let frame = request(PEERS[0], 4000, b"hello");
    assert_eq!(handing.show(&frame), Became::Handed);
    handing.steering.reflexes().unwrap().suspend(true);
    assert_eq!(handing.show(&frame), Became::Workers);
    assert_eq!(handing.count(NotReplied::Suspended), 1);
    handing.steering.reflexes().unwrap().suspend(false);
    assert_eq!(handing.show(&frame), Became::Handed);
    // Nobody would get the canaries.
    handing.steering.clear_queue(0).unwrap();
    assert_eq!(handing.show(&frame), Became::Kernels);
    handing.steering.set_queue(0, handing.socket.as_fd()).unwrap();
    assert_eq!(handing.show(&frame), Became::Handed);
}

#[test]
fn requests_of_kept_replies_are_handed_over_while_these_are_valid() {
    const SHAPES: [Shape; 1] = [Shape::EXACT.copying(0, 2, 0)];
    const SERVICE: u32 = 0;
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let maps = Arc::new(KeptMaps::create(64, SEED).unwrap());
    maps.set_shapes(SERVICE as u8, &SHAPES);
    let mut handing = Handing::load(Some(&maps));
    let keeps = |place| Reflex { place, answers: Answers::Kept, source_rate: 0 };
    handing.steering.apply(&with_reflex(&corpus::all().unwrap().tables["basic"], keeps)).unwrap();
    let table = maps.table().unwrap();
    let words = table.generations(SERVICE);
    let until = twinpath_sys::clock::now() + Duration::from_secs(3600);
    let refused = |frame: &[u8], why: NotReplied| {
        let before = handing.count(why);
        assert_eq!((handing.show(frame), handing.count(why)), (Became::Workers, before + 1), "{why:?}");
    };
    for peer in PEERS {
        for len in 2..=256_usize {
            let payload: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
            let frame = request(peer, 4000, &payload);
            let name = twinpath_reflex::Name::numbered(len as u64);
            twinpath_reflex::withdraw(words.words(), name);
            let version = Version::now(words.words(), name);
            let reply = [&payload[..2], b"it is"].concat();
            let publication =
                Publication { request: &payload, reply: &reply, shape: &SHAPES[0], version, until };
            table.publish(twinpath_sys::clock::now(), SERVICE, &SHAPES, &publication).unwrap();
            assert_eq!(handing.show(&frame), Became::Handed, "{len} bytes of {peer}");
            // The ID does not matter, and every other byte does.
            let mut other = payload.clone();
            other[0] ^= 1;
            assert_eq!(handing.show(&request(peer, 4000, &other)), Became::Handed);
            if let Some(last) = other[2..].last_mut() {
                *last ^= 1;
                refused(&request(peer, 4000, &other), NotReplied::NotKept);
            }
            twinpath_reflex::withdraw(words.words(), name);
            refused(&frame, NotReplied::Withdrawn);
        }
        refused(&request(peer, 4000, &[1; 257]), NotReplied::TooLong);
    }
}
