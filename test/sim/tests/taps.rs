//! What a tap copies: packets as they are on a wire, whatever their frames look like.
#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::{Burst, Checksum, GsoKind, Meta, Pool};
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{Capabilities, GsoKinds, PortId, PortQueue};
use twinpath_rings::slots::Note;
use twinpath_sys::EventFd;
use twinpath_time::Instant;
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::tag::{CHECKSUM_NOT_READY, PORT_SHIFT, SENT, TCP_SUPER_FRAME};
use twinpath_worker::{
    Command, CopyConsumer, Engine, Event, Io, Tap, TapCounters, Worker, WorkerConfig, WorkerCounters, copies,
};

const ALL: Capabilities = Capabilities {
    frame_len_max: 70_000,
    super_frame_len_max: 0,
    checksum: true,
    partial_checksums: true,
    segmentation: GsoKinds::ALL,
    chains: true,
    tags: true,
};

/// Port 1, queue 3, as it is in a tag.
const HERE: u32 = 3 | 1 << PORT_SHIFT;

/// Sends every frame back where it came from.
struct Returns;

impl Engine for Returns {
    type Command = ();
    type Event = ();

    fn start(&mut self, _: Instant, _: &mut Io<'_, ()>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, _: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ()>) {
        frames.drain(usize::MAX).for_each(|frame| io.forward(port, frame));
    }

    fn ready(&mut self, _: Instant, _: u32, _: bool, _: &mut Io<'_, ()>) -> bool {
        false
    }

    fn run(&mut self, _: Instant, _: &mut Io<'_, ()>) -> bool {
        false
    }

    fn next_deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn command(&mut self, _: Instant, (): (), _: &mut Io<'_, ()>) {}
}

struct Rig {
    worker: Worker<Returns>,
    wire: LoopbackPort,
    outside: Pool,
    copies: CopyConsumer,
    now: u64,
}

impl Rig {
    /// A worker with a tap that keeps `snaplen` bytes, on a port that sends what `takes` says.
    fn new(snaplen: u32, takes: Capabilities) -> Self {
        Self::filtered("", snaplen, takes)
    }

    /// As `new`, for frames that the filter wants.
    fn filtered(filter: &str, snaplen: u32, takes: Capabilities) -> Self {
        let (commands, inbox) = mailbox(4).unwrap();
        let (outbox, _) = mailbox::<Event<()>>(64).unwrap();
        let mut commands = commands;
        let config = WorkerConfig { idle: IdleConfig::default() };
        let counters = Arc::new(WorkerCounters::default());
        let pool = Pool::new(128).unwrap();
        let mut worker = Worker::new(&config, Returns, pool, inbox, outbox, counters).unwrap();
        let (inner, wire) = pair(PortId { port: 1, queue: 3 }, PortId::default()).unwrap();
        worker.attach(Box::new(inner.with_capabilities(takes)));
        let (producer, copies) = copies(64, snaplen).unwrap();
        let wake = Arc::new(EventFd::new().unwrap());
        let tap = Tap::new(7, filter.parse().unwrap(), producer, wake, Arc::new(TapCounters::default()));
        assert!(commands.send(Command::Tap(Box::new(tap))).is_ok());
        worker.turn(Instant::from_nanos(1));
        let outside = Pool::new(64).unwrap();
        Self { worker, wire: wire.with_capabilities(ALL), outside, copies, now: 1 }
    }

