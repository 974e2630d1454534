//! A connection that the kernel opened becomes a worker's: its tuple is put into the programs' table. The test plays the
//! worker, which acknowledges what it gets; the peer is the kernel's TCP at the other end of a veth pair.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod common;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{NEAR, attach, count, ends, plan};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_attach::{AttachPlan, SUPER_FRAME_CHUNKS, pool_frames};
use twinpath_bpf::TcpFlows;
use twinpath_claims::Claim;
use twinpath_config::Path;
use twinpath_frame::{Burst, Frame, Pool};
use twinpath_port::PortQueue;
use twinpath_sys::frame_tap::FrameTap;
use twinpath_test_rig::run;
use twinpath_wire::offload::completed;
use twinpath_wire::tcp::{Flags, Header, Segment};
use twinpath_wire::{ipv4, ipv6};

const PORT: u16 = 7;
const ETH_LEN: usize = 14;
/// The window that the worker offers: with the scale that the kernel chose, a few hundred KiB.
const WINDOW: u16 = 4_096;
/// Busy turns after which the worker no longer waits on its port, and empty ones after which it sleeps, once large
/// segments have come.
const BUSY_STREAK: u32 = 4;
const EMPTY_STREAK: u32 = 2_000;

fn now() -> twinpath_time::Instant {
    twinpath_sys::clock::now()
}

/// The worker's end of a connection: takes the bytes of the stream, and acknowledges them.
#[derive(Default)]
struct Receiver {
    /// Where the stream begins, as the connection's first segment says.
    begins: Option<u32>,
    stream: Vec<u8>,
    /// Later parts, by their place in the stream.
    later: BTreeMap<usize, Vec<u8>>,
    longest: usize,
}

impl Receiver {
    /// Takes a frame. Returns the bytes of an acknowledgement, if it has a payload.
    fn take(&mut self, frame: &Frame) -> Option<Vec<u8>> {
        let whole: Vec<u8> = frame.chain().flat_map(Frame::bytes).copied().collect();
        let is_ipv4 = whole[12..ETH_LEN] == [8, 0];
        let headers = ETH_LEN + if is_ipv4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let segment = Segment::parse(&whole[headers..]).unwrap();
        if segment.payload().is_empty() {
            return None;
        }
        let begins = *self.begins.get_or_insert(segment.sequence());
        let place = segment.sequence().wrapping_sub(begins) as usize;
        self.longest = self.longest.max(whole.len());
        self.later.insert(place, segment.payload().to_vec());
        while let Some(entry) = self.later.first_entry().filter(|entry| *entry.key() <= self.stream.len()) {
            let (place, part) = entry.remove_entry();
            let known = self.stream.len() - place;
            self.stream.extend_from_slice(part.get(known..).unwrap_or_default());
        }
        let header = Header {
            source_port: segment.destination_port(),
            destination_port: segment.source_port(),
            sequence: segment.acknowledgement(),
            acknowledgement: begins.wrapping_add(self.stream.len() as u32),
            flags: Flags(Flags::ACK),
            window: WINDOW,
            urgent: 0,
        };
        Some(acknowledgement(&whole[..headers], header))
    }
}

/// A segment without payload, back to where a frame with these headers came from.
fn acknowledgement(headers: &[u8], header: Header) -> Vec<u8> {
    let mut bytes = [&headers[6..12], &headers[..6], &headers[12..]].concat();
    let mut tcp = [0; 20];
    header.emit(&[], &mut tcp).unwrap();
    let len = tcp.len() as u16;
    let pseudo = if headers.len() == ETH_LEN + ipv4::HEADER_LEN {
        let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&headers[at..at + 4]).unwrap());
        let (source, destination) = (address(30), address(26));
        let (protocol, hop_limit, identification, payload_len) = (6, 64, 0, tcp.len());
        let repr = ipv4::Repr { source, destination, protocol, hop_limit, identification, payload_len };
        repr.emit(&mut bytes[ETH_LEN..]).unwrap();
        twinpath_wire::checksum::Sum::ZERO.pseudo_ipv4(source, destination, protocol, len)
    } else {
        let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&headers[at..at + 16]).unwrap());
        let (source, destination) = (address(38), address(22));
        let repr = ipv6::Repr { source, destination, next_header: 6, hop_limit: 64, payload_len: tcp.len() };
        repr.emit(&mut bytes[ETH_LEN..]).unwrap();
        twinpath_wire::checksum::Sum::ZERO.pseudo_ipv6(source, destination, 6, len.into())
    };
    tcp[16..18].copy_from_slice(&pseudo.fold().to_be_bytes());
    let checksum = completed([&tcp[..]]);
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend(tcp);
    bytes
}

