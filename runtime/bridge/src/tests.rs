#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use twinpath_frame::Pool;
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{PortQueue, WaitSource as _};
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::{Command, Event, Worker, WorkerConfig, WorkerCounters};

use super::*;

const ALL: Capabilities = Capabilities {
    frame_len_max: 70_000,
    checksum: true,
    partial_checksums: false,
    segmentation: true,
    multi_buffer: true,
};
const NONE: Capabilities = Capabilities {
    frame_len_max: 1_792,
    checksum: false,
    partial_checksums: false,
    segmentation: false,
    multi_buffer: false,
};

/// UDP 192.0.2.1:7 to 192.0.2.2:9 behind 20 bytes of anything, its checksum left to hardware (see the tests of
/// twinpath_wire::checksum, where it is worked out by hand).
fn partial(pool: &mut Pool) -> Frame {
    let mut frame = pool.take().unwrap();
    let mut bytes = vec![0xa5; 20];
    bytes.extend([0, 7, 0, 9, 0, 8, 0x84, 0x1d]);
    frame.copy_from(&bytes).unwrap();
    let meta = frame.meta_mut();
    (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 20, 6);
    frame
}

#[test]
fn a_checksum_is_completed_for_a_port_that_cannot_and_for_no_other() {
    let mut pool = Pool::new(1).unwrap();
    let engine = BridgeEngine::new(Arc::default());
    let mut frame = partial(&mut pool);
    assert_eq!(engine.fit(&mut frame, &ALL), Ok(()));
    assert_eq!((&frame.bytes()[26..], frame.meta().checksum), (&[0x84, 0x1d][..], Checksum::Partial));
    assert_eq!(engine.fit(&mut frame, &NONE), Ok(()));
    assert_eq!((&frame.bytes()[26..], frame.meta().checksum), (&[0x7b, 0xca][..], Checksum::Unverified));
    assert_eq!(engine.fit(&mut frame, &NONE), Ok(()));
    assert_eq!(&frame.bytes()[26..], [0x7b, 0xca], "once");
    assert_eq!(engine.counters.checksums_completed.get(), 1);
    pool.release(frame);
}

#[test]
fn what_a_port_cannot_take_and_nobody_can_mend_is_refused_by_name() {
    let mut pool = Pool::new(2).unwrap();
    let engine = BridgeEngine::new(Arc::default());
    let mut frame = partial(&mut pool);
    frame.meta_mut().gso.kind = GsoKind::TcpV4;
    assert_eq!(engine.fit(&mut frame, &NONE), Err(Reason::OffloadRefused));
    assert_eq!(engine.fit(&mut frame, &ALL), Ok(()));
    frame.meta_mut().gso.kind = GsoKind::None;
    // Where the sum begins is not known, or not within the frame.
    for (start, offset) in [(0, 6), (28, 6), (20, 7)] {
        (frame.meta_mut().checksum_start, frame.meta_mut().checksum_offset) = (start, offset);
        assert_eq!(engine.fit(&mut frame, &NONE), Err(Reason::OffloadRefused), "{start} + {offset}");
    }
    frame.meta_mut().checksum = Checksum::Unverified;
    frame.meta_mut().next = pool.take();
    assert_eq!(engine.fit(&mut frame, &NONE), Err(Reason::FrameTooLarge));
    assert_eq!(engine.fit(&mut frame, &ALL), Ok(()));
    assert_eq!(
        engine.fit(&mut frame, &Capabilities { frame_len_max: 27, ..ALL }),
        Err(Reason::FrameTooLarge)
    );
    pool.release(frame);
}

/// The outer end of a side's wire, with a pool of its own.
struct Outside {
    wire: LoopbackPort,
    pool: Pool,
}

impl Outside {
    fn send(&mut self, bytes: &[u8]) {
        let mut frame = self.pool.take().unwrap();
        frame.copy_from(bytes).unwrap();
        let mut burst = Burst::new();
        burst.push(frame).unwrap();
        self.wire.transmit(&mut self.pool, &mut burst);
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        let mut burst = Burst::new();
        self.wire.receive(Instant::ZERO, &mut self.pool, &mut burst);
        let bytes = burst.frames().iter().map(|frame| frame.bytes().to_vec()).collect();
        burst.release(usize::MAX, &mut self.pool);
        bytes
    }
}

fn side(side: Side) -> (LoopbackPort, Outside) {
    let inner = PortId { port: side.port_number(3), queue: 0 };
    assert_eq!(Side::of(inner), side);
    let (inner, wire) = pair(inner, PortId { port: 9, queue: 0 }).unwrap();
    (inner, Outside { wire, pool: Pool::new(64).unwrap() })
}

#[test]
fn frames_cross_both_ways_in_the_turn_that_takes_them_and_a_missing_side_has_a_name() {
    let (_commands, inbox) = mailbox::<Command<()>>(16).unwrap();
    let (outbox, _events) = mailbox::<Event<()>>(16).unwrap();
    let counters = Arc::new(WorkerCounters::default());
    let engine = BridgeEngine::new(Arc::default());
    let config = WorkerConfig { idle: IdleConfig::default() };
    let pool = Pool::new(64).unwrap();
    let mut worker = Worker::new(&config, engine, pool, inbox, outbox, Arc::clone(&counters)).unwrap();
    let (port, mut device) = side(Side::Port);
    let (kernel, mut stack) = side(Side::Kernel);

    worker.attach(Box::new(port));
    device.send(b"to nobody yet");
    worker.turn(Instant::from_nanos(1));
    assert_eq!(counters.drops.get(Reason::PortDown), 1);

    worker.attach(Box::new(kernel));
    for number in 0..3 {
        device.send(&[b'd', number]);
        stack.send(&[b's', number]);
    }
    assert!(worker.turn(Instant::from_nanos(2)));
    assert_eq!(stack.received(), [*b"d\0", *b"d\x01", *b"d\x02"]);
    assert_eq!(device.received(), [*b"s\0", *b"s\x01", *b"s\x02"]);
    assert!(!device.wire.look() && !worker.turn(Instant::from_nanos(3)), "nothing waits for another turn");
    assert_eq!(counters.drops.get(Reason::PortDown), 1);
}
