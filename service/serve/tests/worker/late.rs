//! Datagrams that are answered later, and replies longer than a frame: by both paths, driven turn by turn.

use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};

use twinpath_port::PortId;
use twinpath_port::loopback::pair;
use twinpath_serve::{HandlerPool, ServeCommand, ServeEvent};
use twinpath_service::{Answer, Datagram, Reason, Service};
use twinpath_sys::Namespace;
use twinpath_time::{Duration, Instant};
use twinpath_udp::egress::KernelReason;
use twinpath_worker::thread::PoolLimits;
use twinpath_worker::{Command, Event};

use crate::wire::{Rig, WAY_BACK};

/// The longest wait for an expected event.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// Answers a number with that many bytes immediately. It answers anything else later, when the test allows
/// it: with the request itself or, for `long`, with more than fits into a frame. The work `fail` panics.
/// After `gone`, late replies are refused as if the peer were gone. Deferred requests are numbered, and
/// `ended` has the numbers of those that have ended.
#[derive(Clone, Default)]
struct Slow {
    go: Arc<(Mutex<u32>, Condvar)>,
    gone: bool,
    numbers: u64,
    ended: Arc<Mutex<Vec<u64>>>,
}

impl Service for Slow {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let request = datagram.request().to_vec();
        if let Ok(len) = String::from_utf8_lossy(&request).parse() {
            return datagram.answer(&vec![b'x'; len]);
        }
        if request == b"gone" {
            self.gone = true;
        }
        let go = Arc::clone(&self.go);
        self.numbers += 1;
        datagram.later_as(self.numbers, move || {
            let mut leave = go.0.lock().expect("no panic holds it");
            while *leave == 0 {
                leave = go.1.wait(leave).expect("no panic holds it");
            }
            *leave -= 1;
            drop(leave);
            assert_ne!(request, b"fail");
            if request == b"long" { vec![b'l'; 5_000] } else { request }
        })
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn late_reply(&mut self, _now: Instant, _: SocketAddr, number: u64, _: &[u8]) -> Result<(), Reason> {
        self.ended.lock().expect("no panic holds it").push(number);
        if self.gone { Err(Reason::LateReply) } else { Ok(()) }
    }

    fn defers(&self) -> bool {
        true
    }
}

const POOL: PoolLimits = PoolLimits {
    threads_min: 1,
    threads_max: 4,
    requests: 8,
    connection_requests: 3,
    datagram_requests: 5,
    idle: Duration::from_secs(10),
};

const PEER: &str = "198.51.100.7:4000";

struct Late {
    rig: Rig<Slow>,
    go: Arc<(Mutex<u32>, Condvar)>,
    ended: Arc<Mutex<Vec<u64>>>,
}

impl Late {
    fn new() -> Self {
        let service = Slow::default();
        let (go, ended) = (Arc::clone(&service.go), Arc::clone(&service.ended));
        let mut rig = Rig::serving(service, Some(HandlerPool::new(POOL, None).expect("threads")));
        rig.learn("198.51.100.7", Ok(WAY_BACK));
        Self { rig, go, ended }
    }

    fn ask(&mut self, from: &str, what: &[u8]) {
        self.rig.ask(from, what);
        self.rig.turn();
    }

    /// Lets `count` pieces of work end, and turns until their replies have been taken.
    fn go(&mut self, count: u32) {
        let done = self.rig.serve.deferred_done.get() + u64::from(count);
        *self.go.0.lock().expect("no panic holds it") += count;
        self.go.1.notify_all();
        let begun = std::time::Instant::now();
        while self.rig.serve.deferred_done.get() < done {
            assert!(begun.elapsed() < PATIENCE);
            self.rig.turn();
            std::thread::yield_now();
        }
        self.rig.turn();
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.rig.counters.drops.get(reason)
    }
}

