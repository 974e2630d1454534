//! Frames cross from port to port with their offloads.

use twinpath_frame::{Checksum, Gso, GsoKind};
use twinpath_inspect::Reason;
use twinpath_vnet::{SocketConfig, VnetPort, open_socket};

use super::*;

/// The far end of a port's cable, driven by a packet socket of its own.
pub(super) struct Far {
    port: VnetPort,
    pool: Pool,
}

impl Far {
    pub(super) fn new(namespace: &Namespace, name: &str) -> Self {
        let ifindex = ifindex(namespace, name);
        let config = SocketConfig { ifindex, fanout_group: None, mark: 0 };
        let socket = namespace.run(|| open_socket(&config)).unwrap().unwrap();
        let mut pool = Pool::new(2 * twinpath_vnet::QUEUE_FRAMES).unwrap();
        let mut port = VnetPort::socket(PortId { port: 9, queue: 0 }, ifindex, socket);
        port.prepare(&mut pool);
        Self { port, pool }
    }

    pub(super) fn send(&mut self, bytes: &[u8], describe: impl FnOnce(&mut twinpath_frame::Meta)) {
        let mut chain = None;
        for part in bytes.chunks(1_500).rev() {
            let mut frame = self.pool.take().unwrap();
            frame.copy_from(part).unwrap();
            frame.meta_mut().next = chain;
            chain = Some(frame);
        }
        let mut frame = chain.unwrap();
        describe(frame.meta_mut());
        let mut burst = Burst::new();
        burst.push(frame).unwrap();
        self.port.transmit(&mut self.pool, &mut burst);
    }

    /// Waits for `count` frames, and returns their lengths.
    pub(super) fn lengths(&mut self, count: usize) -> Vec<usize> {
        let (mut burst, mut lengths) = (Burst::new(), Vec::new());
        while lengths.len() < count {
            self.port.receive(Instant::from_nanos(7), &mut self.pool, &mut burst);
            if burst.is_empty() {
                wait_for(&self.port);
            }
            lengths.extend(burst.frames().iter().map(Frame::chain_len));
            burst.release(usize::MAX, &mut self.pool);
        }
        lengths
    }

    pub(super) fn next(&mut self) -> Frame {
        let mut burst = Burst::new();
        loop {
            self.port.receive(Instant::from_nanos(7), &mut self.pool, &mut burst);
            let frame = burst.drain(1).next();
            if let Some(frame) = frame {
                assert!(burst.is_empty(), "one frame was sent");
                return frame;
            }
            wait_for(&self.port);
        }
    }
}

pub(super) fn cables(count: usize) -> Namespace {
    let namespace = quiet();
    for number in 0..count {
        ip(&namespace, &format!("link add far{number} mtu 9000 type veth peer name near{number} mtu 9000"));
        ip(&namespace, &format!("link set far{number} up"));
        ip(&namespace, &format!("link set near{number} up"));
    }
    namespace
}

