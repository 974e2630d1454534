//! A whole worker over a loopback port, driven turn by turn: no thread, no device, no sleep.

mod fast_tcp;
mod late;
mod sends;
mod wire;

use std::net::SocketAddr;

use twinpath_frame::Burst;
use twinpath_inspect::Reason;
use twinpath_port::PortQueue;
use twinpath_service::{Answer, Datagram, Service};
use twinpath_sys::allocations::Counting;
use twinpath_time::Instant;
use twinpath_udp::egress::{Egress, KernelReason};
use twinpath_worker::{Command, Event};

use self::wire::{Rig, WAY_BACK};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_peer_is_answered_by_the_kernel_until_its_way_out_is_known() {
    let mut rig = Rig::new();
    // On the wire a loopback source is a martian.
    rig.ask("127.0.0.2:4000", b"martian");
    assert!(rig.turn());
    assert_eq!(rig.counters.drops.get(Reason::MartianSource), 1);

    // It does not matter whether the kernel has a route to this peer: the test checks which path the reply
    // took.
    rig.ask("198.51.100.7:4000", b"first");
    rig.turn();
    assert_eq!(rig.replies(), []);
    assert_eq!(rig.serve.fast_replies_by_kernel.get(), 1);
    assert_eq!(rig.asked_about(), Some("198.51.100.7".parse().expect("ip")));

    rig.learn("198.51.100.7", Ok(WAY_BACK));
    rig.ask("198.51.100.7:4000", b"second");
    rig.turn();
    assert_eq!(rig.replies(), [("198.51.100.7:4000".parse().expect("address"), b"second".to_vec())]);
    assert_eq!((rig.serve.fast_requests.get(), rig.serve.fast_replies.get()), (2, 1));

    rig.learn("198.51.100.7", Err(KernelReason::OtherInterface));
    rig.ask("198.51.100.7:4000", b"third");
    rig.turn();
    assert_eq!((rig.replies().len(), rig.serve.fast_replies_by_kernel.get()), (0, 2));
}

#[test]
fn replies_to_unknown_peers_of_a_network_that_does_not_resolve_are_dropped_and_counted() {
    let mut rig = Rig::new();
    let unresolved = || Err(KernelReason::UnresolvedPeer { prefix_len: 16 });
    for number in 0..200 {
        rig.learn(&format!("198.51.7.{number}"), unresolved());
    }
    rig.learn("198.51.8.1", Ok(WAY_BACK));
    let mut outcome = |peer: &str| {
        let (by_kernel, dropped) =
            (rig.serve.fast_replies_by_kernel.get(), rig.counters.drops.get(Reason::UnresolvedPeers));
        rig.ask(&format!("{peer}:4000"), b"request");
        rig.turn();
        let kernel = rig.serve.fast_replies_by_kernel.get() - by_kernel;
        let dropped = rig.counters.drops.get(Reason::UnresolvedPeers) - dropped;
        (rig.replies().len(), kernel, dropped, rig.asked_about().is_some())
    };
    assert_eq!(outcome("198.51.7.7"), (0, 0, 1, false), "did not resolve");
    assert_eq!(outcome("198.51.9.9"), (0, 0, 1, false), "nobody knows it");
    assert_eq!(outcome("198.51.8.1"), (1, 0, 0, false), "has an answer");
    assert_eq!(outcome("198.52.9.9"), (0, 1, 0, true), "of another network");
    assert_eq!(rig.pool.free(), rig.pool.frames());
}

/// Answers with `len` bytes of the request, and says whether such services could loop.
struct Careful {
    len: usize,
    may_loop: bool,
}

impl Service for Careful {
    type Connection = ();

    fn datagram(&mut self, _: &mut Datagram<'_>) -> Answer {
        Answer::Reply { len: self.len }
    }

    fn accept(&mut self, _: Instant, _: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn may_loop(&self) -> bool {
        self.may_loop
    }
}

/// The number of ten requests from one source that are answered on each path. A source may get two replies
/// together, and a third one soon after.
fn answered_of_ten<S: Service + 'static>(service: S) -> (usize, usize, u64) {
    let mut rig = Rig::limited(service, None, 10);
    // A token bucket holds 200 ms of the rate.
    rig.now = 1_000_000_000;
    rig.learn("198.51.100.7", Ok(WAY_BACK));
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    client.set_nonblocking(true).expect("set");
    let (mut fast, mut by_kernel) = (0, 0);
    for _ in 0..10 {
        rig.ask("198.51.100.7:4000", b"request");
        client.send_to(b"request", rig.server).expect("sent");
        rig.turn();
        fast += rig.replies().len();
        by_kernel += usize::from(client.recv(&mut [0; 64]).is_ok());
    }
    assert_eq!(rig.pool.free(), rig.pool.frames());
    (fast, by_kernel, rig.counters.drops.get(Reason::ReplyRate))
}