#[test]
fn a_reply_that_comes_later_leaves_by_the_fast_path_to_whom_it_is_for() {
    let mut late = Late::new();
    late.ask(PEER, b"first");
    late.ask("198.51.100.7:4001", b"second");
    assert_eq!((late.rig.replies(), late.rig.serve.deferred.get()), (vec![], 2));
    late.go(2);
    let mut replies = late.rig.replies();
    replies.sort();
    let expected = [(PEER, "first"), ("198.51.100.7:4001", "second")];
    assert_eq!(
        replies,
        expected.map(|(peer, reply)| (peer.parse().expect("address"), reply.as_bytes().to_vec()))
    );
    assert_eq!((late.rig.serve.fast_replies.get(), late.rig.serve.deferred.get()), (2, 0));
    assert_eq!(late.rig.pool.free(), late.rig.pool.frames());
    // The route has changed meanwhile, so the kernel's socket sends the reply.
    late.ask(PEER, b"third");
    late.rig.learn("198.51.100.7", Err(KernelReason::OtherInterface));
    late.go(1);
    assert_eq!((late.rig.replies(), late.rig.serve.fast_replies_by_kernel.get()), (vec![], 1));
}

#[test]
fn a_reply_that_comes_later_leaves_by_the_socket_its_request_came_through() {
    let mut late = Late::new();
    let client = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    client.set_read_timeout(Some(PATIENCE)).expect("set");
    for what in [&b"local"[..], b"long"] {
        client.send_to(what, late.rig.server).expect("sent");
        assert!(late.rig.turn());
        late.go(1);
        let mut buffer = [0; 8192];
        let (len, from) = client.recv_from(&mut buffer).expect("an answer");
        let expected = if what == b"long" { vec![b'l'; 5_000] } else { what.to_vec() };
        assert_eq!((&buffer[..len], from), (&expected[..], late.rig.server));
    }
}

#[test]
fn a_reply_that_comes_later_leaves_on_the_link_its_request_came_by_though_ports_have_moved_up() {
    if twinpath_test_rig::root_or_skip() {
        Namespace::new().expect("root may").run(answer_on_the_link).expect("no panic");
    }
}

const PROBE: &[u8] = b"probe";

/// Waits until datagrams from our address reach the client. The kernel makes the routes to new IPv6 addresses in a work
/// item (`addrconf_dad_work`, net/ipv6/addrconf.c), which may run long after ip(8) has returned.
fn wait_for_routes(client: &UdpSocket) {
    let ours = UdpSocket::bind("[fd00::1]:0").expect("bound");
    client.set_nonblocking(true).expect("set");
    let begun = std::time::Instant::now();
    loop {
        // Until then there is no route, or the datagram is lost.
        let _ = ours.send_to(PROBE, client.local_addr().expect("bound"));
        if client.recv(&mut [0; 64]).is_ok() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "no datagram has arrived");
        std::thread::yield_now();
    }
    client.set_nonblocking(false).expect("set");
}

fn answer_on_the_link() {
    for arguments in
        ["addr add fe80::7/64 dev lo nodad", "addr add fd00::1/128 dev lo nodad", "link set lo up"]
    {
        twinpath_test_rig::ip_here(arguments);
    }
    let lo = 1;
    let client = UdpSocket::bind(SocketAddrV6::new("fe80::7".parse().expect("ip"), 0, 0, lo)).expect("bound");
    client.set_read_timeout(Some(PATIENCE)).expect("set");
    wait_for_routes(&client);
    let mut late = Late::new();
    late.rig.server.set_ip("fd00::1".parse().expect("ip"));
    let own = ServeCommand::Addresses([late.rig.server.ip()].into());
    assert!(late.rig.commands.send(Command::Engine(own)).is_ok());
    // Adds ports after the one of the request, which has no interface: one on the link, and one elsewhere.
    let mut attach = |port: u16, ifindex: u32| {
        let [near, far] = [port, port + 1].map(|port| PortId { port, queue: 0 });
        let (near, far) = pair(near, far).expect("eventfds");
        assert!(late.rig.commands.send(Command::Attach(Box::new(near.on_interface(ifindex)))).is_ok());
        late.rig.turn();
        far
    };
    let (on_the_link, _elsewhere) = (attach(2, lo), attach(4, 99));
    late.rig.wire = on_the_link;
    let port = client.local_addr().expect("bound").port();
    late.ask(&format!("[fe80::7]:{port}"), b"by the link");
    assert_eq!(late.rig.serve.deferred.get(), 1);
    assert!(late.rig.commands.send(Command::Detach { ifindex: 0 }).is_ok());
    late.go(1);
    let mut buffer = [0; 64];
    let (len, from) = loop {
        let (len, from) = client.recv_from(&mut buffer).expect("an answer");
        if &buffer[..len] != PROBE {
            break (len, from);
        }
    };
    assert_eq!((&buffer[..len], from), (&b"by the link"[..], late.rig.server));
    assert_eq!(late.dropped(Reason::KernelSocketRefused), 0);
}