/// A TCP packet over IPv4 of that length, whose checksum is to be completed.
pub(super) fn tcp(len: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0];
    bytes.extend(((len - 14) as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 = bytes[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend([0x30, 0x39, 0x10, 0xe1, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0]);
    // The pseudo-header's sum.
    let sum = 0x1400 + 3 + 6 + (len - 34) as u32;
    bytes.extend((((sum >> 16) + (sum & 0xffff)) as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend((54..len).map(|at| (at % 251) as u8));
    bytes
}

/// The first difference between a frame and what was sent, and both lengths.
fn first_difference(frame: &Frame, sent: &[u8]) -> Option<(Option<usize>, usize, usize)> {
    let got = bytes(frame);
    let at = got.iter().zip(sent).position(|(got, sent)| got != sent);
    (got != sent).then_some((at, got.len(), sent.len()))
}

pub(super) fn partial(meta: &mut twinpath_frame::Meta) {
    (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 34, 16);
}

#[test]
fn frames_of_all_lengths_cross_whole_from_port_to_port() {
    if !can_run() {
        return;
    }
    let namespace = cables(2);
    let mut switch = Switch::new(&namespace, &["near0", "near1"], Unserved::Dropped, Duration::ZERO);
    let (mut from, mut to) = (Far::new(&namespace, "far0"), Far::new(&namespace, "far1"));
    // The shortest; at and beyond what a frame and a slot hold; a jumbo frame.
    for len in [60, 1_514, 1_791, 1_792, 1_793, 1_971, 1_972, 1_973, 9_014] {
        let sent = tcp(len);
        from.send(&sent, partial);
        let frame = switch.next();
        assert_eq!(frame.meta().port, 0, "{len}");
        assert!(bytes(&frame) == sent, "{len}");
        let meta = frame.meta();
        assert_eq!((meta.checksum, meta.checksum_start, meta.checksum_offset), (Checksum::Partial, 34, 16));
        switch.send(1, frame);
        let got = to.next();
        assert!(bytes(&got) == sent, "{len}");
        assert_eq!(got.meta().checksum, Checksum::Partial);
        to.pool.release(got);
    }
    // Super-frames, several at once: each is read from the socket's queue in the place of its slot.
    let gso = Gso { kind: GsoKind::TcpV4, ecn: false, size: 1_448 };
    // The longest is as long as a veth interface passes whole.
    let lens = [65_000, 60, 30_000, 65_535];
    for len in lens {
        from.send(&tcp(len), |meta| {
            partial(meta);
            (meta.gso, meta.headers_len) = (if len > 9_014 { gso } else { Gso::default() }, 54);
        });
    }
    for len in lens {
        let frame = switch.next();
        assert_eq!(first_difference(&frame, &tcp(len)), None, "{len}");
        assert_eq!(frame.meta().gso.kind == GsoKind::TcpV4, len > 9_014);
        switch.send(1, frame);
        let got = to.next();
        assert!(bytes(&got) == tcp(len), "{len}");
        assert_eq!(got.meta().gso.size, if len > 9_014 { 1_448 } else { 0 });
        to.pool.release(got);
    }
    assert_eq!(switch.counters(0).frames_in.get(), 13);
    assert_eq!(switch.counters(1).frames_out.get(), 13);
    assert_eq!((switch.counters(0).super_frames_in.get(), switch.counters(1).super_frames_out.get()), (3, 3));
    let Switch { queue, mut pool, .. } = switch;
    Box::new(queue).close().into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), pool.frames(), "no frame is lost");
}

#[test]
fn tags_come_beside_the_frame_and_service_tags_in_it() {
    if !can_run() {
        return;
    }
    let namespace = cables(1);
    let mut switch = Switch::new(&namespace, &["near0"], Unserved::Dropped, Duration::ZERO);
    let mut from = Far::new(&namespace, "far0");
    for (protocol, beside) in [([0x81, 0x00], true), ([0x88, 0xa8], false)] {
        let plain = tcp(100);
        let tag = [protocol[0], protocol[1], 0x60, 0x64];
        let tagged = [&plain[..12], &tag, &plain[12..]].concat();
        from.send(&tagged, |_| {});
        let frame = switch.next();
        assert_eq!(frame.meta().vlan, beside.then_some(0x6064));
        assert!(bytes(&frame) == if beside { plain } else { tagged });
        switch.release(frame);
    }
}

#[test]
fn what_one_port_cannot_send_does_not_touch_the_others() {
    if !can_run() {
        return;
    }
    let namespace = cables(3);
    let mut switch = Switch::new(&namespace, &["near0", "near1", "near2"], Unserved::Dropped, Duration::ZERO);
    let mut to = Far::new(&namespace, "far2");
    ip(&namespace, "link set near0 down");
    let mut burst = Burst::new();
    // Down; too long for the MTU; not carried; fine.
    for (port, len) in [(0, 100), (1, 9_100), (7, 100), (2, 100)] {
        let mut chain = None;
        for part in tcp(len).chunks(1_500).rev() {
            let mut frame = switch.pool.take().unwrap();
            frame.copy_from(part).unwrap();
            frame.meta_mut().next = chain;
            chain = Some(frame);
        }
        let mut frame = chain.unwrap();
        frame.meta_mut().port = port;
        burst.push(frame).unwrap();
    }
    switch.queue.transmit(&mut switch.pool, &mut burst);
    assert!(burst.is_empty());
    let got = to.next();
    assert_eq!(bytes(&got), tcp(100));
    to.pool.release(got);
    let dropped = |port: u16, reason| switch.counters(port).drops.get(reason);
    assert_eq!(dropped(0, Reason::PortDown), 1);
    assert_eq!(dropped(1, Reason::FrameTooLarge), 1);
    assert_eq!(switch.queue.counters().drops.get(Reason::PortDown), 1);
    assert_eq!(switch.counters(2).frames_out.get(), 1);
}

#[test]
fn frames_of_an_interface_that_is_no_port_any_more_are_dropped_and_counted() {
    if !can_run() {
        return;
    }
    let namespace = cables(2);
    let mut switch = Switch::new(&namespace, &["near0", "near1"], Unserved::Dropped, Duration::ZERO);
    let [mut zero, mut one] = ["far0", "far1"].map(|name| Far::new(&namespace, name));
    let gso = Gso { kind: GsoKind::TcpV4, ecn: false, size: 1_448 };
    // Both are in the ring, the long one in the socket's queue as well.
    zero.send(&tcp(60_000), |meta| {
        partial(meta);
        (meta.gso, meta.headers_len) = (gso, 54);
    });
    zero.send(&tcp(60), |_| {});
    let gone = switch.queue.remove(0).unwrap();
    namespace.run(|| switch.programs.release(gone.ifindex).unwrap()).unwrap();
    one.send(&tcp(50_000), |meta| {
        partial(meta);
        (meta.gso, meta.headers_len) = (gso, 54);
    });
    let frame = switch.next();
    assert_eq!(frame.meta().port, 1);
    assert!(bytes(&frame) == tcp(50_000), "the queue's frames stay with their slots");
    switch.release(frame);
    assert_eq!(switch.queue.counters().drops.get(Reason::PortDown), 2);
}
