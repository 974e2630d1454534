//! Ports on addresses of the loopback interface, which need no privileges: each site has one of 127.0.0.0/8.

use std::net::{SocketAddr, UdpSocket};

use rustix::event::{PollFd, PollFlags, poll};
use twinpath_frame::{BURST_MAX, Checksum, Gso, GsoKind};
use twinpath_port::PortId;
use twinpath_time::Duration;

use super::*;

const VNI: u32 = 100;
const ETHERNET: usize = 14;

/// A UDP port that is free on all addresses.
fn free_port() -> u16 {
    let probe = UdpSocket::bind(("0.0.0.0", 0)).expect("a socket");
    probe.local_addr().expect("bound").port()
}

fn address(site: u8) -> IpAddr {
    [127, 0, 1, site].into()
}

/// A port, with its pool.
struct Site {
    port: VxlanPort,
    pool: Pool,
    burst: Burst,
}

fn config(site: u8, remotes: &[u8], udp_port: u16) -> VxlanConfig {
    VxlanConfig {
        id: PortId { port: site.into(), queue: 0 },
        vni: VNI,
        remotes: remotes.iter().map(|site| address(*site)).collect(),
        local: Some(address(site)),
        udp_port,
        ageing: Duration::from_secs(300),
        seed: [7, 9],
    }
}

impl Site {
    fn new(site: u8, remotes: &[u8], udp_port: u16) -> Self {
        let port = VxlanPort::open(&config(site, remotes, udp_port), &mut UdpPorts::default()).expect("open");
        Self { port, pool: Pool::new(4096).expect("a pool"), burst: Burst::new() }
    }

    fn send(&mut self, frames: &[Vec<u8>]) {
        for frames in frames.chunks(BURST_MAX) {
            for bytes in frames {
                let frame = self.pool.copy_of([&bytes[..]]).expect("enough frames");
                self.burst.push(frame).expect("room");
            }
            self.port.transmit(&mut self.pool, &mut self.burst);
            self.port.flush(&mut self.pool);
        }
    }

    /// Receives until there are as many frames; fewer if the next one does not come for a while.
    fn receive(&mut self, count: usize) -> Vec<Vec<u8>> {
        self.receive_marked(count).into_iter().map(|(bytes, ..)| bytes).collect()
    }

    /// The same, with the work that is left to be done on each.
    fn receive_marked(&mut self, count: usize) -> Vec<(Vec<u8>, Checksum, Gso)> {
        let mut frames = Vec::new();
        while frames.len() < count && self.has_work() {
            self.port.receive(Instant::from_nanos(1_000_000_000), &mut self.pool, &mut self.burst);
            for frame in self.burst.drain(usize::MAX) {
                let bytes = frame.pieces(0..usize::MAX).flatten().copied().collect();
                frames.push((bytes, frame.meta().checksum, frame.meta().gso));
                self.pool.release(frame);
            }
        }
        frames
    }

    /// Waits for something to receive.
    fn has_work(&self) -> bool {
        let fd = self.port.fd().expect("a descriptor");
        let timeout = rustix::time::Timespec { tv_sec: 2, tv_nsec: 0 };
        self.port.look() || poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) == Ok(1)
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.port.counters().drops.get(reason)
    }

    /// Nothing is held at the end.
    fn is_whole(&self) -> bool {
        self.pool.free() == self.pool.frames()
    }
}

/// A frame from one host to another, of this length.
fn frame(from: u8, to: u8, len: usize) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5][..], &[0; 46]].concat();
    frame.resize(len, len as u8);
    frame
}

fn to_all(from: u8, len: usize) -> Vec<u8> {
    let mut frame = frame(from, 0, len);
    frame[..6].fill(0xff);
    frame
}

/// Sends a payload to a site from an address.
fn send_from(source: IpAddr, to: u8, udp_port: u16, payload: &[u8]) {
    let socket = UdpSocket::bind((source, 0)).expect("a socket");
    socket.send_to(payload, SocketAddr::new(address(to), udp_port)).expect("sent");
}

