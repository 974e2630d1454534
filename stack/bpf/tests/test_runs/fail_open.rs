//! Tests that the claims of a queue whose worker is stuck are withdrawn, and restored afterwards. The test plays
//! both the worker and time: it writes into the queue's word when the first frame was handed over.
#![allow(unsafe_code, reason = "the test writes into the words that program and worker share")]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aya::programs::{SchedClassifier, SocketFilter, Xdp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use twinpath_bpf::{FILTERS_MAX, Path, QUEUES_MAX, Steering};
use twinpath_claims::corpus;
use twinpath_frame::Mapping;
use twinpath_rings::pending::{Pending, STRIDE};
use twinpath_time::Instant;

use crate::common::{direct_ring, direct_ring_of, filter, ingress, run, xdp};

/// Longer than any test takes.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// The start of the machine's monotonic clock.
const LONG_AGO: u64 = 1;
/// Shorter than the machine's uptime.
const A_LITTLE: Duration = Duration::from_millis(1);

/// Later than any time that a program has seen.
const LATER: Instant = Instant::NEVER;

const TAKEN: u32 = u32::MAX;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
const TCX_NEXT: u32 = u32::MAX;
const TCX_DROP: u32 = 2;

struct Rig {
    steering: Steering,
    words: Arc<Mapping>,
    /// Frames to a claimed port, and to another one.
    claimed: Vec<u8>,
    unclaimed: Vec<u8>,
}

impl Rig {
    fn new(path: Path, after: Duration) -> Self {
        let corpus = corpus::all().unwrap();
        let frame = |name: &str| corpus.cases.iter().find(|case| case.name == name).unwrap().frame.clone();
        let mut steering = Steering::load_for(path, FILTERS_MAX, after).unwrap();
        steering.apply(&corpus.tables["basic"]).unwrap();
        let words = steering.pending().unwrap();
        let words = Arc::new(Mapping::of_fd(words, QUEUES_MAX as usize * STRIDE, 0).unwrap());
        let (claimed, unclaimed) = (frame("ipv4_udp_claimed"), frame("ipv4_udp_unclaimed_port"));
        Self { steering, words, claimed, unclaimed }
    }

    fn worker(&self, queue: u32) -> Pending {
        Pending::new(Arc::clone(&self.words), queue, Duration::ZERO).unwrap()
    }

    fn word(&self, queue: u32) -> &AtomicU64 {
        assert!((queue as usize + 1) * STRIDE <= self.words.len());
        // SAFETY: it lies in the mapping, aligned to eight; a 64-bit atomic takes any bits.
        unsafe { self.words.base().add(queue as usize * STRIDE).cast::<AtomicU64>().as_ref() }
    }

    /// Makes it look as if a frame had been waiting for too long.
    fn wait(&self, queue: u32) {
        self.word(queue).store(LONG_AGO, Ordering::SeqCst);
    }

    /// The production filter reads from the start of the data, which in a test run is the IP header.
    fn filtered(&self, filter: &SocketFilter, frame: &[u8]) -> u32 {
        run(filter, &[&frame[..14], frame].concat(), None, 1).return_value
    }

    fn says_stuck(&mut self) -> bool {
        let readable = |fd: BorrowedFd<'_>| {
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&none)).unwrap() > 0
        };
        let said = readable(self.steering.stuck().unwrap());
        self.steering.read_stuck();
        assert!(!readable(self.steering.stuck().unwrap()));
        said
    }

    fn count(&self, name: &str) -> u64 {
        self.steering.counters().unwrap().into_iter().find(|(known, _)| *known == name).unwrap().1
    }
}

/// The same test for each program: `runs` gives it a claimed frame (or an unclaimed one), and returns whether it was
/// claimed.
fn claims_are_withdrawn_and_come_back(mut rig: Rig, queue: u32, runs: impl Fn(&Rig, bool) -> bool) {
    let worker = rig.worker(queue);
    // An unclaimed frame does not set the worker's word.
    assert!(!runs(&rig, false));
    assert_eq!(rig.word(queue).load(Ordering::SeqCst), 0);
    // The frame is handed over: from now on it waits.
    assert!(runs(&rig, true));
    let since = rig.word(queue).load(Ordering::SeqCst);
    assert!(since > LONG_AGO && worker.stuck_since().is_none());
    // The worker reads its rings, then does not for too long. The next frame detects it.
    assert!(worker.may_take(LATER));
    rig.wait(queue);
    assert!(!rig.says_stuck());
    assert!(!runs(&rig, true), "claimed for a worker that is stuck");
    assert!(!runs(&rig, true));
    assert!(worker.stuck_since().is_some() && worker.is_withdrawn());
    assert!(rig.says_stuck());
    assert_eq!((rig.count("claimed"), rig.count("worker_stuck")), (1, 2));
    // No other queue is affected.
    assert_eq!(rig.word(queue + 1).load(Ordering::SeqCst), 0);
    // Until the worker has discarded what was there.
    assert!(!worker.may_take(LATER) && !runs(&rig, true));
    worker.resume();
    assert!(runs(&rig, true));
    assert!(worker.may_take(LATER) && !rig.says_stuck());
}

#[test]
fn from_a_packet_socket() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let runs = |rig: &Rig, claimed: bool| {
        let frame = if claimed { &rig.claimed } else { &rig.unclaimed };
        let taken = rig.filtered(filter(&rig.steering), frame) == TAKEN;
        // The program at tc ingress drops what the filter took, and nothing else.
        let dropped = run(ingress(&rig.steering), frame, None, 1).return_value == TCX_DROP;
        assert_eq!(taken, dropped);
        taken
    };
    claims_are_withdrawn_and_come_back(Rig::new(Path::Packet, A_LITTLE), 0, runs);
}

