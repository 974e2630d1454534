//! Tests that coalesced datagrams are taken apart: a kernel socket at the other end of a veth pair sends many by one call,
//! without any BPF program. The port sees a copy of what the kernel receives.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::convert::Infallible;
use std::net::UdpSocket;
use std::os::fd::BorrowedFd;

use twinpath_frame::{Burst, Checksum, Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_packet::{DATAGRAM_CHUNKS, PacketConfig, PacketPort};
use twinpath_port::{PortId, PortQueue, WaitSource};
use twinpath_sys::Namespace;
use twinpath_sys::udp_socket::set_segment_size;
use twinpath_test_rig::{End, ifindex, pair, root_or_skip, until};
use twinpath_wire::offload::{Headers, completed};
use twinpath_wire::udp_frame::parse;
use twinpath_wire::{ChecksumFound, ChecksumTrust};

const TO: [&str; 2] = ["10.0.0.1:7", "[fd00::1]:7"];
const FROM: [&str; 2] = ["10.0.0.2:4000", "[fd00::2]:4000"];

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
        let ifindex = ifindex(&near, "near");
        Self { near, far, ifindex }
    }

    fn open(&self) -> PacketPort {
        let config = PacketConfig {
            id: PortId::default(),
            ifindex: self.ifindex,
            ring_slots: 256,
            fanout_group: None,
            binds_late: false,
            bypass_qdisc: true,
            super_frames: false,
            datagrams: true,
        };
        let filter = |_: BorrowedFd<'_>| Ok::<(), Infallible>(());
        self.near.run(|| PacketPort::open(&config, filter, None, None)).unwrap().unwrap()
    }

    fn sender(&self, family: usize, segment: u16) -> UdpSocket {
        let socket = self.far.run(|| UdpSocket::bind(FROM[family])).unwrap().unwrap();
        set_segment_size(&socket, segment).unwrap();
        socket
    }
}

/// The payload of a frame, if it is a datagram of the test. Its checksum must be right once it is completed.
fn payload(frame: &Frame) -> Option<Vec<u8>> {
    let mut bytes = frame.bytes().to_vec();
    let datagram =
        parse(&bytes, ChecksumTrust::AcceptPartial).ok().filter(|found| found.destination.port() == 7)?;
    let (found, payload) = (datagram.checksum, bytes[datagram.payload].to_vec());
    if frame.meta().checksum == Checksum::Partial {
        assert_eq!(found, ChecksumFound::Partial);
        let headers = Headers::find(&bytes).unwrap();
        assert_eq!(usize::from(frame.meta().checksum_start), headers.transport_at);
        let checksum = completed([&bytes[headers.transport_at..]]);
        bytes[headers.checksum_at()..][..2].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(parse(&bytes, ChecksumTrust::Verify).unwrap().checksum, ChecksumFound::Right);
    }
    Some(payload)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn each_datagram_arrives_as_its_sender_has_cut_it() {
    if !root_or_skip() {
        return;
    }
    let link = Link::new();
    let (mut port, mut pool) = (link.open(), Pool::new(DATAGRAM_CHUNKS + 256).unwrap());
    port.prepare(&mut pool);
    let free = pool.free();
    for (family, to) in TO.into_iter().enumerate() {
        // Within a slot; longer than a slot; as long and as many as they can be; one byte each; a single one.
        for (segment, len) in
            [(100, 1_030), (100, 4_000), (1_000, 63_500), (1, 64), (1_400, 40_001), (500, 500)]
        {
            let sender = link.sender(family, segment);
            let sent = pattern(len);
            sender.send_to(&sent, to).unwrap();
            let mut came = Vec::new();
            let mut burst = Burst::new();
            until("all datagrams are there", || {
                port.receive(twinpath_sys::clock::now(), &mut pool, &mut burst);
                came.extend(burst.frames().iter().filter_map(payload));
                burst.release(usize::MAX, &mut pool);
                came.len() >= len.div_ceil(usize::from(segment))
            });
            let wanted: Vec<_> = sent.chunks(usize::from(segment)).map(<[u8]>::to_vec).collect();
            assert!(came == wanted, "{len} bytes in datagrams of {segment}");
        }
    }
    assert_eq!(pool.free(), free);
    Box::new(port).close().into_iter().for_each(|frame| pool.release(frame));
}

#[test]
fn what_has_no_room_in_a_burst_waits_and_what_has_no_frames_is_dropped_and_counted() {
    if !root_or_skip() {
        return;
    }
    let link = Link::new();
    let (mut port, mut pool) = (link.open(), Pool::new(64).unwrap());
    port.prepare(&mut pool);
    let (sender, counters) = (link.sender(0, 100), port.counters().clone());
    let mut burst = Burst::new();
    burst.set_limit(10);
    let mut came = 0;
    sender.send_to(&pattern(4_000), TO[0]).unwrap();
    until("the first ten are there", || {
        port.receive(twinpath_sys::clock::now(), &mut pool, &mut burst);
        came += burst.frames().iter().filter_map(payload).count();
        burst.release(usize::MAX, &mut pool);
        came > 0
    });
    assert!(came < 40 && port.look() && !port.arm(), "the others wait, and the worker may not sleep");
    until("the others are there", || {
        port.receive(twinpath_sys::clock::now(), &mut pool, &mut burst);
        came += burst.frames().iter().filter_map(payload).count();
        burst.release(usize::MAX, &mut pool);
        came == 40
    });
    // With fewer frames than datagrams, none is passed on, in a slot or beyond it.
    let kept: Vec<_> = (0..40).map(|_| pool.take().unwrap()).collect();
    for len in [1_000, 4_000] {
        let segment = len / 40;
        set_segment_size(&sender, segment as u16).unwrap();
        let before = counters.drops.get(Reason::PoolEmpty);
        sender.send_to(&pattern(len), TO[0]).unwrap();
        until("it is dropped", || {
            port.receive(twinpath_sys::clock::now(), &mut pool, &mut burst);
            assert_eq!(burst.frames().iter().filter_map(payload).count(), 0);
            burst.release(usize::MAX, &mut pool);
            counters.drops.get(Reason::PoolEmpty) == before + 1
        });
    }
    kept.into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), pool.frames());
    // Those that wait at the end are given back.
    set_segment_size(&sender, 100).unwrap();
    sender.send_to(&pattern(4_000), TO[0]).unwrap();
    until("some wait", || {
        port.receive(twinpath_sys::clock::now(), &mut pool, &mut burst);
        burst.release(usize::MAX, &mut pool);
        port.look()
    });
    Box::new(port).close().into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), pool.frames());
}