#[test]
fn frames_of_all_lengths_cross_whole_and_in_order() {
    let udp_port = free_port();
    let (mut one, mut two) = (Site::new(1, &[2], udp_port), Site::new(2, &[1], udp_port));
    let lengths =
        (ETHERNET..200).chain([1514, 1514, 1514, 1518, 1792, 1793, 9014, 9014, 60, 60, 20_000, 65_499]);
    let frames: Vec<_> = lengths.map(|len| frame(1, 2, len)).collect();
    for (from, to) in [(true, 1), (false, 0)] {
        let (sender, receiver) = if from { (&mut one, &mut two) } else { (&mut two, &mut one) };
        for sent in frames.chunks(50) {
            sender.send(sent);
            assert!(receiver.receive(sent.len()) == sent, "direction {to}");
        }
        let (sent, got) = (sender.port.counters(), receiver.port.counters());
        assert_eq!(sent.frames_out.get(), frames.len() as u64);
        assert_eq!(got.frames_in.get(), frames.len() as u64);
        assert_eq!(got.bytes_in.get(), sent.bytes_out.get());
    }
    assert!(one.is_whole() && two.is_whole());
}

#[test]
fn frames_of_equal_length_leave_as_one_message() {
    let udp_port = free_port();
    let (mut one, mut two) = (Site::new(1, &[2], udp_port), Site::new(2, &[1], udp_port));
    let frames: Vec<_> = (0..44).map(|_| frame(1, 2, 1514)).chain([frame(1, 2, 700)]).collect();
    one.send(&frames);
    assert!(two.receive(frames.len()) == frames);
    let counters = one.port.counters();
    assert_eq!((counters.kicks.get(), counters.frames_joined.get()), (1, 45));
    // 45 times 1,522 bytes are more than a message holds.
    one.send(&vec![frame(1, 2, 1514); 60]);
    assert_eq!(two.receive(60).len(), 60);
    assert_eq!(counters_of(&one), (105, 105));
}

fn counters_of(site: &Site) -> (u64, u64) {
    let counters = site.port.counters();
    (counters.frames_out.get(), counters.frames_joined.get())
}

#[test]
fn a_frame_for_one_host_goes_to_its_remote_and_others_to_all() {
    let udp_port = free_port();
    let mut sites =
        [Site::new(1, &[2, 3], udp_port), Site::new(2, &[1, 3], udp_port), Site::new(3, &[1, 2], udp_port)];
    let [one, two, three] = &mut sites;
    // One by one: only frames of a flow are sent in order.
    one.send(&[to_all(10, 60)]);
    one.send(&[frame(10, 30, 61)]);
    for other in [&mut *two, &mut *three] {
        assert_eq!(other.receive(2), [to_all(10, 60), frame(10, 30, 61)]);
    }
    three.send(&[frame(30, 10, 62)]);
    assert_eq!(one.receive(1), [frame(30, 10, 62)], "it was learned where host 10 is");
    one.send(&[frame(10, 30, 63)]);
    one.send(&[to_all(10, 64)]);
    assert_eq!(three.receive(2), [frame(10, 30, 63), to_all(10, 64)]);
    assert_eq!(two.receive(1), [to_all(10, 64)], "what goes to one remote does not go to another");
    assert_eq!(one.port.counters().frames_out.get(), 4 + 1 + 2);
    assert!(sites.iter().all(Site::is_whole));
}

#[test]
fn datagrams_that_are_not_for_the_port_are_dropped_and_counted() {
    let udp_port = free_port();
    let mut site = Site::new(1, &[2], udp_port);
    let with = |header: [u8; 8], frame: &[u8]| [&header[..], frame].concat();
    let good = with(vxlan::header(VNI), &frame(2, 1, 60));
    send_from(address(9), 1, udp_port, &good);
    send_from(address(2), 1, udp_port, &with(vxlan::header(VNI + 1), &frame(2, 1, 60)));
    send_from(address(2), 1, udp_port, &with([0; 8], &frame(2, 1, 60)));
    (0..8 + ETHERNET).for_each(|len| send_from(address(2), 1, udp_port, &good[..len]));
    // Frames of the same port follow.
    send_from(address(2), 1, udp_port, &good);
    assert_eq!(site.receive(1), [frame(2, 1, 60)]);
    for (reason, count) in [
        (Reason::SourceNotAllowed, 1),
        (Reason::VxlanNetwork, 1),
        (Reason::VxlanFlags, 1),
        (Reason::Truncated, 8 + ETHERNET as u64),
    ] {
        assert_eq!(site.dropped(reason), count, "{}", reason.name());
    }
    assert!(site.is_whole());
}

