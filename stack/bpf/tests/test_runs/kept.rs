//! Compares the replies that the program at tc repeats with the reference model of kept replies, and stresses it
//! while workers write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use twinpath_bpf::{KeptMaps, ReflexPlan};
use twinpath_claims::{Answers, Reflex, corpus};
use twinpath_reflex::{
    Generations as _, Name, NotReplied, Publication, Shape, Table, Version, WhyNot, withdraw,
};
use twinpath_time::Instant;
use twinpath_wire::ChecksumTrust;
use twinpath_wire::udp_frame::{self, UdpFrameRepr, write_headers};

use crate::common::{filter, ingress, run};
use crate::frames::changed;
use crate::mirrors::{PEERS, RATE, request, with_reflex};
use crate::reflex::{DROP, REDIRECT, Replies};

/// How many instructions of the program at tc ingress the kernel has verified, with kept replies and without. Since Linux 5.16 it
/// says so; `None`: this one does not, and the test is skipped.
fn verified() -> Option<[u32; 2]> {
    let maps = Arc::new(KeptMaps::create(ENTRIES, SEED).unwrap());
    let verified = [Some(&maps), None].map(|maps| {
        let replies =
            Replies::with(&ReflexPlan { partial_checksums: false, rate: RATE, tries_worker: false }, maps);
        ingress(&replies.steering).info().unwrap().verified_instruction_count()
    });
    let [Some(with), Some(without)] = verified else {
        twinpath_test_rig::skip("this kernel does not say how much it verifies");
        return None;
    };
    println!("{with} instructions with kept replies, {without} without");
    Some([with, without])
}

#[test]
fn without_entries_nothing_of_kept_replies_is_left_to_verify() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let Some([with, without]) = verified() else { return };
    // A kernel that refuses kept replies must take the rest.
    assert!(without < with - with / 4, "{with} instructions with kept replies, {without} without");
}

#[test]
fn verifying_the_program_that_replies_takes_no_second_of_each_start() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let Some([with, without]) = verified() else { return };
    // 100,000 take half a second. Once it was more than that for either.
    assert!(with < 100_000, "{with} instructions with kept replies, {without} without");
}

/// Seldom-seen combinations: nothing copied, ranges that are copied elsewhere, one at the end of the longest request.
pub(crate) const SHAPES: [Shape; 4] = [
    Shape::EXACT.copying(0, 2, 0),
    Shape::EXACT.copying(0, 4, 4).ignoring(8, 3),
    Shape::EXACT,
    Shape::EXACT.copying(1, 1, 3).copying(5, 9, 1000).copying(250, 6, 20).ignoring(30, 1),
];
pub(crate) const SERVICE: u32 = 0;
const SEED: u64 = 20_261_124;
const ENTRIES: u32 = 64;

/// The program with kept replies for the claims of the corpus's basic table.
pub(crate) fn load(maps: &Arc<KeptMaps>) -> Replies {
    maps.set_shapes(SERVICE as u8, &SHAPES);
    let mut replies =
        Replies::with(&ReflexPlan { partial_checksums: false, rate: RATE, tries_worker: false }, Some(maps));
    let keeps = |place| Reflex { place, answers: Answers::Kept, source_rate: 0 };
    let table = with_reflex(&corpus::all().unwrap().tables["basic"], keeps);
    replies.steering.apply(&table).unwrap();
    replies
}

/// The frame that a worker would have sent.
fn framed(frame: &[u8], reply: &[u8]) -> Vec<u8> {
    let request = udp_frame::parse(frame, ChecksumTrust::Verify).unwrap();
    let repr = UdpFrameRepr {
        source_mac: request.destination_mac,
        destination_mac: request.source_mac,
        tag: None,
        source: request.destination,
        destination: request.source,
        hop_limit: 64,
        identification: 0,
    };
    let mut framed = [&vec![0; repr.header_len()][..], reply].concat();
    write_headers(&mut framed, &repr, reply.len()).unwrap();
    framed
}

pub(crate) fn now() -> Instant {
    twinpath_sys::clock::now()
}

