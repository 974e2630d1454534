//! The port on real TAP interfaces and packet sockets, in a namespace of its own.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod segmentation;

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_frame::{Burst, Checksum, Frame, GsoKind, Pool};
use twinpath_inspect::Reason;
use twinpath_port::{PortId, PortQueue, WaitSource};
use twinpath_sys::{Namespace, affinity};
use twinpath_test_rig::{ifindex, ip, quiet, root_or_skip, until};
use twinpath_time::Instant;
use twinpath_vnet::{QUEUE_FRAMES, SocketConfig, Tap, TapError, TapHandle, VnetPort, open_socket};

fn socket(namespace: &Namespace, name: &str) -> OwnedFd {
    let config = SocketConfig { ifindex: ifindex(namespace, name), fanout_group: None, mark: 0 };
    namespace.run(|| open_socket(&config)).unwrap().unwrap()
}

/// A port with its own pool, and the packets that have come but are not taken yet.
struct End {
    port: VnetPort,
    pool: Pool,
    waiting: Burst,
}

impl End {
    fn new(port: VnetPort) -> Self {
        let mut pool = Pool::new(2 * QUEUE_FRAMES).unwrap();
        let mut port = port;
        port.prepare(&mut pool);
        Self { port, pool, waiting: Burst::new() }
    }

    /// Waits for the next packet, of one that was sent.
    fn receive(&mut self) -> Frame {
        let frame = self.next();
        assert!(self.waiting.is_empty(), "one packet was sent");
        frame
    }

    /// Waits for the next packet, of several that were sent.
    fn next(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.waiting.drain(1).next() {
                return frame;
            }
            self.port.receive(Instant::from_nanos(7), &mut self.pool, &mut self.waiting);
            if self.waiting.is_empty() {
                let fd = self.port.fd().unwrap();
                let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
                let ready = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout));
                assert_eq!(ready, Ok(1), "a packet");
            }
        }
    }

    fn send(&mut self, frame: Frame) {
        let mut burst = Burst::new();
        burst.push(frame).unwrap();
        self.port.transmit(&mut self.pool, &mut burst);
    }

    /// A frame, or a chain, of these bytes.
    fn frame(&mut self, bytes: &[u8]) -> Frame {
        let mut chain = None;
        for part in bytes.chunks(1_500).rev() {
            let mut frame = self.pool.take().unwrap();
            frame.copy_from(part).unwrap();
            frame.meta_mut().next = chain;
            chain = Some(frame);
        }
        chain.unwrap()
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }
}

fn bytes(frame: &Frame) -> Vec<u8> {
    frame.chain().flat_map(Frame::bytes).copied().collect()
}

const PORT: PortId = PortId { port: 3, queue: 1 };

/// Two ports joined by a veth pair, each over a packet socket on one end.
fn cable() -> (End, End) {
    let namespace = quiet();
    ip(&namespace, &["link", "add", "va", "type", "veth", "peer", "name", "vb"]);
    for name in ["va", "vb"] {
        ip(&namespace, &["link", "set", name, "up"]);
    }
    // Until then the kernel drops what is sent.
    until("both ends are up", || ip(&namespace, &["link"]).matches("state UP").count() == 2);
    let [a, b] = ["va", "vb"]
        .map(|name| End::new(VnetPort::socket(PORT, ifindex(&namespace, name), socket(&namespace, name))));
    (a, b)
}

