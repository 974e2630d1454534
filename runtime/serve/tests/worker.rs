//! A whole worker over a loopback port, driven turn by turn: no thread, no device, no sleep.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use twinpath_frame::{Burst, Pool};
use twinpath_inspect::Reason;
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{PortId, PortQueue};
use twinpath_serve::{KernelSide, ServeCommand, ServeConfig, ServeCounters, ServeEngine, ServeEvent, Served};
use twinpath_service::Echo;
use twinpath_stack::egress::{Egress, KernelReason, Update};
use twinpath_stack::udp;
use twinpath_sys::UdpSocket;
use twinpath_time::Instant;
use twinpath_wire::Mac;
use twinpath_worker::mailbox::{Receiver, Sender, mailbox};
use twinpath_worker::{Command, Event, Worker, WorkerConfig, WorkerCounters};

const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

struct Rig {
    worker: Worker<ServeEngine<Echo>>,
    commands: Sender<Command<ServeCommand>>,
    events: Receiver<Event<ServeEvent>>,
    wire: LoopbackPort,
    pool: Pool,
    counters: Arc<WorkerCounters>,
    serve: Arc<ServeCounters>,
    now: u64,
    server: SocketAddr,
}

impl Rig {
    fn new() -> Self {
        let (near, wire) =
            pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds");
        let (commands, inbox) = mailbox(16).expect("eventfd");
        let (outbox, events) = mailbox(16).expect("eventfd");
        let (counters, serve) =
            (Arc::new(WorkerCounters::default()), Arc::new(ServeCounters::for_entries(1)));
        let socket = UdpSocket::bind(0).expect("a free port");
        let served = Served::new().with_port(socket.port(), &[]);
        let ip: IpAddr = "127.0.0.1".parse().expect("ip");
        let server = SocketAddr::new(ip, socket.port());
        let config = ServeConfig {
            served: Arc::new(served),
            addresses: [ip].into(),
            kernel: KernelSide { udp: [socket].into(), receives: true, ..KernelSide::default() },
        };
        let engine = ServeEngine::new(Echo, config, Arc::clone(&serve));
        let pool = Pool::new(256).expect("pool");
        let config = WorkerConfig { idle: twinpath_worker::idle::IdleConfig::default() };
        let mut worker =
            Worker::new(&config, engine, pool, inbox, outbox, Arc::clone(&counters)).expect("a worker");
        worker.attach(Box::new(near));
        worker.start().expect("started");
        let pool = Pool::new(256).expect("pool");
        Self { worker, commands, events, wire, pool, counters, serve, now: 0, server }
    }

    fn turn(&mut self) -> bool {
        self.now += 1_000_000;
        self.worker.turn(Instant::from_nanos(self.now))
    }

    /// Puts a request on the wire.
    fn ask(&mut self, from: &str, payload: &[u8]) {
        let way = Egress { ifindex: 0, source_mac: CLIENT_MAC, next_hop_mac: SERVER_MAC, mtu: 1500 };
        let from = from.parse().expect("an address");
        let mut frame = self.pool.take().expect("free");
        let write = |room: &mut [u8]| room.copy_from_slice(payload);
        udp::send(&mut frame, payload.len(), from, self.server, &way, write).expect("fits");
        let mut burst = Burst::new();
        burst.push(frame).expect("room");
        self.wire.transmit(&mut self.pool, &mut burst);
    }

    /// Takes the replies off the wire: where to, and what.
    fn replies(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut burst = Burst::new();
        self.wire.receive(Instant::ZERO, &mut self.pool, &mut burst);
        let seen = burst
            .frames()
            .iter()
            .map(|frame| {
                let reply = udp::receive(frame, false).expect("a right reply");
                (reply.destination, frame.bytes()[reply.payload].to_vec())
            })
            .collect();
        burst.release(usize::MAX, &mut self.pool);
        seen
    }

    fn learn(&mut self, peer: &str, answer: Result<Egress, KernelReason>) {
        let peer = peer.parse().expect("ip");
        let update = ServeCommand::Egress(Update::Learn { peer, answer });
        assert!(self.commands.send(Command::Engine(update)).is_ok());
        self.turn();
    }

    fn asked_about(&mut self) -> Option<IpAddr> {
        while let Some(event) = self.events.take() {
            if let Event::Engine(ServeEvent::Resolve { peer, .. }) = event {
                return Some(peer);
            }
        }
        None
    }
}

const WAY_BACK: Egress = Egress { ifindex: 0, source_mac: SERVER_MAC, next_hop_mac: CLIENT_MAC, mtu: 1500 };

#[test]
fn a_peer_is_answered_by_the_kernel_until_its_way_out_is_known() {
    let mut rig = Rig::new();
    // On the wire a loopback source is a martian.
    rig.ask("127.0.0.2:4000", b"martian");
    assert!(rig.turn());
    assert_eq!(rig.counters.drops.get(Reason::MartianSource), 1);

    // Whether the kernel has a route to this peer is its own business: what counts is which way the reply took.
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
        // Long unused it may have been forgotten; then it is asked about again, and the kernel's socket answers meanwhile.
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

#[test]
fn a_local_client_is_served_through_the_kernels_socket() {
    let mut rig = Rig::new();
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    client.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("set");
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
