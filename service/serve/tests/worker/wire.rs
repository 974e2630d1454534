//! A worker over a loopback port, driven turn by turn, with the wire's other end and a kernel socket.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use twinpath_frame::{Burst, Pool};
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{PortId, PortQueue};
use twinpath_serve::{
    HandlerPool, KernelSide, Sends, ServeCommand, ServeConfig, ServeCounters, ServeEngine, ServeEvent, Served,
};
use twinpath_service::{Echo, Service};
use twinpath_sys::UdpSocket;
use twinpath_time::Instant;
use twinpath_udp::egress::{Egress, KernelReason, Update};
use twinpath_udp::udp;
use twinpath_wire::{Mac, Protocol};
use twinpath_worker::mailbox::{Receiver, Sender, mailbox};
use twinpath_worker::{Command, Event, Worker, WorkerConfig, WorkerCounters};

const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

pub(crate) struct Rig<S: Service = Echo> {
    worker: Worker<ServeEngine<S>>,
    pub(crate) commands: Sender<Command<ServeCommand>>,
    pub(crate) events: Receiver<Event<ServeEvent>>,
    pub(crate) wire: LoopbackPort,
    pub(crate) pool: Pool,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) serve: Arc<ServeCounters>,
    pub(crate) now: u64,
    pub(crate) server: SocketAddr,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::serving(Echo, None)
    }
}

impl<S: Service + 'static> Rig<S> {
    pub(crate) fn serving(service: S, handlers: Option<HandlerPool>) -> Self {
        Self::limited(service, handlers, 0)
    }

    /// With messages from other threads.
    pub(crate) fn sending(service: S, sends: Sends) -> Self {
        Self::with(service, KernelSide { sends: Some(sends), ..KernelSide::default() }, 0)
    }

    /// With a limit of replies per second to one source.
    pub(crate) fn limited(service: S, handlers: Option<HandlerPool>, reply_rate: u32) -> Self {
        Self::with(service, KernelSide { handlers, ..KernelSide::default() }, reply_rate)
    }

    fn with(service: S, kernel: KernelSide, reply_rate: u32) -> Self {
        let (near, wire) =
            pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds");
        let (commands, inbox) = mailbox(16).expect("eventfd");
        let (outbox, events) = mailbox(16).expect("eventfd");
        let (counters, serve) =
            (Arc::new(WorkerCounters::default()), Arc::new(ServeCounters::for_entries(1)));
        let socket = UdpSocket::bind(0).expect("a free port");
        let served = Served::new().with_port(Protocol::Udp, socket.port(), &[]);
        let ip: IpAddr = "127.0.0.1".parse().expect("ip");
        let server = SocketAddr::new(ip, socket.port());
        let config = ServeConfig {
            served: Arc::new(served),
            addresses: [ip].into(),
            reply_rate,
            any_source_port: false,
            keeper: None,
            kernel: KernelSide { udp: [socket].into(), receives: true, ..kernel },
            fast_tcp: None,
        };
        let engine = ServeEngine::new(service, config, Arc::clone(&serve));
        let pool = Pool::new(256).expect("pool");
        let config = WorkerConfig { idle: twinpath_worker::idle::IdleConfig::default() };
        let mut worker =
            Worker::new(&config, engine, pool, inbox, outbox, Arc::clone(&counters)).expect("a worker");
        worker.attach(Box::new(near));
        worker.start().expect("started");
        let pool = Pool::new(256).expect("pool");
        Self { worker, commands, events, wire, pool, counters, serve, now: 0, server }
    }

    pub(crate) fn turn(&mut self) -> bool {
        self.now += 1_000_000;
        self.worker.turn(Instant::from_nanos(self.now))
    }

    /// Puts a request on the wire.
    pub(crate) fn ask(&mut self, from: &str, payload: &[u8]) {
        let way = Egress { ifindex: 0, source_mac: CLIENT_MAC, next_hop_mac: SERVER_MAC, mtu: 1500 };
        let from = from.parse().expect("an address");
        let mut frame = self.pool.take().expect("free");
        let write = |room: &mut [u8]| room.copy_from_slice(payload);
        udp::send(&mut frame, payload.len(), from, self.server, &way, write).expect("fits");
        let mut burst = Burst::new();
        burst.push(frame).expect("room");
        self.wire.transmit(&mut self.pool, &mut burst);
    }

    /// Ends the worker; returns the other end of the wire.
    pub(crate) fn end(self) -> (LoopbackPort, Pool) {
        let Self { worker, wire, pool, commands, .. } = self;
        drop(commands);
        assert_eq!(worker.run().ports.len(), 1);
        (wire, pool)
    }

    /// Takes the replies off the wire: destination and payload.
    pub(crate) fn replies(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
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

    pub(crate) fn learn(&mut self, peer: &str, answer: Result<Egress, KernelReason>) {
        let peer = peer.parse().expect("ip");
        let update = ServeCommand::Egress(Update::Learn { peer, answer });
        assert!(self.commands.send(Command::Engine(update)).is_ok());
        self.turn();
    }

    pub(crate) fn asked_about(&mut self) -> Option<IpAddr> {
        while let Some(event) = self.events.take() {
            if let Event::Engine(ServeEvent::Resolve { peer, .. }) = event {
                return Some(peer);
            }
        }
        None
    }
}

pub(crate) const WAY_BACK: Egress =
    Egress { ifindex: 0, source_mac: SERVER_MAC, next_hop_mac: CLIENT_MAC, mtu: 1500 };
