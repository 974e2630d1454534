//! A worker that echoes over a faulty wire: whatever arrives, its replies are right, and every frame is accounted
//! for.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use twinpath_frame::{Burst, Pool};
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{PortId, PortQueue};
use twinpath_serve::{KernelSide, ServeCommand, ServeConfig, ServeCounters, ServeEngine, Served};
use twinpath_service::Echo;
use twinpath_time::Instant;
use twinpath_udp::egress::{Egress, Update};
use twinpath_udp::udp;
use twinpath_wire::{Mac, Protocol};
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::{Command, Worker, WorkerConfig, WorkerCounters};

use super::fault::{FaultPort, Faults};

const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const FRAMES: u32 = 512;

fn peer(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    SocketAddr::from(([198, 51, high, low], 20_000 + number))
}

#[test]
fn replies_are_right_whatever_arrives() {
    for seed in crate::seeds() {
        simulate(seed);
    }
}

/// The far end of the wire: sends requests and checks every reply.
struct Client {
    seed: u64,
    wire: LoopbackPort,
    pool: Pool,
    burst: Burst,
    /// By peer and payload: how many replies may still come. The wire may duplicate a request.
    asked: HashMap<(SocketAddr, Vec<u8>), u32>,
    number: u64,
    replies: u64,
}

impl Client {
    fn new(seed: u64, wire: LoopbackPort) -> Self {
        let pool = Pool::new(FRAMES).unwrap();
        Self { seed, wire, pool, burst: Burst::new(), asked: HashMap::new(), number: 0, replies: 0 }
    }

    fn ask(&mut self, server: SocketAddr, random: &mut fastrand::Rng) {
        let way_in = Egress { ifindex: 0, source_mac: CLIENT_MAC, next_hop_mac: SERVER_MAC, mtu: 1500 };
        let from = peer(random.u16(0..300));
        let mut payload = vec![0; random.usize(8..1400)];
        random.fill(&mut payload);
        payload[..8].copy_from_slice(&self.number.to_le_bytes());
        self.number += 1;
        let mut frame = self.pool.take().unwrap();
        let write = |room: &mut [u8]| room.copy_from_slice(&payload);
        udp::send(&mut frame, payload.len(), from, server, &way_in, write).unwrap();
        self.asked.insert((from, payload), 2);
        self.burst.push(frame).unwrap();
        self.wire.transmit(&mut self.pool, &mut self.burst);
    }

    fn check_replies(&mut self, server: SocketAddr, now: Instant) {
        let seed = self.seed;
        self.wire.receive(now, &mut self.pool, &mut self.burst);
        for frame in self.burst.frames() {
            let reply = udp::receive(frame, false)
                .unwrap_or_else(|reason| panic!("seed {seed}: sent a frame that is {}", reason.name()));
            assert_eq!((reply.source, reply.destination_mac), (server, CLIENT_MAC), "seed {seed}");
            let key = (reply.destination, frame.bytes()[reply.payload].to_vec());
            let left = self
                .asked
                .get_mut(&key)
                .unwrap_or_else(|| panic!("seed {seed}: a reply to what nobody asked"));
            assert!(*left > 0, "seed {seed}: answered more often than it arrived");
            *left -= 1;
            self.replies += 1;
        }
        self.burst.release(usize::MAX, &mut self.pool);
    }
}

/// A message that control might send: a peer is known, or none is any more.
fn update(random: &mut fastrand::Rng) -> Update {
    let way_out = Egress { ifindex: 0, source_mac: SERVER_MAC, next_hop_mac: CLIENT_MAC, mtu: 1500 };
    match random.u8(0..10) {
        0 => Update::Clear,
        1 => Update::Forget { peer: peer(random.u16(0..300)).ip() },
        _ => Update::Learn { peer: peer(random.u16(0..300)).ip(), answer: Ok(way_out) },
    }
}

fn simulate(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let server: SocketAddr = "192.0.2.1:7".parse().unwrap();
    let (near, wire) = pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).unwrap();
    let faults = Faults {
        lose: random.u16(0..200),
        double: random.u16(0..200),
        swap: random.u16(0..200),
        flip: random.u16(0..200),
        cut: random.u16(0..100),
    };
    let near = FaultPort::new(Box::new(near), faults, seed);
    let port_counters = Arc::clone(near.counters());
    let (mut commands, inbox) = mailbox(64).unwrap();
    let (outbox, _events) = mailbox(1024).unwrap();
    let (counters, serve) = (Arc::new(WorkerCounters::default()), Arc::new(ServeCounters::default()));
    let config = ServeConfig {
        served: Served::new().with_port(Protocol::Udp, server.port(), &[]).into(),
        addresses: [server.ip()].into(),
        reply_rate: 0,
        any_source_port: false,
        keeper: None,
        fast_tcp: None,
        kernel: KernelSide::default(),
    };
    let engine = ServeEngine::new(Echo, config, Arc::clone(&serve));
    let config = WorkerConfig { idle: IdleConfig::default() };
    let pool = Pool::new(FRAMES).unwrap();
    let mut worker = Worker::new(&config, engine, pool, inbox, outbox, Arc::clone(&counters)).unwrap();
    worker.attach(Box::new(near));
    worker.start().unwrap();

    let mut client = Client::new(seed, wire);
    let mut now = 0;
    for _ in 0..400 {
        now += random.u64(1..2_000_000);
        for _ in 0..random.usize(0..20) {
            client.ask(server, &mut random);
        }
        if random.u8(0..4) == 0 {
            let command = Command::Engine(ServeCommand::Egress(update(&mut random)));
            assert!(commands.send(command).is_ok());
        }
        worker.turn(Instant::from_nanos(now));
        client.check_replies(server, Instant::from_nanos(now));
    }
    while worker.turn(Instant::from_nanos(now)) {}
    client.check_replies(server, Instant::from_nanos(now));

    // Every frame that arrived was served or is counted under a reason. The wire's faults add and remove frames
    // between the port's count and the worker, so the sum is over the frames that the worker received.
    let dropped: u64 = counters.drops.happened().map(|(_, count)| count).sum();
    assert_eq!(serve.fast_replies.get(), client.replies, "seed {seed}");
    assert!(client.replies > 0 || faults.lose > 150, "seed {seed}: something was served");
    assert!(serve.fast_requests.get() >= serve.fast_replies.get(), "seed {seed}");
    assert!(
        dropped >= serve.fast_replies_by_kernel.get(),
        "seed {seed}: no kernel socket here, so those are dropped"
    );
    assert_eq!(port_counters.drops.happened().count(), 0, "seed {seed}");
    assert_eq!(client.pool.free(), FRAMES, "seed {seed}: the client's frames are home");
}
