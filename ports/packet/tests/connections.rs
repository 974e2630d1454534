//! Tests super-frames of connections in both directions, against the kernel's TCP at the other end of a veth pair,
//! without any BPF program: the port sees a copy of what the kernel's own connection receives, and sends in its place.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]
#![allow(unsafe_code, reason = "a test plays the program that marks a word")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_frame::{Burst, Checksum, Frame, Gso, GsoKind, Mapping, Meta, Pool, leaked};
use twinpath_inspect::Reason;
use twinpath_packet::xdp::{CopyMode, XdpConfig, XdpPort};
use twinpath_packet::{PacketConfig, PacketPort, SUPER_FRAME_CHUNKS};
use twinpath_port::{PortId, PortQueue, SentParts, WaitSource};
use twinpath_rings::pending::{Pending, STRIDE};
use twinpath_sys::Namespace;
use twinpath_sys::frame_tap::FrameTap;
use twinpath_test_rig::{End, ifindex, pair, run, until};
use twinpath_time::Duration;
use twinpath_wire::checksum::Sum;
use twinpath_wire::offload::completed;
use twinpath_wire::tcp::{self, Flags, Segment};
use twinpath_wire::{ipv4, ipv6};

const NEAR: [&str; 2] = ["10.0.0.1", "fd00::1"];
const FAR: [&str; 2] = ["10.0.0.2", "fd00::2"];
const ETH_LEN: usize = 14;

/// Two namespaces with a link. The port is to be at the interface `near` of the first.
struct Link {
    near: Namespace,
    far: Namespace,
    ifindex: u32,
}

impl Link {
    fn new() -> Self {
        let [near, far] = [(); 2].map(|()| Namespace::new().unwrap());
        let (near_addresses, far_addresses) = (["10.0.0.1/24", "fd00::1/64"], ["10.0.0.2/24", "fd00::2/64"]);
        pair(
            End { with: "address 02:00:00:00:00:01", ..End::new(&near, "near", &near_addresses) },
            End { with: "address 02:00:00:00:00:02", ..End::new(&far, "far", &far_addresses) },
        );
        // Segments that the test writes have no time stamps.
        run(&far, "sysctl", "-qw net.ipv4.tcp_timestamps=0");
        let ifindex = ifindex(&near, "near");
        Self { near, far, ifindex }
    }

    /// A port with super-frames. Without a filter: it takes every frame that arrives.
    fn open(&self, queue: Option<XdpPort>) -> PacketPort {
        let config = PacketConfig {
            id: PortId::default(),
            ifindex: self.ifindex,
            ring_slots: 256,
            fanout_group: None,
            binds_late: true,
            bypass_qdisc: true,
            super_frames: true,
            datagrams: false,
        };
        let filter = |_: BorrowedFd<'_>| Ok::<(), Infallible>(());
        self.near.run(|| PacketPort::open(&config, filter, queue, None)).unwrap().unwrap()
    }

    /// A connection from one side to a listener on the other: the ends of the first and of the second.
    fn connect(&self, from_far: bool, family: usize) -> [TcpStream; 2] {
        let (client, server, to) =
            if from_far { (&self.far, &self.near, NEAR) } else { (&self.near, &self.far, FAR) };
        let to: IpAddr = to[family].parse().unwrap();
        let listener = server.run(|| TcpListener::bind((to, 7))).unwrap().unwrap();
        let client = client.run(|| TcpStream::connect((to, 7))).unwrap().unwrap();
        [client, listener.accept().unwrap().0]
    }
}

fn bytes(frame: &Frame) -> Vec<u8> {
    frame.chain().flat_map(Frame::bytes).copied().collect()
}

/// The TCP segment in a frame that has no tag; `None` if it has another.
fn segment(frame: &[u8]) -> Option<Segment<'_>> {
    let transport = match (frame[12], frame[13]) {
        (0x08, 0x00) => {
            ipv4::Packet::parse(&frame[ETH_LEN..]).ok().filter(|ip| ip.protocol() == 6)?.payload()
        }
        (0x86, 0xdd) if frame[ETH_LEN + 6] == 6 => frame.get(ETH_LEN + ipv6::HEADER_LEN..)?,
        _ => return None,
    };
    Segment::parse(transport).ok()
}

