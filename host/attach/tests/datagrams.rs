//! Datagrams that a peer's kernel sends by one call (`UDP_SEGMENT`) cross a veth pair as one frame. The programs claim it, and
//! the worker's port takes it apart. The test plays the worker.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod common;

use std::net::UdpSocket;

use common::{NEAR, attach, count, ends, plan};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_attach::{AttachPlan, Attachment, DATAGRAM_CHUNKS, pool_frames};
use twinpath_bpf::{DIRECT_SLOTS, Datagrams, describes_datagrams};
use twinpath_claims::Claim;
use twinpath_config::Path;
use twinpath_frame::{Burst, Checksum, Pool};
use twinpath_port::PortQueue;
use twinpath_sys::udp_socket::set_segment_size;
use twinpath_sys::{Namespace, affinity, clock};
use twinpath_test_rig::{ip, root_or_skip, skip, until};
use twinpath_time::{Duration, Instant};
use twinpath_wire::udp_frame::parse;
use twinpath_wire::{ChecksumFound, ChecksumTrust, Protocol};

const PORT: u16 = 7;
const FAR: [&str; 2] = ["10.0.0.2:4000", "[fd00::2]:4000"];

/// A worker's port with a claim on a port of UDP, the service's kernel socket there, and a peer.
struct Rig {
    far: Namespace,
    kernel: UdpSocket,
    attachment: Attachment,
    queue: Box<dyn PortQueue>,
    pool: Pool,
    came: Vec<Vec<u8>>,
    /// The worker's clock, which the test sets: the port opens the direct ring again 1 ms after the last long frame.
    now: Instant,
}

impl Rig {
    fn new(family: usize, mtu: u32, datagrams: Datagrams) -> Self {
        let [near, far] = ends(mtu);
        let kernel = near.run(|| UdpSocket::bind((NEAR[family], PORT))).unwrap().unwrap();
        kernel.set_nonblocking(true).unwrap();
        let mut pool = Pool::new(pool_frames(Path::Packet, 1, 256) + DATAGRAM_CHUNKS).unwrap();
        let addresses = vec![NEAR[family].parse().unwrap()];
        let (plan, claim) = (AttachPlan { datagrams, ..plan() }, Claim::port(Protocol::Udp, PORT));
        let (attachment, mut queue) = attach(&near, addresses, claim, &plan, &pool);
        queue.prepare(&mut pool);
        Self { far, kernel, attachment, queue, pool, came: Vec::new(), now: clock::now() }
    }

    fn peer(&self, family: usize) -> UdpSocket {
        let peer = self.far.run(|| UdpSocket::bind(FAR[family])).unwrap().unwrap();
        peer.connect((NEAR[family], PORT)).unwrap();
        peer
    }

    /// One turn of the worker, which keeps the payloads that come.
    fn turn(&mut self) {
        let mut burst = Burst::new();
        self.queue.receive(self.now, &mut self.pool, &mut burst);
        for frame in burst.drain(usize::MAX) {
            let found = parse(frame.bytes(), ChecksumTrust::AcceptPartial).unwrap();
            if frame.meta().checksum == Checksum::Partial {
                assert_eq!(found.checksum, ChecksumFound::Partial);
            }
            self.came.push(frame.bytes()[found.payload].to_vec());
            self.pool.release(frame);
        }
    }

    /// Turns until the worker may sleep.
    fn fall_asleep(&mut self) {
        until("the worker may sleep", || {
            self.turn();
            self.queue.arm() && !self.queue.look()
        });
    }

    fn wake_up(&mut self) {
        let fd = self.queue.fd().unwrap();
        let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)), Ok(1));
        self.queue.disarm();
    }

    /// What the kernel's socket has got.
    fn of_kernel(&self) -> Vec<Vec<u8>> {
        let next = || {
            let mut buffer = vec![0; 65_536];
            let len = self.kernel.recv(&mut buffer).ok()?;
            Some(buffer[..len].to_vec())
        };
        std::iter::from_fn(next).collect()
    }

    fn close(mut self) {
        drop(self.attachment);
        for frame in self.queue.close() {
            self.pool.release(frame);
        }
        assert_eq!(self.pool.free(), self.pool.frames());
    }
}