#[test]
fn a_remote_that_does_not_answer_ends_nothing() {
    let udp_port = free_port();
    // Nobody listens at the second remote: the kernel answers each datagram with an ICMP message.
    let (mut one, mut three) = (Site::new(1, &[2, 3], udp_port), Site::new(3, &[1], udp_port));
    for len in 60..160 {
        one.send(&[to_all(1, len)]);
        assert_eq!(three.receive(1), [to_all(1, len)]);
    }
    three.send(&[frame(3, 1, 60)]);
    assert_eq!(one.receive(1), [frame(3, 1, 60)]);
    assert_eq!(one.port.counters().drops.happened().count(), 0);
    assert!(!one.port.is_gone());
}

#[test]
fn without_a_route_frames_are_counted() {
    let udp_port = free_port();
    let mut config = config(1, &[2], udp_port);
    // From the loopback interface, there is no route to documentation addresses (RFC 5737).
    config.remotes = vec![[192, 0, 2, 1].into()];
    let port = VxlanPort::open(&config, &mut UdpPorts::default()).expect("open");
    let mut site = Site { port, ..Site::new(4, &[5], udp_port) };
    site.send(&[frame(1, 2, 60), frame(1, 2, 61)]);
    assert_eq!(site.dropped(Reason::PortDown) + site.dropped(Reason::FrameTooLarge), 2);
    assert!(site.is_whole());
}

#[test]
fn what_cannot_work_is_refused() {
    let udp_port = free_port();
    let _first = Site::new(1, &[2], udp_port);
    let refused = |config: &VxlanConfig| {
        VxlanPort::open(config, &mut UdpPorts::default()).expect_err("refused").to_string()
    };
    assert!(refused(&config(1, &[3], udp_port)).contains("is in use"));
    assert!(refused(&config(4, &[2, 4], udp_port)).contains("127.0.1.4 is an address of this host"));
    assert!(refused(&config(4, &[], udp_port)).contains("0 remotes"));
}

#[test]
fn networks_share_a_udp_port_and_come_and_go_without_a_loss_to_others() {
    let udp_port = free_port();
    let mut sender = Site::new(2, &[1], udp_port);
    let mut udp_ports = UdpPorts::default();
    let mut open = |vni| {
        let config = VxlanConfig { vni, ..config(1, &[2], udp_port) };
        let port = VxlanPort::open(&config, &mut udp_ports)?;
        let pool = Pool::new(4096).expect("a pool");
        Ok::<_, OpenError>(Site { port, pool, burst: Burst::new() })
    };
    let of = |vni, frame: &[u8]| [&vxlan::header(vni)[..], frame].concat();
    let mut staying = open(VNI).expect("open");
    let mut sent = 0;
    for turn in 0..40_u8 {
        // Two others beside it, of other networks each time; the second one stays for one more turn.
        let (first, second) = (1000 + u32::from(turn), 2000 + u32::from(turn));
        let mut others = [open(first).expect("open"), open(second).expect("open")];
        assert!(open(second).is_err_and(|error| error.to_string().contains("another port's")));
        for (other, vni) in others.iter_mut().zip([first, second]) {
            send_from(address(2), 1, udp_port, &of(vni, &frame(2, turn, 60)));
            assert_eq!(other.receive(1), [frame(2, turn, 60)], "network {vni}");
            assert_eq!(other.dropped(Reason::VxlanNetwork), 0);
        }
        let [leaving, other] = others;
        drop(leaving);
        // Nobody has that network now: one of the ports counts it.
        send_from(address(2), 1, udp_port, &of(first, &frame(2, turn, 60)));
        drop(other);
        sender.send(&[frame(2, turn, 60 + usize::from(turn))]);
        sent += 1;
        assert_eq!(staying.receive(1), [frame(2, turn, 60 + usize::from(turn))]);
    }
    while staying.dropped(Reason::VxlanNetwork) < sent && staying.has_work() {
        staying.port.receive(Instant::from_nanos(1), &mut staying.pool, &mut staying.burst);
    }
    assert_eq!(
        (staying.port.counters().frames_in.get(), staying.dropped(Reason::VxlanNetwork)),
        (sent, sent)
    );
    // Another switch cannot have the UDP port, whatever its networks.
    let config = VxlanConfig { vni: 5, ..config(1, &[2], udp_port) };
    let refused = VxlanPort::open(&config, &mut UdpPorts::default()).expect_err("refused");
    assert!(refused.to_string().contains("is in use"), "{refused}");
    drop(staying);
    VxlanPort::open(&config, &mut UdpPorts::default()).expect("the UDP port is free with the last of them");
}