#[test]
fn what_there_is_no_room_for_is_dropped_and_nobody_takes_all() {
    let mut late = Late::new();
    for _ in 0..5 {
        late.ask(PEER, b"greedy");
    }
    assert_eq!(late.dropped(Reason::HandlersBusy), 2, "one peer has three");
    for port in 5000..5004 {
        late.ask(&format!("198.51.100.7:{port}"), b"others");
    }
    assert_eq!(late.dropped(Reason::HandlersBusy), 4, "and all of them five");
    late.go(5);
    assert_eq!((late.rig.replies().len(), late.rig.serve.deferred.get()), (5, 0));
    late.ask(PEER, b"again");
    late.go(1);
    assert_eq!(late.rig.replies().len(), 1);
}

#[test]
fn a_reply_to_nobody_and_work_that_panics_are_counted_under_their_names() {
    let mut late = Late::new();
    late.ask(PEER, b"fail");
    late.go(1);
    assert_eq!(late.dropped(Reason::HandlerFailed), 1);
    late.ask(PEER, b"to an address that goes");
    assert!(late.rig.commands.send(Command::Engine(ServeCommand::Addresses([].into()))).is_ok());
    late.go(1);
    assert_eq!(late.dropped(Reason::LateReply), 1);
    let back = ServeCommand::Addresses([late.rig.server.ip()].into());
    assert!(late.rig.commands.send(Command::Engine(back)).is_ok());
    late.rig.turn();
    late.ask(PEER, b"gone");
    late.go(1);
    assert_eq!(late.dropped(Reason::LateReply), 2);
    let ended = late.ended.lock().expect("no panic holds it").clone();
    assert_eq!(
        ended,
        [2, 3],
        "what panicked has no reply; that a reply could not leave is no reason not to tell"
    );
}

#[test]
fn a_drain_waits_for_replies_to_come_but_takes_no_more_and_not_for_ever() {
    let mut late = Late::new();
    let drained = |late: &mut Late| {
        late.rig.turn();
        std::iter::from_fn(|| late.rig.events.take())
            .any(|event| matches!(event, Event::Engine(ServeEvent::Drained)))
    };
    late.ask(PEER, b"before");
    let drain = ServeCommand::Drain { handed_over: false };
    assert!(late.rig.commands.send(Command::Engine(drain)).is_ok());
    assert!(!drained(&mut late));
    late.ask(PEER, b"after");
    assert_eq!(late.dropped(Reason::HandlersBusy), 1);
    late.go(1);
    assert_eq!(late.rig.replies().len(), 1);
    assert!(drained(&mut late));

    let mut late = Late::new();
    late.ask(PEER, b"stuck");
    for command in [ServeCommand::Drain { handed_over: false }, ServeCommand::Cut] {
        assert!(late.rig.commands.send(Command::Engine(command)).is_ok());
    }
    assert!(drained(&mut late));
    assert_eq!(late.dropped(Reason::DrainTimeout), 1);
    late.go(1);
    assert_eq!((late.rig.replies().len(), late.dropped(Reason::LateReply)), (0, 1));
}

#[test]
fn a_reply_longer_than_a_frame_leaves_by_the_kernel_whole_and_one_longer_than_a_datagram_does_not() {
    let mut late = Late::new();
    late.ask(PEER, b"1400");
    assert_eq!(late.rig.replies().len(), 1);
    // The kernel may have no route to this peer, which is counted. The test checks that it was asked to
    // send, exactly once.
    for (number, len) in (1..).zip(["1473", "4000", "65507"]) {
        late.ask(PEER, len.as_bytes());
        assert_eq!((late.rig.replies().len(), late.rig.serve.fast_replies_by_kernel.get()), (0, number));
    }
    late.ask(PEER, b"65528");
    assert_eq!(late.dropped(Reason::ReplyTooLarge), 1);
    let client = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    client.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut buffer = vec![0; 65_536];
    for len in [0, 1473, 65_507] {
        client.send_to(len.to_string().as_bytes(), late.rig.server).expect("sent");
        late.rig.turn();
        assert_eq!(client.recv_from(&mut buffer).expect("whole").0, len);
    }
    client.send_to(b"65508", late.rig.server).expect("sent");
    late.rig.turn();
    assert_eq!(late.dropped(Reason::ReplyTooLarge), 2, "over IPv4 that is too long");
}