#[test]
fn what_the_sockets_queue_has_no_room_for_is_lost_whole_and_counted() {
    if !root_or_skip() {
        return;
    }
    const FRAMES: usize = 150;
    const EACH: usize = 50;
    let link = Link::new();
    let (mut port, mut pool) = (link.open(), Pool::new(DATAGRAM_CHUNKS + 256).unwrap());
    port.prepare(&mut pool);
    let (sender, counters) = (link.sender(0, 1_200), port.counters().clone());
    let (mut burst, mut came) = (Burst::new(), Vec::new());
    // Until its neighbour is known, the peer's kernel keeps only a few.
    sender.send_to(b"first", TO[0]).unwrap();
    until("it is there", || {
        port.receive(twinpath_sys::clock::now(), &mut pool, &mut burst);
        came.extend(burst.frames().iter().filter_map(payload));
        burst.release(usize::MAX, &mut pool);
        came.pop().is_some()
    });
    // 9 MB, and the queue has 4 MiB of the kernel's memory.
    for number in 0..FRAMES {
        sender.send_to(&vec![number as u8; EACH * 1_200], TO[0]).unwrap();
    }
    // One that fits into its slot.
    set_segment_size(&sender, 100).unwrap();
    sender.send_to(&[0xff; 1_000], TO[0]).unwrap();
    until("the last ones are there", || {
        port.receive(twinpath_sys::clock::now(), &mut pool, &mut burst);
        came.extend(burst.frames().iter().filter_map(payload));
        burst.release(usize::MAX, &mut pool);
        came.ends_with(&vec![vec![0xff; 100]; 10])
    });
    came.truncate(came.len() - 10);
    let lost = counters.ring_full.get() as usize;
    assert!(lost > 0 && came.len() == (FRAMES - lost) * EACH, "{} came, {lost} frames lost", came.len());
    assert!(came.chunks(EACH).all(|chunk| chunk.iter().all(|part| *part == vec![chunk[0][0]; 1_200])));
    assert_eq!(counters.frames_split.get() as usize, came.len() + 10);
    assert_eq!(counters.drops.happened().count(), 0);
    Box::new(port).close().into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), pool.frames());
}