fn now() -> twinpath_time::Instant {
    twinpath_sys::clock::now()
}

fn is_readable(port: &PacketPort, seconds: i64) -> bool {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let fd = port.fd().unwrap();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Takes what has come meanwhile, such as the kernel's own frames. A frame left in the socket's queue without a slot in
/// the ring would make the socket readable for ever.
fn empty(port: &mut PacketPort, pool: &mut Pool) {
    let mut burst = Burst::new();
    until("nothing is left in the socket", || {
        port.receive(now(), pool, &mut burst);
        burst.release(usize::MAX, pool);
        !port.look() && !is_readable(port, 0)
    });
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Sends `sent` from the far side, and passes what the port receives of it to `see` until that returns true. The
/// worker sleeps whenever the port lets it.
fn receive(
    [mut far, mut near]: [TcpStream; 2],
    sent: &[u8],
    port: &mut PacketPort,
    pool: &mut Pool,
    mut see: impl FnMut(&Frame) -> bool,
) {
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            far.write_all(sent).unwrap();
            far
        });
        let reader = scope.spawn(move || near.read_exact(&mut vec![0; sent.len()]).map(|()| near));
        let (mut burst, mut is_over) = (Burst::new(), false);
        while !is_over {
            port.receive(now(), pool, &mut burst);
            if burst.is_empty() && port.arm() && !port.look() {
                assert!(is_readable(port, 10), "a frame wakes the worker");
                port.disarm();
            }
            is_over = burst.frames().iter().any(&mut see);
            burst.release(usize::MAX, pool);
        }
        drop((writer.join().unwrap(), reader.join().unwrap().unwrap()));
    });
}

#[test]
fn super_frames_of_the_peers_kernel_arrive_whole_and_described() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let link = Link::new();
    for (family, kind, headers) in [(0, GsoKind::TcpV4, 34), (1, GsoKind::TcpV6, 54)] {
        let mut pool = Pool::new(SUPER_FRAME_CHUNKS + 256).unwrap();
        let mut port = link.open(None);
        port.prepare(&mut pool);
        let ends = link.connect(true, family);
        let sent = pattern(2_000_000);
        let (mut got, mut first, mut longest) = (BTreeMap::new(), None, 0);
        receive(ends, &sent, &mut port, &mut pool, |frame| {
            let (whole, meta) = (bytes(frame), frame.meta());
            let Some(segment) = segment(&whole) else { return false };
            if segment.flags().0 & Flags::SYN != 0 {
                first = Some(segment.sequence().wrapping_add(1));
            }
            if segment.payload().is_empty() {
                return false;
            }
            // The peer's kernel sends on several CPUs, and may send again: the order is its own.
            let at = segment.sequence().wrapping_sub(first.expect("a SYN came first"));
            got.insert(at, segment.payload().to_vec());
            assert_eq!(meta.checksum, Checksum::Partial);
            assert_eq!((meta.checksum_start, meta.checksum_offset), (headers, 16));
            if meta.gso.kind != GsoKind::None {
                assert_eq!(meta.gso.kind, kind);
                assert!(meta.gso.size > 1_000 && usize::from(meta.gso.size) < segment.payload().len());
            }
            longest = longest.max(whole.len());
            let mut end = 0;
            got.iter().all(|(at, part)| {
                let follows = *at <= end;
                end = end.max(at + part.len() as u32);
                follows
            }) && end == sent.len() as u32
        });
        for (at, part) in got {
            let at = at as usize;
            assert!(part == sent[at..at + part.len()], "the bytes of the stream");
        }
        assert!(longest > 60_000, "a super-frame is the peer's: {longest} bytes");
        let counters = port.counters();
        assert_eq!(counters.drops.happened().count(), 0);
        assert!(counters.super_frames_in.get() > 10);
        assert!(counters.packets_in() > 10 * counters.frames_in.get());
        Box::new(port).close().into_iter().for_each(|frame| pool.release(frame));
        assert_eq!(pool.free(), pool.frames(), "all frames are home");
    }
    assert_eq!(leaked(), 0);
}