/// A UDP packet over IPv4 from 10.0.0.1 to 10.0.0.2 whose checksum is to be completed, with a tag if requested.
fn udp(tag: bool, payload: usize) -> (Vec<u8>, u16) {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if tag {
        bytes.extend([0x81, 0x00, 0x60, 0x64]);
    }
    bytes.extend([0x08, 0x00]);
    let start = bytes.len() as u16 + 20;
    let [h, l] = (28 + payload as u16).to_be_bytes();
    bytes.extend([0x45, 0, h, l, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let udp = (8 + payload as u16).to_be_bytes();
    // The pseudo-header's sum: 0a00 + 0001 + 0a00 + 0002 + 0011 + length.
    let sum = 0x1414 + 8 + payload as u32;
    let sum = (sum >> 16) as u16 + sum as u16;
    bytes.extend([0x30, 0x39, 0x10, 0xe1, udp[0], udp[1]]);
    bytes.extend(sum.to_be_bytes());
    bytes.extend((0..payload).map(|at| (at % 251) as u8));
    (bytes, start)
}

#[test]
fn packets_of_all_sizes_cross_a_cable_with_what_travels_beside_them() {
    if !root_or_skip() {
        return;
    }
    let (mut a, mut b) = cable();
    for tag in [false, true] {
        for payload in [0, 18, 1_400, 20_000, 65_400] {
            let (sent, start) = udp(tag, payload);
            let mut frame = a.frame(&sent);
            let meta = frame.meta_mut();
            (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, start, 6);
            if payload > 1_472 {
                (meta.gso.kind, meta.gso.size, meta.headers_len) = (GsoKind::UdpSegments, 1_400, start + 8);
            }
            a.send(frame);
            let frame = b.receive();
            assert!(bytes(&frame) == sent, "{payload} bytes, tag {tag}");
            let meta = frame.meta();
            assert_eq!((meta.arrival, meta.port, meta.queue), (Instant::from_nanos(7), 3, 1));
            assert_eq!(
                (meta.checksum, meta.checksum_start, meta.checksum_offset),
                (Checksum::Partial, start, 6),
                "{payload} bytes, tag {tag}"
            );
            assert_eq!(meta.gso.size, if payload > 1_472 { 1_400 } else { 0 });
            assert_eq!(meta.vlan, None, "it is in the frame");
            b.release(frame);
        }
    }
    let (a, b) = (a.port.counters(), b.port.counters());
    assert_eq!((a.frames_out.get(), b.frames_in.get()), (10, 10));
    assert_eq!(a.bytes_out.get(), b.bytes_in.get());
}

#[test]
fn frames_refused_by_the_kernel_are_counted_under_a_reason() {
    if !root_or_skip() {
        return;
    }
    let (mut a, _b) = cable();
    let (long, _) = udp(false, 3_000);
    let frame = a.frame(&long);
    a.send(frame);
    let mut nonsense = a.frame(&long);
    (nonsense.meta_mut().gso.kind, nonsense.meta_mut().gso.size) = (GsoKind::TcpV4, 0);
    a.send(nonsense);
    let mut beyond = a.frame(&udp(false, 10).0);
    let meta = beyond.meta_mut();
    (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 9_000, 6);
    a.send(beyond);
    let drops: Vec<_> = a.port.counters().drops.happened().collect();
    assert_eq!(drops, [(Reason::FrameTooLarge, 1), (Reason::OffloadRefused, 2)]);
}

#[test]
fn a_burst_is_found_whole_and_what_the_pool_cannot_hold_stays_in_the_kernel() {
    if !root_or_skip() {
        return;
    }
    // What is sent on one CPU is delivered in order; what a thread sends after it has moved to another may overtake that.
    affinity::pin_current_thread(affinity::allowed_cpus().unwrap()[0]).unwrap();
    let (mut a, mut b) = cable();
    const COUNT: usize = 200;
    for number in 0..COUNT {
        let (mut sent, _) = udp(false, 100);
        sent[60..62].copy_from_slice(&(number as u16).to_be_bytes());
        let frame = a.frame(&sent);
        a.send(frame);
    }
    let (mut seen, mut tries, mut calls, mut burst) = (0, 0, 0, Burst::new());
    let mut held = Vec::new();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while seen < COUNT {
        b.port.receive(Instant::ZERO, &mut b.pool, &mut burst);
        tries += 1;
        // One that finds nothing is too early: the other CPU is still delivering. Or the pool is empty.
        calls += usize::from(!burst.is_empty());
        for frame in burst.drain(usize::MAX) {
            assert_eq!(frame.bytes()[60..62], (seen as u16).to_be_bytes(), "in order");
            seen += 1;
            held.push(frame);
        }
        assert!(calls < 40, "reads double with each success: 1, 2, 4, 8, 8, ...");
        assert!(std::time::Instant::now() < deadline, "{seen} of {COUNT} came");
        // Nothing is lost while the pool is empty: the test releases all frames now and then.
        if tries % 3 == 0 {
            held.drain(..).for_each(|frame| b.pool.release(frame));
        }
    }
    held.into_iter().for_each(|frame| b.pool.release(frame));
    assert_eq!(b.port.counters().drops.happened().count(), 0);
}

#[test]
fn a_tap_interface_gives_and_takes_tagged_super_frames() {
    if !root_or_skip() {
        return;
    }
    let namespace = quiet();
    let mut tap = namespace.run(|| Tap::make("tap7", 1)).unwrap().unwrap();
    let handle = TapHandle::of(&tap).unwrap();
    assert!(matches!(namespace.run(|| Tap::make("tap7", 1)).unwrap(), Err(TapError::Exists(_))));
    assert!(!ip(&namespace, &["link", "show", "tap7"]).contains("LOWER_UP"), "no carrier yet");
    handle.set_carrier(true).unwrap();
    ip(&namespace, &["link", "set", "tap7", "up"]);
    assert!(ip(&namespace, &["link", "show", "tap7"]).contains("LOWER_UP"));

    let mut ours = End::new(VnetPort::tap(PORT, tap.ifindex, tap.queues.remove(0)));
    let mut kernel = End::new(VnetPort::socket(PORT, tap.ifindex, socket(&namespace, "tap7")));
    for tag in [false, true] {
        let (sent, start) = udp(tag, 30_000);
        for way in 0..2 {
            let (from, to) = if way == 0 { (&mut ours, &mut kernel) } else { (&mut kernel, &mut ours) };
            let mut frame = from.frame(&sent);
            let meta = frame.meta_mut();
            (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, start, 6);
            (meta.gso.kind, meta.gso.size, meta.headers_len) = (GsoKind::UdpSegments, 1_400, start + 8);
            from.send(frame);
            let frame = to.receive();
            assert!(bytes(&frame) == sent, "tag {tag}, way {way}");
            assert_eq!((frame.meta().checksum_start, frame.meta().gso.size), (start, 1_400));
            to.release(frame);
        }
    }
    // Down: a write is refused with a reason. Removed: the queue reports it once its fd has.
    ip(&namespace, &["link", "set", "tap7", "down"]);
    let frame = ours.frame(&udp(false, 10).0);
    ours.send(frame);
    assert_eq!(ours.port.counters().drops.get(Reason::PortDown), 1);
    assert!(handle.exists() && !ours.port.is_gone());
    ip(&namespace, &["link", "delete", "tap7"]);
    assert!(!handle.exists());
    let fd = ours.port.fd().unwrap();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, None).unwrap();
    assert!(fds[0].revents().contains(PollFlags::ERR));
    ours.port.on_error();
    assert!(ours.port.is_gone());
}