/// Sends one call's datagrams, of `segment` bytes each, or a single one with 0. Returns them.
fn send(peer: &UdpSocket, random: &mut fastrand::Rng, segment: u16, len: usize) -> Vec<Vec<u8>> {
    let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
    set_segment_size(peer, segment).unwrap();
    assert_eq!(peer.send(&bytes).unwrap(), len);
    bytes.chunks(if segment == 0 { len } else { segment.into() }).map(<[u8]>::to_vec).collect()
}

fn described_or_skip() -> bool {
    if !describes_datagrams() {
        skip("before Linux 6.2, the kernel does not describe coalesced datagrams to packet sockets");
        return false;
    }
    root_or_skip()
}

#[test]
fn each_datagram_comes_once_and_in_order_whatever_the_worker_does() {
    if !described_or_skip() {
        return;
    }
    // The kernel keeps the order of what one CPU sends.
    affinity::pin_current_thread(affinity::allowed_cpus().unwrap()[0]).unwrap();
    for family in [0, 1] {
        let (mut rig, mut random) = (Rig::new(family, 1_500, Datagrams::All), fastrand::Rng::with_seed(41));
        let (peer, mut calls, mut split) = (rig.peer(family), 0, 0);
        // Until its neighbour is known, the peer's kernel keeps only a few.
        let mut sent = send(&peer, &mut random, 0, 10);
        until("the first one is there", || {
            rig.turn();
            rig.came == sent
        });
        rig.fall_asleep();
        let mut is_asleep = true;
        for round in 0..400 {
            // Of few bytes and of many, a shorter last one or none, within a slot and beyond it, and single ones.
            let segment = [0, 0, 1, 10, 100, 100, 1_000, 1_400][random.usize(..8)];
            let count = if segment == 0 { 1 } else { random.usize(2..=40) };
            let len = (usize::from(segment) * count).saturating_sub(random.usize(..3)).max(4);
            let datagrams = send(&peer, &mut random, segment, len);
            if datagrams.len() > 1 {
                (calls, split) = (calls + 1, split + datagrams.len() as u64);
            }
            sent.extend(datagrams);
            if is_asleep {
                rig.wake_up();
                is_asleep = false;
            }
            match random.u8(..8) {
                0 => {
                    rig.fall_asleep();
                    is_asleep = true;
                }
                1..4 => rig.queue.begin_polling(rig.now),
                4 => {}
                5 => rig.now += Duration::from_millis(1),
                _ => rig.turn(),
            }
            // The socket has room for 4 MiB.
            if round % 16 == 15 {
                until("all are there", || {
                    rig.turn();
                    rig.came.len() >= sent.len()
                });
                if is_asleep {
                    rig.queue.disarm();
                    is_asleep = false;
                }
            }
        }
        until("all are there", || {
            rig.turn();
            rig.came.len() >= sent.len()
        });
        assert!(rig.came == sent, "each once, in order, and unchanged");
        assert_eq!(rig.of_kernel().len(), 0);
        let counts = ["claimed_large", "coalesced"].map(|name| count(&rig.attachment, name));
        assert_eq!(counts, [calls, 0]);
        let counters = rig.queue.counters();
        assert_eq!((counters.frames_split.get(), counters.frames_in.get()), (split, sent.len() as u64));
        assert!(counters.frames_direct.get() > 0);
        rig.close();
    }
}

