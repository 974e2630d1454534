#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::sync::Arc;

use twinpath_frame::{Checksum, GsoKind, Meta, Pool};
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{Capabilities, GsoKinds, PortQueue, WaitSource as _};
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::{Command, Event, Worker, WorkerConfig, WorkerCounters};

use super::*;

/// The outer end of a side's wire, with its own pool.
struct Outside {
    wire: LoopbackPort,
    pool: Pool,
}

impl Outside {
    fn send(&mut self, bytes: &[u8]) {
        self.send_as(bytes, |_| ());
    }

    fn send_as(&mut self, bytes: &[u8], mark: impl FnOnce(&mut Meta)) {
        let mut frame = self.pool.copy_of([bytes]).unwrap();
        mark(frame.meta_mut());
        let mut burst = Burst::new();
        burst.push(frame).unwrap();
        self.wire.transmit(&mut self.pool, &mut burst);
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        let mut burst = Burst::new();
        self.wire.receive(Instant::ZERO, &mut self.pool, &mut burst);
        let bytes = burst.frames().iter();
        let bytes = bytes.map(|frame| frame.pieces(0..usize::MAX).collect::<Vec<_>>().concat());
        let bytes = bytes.collect();
        burst.release(usize::MAX, &mut self.pool);
        bytes
    }
}

/// The offloads that a virtual device accepts.
const ALL: Capabilities = Capabilities {
    frame_len_max: 70_000,
    super_frame_len_max: 0,
    checksum: true,
    partial_checksums: false,
    segmentation: GsoKinds::ALL,
    chains: true,
    tags: false,
};

fn side(side: Side, takes: Option<Capabilities>) -> (LoopbackPort, Outside) {
    let inner = PortId { port: side.port_number(3), queue: 0 };
    assert_eq!(Side::of(inner), side);
    let (inner, wire) = pair(inner, PortId { port: 9, queue: 0 }).unwrap();
    let takes = takes.unwrap_or(inner.capabilities());
    let inner = inner.with_capabilities(takes);
    (inner, Outside { wire: wire.with_capabilities(ALL), pool: Pool::new(64).unwrap() })
}

fn worker() -> (Worker<BridgeEngine>, Arc<WorkerCounters>) {
    let (_commands, inbox) = mailbox::<Command<()>>(16).unwrap();
    let (outbox, _events) = mailbox::<Event<()>>(16).unwrap();
    let counters = Arc::new(WorkerCounters::default());
    let config = WorkerConfig { idle: IdleConfig::default() };
    let (pool, engine) = (Pool::new(128).unwrap(), BridgeEngine::default());
    (Worker::new(&config, engine, pool, inbox, outbox, Arc::clone(&counters)).unwrap(), counters)
}

#[test]
fn frames_cross_in_both_directions_in_the_turn_that_takes_them_and_a_missing_side_has_a_name() {
    let (mut worker, counters) = worker();
    let (port, mut device) = side(Side::Port, None);
    let (kernel, mut stack) = side(Side::Kernel, None);

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

/// UDP over IPv4 from 192.0.2.1:7 to 192.0.2.2:9, with 3,000 bytes, whose checksum is left to hardware.
fn super_frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0x0b, 0xd4, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    // The pseudo-header's sum: c000 + 0201 + c000 + 0202 + 0011 + 0bc0.
    frame.extend([0, 7, 0, 9, 0x0b, 0xc0, 0x8f, 0xd5]);
    frame.extend([0x5a; 3_000]);
    frame
}

fn as_super_frame(meta: &mut Meta) {
    (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 34, 6);
    (meta.gso.kind, meta.gso.size) = (GsoKind::UdpSegments, 1_400);
}

#[test]
fn a_super_frame_crosses_whole_or_in_packets_as_the_other_side_takes_it() {
    let sent = super_frame();
    for takes_all in [true, false] {
        let (mut worker, _) = worker();
        let (port, mut device) = side(Side::Port, None);
        let (kernel, mut stack) = side(Side::Kernel, takes_all.then_some(ALL));
        let counters = Arc::clone(kernel.counters());
        worker.attach(Box::new(port));
        worker.attach(Box::new(kernel));
        device.send_as(&sent, as_super_frame);
        assert!(worker.turn(Instant::from_nanos(1)));
        let came = stack.received();
        if takes_all {
            assert_eq!(came, std::slice::from_ref(&sent));
            assert_eq!((counters.frames_out.get(), counters.segments_out.get()), (1, 3));
        } else {
            assert_eq!(came.iter().map(Vec::len).collect::<Vec<_>>(), [1_442, 1_442, 242]);
            assert_eq!((counters.frames_out.get(), counters.super_frames_segmented.get()), (3, 1));
        }
        assert_eq!(counters.drops.happened().count(), 0);
    }
}