/// One of few requests, so that they come again; of all lengths.
fn some_request(random: &mut fastrand::Rng) -> (Name, Vec<u8>) {
    let key = random.u16(..120);
    let len = [usize::from(key), 2, 5, 12, 255, 256, 257, usize::from(key) * 2][usize::from(key % 8)];
    let mut bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31) ^ key as u8).collect();
    for (at, byte) in bytes.iter_mut().enumerate() {
        // Bytes that vary, and sometimes one that does not.
        if at < 2 || random.u16(..2000) == 0 {
            *byte = random.u8(..);
        }
    }
    (Name::numbered(u64::from(key % 16)), bytes)
}

/// A reply of some length, with what the shape copies.
fn some_reply(random: &mut fastrand::Rng, shape: &Shape, request: &[u8]) -> Vec<u8> {
    let len = [0, 1, 7, 8, 9, 100, 511, 512, 513, 1009, 1023, 1024][random.usize(..12)];
    let mut reply: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
    for (copied, to) in shape.copies(request) {
        if let Some(place) = reply.get_mut(to..to + copied.len()) {
            place.copy_from_slice(copied);
        }
    }
    reply
}

#[test]
fn the_program_finds_what_the_model_finds() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let maps = Arc::new(KeptMaps::create(ENTRIES, SEED).unwrap());
    let table = maps.table().unwrap();
    let words = table.generations(SERVICE);
    let mut model = Table::new(ENTRIES, SEED);
    let mut replies = load(&maps);
    let mut seen = std::collections::BTreeMap::new();
    for number in 0..20_000 {
        let (name, bytes) = some_request(&mut random);
        match random.u8(..8) {
            0..3 => {
                let shape = &SHAPES[random.usize(..SHAPES.len())];
                let reply = some_reply(&mut random, shape, &bytes);
                let version = Version::now(words.words(), name);
                // A late one.
                if random.u8(..16) == 0 {
                    withdraw(words.words(), name);
                }
                // Some hold for more than half of the longest time, some for less.
                let hold = [1500, 2400, 3600][random.usize(..3)];
                // The same time for both.
                let now = now();
                let until = now + twinpath_time::Duration::from_secs(hold);
                let publication = Publication { request: &bytes, reply: &reply, shape, version, until };
                let kept = table.publish(now, SERVICE, &SHAPES, &publication);
                let expected = model.publish(now, SERVICE, &SHAPES, words.words(), &publication);
                assert_eq!(kept, expected, "seed {SEED}, step {number}");
            }
            3 => withdraw(words.words(), name),
            _ => {
                let peer = PEERS[random.usize(..2)];
                let frame = request(peer, 4000, &bytes);
                let mut reply = Vec::new();
                let expected = model.find(now(), SERVICE, &SHAPES, words.words(), &bytes, &mut reply);
                let before = expected.err().map(|why| replies.count(why.into()));
                let (action, out) = replies.show(&frame);
                let taken = replies.taken();
                assert_eq!(
                    expected.err().map(|why| replies.count(why.into())),
                    before.map(|count| count + 1)
                );
                match expected {
                    Ok(()) => {
                        let wanted = framed(&frame, &reply);
                        assert!(
                            (action, &out) == (REDIRECT, &wanted),
                            "seed {SEED}, step {number}: {action} {out:02x?}, not {wanted:02x?}"
                        );
                    }
                    Err(why) => assert_eq!(
                        (action, taken.as_deref()),
                        (DROP, Some(&frame[..])),
                        "seed {SEED}, step {number}: {why:?}"
                    ),
                }
                *seen.entry(format!("{expected:?}")).or_insert(0) += 1;
            }
        }
    }
    println!("{seen:?}");
    let why = [WhyNot::RequestTooLong, WhyNot::Unknown, WhyNot::Withdrawn]
        .map(|why| format!("{:?}", Err::<(), _>(why)));
    for outcome in why.iter().map(String::as_str).chain(["Ok(())"]) {
        assert!(seen.get(outcome).is_some_and(|count| *count > 50), "{outcome}: {seen:?}");
    }
}