#[test]
fn a_worker_without_a_socket_gets_one_once_its_ring_has_no_room_for_coalesced_datagrams() {
    if !described_or_skip() {
        return;
    }
    let plan = plan();
    if !plan.tc.ends_with_process() {
        return skip("this kernel has no BPF links at tc: every worker has a socket");
    }
    let (mut rig, mut random) = (Rig::new(0, 1_500, Datagrams::All), fastrand::Rng::with_seed(42));
    let peer = rig.peer(0);
    let single = send(&peer, &mut random, 0, 50);
    until("it has come", || {
        rig.turn();
        rig.came == single
    });
    rig.came.clear();
    // As many as the ring has slots; the kernel has those that follow.
    let sent: Vec<_> = (0..8).flat_map(|_| send(&peer, &mut random, 100, 6_400)).collect();
    assert_eq!(sent.len(), DIRECT_SLOTS as usize);
    let late = send(&peer, &mut random, 100, 1_000);
    let mut kernel = Vec::new();
    until("the kernel has them", || {
        kernel.extend(rig.of_kernel());
        kernel.len() >= late.len()
    });
    assert!(kernel == late);
    until("the worker has the others", || {
        rig.turn();
        rig.came.len() >= sent.len()
    });
    assert!(rig.came == sent);
    assert_eq!(rig.queue.counters().frames_split.get(), u64::from(DIRECT_SLOTS));
    // One turn to bind the socket, and one to let it decide.
    rig.turn();
    rig.turn();
    rig.came.clear();
    let mut sent = send(&peer, &mut random, 100, 1_000);
    sent.extend(send(&peer, &mut random, 0, 70));
    sent.extend(send(&peer, &mut random, 1_000, 30_000));
    until("the worker has them", || {
        rig.turn();
        rig.came.len() >= sent.len()
    });
    assert!(rig.came == sent);
    assert_eq!(rig.of_kernel().len(), 0);
    assert_eq!(count(&rig.attachment, "claimed_large"), 8 + 2);
    rig.close();
}

#[test]
fn what_does_not_fit_into_a_frame_and_what_is_not_asked_for_is_the_kernels() {
    if !described_or_skip() {
        return;
    }
    for (datagrams, segment) in [(Datagrams::All, 2_000), (Datagrams::None, 100)] {
        for family in [0, 1] {
            let (mut rig, mut random) = (Rig::new(family, 3_000, datagrams), fastrand::Rng::with_seed(43));
            let peer = rig.peer(family);
            rig.fall_asleep();
            let sent = send(&peer, &mut random, segment, 9 * usize::from(segment) + 1);
            let mut kernel = Vec::new();
            until("the kernel has them", || {
                rig.turn();
                kernel.extend(rig.of_kernel());
                kernel.len() >= sent.len()
            });
            assert!(kernel == sent && rig.came.is_empty());
            let counts = ["claimed_large", "coalesced"].map(|name| count(&rig.attachment, name));
            assert_eq!(counts, [0, 1]);
            rig.close();
        }
    }
}

#[test]
fn segments_within_a_tunnel_to_a_claimed_port_are_the_kernels() {
    if !described_or_skip() {
        return;
    }
    let (mut rig, mut random) = (Rig::new(0, 1_500, Datagrams::All), fastrand::Rng::with_seed(44));
    let tunnel = format!("link add vx type vxlan id 9 remote {} dstport {PORT} udpcsum dev far", NEAR[0]);
    for arguments in [
        &*tunnel,
        "addr add 192.0.2.2/24 dev vx",
        "link set vx up",
        "neigh add 192.0.2.1 lladdr 02:00:00:00:00:09 dev vx",
    ] {
        ip(&rig.far, arguments);
    }
    let inner = rig.far.run(|| UdpSocket::bind("192.0.2.2:4000")).unwrap().unwrap();
    inner.connect("192.0.2.1:9").unwrap();
    send(&rig.peer(0), &mut random, 0, 10);
    until("the way is known", || {
        rig.turn();
        !rig.came.is_empty()
    });
    rig.came.clear();
    send(&inner, &mut random, 100, 1_000);
    until("the kernel has it", || {
        rig.turn();
        count(&rig.attachment, "coalesced") > 0
    });
    assert_eq!(count(&rig.attachment, "claimed_large"), 0);
    assert!(rig.came.is_empty());
    rig.close();
}
