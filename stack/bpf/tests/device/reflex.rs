//! Replies on the XDP path, by both programs over a device: the frames that leave are those of `stack/reflex`, the
//! same as a worker's.

use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use twinpath_bpf::{Path, ReflexPlan, Steering, TcAttach, XdpMode};
use twinpath_claims::corpus;
use twinpath_claims::{Context, Table, Verdict, verdict};
use twinpath_reflex::NotReplied;
use twinpath_reflex::mirror::Known;
use twinpath_time::Duration;

use crate::corpus::counted;
use crate::lab::{Lab, PacketSocket, wait_for};
use crate::mirrors::{PEERS, RATE, corrupted, expected, know_peers, mirrored, not_replied, request};

/// Fixed, so that a failure can be reproduced.
const SEED: u64 = 20_261_129;
const FRAMES: usize = 2_000;

struct Ends {
    steering: Steering,
    injector: PacketSocket,
    listener: PacketSocket,
}

impl Ends {
    /// Sends a frame, again if it was made a canary. Returns the counter that moved.
    fn send(&self, frame: &[u8]) -> Result<&'static str, String> {
        for _ in 0..100 {
            let canaries = not_replied(&self.steering, NotReplied::Canary);
            let name = counted(&self.steering, || self.injector.send(frame))?;
            if not_replied(&self.steering, NotReplied::Canary) == canaries {
                return Ok(name);
            }
            assert_eq!(name, "claimed", "a canary is the worker's");
        }
        Err("100 canaries in a row".to_owned())
    }

    fn judge(&self, frame: &[u8], table: &Table) -> Result<bool, String> {
        let name = match (expected(frame, table, Known::Nothing), verdict(frame, &Context::default(), table))
        {
            (Some(Ok(reply)), _) => {
                let found = self.send(frame)?;
                if found != "answered_by_reflex" {
                    return Err(format!("{found}, no reply: {frame:02x?}"));
                }
                wait_for(&[self.listener.as_fd()]);
                let out = self.listener.take();
                let same = out.as_ref() == Some(&reply);
                return same.then_some(true).ok_or_else(|| format!("{out:02x?}, not {reply:02x?}"));
            }
            // The kernel drops it, as it would have been dropped by a worker.
            (Some(Err(NotReplied::Checksum)), _) => "no_socket",
            (_, Verdict::Claimed(_)) => "claimed",
            (_, pass) => Verdict::name_of(pass.number()).unwrap(),
        };
        let found = self.send(frame)?;
        if found == name { Ok(false) } else { Err(format!("{found}, not {name}: {frame:02x?}")) }
    }
}

#[test]
fn on_the_xdp_path_the_program_at_tc_replies_as_a_worker_would() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let attaches = [TcAttach::Tcx, TcAttach::Clsact].into_iter();
    let attaches = attaches.filter(|how| *how == TcAttach::Clsact || TcAttach::here() == *how);
    for (mode, how) in attaches.flat_map(|how| [XdpMode::Native, XdpMode::Generic].map(|mode| (mode, how))) {
        let lab = Lab::new(false);
        let plan = ReflexPlan { partial_checksums: true, rate: RATE, tries_worker: false };
        let mut steering =
            Steering::load_with_reflexes(Path::Xdp, 1, Duration::from_secs(3600), &plan, None).unwrap();
        know_peers(&mut steering);
        steering.attach_tc(lab.ifindex, how).unwrap();
        steering.attach_xdp(lab.ifindex, mode).unwrap();
        // It takes frames and drops them, as nobody has bound it.
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
        steering.set_queue(0, socket.as_fd()).unwrap();
        let mut ends = Ends { steering, injector: lab.injector(), listener: lab.far_listener() };
        let corpus = corpus::all().unwrap();
        let (mut wrong, mut replied) = (Vec::new(), 0);
        for (name, table) in &corpus.tables {
            let table = mirrored(table, 0);
            ends.steering.apply(&table).unwrap();
            let cases = corpus.cases.iter().filter(|case| case.table == *name && case.not_xdp.is_none());
            for case in cases {
                match ends.judge(&case.frame, &table) {
                    Ok(reply) => replied += u32::from(reply),
                    Err(how) => wrong.push(format!("{}: {how}", case.name)),
                }
            }
        }
        assert!(wrong.is_empty(), "{mode:?} {how:?}: {wrong:#?}");
        assert!(replied > 20, "{replied} cases got a reply");
        let table = mirrored(&corpus.tables["basic"], 0);
        ends.steering.apply(&table).unwrap();
        for (peer, len) in
            PEERS.into_iter().flat_map(|peer| (0..=1480).step_by(7).map(move |len| (peer, len)))
        {
            let mut frame = request(peer, 4000, &vec![len as u8; len]);
            // As devices do with short frames.
            frame.resize(frame.len().max(60), 0);
            ends.judge(&frame, &table).unwrap_or_else(|how| panic!("{len} bytes of {peer}: {how}"));
        }
        let mut random = fastrand::Rng::with_seed(SEED);
        for number in 0..FRAMES {
            let frame = corrupted(&mut random);
            ends.judge(&frame, &table).unwrap_or_else(|how| panic!("seed {SEED}, frame {number}: {how}"));
        }
        assert_eq!(ends.listener.take(), None, "each request had one reply");
        assert_eq!(not_replied(&ends.steering, NotReplied::Failed), 0);
    }
}