#[test]
fn replies_that_could_loop_are_limited_per_source_on_both_paths() {
    assert_eq!(answered_of_ten(Careful { len: 7, may_loop: true }), (3, 3, 14));
    assert_eq!(answered_of_ten(twinpath_service::Echo), (3, 3, 14));
    assert_eq!(answered_of_ten(Careful { len: 6, may_loop: true }), (10, 10, 0), "shorter than its request");
    assert_eq!(answered_of_ten(Careful { len: 7, may_loop: false }), (10, 10, 0), "says that it cannot loop");
}

#[test]
fn a_reply_beyond_the_path_mtu_leaves_by_the_kernel() {
    let mut rig = Rig::new();
    rig.learn("198.51.100.7", Ok(Egress { mtu: 600, ..WAY_BACK }));
    rig.ask("198.51.100.7:4000", &[7; 1000]);
    rig.turn();
    assert_eq!((rig.replies().len(), rig.serve.fast_replies_by_kernel.get()), (0, 1));
    rig.ask("198.51.100.7:4000", &[7; 500]);
    rig.turn();
    assert_eq!(rig.replies().len(), 1);
}

#[test]
fn a_step_of_the_clock_either_way_leaves_every_peer_served() {
    let mut rig = Rig::new();
    rig.learn("198.51.100.7", Ok(WAY_BACK));
    let peer = "198.51.100.7:4000";
    let year: u64 = 365 * 24 * 3_600 * 1_000_000_000;
    for (round, now) in [(0, 5), (1, 10 * year), (2, 0), (3, u64::MAX - 10_000_000), (4, year)] {
        rig.now = now;
        rig.ask(peer, &[round; 32]);
        rig.turn();
        // A peer that has not been used for long may be forgotten: then it is asked about again, and the
        // kernel's socket answers meanwhile.
        if rig.replies().is_empty() {
            assert_eq!(rig.asked_about(), Some("198.51.100.7".parse().expect("ip")));
            rig.learn("198.51.100.7", Ok(WAY_BACK));
            rig.ask(peer, &[round; 32]);
            rig.turn();
            assert_eq!(rig.replies(), [(peer.parse().expect("address"), vec![round; 32])]);
        }
    }
    assert_eq!(rig.pool.free(), rig.pool.frames());
}

/// More than a few bursts.
const WAITING: u8 = 150;

#[test]
fn what_waits_in_a_ring_is_served_before_the_queue_is_given_back_and_before_the_end() {
    let peer = "198.51.100.7:4000";
    let with_requests = || {
        let mut rig = Rig::new();
        rig.learn("198.51.100.7", Ok(WAY_BACK));
        (0..WAITING).for_each(|number| rig.ask(peer, &[number; 32]));
        rig
    };
    let mut rig = with_requests();
    assert!(rig.commands.send(Command::Detach { ifindex: 0 }).is_ok());
    rig.turn();
    let replies = std::iter::from_fn(|| Some(rig.replies()).filter(|replies| !replies.is_empty()));
    let numbers: Vec<_> = replies.flatten().map(|(_, reply)| reply[0]).collect();
    assert_eq!(numbers, (0..WAITING).collect::<Vec<_>>());
    assert!(std::iter::from_fn(|| rig.events.take()).any(|event| matches!(event, Event::Detached(_))));

    let (mut wire, mut pool) = with_requests().end();
    let (mut burst, mut served) = (Burst::new(), 0);
    loop {
        wire.receive(Instant::ZERO, &mut pool, &mut burst);
        if burst.is_empty() {
            break;
        }
        served += burst.len();
        burst.release(usize::MAX, &mut pool);
    }
    assert_eq!(served, usize::from(WAITING));
}

#[test]
fn a_local_client_is_served_through_the_kernels_socket() {
    let mut rig = Rig::new();
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    client.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("set");
    for round in 0..3u8 {
        client.send_to(&[round; 3000], rig.server).expect("sent");
        // On loopback the datagram is in the socket when send_to returns.
        assert!(rig.turn());
        let mut buffer = [0; 4096];
        let (len, from) = client.recv_from(&mut buffer).expect("an answer");
        assert_eq!((&buffer[..len], from), (&[round; 3000][..], rig.server));
    }
    assert_eq!((rig.serve.kernel_requests.get(), rig.serve.kernel_replies.get()), (3, 3));
}

#[test]
fn hostile_frames_are_counted_and_the_pool_stays_whole() {
    let mut rig = Rig::new();
    rig.learn("198.51.100.7", Ok(WAY_BACK));
    rig.ask("198.51.100.7:53", b"from a DNS server");
    rig.ask("255.255.255.255:4000", b"from everybody");
    let mut burst = Burst::new();
    for len in 0..60 {
        let mut frame = rig.pool.take().expect("free");
        frame.copy_from(&vec![0xff; len]).expect("fits");
        burst.push(frame).expect("room");
    }
    rig.wire.transmit(&mut rig.pool, &mut burst);
    while rig.turn() {}
    assert_eq!(rig.replies(), []);
    let drops = &rig.counters.drops;
    assert_eq!((drops.get(Reason::ServiceSourcePort), drops.get(Reason::MartianSource)), (1, 1));
    assert_eq!(drops.get(Reason::Truncated) + drops.get(Reason::NotClaimed), 60);
    assert_eq!(rig.pool.free(), rig.pool.frames());
}