#[test]
fn from_one_of_several_packet_sockets() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    for queue in [1, 9, 10, FILTERS_MAX - 1] {
        let mut rig = Rig::new(Path::Packet, A_LITTLE);
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
        rig.steering.attach_socket_filter(queue, socket.as_fd()).unwrap();
        let runs = |rig: &Rig, claimed: bool| {
            let frame = if claimed { &rig.claimed } else { &rig.unclaimed };
            let program = rig.steering.program(&format!("twinpath_filter_{queue}")).unwrap();
            rig.filtered(program.try_into().unwrap(), frame) == TAKEN
        };
        claims_are_withdrawn_and_come_back(rig, queue, runs);
    }
    let mut rig = Rig::new(Path::Packet, A_LITTLE);
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
    assert!(rig.steering.attach_socket_filter(FILTERS_MAX, socket.as_fd()).is_err());
}

#[test]
fn from_the_direct_ring_that_the_program_at_tc_fills() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new(Path::Packet, A_LITTLE);
    let _ring = direct_ring(&rig.steering);
    let runs = |rig: &Rig, claimed: bool| {
        let frame = if claimed { &rig.claimed } else { &rig.unclaimed };
        let program: &SchedClassifier = ingress(&rig.steering);
        match run(program, frame, None, 1).return_value {
            TCX_DROP => true,
            TCX_NEXT => false,
            other => panic!("{other}"),
        }
    };
    claims_are_withdrawn_and_come_back(rig, 0, runs);
}

#[test]
fn from_the_direct_rings_that_the_filters_fill() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    for queue in [0, 1, FILTERS_MAX - 1] {
        let mut rig = Rig::new(Path::Packet, A_LITTLE);
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
        rig.steering.attach_socket_filter(queue, socket.as_fd()).unwrap();
        let mut ring = direct_ring_of(&rig.steering, queue);
        ring.open();
        let ring = std::cell::RefCell::new(ring);
        let name = if queue == 0 { "twinpath_filter".to_owned() } else { format!("twinpath_filter_{queue}") };
        let runs = |rig: &Rig, claimed: bool| {
            let frame = if claimed { &rig.claimed } else { &rig.unclaimed };
            let program = rig.steering.program(&name).unwrap();
            assert_eq!(rig.filtered(program.try_into().unwrap(), frame), 0, "the socket takes nothing");
            let taken = ring.borrow_mut().take(|_| ()).is_some();
            let dropped = run(ingress(&rig.steering), frame, None, 1).return_value == TCX_DROP;
            assert_eq!(taken, dropped);
            taken
        };
        claims_are_withdrawn_and_come_back(rig, queue, runs);
    }
}

/// A worker that has closed its ring may sleep: no frame may appear to wait for it.
#[test]
fn a_frame_that_finds_the_ring_closed_does_not_wait() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new(Path::Packet, A_LITTLE);
    let ring = direct_ring_of(&rig.steering, 0);
    ring.set_without_socket(true);
    assert_eq!(run(ingress(&rig.steering), &rig.claimed, None, 1).return_value, TCX_NEXT);
    assert_eq!((rig.word(0).load(Ordering::SeqCst), rig.count("no_socket")), (0, 1));
    assert!(!ring.look());
}

#[test]
fn from_an_xdp_queue() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let mut rig = Rig::new(Path::Xdp, A_LITTLE);
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
    rig.steering.set_queue(0, socket.as_fd()).unwrap();
    let runs = |rig: &Rig, claimed: bool| {
        let frame = if claimed { &rig.claimed } else { &rig.unclaimed };
        let program: &Xdp = xdp(&rig.steering);
        match run(program, frame, None, 1).return_value {
            XDP_REDIRECT => true,
            XDP_PASS => false,
            other => panic!("{other}"),
        }
    };
    claims_are_withdrawn_and_come_back(rig, 0, runs);
}

/// A frame that is not handed over does not wait: the word of a queue without a socket does not change.
#[test]
fn a_queue_without_a_socket_has_no_worker_to_be_stuck() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new(Path::Xdp, A_LITTLE);
    assert_eq!(run(xdp(&rig.steering), &rig.claimed, None, 1).return_value, XDP_PASS);
    assert_eq!((rig.word(0).load(Ordering::SeqCst), rig.count("no_socket")), (0, 1));
}

#[test]
fn a_time_not_yet_over_or_still_to_come_withdraws_nothing() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let rig = Rig::new(Path::Packet, FOR_EVER);
    assert_eq!(rig.filtered(filter(&rig.steering), &rig.claimed), TAKEN);
    let now = rig.word(0).load(Ordering::SeqCst);
    // Another CPU read the clock a little later.
    for since in [now, now + 1_000_000_000, now.saturating_sub(A_LITTLE.as_nanos() as u64)] {
        rig.word(0).store(since, Ordering::SeqCst);
        assert_eq!(rig.filtered(filter(&rig.steering), &rig.claimed), TAKEN);
        assert_eq!(rig.word(0).load(Ordering::SeqCst), since, "the first time stays");
    }
}

#[test]
fn with_fail_open_disabled_no_claim_is_withdrawn() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let corpus = corpus::all().unwrap();
    let mut steering = Steering::load(Path::Packet).unwrap();
    steering.apply(&corpus.tables["basic"]).unwrap();
    assert!(steering.pending().is_none() && steering.stuck().is_none());
    let ring = direct_ring(&steering);
    let case = corpus.cases.iter().find(|case| case.name == "ipv4_udp_claimed").unwrap();
    assert_eq!(run(ingress(&steering), &case.frame, None, 2).return_value, TCX_DROP);
    assert!(ring.look());
}