    /// Has the worker receive a packet and send it back; the copies of both.
    fn copies_of(&mut self, bytes: &[u8], mark: impl FnOnce(&mut Meta)) -> Vec<(Note, Vec<u8>)> {
        let mut frame = self.outside.copy_of([bytes]).unwrap();
        mark(frame.meta_mut());
        let mut burst = Burst::new();
        burst.push(frame).unwrap();
        self.wire.transmit(&mut self.outside, &mut burst);
        self.now += 1;
        assert!(self.worker.turn(Instant::from_nanos(self.now)));
        std::iter::from_fn(|| self.copies.pop().map(|(note, copy)| (note, copy.to_vec()))).collect()
    }
}

/// UDP over IPv4 from 192.0.2.1:7 to 192.0.2.2:9; its checksum is complete, or left to hardware.
fn udp(payload: usize, is_partial: bool) -> Vec<u8> {
    let len = 8 + payload as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((20 + len).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 7, 0, 9]);
    frame.extend(len.to_be_bytes());
    let pseudo = rfc_1071(&[&[192, 0, 2, 1, 192, 0, 2, 2, 0, 17], &len.to_be_bytes()[..]].concat());
    frame.extend(pseudo.to_be_bytes());
    frame.extend((0..payload).map(|at| (at % 251) as u8));
    if !is_partial {
        let sum = !rfc_1071(&frame[34..]);
        frame[40..42].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

fn rfc_1071(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

fn partial(meta: &mut Meta) {
    (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 34, 6);
}

#[test]
fn chains_are_copied_whole_and_partial_checksums_complete() {
    let mut rig = Rig::new(65_536, ALL);
    for len in [10, 1_700, 2_001, 40_000] {
        let (sent, complete) = (udp(len, true), udp(len, false));
        let copies = rig.copies_of(&sent, |meta| {
            partial(meta);
            (meta.gso.kind, meta.gso.size) = (GsoKind::UdpSegments, 1_400);
        });
        let [(received, copy), (returned, copy_of_returned)] = &copies[..] else { panic!("both directions") };
        assert!(*copy == complete && copy_of_returned == copy, "{len} bytes");
        assert_eq!([received, returned].map(|note| note.original_len as usize), [complete.len(); 2]);
        assert_eq!((received.tag, returned.tag), (HERE, HERE | SENT));
    }
}

#[test]
fn a_port_that_does_not_know_which_checksums_are_partial_has_them_completed_too() {
    for (knows, completes) in [(false, true), (true, false)] {
        let mut rig = Rig::new(2_048, Capabilities { partial_checksums: !knows, ..ALL });
        let (sent, complete) = (udp(11, true), udp(11, false));
        let copies = rig.copies_of(&sent, |_| ());
        assert!(copies[0].1 == if completes { complete } else { sent.clone() });
        assert!(copies[1].1 == sent, "what is sent is as it is");
    }
}

#[test]
fn a_tag_beside_a_frame_is_in_the_copy_and_in_its_length() {
    let mut rig = Rig::new(1_000, ALL);
    let (sent, complete) = (udp(1_500, true), udp(1_500, false));
    let copies = rig.copies_of(&sent, |meta| {
        partial(meta);
        meta.vlan = Some(0x6064);
    });
    assert_eq!(copies.len(), 2);
    for (note, copy) in copies {
        assert_eq!((note.original_len as usize, copy.len()), (complete.len() + 4, 1_000));
        assert_eq!(copy[12..16], [0x81, 0, 0x60, 0x64]);
        assert!(copy[..12] == complete[..12] && copy[16..] == complete[12..996]);
    }
    // What is truncated within the headers has no checksum to complete.
    let mut rig = Rig::new(30, ALL);
    assert!(rig.copies_of(&sent, partial).iter().all(|(_, copy)| copy[..] == sent[..30]));
}

#[test]
fn what_a_packet_has_left_to_be_done_is_marked() {
    let mut rig = Rig::new(2_048, ALL);
    let sent = udp(10, false);
    let tags = |rig: &mut Rig, mark: &dyn Fn(&mut Meta)| -> Vec<u32> {
        let copies = rig.copies_of(&sent, mark);
        assert!(copies.iter().all(|(_, copy)| *copy == sent));
        copies.iter().map(|(note, _)| note.tag & !(HERE | SENT)).collect()
    };
    // Partial, it is said, but neither where, nor by what the field holds.
    let unknown = |meta: &mut Meta| meta.checksum = Checksum::Partial;
    assert_eq!(tags(&mut rig, &unknown), [CHECKSUM_NOT_READY; 2]);
    let tcp = |meta: &mut Meta| (meta.gso.kind, meta.gso.size) = (GsoKind::TcpV4, 4);
    assert_eq!(tags(&mut rig, &tcp), [TCP_SUPER_FRAME; 2]);
    assert_eq!(tags(&mut rig, &|_| ()), [0; 2]);
}

#[test]
fn what_a_filter_wants_is_the_same_wherever_a_port_leaves_the_tag() {
    let plain = udp(10, false);
    let in_frame = |kind: [u8; 2]| [&plain[..12], &kind, &[0, 100], &plain[12..]].concat();
    for (filter, is_wanted) in [
        ("udp", true),
        ("vlan 100 and udp port 9", true),
        ("vlan 101", false),
        ("not vlan", false),
        ("ether proto 0x88a8", false),
    ] {
        let mut rig = Rig::filtered(filter, 2_048, ALL);
        let beside = rig.copies_of(&plain, |meta| meta.vlan = Some(100)).len();
        let customer = rig.copies_of(&in_frame([0x81, 0]), |_| ()).len();
        let service = rig.copies_of(&in_frame([0x88, 0xa8]), |_| ()).len();
        assert_eq!([beside, customer, service], [if is_wanted { 2 } else { 0 }; 3], "{filter}");
    }
}