#[test]
fn what_is_too_old_or_wrong_is_not_repeated() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let maps = Arc::new(KeptMaps::create(ENTRIES, SEED).unwrap());
    let table = maps.table().unwrap();
    let words = table.generations(SERVICE);
    let mut replies = load(&maps);
    let version = Version::now(words.words(), Name::of(b"key"));
    let until = now() + twinpath_time::Duration::from_millis(1);
    let publication = Publication { request: b"01key", reply: b"01is it", shape: &SHAPES[0], version, until };
    table.publish(Instant::ZERO, SERVICE, &SHAPES, &publication).unwrap();
    while now() < until {}
    let frame = request(PEERS[0], 4000, b"77key");
    assert_eq!(replies.show(&frame).0, DROP);
    assert_eq!((replies.taken(), replies.count(NotReplied::Expired)), (Some(frame.clone()), 1));
    let longer = Publication { until: now() + twinpath_time::Duration::from_secs(3600), ..publication };
    table.publish(now(), SERVICE, &SHAPES, &longer).unwrap();
    assert_eq!(replies.show(&frame), (REDIRECT, framed(&frame, b"77is it")));
    // A wrong checksum, another service's claim, a socket in between.
    let mut wrong = frame.clone();
    *wrong.last_mut().unwrap() ^= 0x55;
    wrong[41] ^= 0x55;
    assert_eq!(replies.show(&wrong).0, DROP);
    assert_eq!(replies.taken(), Some(wrong));
    replies.ring.close();
    replies.ring.set_without_socket(false);
    let shown = replies.shown(&frame, |steering, frame| {
        run(filter(steering), &[&frame[..14], frame].concat(), None, 1);
        changed(ingress(steering), frame)
    });
    assert_eq!(shown, (REDIRECT, framed(&frame, b"77is it")));
}

#[test]
fn requests_that_differ_in_any_one_byte_that_matters_do_not_get_each_others_replies() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let maps = Arc::new(KeptMaps::create(ENTRIES, SEED).unwrap());
    let table = maps.table().unwrap();
    let words = table.generations(SERVICE);
    let mut replies = load(&maps);
    for len in [9, 16, 63, 64, 255, 256] {
        let key: Vec<u8> = (0..len).map(|at| (at * 5 + len) as u8).collect();
        let version = Version::now(words.words(), Name::of(&key));
        let until = now() + twinpath_time::Duration::from_secs(3600);
        let reply = [&key[..2], b"its own"].concat();
        let publication = Publication { request: &key, reply: &reply, shape: &SHAPES[0], version, until };
        table.publish(now(), SERVICE, &SHAPES, &publication).unwrap();
        let mut unknown = replies.count(NotReplied::NotKept);
        for at in 0..len {
            for bit in [1, 0x80] {
                let mut other = key.clone();
                other[at] ^= bit;
                let frame = request(PEERS[0], 4000, &other);
                let (action, out) = replies.show(&frame);
                if at < 2 {
                    // The reply repeats these.
                    let reply = [&other[..2], b"its own"].concat();
                    assert_eq!((action, out), (REDIRECT, framed(&frame, &reply)), "byte {at} of {len}");
                    continue;
                }
                unknown += 1;
                assert_eq!((action, replies.taken()), (DROP, Some(frame)), "byte {at} of {len}");
                assert_eq!(replies.count(NotReplied::NotKept), unknown, "byte {at} of {len}");
            }
        }
        // One byte less or more.
        for other in [key[..len - 1].to_vec(), [&key[..], &[0]].concat()] {
            let frame = request(PEERS[0], 4000, &other);
            assert_eq!((replies.show(&frame).0, replies.taken()), (DROP, Some(frame)));
        }
    }
}

#[test]
#[allow(unsafe_code, reason = "a child is forked, which only an unsafe call can do")]
fn what_a_forked_child_withdraws_is_withdrawn() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let maps = Arc::new(KeptMaps::create(ENTRIES, SEED).unwrap());
    let table = maps.table().unwrap();
    let words = table.generations(SERVICE);
    let name = Name::of(b"key");
    let version = Version::now(words.words(), name);
    // SAFETY: the child uses one atomic in memory that it has, and ends; it takes no lock and allocates nothing.
    let child = unsafe { libc::fork() };
    if child == 0 {
        withdraw(words.words(), name);
        // SAFETY: as above.
        unsafe { libc::_exit(0) }
    }
    let mut status = -1;
    // SAFETY: `status` is a number that the call writes.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child did not end by itself");
    assert!(!version.is_current(words.words()));
}