#[test]
fn super_frames_that_find_no_room_are_dropped_counted_and_wake_nobody_again() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let link = Link::new();
    let ends = link.connect(true, 0);
    // Room for the next long packet, and no more.
    let mut pool = Pool::new(SUPER_FRAME_CHUNKS).unwrap();
    let mut port = link.open(None);
    port.prepare(&mut pool);
    let mut held: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    pool.release(held.pop().unwrap());
    let sent = pattern(1_000_000);
    let mut taken = 0;
    let [far, near] = ends;
    // The kernel's own connection ends when it has everything; until then, one frame at a time is in the port's hands.
    let finished = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let (sent, finished) = (&sent, &finished);
        let (mut far, mut near) = (far, near);
        scope.spawn(move || far.write_all(sent).unwrap());
        scope.spawn(move || {
            near.read_exact(&mut vec![0; sent.len()]).unwrap();
            finished.store(true, Ordering::SeqCst);
        });
        let mut burst = Burst::new();
        while !finished.load(Ordering::SeqCst) || port.look() {
            port.receive(now(), &mut pool, &mut burst);
            taken += burst.len();
            burst.release(usize::MAX, &mut pool);
        }
    });
    assert!(taken > 0, "the prepared frames served for one");
    let counters = port.counters();
    assert!(counters.drops.get(Reason::PoolEmpty) > 0);
    assert_eq!(counters.drops.happened().count(), 1, "for one reason");
    empty(&mut port, &mut pool);
    held.into_iter().for_each(|frame| pool.release(frame));
    Box::new(port).close().into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), pool.frames());
}

#[test]
fn super_frames_that_waited_for_a_stuck_worker_are_dropped_and_those_of_a_closed_port_are_the_kernels() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let link = Link::new();
    let [mut far, mut near] = link.connect(true, 0);
    let words = Arc::new(Mapping::of_memfd("packet-test", STRIDE).unwrap().0);
    let pending = Pending::new(Arc::clone(&words), 0, Duration::from_secs(1)).unwrap();
    let mut pool = Pool::new(SUPER_FRAME_CHUNKS + 64).unwrap();
    let mut port = link.open(None).failing_open(Some(pending));
    port.prepare(&mut pool);
    let mut burst = Burst::new();
    far.write_all(&[1; 50_000]).unwrap();
    near.read_exact(&mut [0; 50_000]).unwrap();
    assert!(is_readable(&port, 10));
    // SAFETY: the word lies in the mapping, aligned to eight; a 64-bit atomic takes any bits.
    let word = unsafe { words.base().cast::<AtomicU64>().as_ref() };
    word.store(now().as_nanos() | 1 << 63, Ordering::SeqCst);
    port.receive(now(), &mut pool, &mut burst);
    assert!(burst.is_empty() && port.counters().drops.get(Reason::WorkerStuck) > 0);
    empty(&mut port, &mut pool);
    far.write_all(&[2; 50_000]).unwrap();
    near.read_exact(&mut [0; 50_000]).unwrap();
    until("the port received", || {
        port.receive(now(), &mut pool, &mut burst);
        let long = burst.frames().iter().any(|frame| frame.chain_len() > 10_000);
        burst.release(usize::MAX, &mut pool);
        long
    });
    Box::new(port).close().into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), pool.frames());
    far.write_all(&[3; 50_000]).unwrap();
    near.read_exact(&mut [0; 50_000]).unwrap();
}

/// Where a connection of the near side's kernel stands, as the port has seen it.
struct Standing {
    local: SocketAddr,
    remote: SocketAddr,
    sequence: u32,
    acknowledgement: u32,
    window: usize,
}