/// A TCP segment over IPv4 with this payload, whose checksum is left to hardware.
fn tcp(payload: usize) -> Vec<u8> {
    let len = (40 + payload) as u16;
    let ip = [&[0x45, 0][..], &len.to_be_bytes(), &[0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]]
        .concat();
    let mut segment = vec![0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    let pseudo = twinpath_wire::checksum::Sum::ZERO.pseudo_ipv4(
        [10, 0, 0, 1].into(),
        [10, 0, 0, 2].into(),
        6,
        len - 20,
    );
    segment[16..18].copy_from_slice(&pseudo.fold().to_be_bytes());
    segment.resize(20 + payload, 0x5a);
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &segment].concat()
}

#[test]
fn what_a_virtual_device_has_left_to_be_done_is_marked() {
    let udp_port = free_port();
    let (mut one, mut two) = (Site::new(1, &[2], udp_port), Site::new(2, &[1], udp_port));
    // The loopback interface takes the longest packets.
    assert_eq!(one.port.inner_mtu(), 65_535 - 50);
    two.port.inner_mtu = 1450;
    one.send(&[tcp(0), tcp(1410), tcp(1411), tcp(60_000)]);
    let received = two.receive_marked(4);
    let partial = Checksum::Partial;
    let super_frame = Gso { kind: GsoKind::TcpV4, ecn: false, size: 1410 };
    let marks: Vec<_> = received.iter().map(|(_, checksum, gso)| (*checksum, *gso)).collect();
    assert_eq!(
        marks,
        [
            (partial, Gso::default()),
            (partial, Gso::default()),
            (partial, super_frame),
            (partial, super_frame)
        ]
    );
    let mut complete = tcp(60_000);
    complete[50] ^= 1;
    one.send(&[complete.clone()]);
    assert_eq!(two.receive_marked(1), [(complete, Checksum::Unverified, Gso::default())]);
    assert!(one.is_whole() && two.is_whole());
}

/// The same with a complete checksum, from that byte of its flow on.
fn segment(sequence: u32, payload: usize) -> Vec<u8> {
    let mut frame = tcp(payload);
    frame[38..42].copy_from_slice(&sequence.to_be_bytes());
    let checksum = twinpath_wire::checksum::Sum::ZERO.bytes(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    let checksum = twinpath_wire::offload::completed([&frame[34..]]);
    frame[50..52].copy_from_slice(&checksum.to_be_bytes());
    frame
}

#[test]
fn segments_of_a_train_arrive_as_one_super_frame() {
    let udp_port = free_port();
    let (mut one, mut two) = (Site::new(1, &[2], udp_port), Site::new(2, &[1], udp_port));
    let segments: Vec<_> =
        (0..20).map(|number| segment(number * 1400, 1400)).chain([segment(28_000, 600)]).collect();
    one.send(&segments);
    let received = two.receive_marked(1);
    let [(bytes, checksum, gso)] = &received[..] else { panic!("{} frames", received.len()) };
    assert_eq!((*checksum, *gso), (Checksum::Partial, Gso { kind: GsoKind::TcpV4, ecn: false, size: 1400 }));
    assert_eq!(bytes.len(), 54 + 28_600);
    assert_eq!(two.port.counters().packets_in(), 21);
    // One that is missing, or damaged, begins another one, or stays alone.
    let mut damaged = segments[..6].to_vec();
    damaged[3][100] ^= 1;
    one.send(&damaged);
    let lengths: Vec<_> = two.receive(3).iter().map(Vec::len).collect();
    assert_eq!(lengths, [54 + 3 * 1400, 54 + 1400, 54 + 2 * 1400]);
    // A pool without frames for the whole loses the whole.
    let held: Vec<_> = std::iter::from_fn(|| two.pool.take()).collect();
    one.send(&segments);
    assert!(two.has_work());
    two.port.receive(Instant::from_nanos(1), &mut two.pool, &mut two.burst);
    assert_eq!((two.burst.len(), two.dropped(Reason::PoolEmpty)), (0, 1));
    held.into_iter().for_each(|frame| two.pool.release(frame));
    assert!(one.is_whole() && two.is_whole());
}