const HAMMER: StdDuration = StdDuration::from_secs(4);
const KEYS: u64 = 24;

/// Workers change values, withdraw and publish while the program repeats. A reply is complete, and of the version
/// that was acknowledged before its request came, or of a later one.
#[test]
fn no_reply_is_torn_or_older_than_what_was_acknowledged_before_its_request() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let maps = Arc::new(KeptMaps::create(ENTRIES, SEED).unwrap());
    let table = maps.table().unwrap();
    let values: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(1)).collect();
    let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(1)).collect();
    let over = AtomicBool::new(false);
    let reply_of = |key: u64, value: u64, id: [u8; 2]| -> Vec<u8> {
        let len = 200 + (key as usize * 37 + value as usize * 11) % 800;
        let body = value.to_le_bytes().into_iter().cycle().take(len - 2);
        id.into_iter().chain(body).collect()
    };
    // This thread stays on one CPU from here on, and those that it starts must not.
    let all_cpus = rustix::thread::sched_getaffinity(None).unwrap();
    let (mut replies, mut by_program, mut left) = (load(&maps), 0_u32, 0_u32);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (table, values, acknowledged, over) = (&table, &values, &acknowledged, &over);
            scope.spawn(move || {
                rustix::thread::sched_setaffinity(None, &all_cpus).unwrap();
                let mut random = fastrand::Rng::with_seed(SEED + writer);
                let words = table.generations(SERVICE);
                while !over.load(Ordering::Relaxed) {
                    let key = random.u64(..KEYS);
                    let name = Name::numbered(key);
                    // A read by a worker, which may be late.
                    let version = Version::now(words.words(), name);
                    let value = values[key as usize].load(Ordering::Acquire);
                    if random.u8(..4) == 0 {
                        std::thread::yield_now();
                    }
                    let reply = reply_of(key, value, [0, 1]);
                    let request = [&[0, 1][..], &key.to_le_bytes()].concat();
                    let until = now() + twinpath_time::Duration::from_secs(3600);
                    let publication =
                        Publication { request: &request, reply: &reply, shape: &SHAPES[0], version, until };
                    // Replies that are late or conflict with the other writer are not kept.
                    let _ = table.publish(now(), SERVICE, &SHAPES, &publication);
                    // Half of the keys are changed by either writer.
                    let own = key / 2 * 2 + writer;
                    if random.u8(..3) == 0 && own < KEYS {
                        let changed = values[own as usize].fetch_add(1, Ordering::SeqCst) + 1;
                        withdraw(words.words(), Name::numbered(own));
                        acknowledged[own as usize].store(changed, Ordering::SeqCst);
                    }
                }
            });
        }
        let begun = StdInstant::now();
        let mut random = fastrand::Rng::with_seed(SEED);
        while begun.elapsed() < HAMMER || by_program < 1000 {
            assert!(begun.elapsed() < StdDuration::from_secs(60), "{by_program} replies by the program");
            let (key, id) = (random.u64(..KEYS), [random.u8(..), random.u8(..)]);
            let frame = request(PEERS[0], 4000, &[&id[..], &key.to_le_bytes()].concat());
            let before = acknowledged[key as usize].load(Ordering::SeqCst);
            let (action, out) = replies.show(&frame);
            let taken = replies.taken();
            if action != REDIRECT {
                assert_eq!((action, taken), (DROP, Some(frame)));
                left += 1;
                continue;
            }
            by_program += 1;
            let after = values[key as usize].load(Ordering::SeqCst);
            let parsed = udp_frame::parse(&out, ChecksumTrust::Verify).unwrap();
            let reply = &out[parsed.payload];
            let value = u64::from_le_bytes(*reply[2..].first_chunk().unwrap());
            assert!((before..=after).contains(&value), "key {key}: {value}, not {before} to {after}");
            assert_eq!(reply, reply_of(key, value, id), "torn");
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("{by_program} by the program, {left} left to the worker");
}