/// The turns of a worker until the stream has `len` bytes. `progress` says how many it has.
fn serve(
    queue: &mut dyn PortQueue,
    pool: &mut Pool,
    receiver: &mut Receiver,
    len: usize,
    progress: &AtomicUsize,
) {
    let (mut burst, mut replies, mut streak, mut empty) = (Burst::new(), Burst::new(), 0, 0);
    while receiver.stream.len() < len {
        queue.receive(now(), pool, &mut burst);
        if burst.is_empty() {
            empty += 1;
            let may_sleep = empty >= EMPTY_STREAK && receiver.longest > 2_000;
            if may_sleep && queue.arm() && !queue.look() {
                let fd = queue.fd().unwrap();
                let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
                let woken = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout));
                assert_eq!(woken, Ok(1), "a frame wakes the worker");
                queue.disarm();
                streak = 0;
            }
            continue;
        }
        for frame in burst.drain(usize::MAX) {
            if let Some(bytes) = receiver.take(&frame) {
                replies.push(pool.copy_of([&*bytes]).unwrap()).unwrap();
            }
            pool.release(frame);
        }
        queue.transmit(pool, &mut replies);
        queue.flush(pool);
        progress.store(receiver.stream.len(), Ordering::SeqCst);
        (streak, empty) = (streak + 1, 0);
        if streak == BUSY_STREAK {
            queue.begin_polling(now());
        }
    }
}

/// What the peer sends: small segments, then large ones, and so on.
fn writes() -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(5);
    let mut write = |at: u32| {
        let len = if at % 100 < 90 { random.usize(1..1_000) } else { random.usize(1_000..300_000) };
        (0..len).map(|_| random.u8(..)).collect()
    };
    (0..300).map(&mut write).collect()
}

#[test]
fn small_and_large_segments_of_a_workers_connection_arrive_whole_without_a_reset() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    for family in [0, 1] {
        check(family);
    }
}

/// Checks that none of the frames that have arrived on the peer's side is a reset.
fn expect_no_reset(tap: &FrameTap) {
    let mut buffer = vec![0; 70_000];
    while let Ok(tapped) = tap.next(&mut buffer) {
        let frame = &buffer[..tapped.kept];
        let headers =
            ETH_LEN + if frame[12..ETH_LEN] == [8, 0] { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let is_tcp = frame[headers - if headers == 34 { 11 } else { 34 }] == 6;
        if !tapped.outgoing && is_tcp {
            assert_eq!(frame[headers + 13] & Flags::RST, 0, "no reset");
        }
    }
}

fn check(family: usize) {
    let [near, far] = ends(1_500);
    // Acknowledgements that the test writes have no time stamps.
    run(&far, "sysctl", "-qw net.ipv4.tcp_timestamps=0");
    let address: IpAddr = NEAR[family].parse().unwrap();
    let flows = Arc::new(TcpFlows::load(1).unwrap());
    let mut pool = Pool::new(pool_frames(Path::Packet, 1, 256) + SUPER_FRAME_CHUNKS).unwrap();
    let plan = AttachPlan { connections: Some(Arc::clone(&flows)), super_frames: true, ..plan() };
    let (attachment, mut queue) = attach(&near, vec![address], Claim::connections(PORT), &plan, &pool);
    queue.prepare(&mut pool);

    let listener = near.run(|| TcpListener::bind((address, PORT))).unwrap().unwrap();
    flows.guard(listener.as_fd()).unwrap();
    let tap = far.run(|| FrameTap::open("far")).unwrap().unwrap();
    let mut peer = far.run(|| TcpStream::connect((address, PORT))).unwrap().unwrap();
    // The kernel's own end stays silent from here on.
    let (own, remote) = listener.accept().unwrap();
    flows.claims(0).unwrap().insert(own.local_addr().unwrap(), remote).unwrap();

    let (mut receiver, writes) = (Receiver::default(), writes());
    let sent = writes.concat();
    let progress = &AtomicUsize::new(0);
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            peer.set_nodelay(true).unwrap();
            let mut sent = 0;
            for part in &writes {
                peer.write_all(part).unwrap();
                sent += part.len();
                // Small ones leave one by one.
                while part.len() < 1_000 && progress.load(Ordering::SeqCst) < sent {
                    thread::yield_now();
                }
            }
            peer
        });
        serve(&mut *queue, &mut pool, &mut receiver, sent.len(), progress);
        drop(writer.join().unwrap());
    });
    assert!(receiver.stream == sent, "the bytes of the stream");
    assert!(receiver.longest > 40_000, "{} bytes", receiver.longest);

    assert!(count(&attachment, "claimed_large") > 0);
    assert_eq!(count(&attachment, "tcp_too_large"), 0);
    let counters = queue.counters();
    assert!(counters.frames_direct.get() > 0 && counters.super_frames_in.get() > 0);
    expect_no_reset(&tap);
    drop(attachment);
    queue.close().into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), pool.frames());
}
