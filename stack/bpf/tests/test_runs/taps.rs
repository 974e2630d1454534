//! Copies of requests and replies that the program at tc makes for captures.

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_bpf::{KeptMaps, ReflexPlan, ReflexTap, TAPS_MAX, TapReader};
use twinpath_claims::corpus;
use twinpath_reflex::{Generations as _, Name, Publication, Version};

use crate::kept::{SERVICE, SHAPES, load, now};
use crate::mirrors::{PEERS, RATE, mirrored, request};
use crate::reflex::{DROP, REDIRECT, Replies};

/// A frame as it was copied: its time, its length, and its bytes.
type Copied = (u64, u32, Vec<u8>);

fn taken(reader: &mut TapReader) -> Vec<[Copied; 2]> {
    let mut taken = Vec::new();
    while reader.take(|exchange| {
        let copied = [exchange.request, exchange.reply];
        taken.push(copied.map(|frame| (frame.time_ns, frame.frame_len, frame.bytes.to_vec())));
    }) {}
    taken
}

fn is_readable(reader: &TapReader) -> bool {
    let mut fds = [PollFd::new(reader, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

fn mirrors() -> Replies {
    let plan = ReflexPlan { partial_checksums: true, rate: RATE, tries_worker: false };
    let mut replies = Replies::with(&plan, None);
    replies.steering.apply(&mirrored(&corpus::all().unwrap().tables["basic"], 0)).unwrap();
    replies
}

#[test]
fn each_request_is_copied_as_it_came_and_each_reply_as_it_leaves() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let mut replies = mirrors();
    let (tap, mut reader) = ReflexTap::create().unwrap();
    assert!(!is_readable(&reader));
    replies.steering.reflexes().unwrap().set_taps(&[&tap]).unwrap();
    for peer in PEERS {
        for len in [0, 1, 17, 18, 19, 100, 512, 1440, 1452] {
            let mut frame = request(peer, 4000, &vec![len as u8; len]);
            // As devices do with short frames: what fills them up is in the copy of the request alone.
            frame.resize(frame.len().max(60), 0);
            let before = now().as_nanos();
            let (action, out) = replies.show(&frame);
            assert_eq!(action, REDIRECT, "{len} bytes of {peer}");
            assert!(is_readable(&reader), "{len} bytes of {peer}");
            let found = taken(&mut reader);
            let [[asked, replied]] = &found[..] else { panic!("{len} bytes of {peer}: {found:02x?}") };
            assert_eq!((asked.1 as usize, &asked.2), (frame.len(), &frame));
            assert_eq!((replied.1 as usize, &replied.2), (out.len(), &out));
            assert!(before <= asked.0 && asked.0 <= replied.0 && replied.0 <= now().as_nanos());
            assert!(!is_readable(&reader), "nothing wakes its reader twice");
        }
    }
    // What tc finds wrong when the request was copied already is a worker's, and its copy is not published.
    let mut wrong = request(PEERS[0], 4000, b"some bytes");
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!((replies.show(&wrong).0, replies.taken()), (DROP, Some(wrong)));
    assert!(taken(&mut reader).is_empty());
    assert_eq!((tap.missed(), reader.missed()), (0, 0));
}

#[test]
fn a_kept_reply_is_copied_and_its_request_before_it_was_overwritten() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let maps = Arc::new(KeptMaps::create(64, 7).unwrap());
    let table = maps.table().unwrap();
    let words = table.generations(SERVICE);
    let mut replies = load(&maps);
    let (tap, mut reader) = ReflexTap::create().unwrap();
    replies.steering.reflexes().unwrap().set_taps(&[&tap]).unwrap();
    for (key, reply) in
        [(b"01short".as_slice(), b"01".to_vec()), (b"01long", [&b"01"[..], &[2; 1000]].concat())]
    {
        let version = Version::now(words.words(), Name::of(key));
        let until = now() + twinpath_time::Duration::from_secs(3600);
        let publication = Publication { request: key, reply: &reply, shape: &SHAPES[0], version, until };
        table.publish(now(), SERVICE, &SHAPES, &publication).unwrap();
        let frame = request(PEERS[0], 4000, key);
        let (action, out) = replies.show(&frame);
        assert_eq!(action, REDIRECT);
        let found = taken(&mut reader);
        let [[asked, replied]] = &found[..] else { panic!("{found:02x?}") };
        assert_eq!((&asked.2, &replied.2), (&frame, &out));
    }
}

#[test]
fn a_ring_that_nobody_reads_misses_frames_and_takes_none_from_the_others() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let mut replies = mirrors();
    let taps: [_; TAPS_MAX] = std::array::from_fn(|_| ReflexTap::create().unwrap());
    let [deaf, mut rest @ ..] = taps;
    let all: Vec<_> = std::iter::once(&deaf.0).chain(rest.iter().map(|(tap, _)| tap)).collect();
    replies.steering.reflexes().unwrap().set_taps(&all).unwrap();
    let frame = request(PEERS[0], 4000, &[7; 1400]);
    let mut asked = 0;
    while deaf.0.missed() < 200 {
        assert!(asked < 100_000, "the ring is bounded");
        assert_eq!(replies.show(&frame).0, REDIRECT, "a full ring keeps nobody from an answer");
        asked += 1;
        for (_, reader) in &mut rest {
            assert_eq!(taken(reader).len(), 1, "request {asked}");
        }
    }
    assert!(rest.iter().all(|(tap, _)| tap.missed() == 0));
    let (deaf, mut late) = deaf;
    assert_eq!(taken(&mut late).len() as u64 * 2 + deaf.missed(), asked * 2, "each is copied or counted");
    // Those that stay keep their places; a tap that has gone gets nothing.
    let all: Vec<_> = rest[1..].iter().map(|(tap, _)| tap).collect();
    replies.steering.reflexes().unwrap().set_taps(&all).unwrap();
    assert_eq!(replies.show(&frame).0, REDIRECT);
    let counts: Vec<_> = rest.iter_mut().map(|(_, reader)| taken(reader).len()).collect();
    assert_eq!((counts, taken(&mut late).len()), (vec![0, 1, 1], 0));
    // A program that is loaded later is given the same taps.
    let mut later = mirrors();
    let all: Vec<_> = rest.iter().map(|(tap, _)| tap).collect();
    later.steering.reflexes().unwrap().set_taps(&all).unwrap();
    replies.steering.reflexes().unwrap().set_taps(&[]).unwrap();
    assert_eq!((later.show(&frame).0, replies.show(&frame).0), (REDIRECT, REDIRECT));
    assert!(rest.iter_mut().all(|(_, reader)| taken(reader).len() == 1));
}