impl Standing {
    /// Connects to the far side, and reads the answer to the SYN.
    fn of(link: &Link, family: usize, port: &mut PacketPort, pool: &mut Pool) -> (Self, [TcpStream; 2]) {
        let ends = link.connect(false, family);
        let mut burst = Burst::new();
        let mut found = None;
        until("the answer arrives", || {
            port.receive(now(), pool, &mut burst);
            for frame in burst.frames() {
                let whole = bytes(frame);
                let answer = segment(&whole).filter(|segment| segment.flags().0 == Flags::SYN | Flags::ACK);
                found = found.or(answer.map(|segment| {
                    let window = usize::from(segment.window());
                    (segment.acknowledgement(), segment.sequence().wrapping_add(1), window)
                }));
            }
            burst.release(usize::MAX, pool);
            found.is_some()
        });
        let (sequence, acknowledgement, window) = found.unwrap();
        let (local, remote) = (ends[0].local_addr().unwrap(), ends[0].peer_addr().unwrap());
        (Self { local, remote, sequence, acknowledgement, window }, ends)
    }

    /// A frame with the next bytes of the stream, whose checksum is to be completed; cut into pieces of `unit` bytes if
    /// it has more.
    fn frame(&mut self, payload: &[u8], unit: u16, pool: &mut Pool) -> Frame {
        let len = tcp::HEADER_LEN + payload.len();
        let mut headers = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let mut ip = [0; ipv6::HEADER_LEN];
        let (ip_len, pseudo, ethertype) = match (self.local.ip(), self.remote.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let (protocol, hop_limit, identification) = (6, 64, 1);
                let repr =
                    ipv4::Repr { source, destination, protocol, hop_limit, identification, payload_len: len };
                let pseudo = Sum::ZERO.pseudo_ipv4(source, destination, protocol, len as u16);
                (repr.emit(&mut ip).unwrap(), pseudo, 0x0800_u16)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let repr =
                    ipv6::Repr { source, destination, next_header: 6, hop_limit: 64, payload_len: len };
                let pseudo = Sum::ZERO.pseudo_ipv6(source, destination, 6, len as u32);
                (repr.emit(&mut ip).unwrap(), pseudo, 0x86dd)
            }
            _ => unreachable!("both are of one family"),
        };
        headers.extend(ethertype.to_be_bytes());
        headers.extend(&ip[..ip_len]);
        let mut header = [0; tcp::HEADER_LEN];
        let fields = tcp::Header {
            source_port: self.local.port(),
            destination_port: self.remote.port(),
            sequence: self.sequence,
            acknowledgement: self.acknowledgement,
            flags: Flags(Flags::ACK | Flags::PSH),
            window: 8_000,
            urgent: 0,
        };
        fields.emit(&[], &mut header).unwrap();
        header[16..18].copy_from_slice(&pseudo.fold().to_be_bytes());
        headers.extend(header);
        self.sequence = self.sequence.wrapping_add(payload.len() as u32);
        let mut frame = pool.copy_of([&*headers, payload]).unwrap();
        let start = ETH_LEN + ip_len;
        let meta = frame.meta_mut();
        if payload.len() > usize::from(unit) {
            let kind = if self.local.is_ipv4() { GsoKind::TcpV4 } else { GsoKind::TcpV6 };
            meta.gso = Gso { kind, size: unit, ecn: false };
            meta.headers_len = headers.len() as u16;
            (meta.checksum, meta.checksum_start, meta.checksum_offset) =
                (Checksum::Partial, start as u16, 16);
        } else {
            let checksum = completed(frame.pieces(start..usize::MAX));
            frame.bytes_mut()[start + 16..start + 18].copy_from_slice(&checksum.to_be_bytes());
        }
        frame
    }
}

/// Sends a super-frame from where its bytes lie; the frame comes back if the port takes none so.
fn send_in_parts(port: &mut PacketPort, pool: &mut Pool, frame: Frame, payload_len: usize) -> Option<Frame> {
    let (mut whole, meta) = (Vec::new(), frame.meta().without_next());
    let (headers, payload) = frame.gather(&mut whole).split_at(frame.chain_len() - payload_len);
    assert!(port.capabilities().takes_parts(&meta, frame.chain_len()));
    if port.send_parts(pool, &meta, [headers, payload]) == SentParts::NotSo {
        return Some(frame);
    }
    pool.release(frame);
    None
}

#[test]
fn a_super_frame_that_the_kernel_refuses_is_not_told_as_sent() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let link = Link::new();
    let mut pool = Pool::new(SUPER_FRAME_CHUNKS + 64).unwrap();
    let mut port = link.open(None);
    port.prepare(&mut pool);
    run(&link.near, "ip", "link set near down");
    let mut headers = [0; 54];
    (headers[12], headers[14], headers[23]) = (8, 0x45, 6);
    let gso = Gso { kind: GsoKind::TcpV4, size: 1000, ecn: false };
    let (checksum, at) = (Checksum::Partial, 34);
    let meta =
        Meta { checksum, headers_len: 54, checksum_start: at, checksum_offset: 16, gso, ..Meta::default() };
    let sent = port.send_parts(&mut pool, &meta, [&headers, &[0; 8000]]);
    let counters = port.counters();
    assert_eq!((sent, counters.super_frames_out.get()), (SentParts::Dropped, 0));
    assert_eq!(counters.drops.get(Reason::PortDown), 1);
    Box::new(port).close().into_iter().for_each(|frame| pool.release(frame));
}

#[test]
fn super_frames_leave_whole_and_in_order_with_the_frames_before_and_after() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    for (with_queue, in_parts) in [(false, false), (false, true), (true, false), (true, true)] {
        let link = Link::new();
        let mut pool = Pool::new(SUPER_FRAME_CHUNKS + 512).unwrap();
        let region = Arc::clone(pool.region());
        let queue = with_queue.then(|| {
            let config = XdpConfig {
                id: PortId::default(),
                ifindex: link.ifindex,
                ring_frames: 64,
                receives: false,
                copy_mode: CopyMode::Copy,
                virtual_device: true,
            };
            link.near.run(|| XdpPort::open(&config, None, &region)).unwrap().unwrap()
        });
        let mut port = link.open(queue);
        port.prepare(&mut pool);
        let capabilities = port.capabilities();
        assert!(capabilities.segmentation.tcp && capabilities.checksum && capabilities.chains);
        for family in [0, 1] {
            let (mut standing, [near, mut far]) = Standing::of(&link, family, &mut port, &mut pool);
            let tap = link.far.run(|| FrameTap::open("far")).unwrap().unwrap();
            // The window that the far side offers at first.
            let lens = [100, 1_000, 45_000, 7, 12_000, 1_400, 1];
            assert!(lens.iter().sum::<usize>() < standing.window, "{}", standing.window);
            let sent = pattern(lens.iter().sum());
            let (mut rest, mut burst) = (&*sent, Burst::new());
            for len in lens {
                let (payload, behind) = rest.split_at(len);
                let frame = standing.frame(payload, 1_400, &mut pool);
                rest = behind;
                if len <= 1_400 || !in_parts {
                    burst.push(frame).unwrap();
                    continue;
                }
                assert!(capabilities.takes(&frame));
                port.transmit(&mut pool, &mut burst);
                if let Some(frame) = send_in_parts(&mut port, &mut pool, frame, len) {
                    assert!(with_queue, "nothing waits");
                    burst.push(frame).unwrap();
                }
            }
            port.transmit(&mut pool, &mut burst);
            port.flush(&mut pool);
            let mut got = vec![0; sent.len()];
            far.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
            far.read_exact(&mut got).unwrap();
            assert!(got == sent, "the bytes of the stream");
            let mut buffer = vec![0; 70_000];
            let mut arrived = Vec::new();
            while let Ok(tapped) = tap.next(&mut buffer) {
                let payload = segment(&buffer[..tapped.kept]).map(|segment| segment.payload().len());
                arrived.extend(payload.filter(|len| *len > 0 && !tapped.outgoing));
            }
            assert_eq!(arrived, lens, "each as one frame, in order");
            drop(near);
        }
        let counters = port.counters();
        assert_eq!((counters.super_frames_out.get(), counters.frames_out.get()), (4, 14));
        assert_eq!(
            counters.segments_out.get(),
            2 * (45_000_u64.div_ceil(1_400) + 12_000_u64.div_ceil(1_400))
        );
        assert_eq!(counters.drops.happened().count(), 0);
        Box::new(port).close().into_iter().for_each(|frame| pool.release(frame));
        assert_eq!(pool.free(), pool.frames());
    }
}
