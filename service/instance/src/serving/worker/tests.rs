use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::{Duration as Wait, Instant as Deadline};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_inspect::Reason;
use twinpath_port::loopback::pair;
use twinpath_port::{PortId, PortQueue};
use twinpath_serve::{KernelSide, ServeConfig, ServeEngine, ServeEvent, Served, ServicePart};
use twinpath_service::{Answer, Datagram, Service};
use twinpath_sys::UdpSocket;
use twinpath_time::Instant;
use twinpath_udp::egress::{KernelReason, Update};
use twinpath_wire::Protocol;
use twinpath_worker::Event;
use twinpath_worker::idle::Mode;

use super::*;

const PATIENCE: Wait = Wait::from_secs(20);
const NEAR: u32 = 7;
const OTHER: u32 = 8;

/// Holds its worker in the middle of a turn: reports that, and waits until it may continue.
struct Holds {
    held: mpsc::Sender<()>,
    go_on: mpsc::Receiver<()>,
}

impl Service for Holds {
    type Connection = ();

    fn datagram(&mut self, _: &mut Datagram<'_>) -> Answer {
        self.held.send(()).expect("the test lives");
        // The test may have ended by a panic.
        let _ = self.go_on.recv();
        Answer::Nothing
    }

    fn accept(&mut self, _: Instant, _: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }
}

struct Rig {
    handle: WorkerHandle,
    server: SocketAddr,
    addresses: Arc<[IpAddr]>,
    client: std::net::UdpSocket,
    held: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
    queues: u16,
    attached: Vec<PortId>,
    engine_said: Vec<ServeEvent>,
}

impl Rig {
    fn new() -> Self {
        let (held, is_held) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let socket = UdpSocket::bind(0).expect("a free port");
        let server = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), socket.port());
        let addresses: Arc<[IpAddr]> = [server.ip()].into();
        let config = ServeConfig {
            served: Arc::new(Served::new().with_port(Protocol::Udp, socket.port(), &[])),
            addresses: Arc::clone(&addresses),
            reply_rate: 0,
            any_source_port: false,
            keeper: None,
            kernel: KernelSide { udp: [socket].into(), receives: true, waits: true, ..KernelSide::default() },
            fast_tcp: None,
        };
        let service = Holds { held, go_on: may_go_on };
        let (placement, idle) = (Placement::on(None), IdleConfig::default());
        let routes = Routes::of([(0, &*config.served)]);
        let serve = Arc::<ServeCounters>::default();
        let engine = ServeEngine::new(service, config, Arc::clone(&serve));
        let service = ServicePart::new(engine, Arc::clone(&serve));
        let name = "echo".to_owned();
        let services = vec![NewService {
            service,
            handle: ServiceHandle { part: 0, name, serve, service: None, may_loop: true, slow: None },
        }];
        let handle = WorkerHandle::start(0, placement, idle, 64, routes, services, None).expect("a worker");
        let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let (attached, engine_said) = (Vec::new(), Vec::new());
        Self { handle, server, addresses, client, held: is_held, go_on, queues: 0, attached, engine_said }
    }

    fn attach(&mut self, ifindex: u32) -> PortId {
        let id = PortId { port: self.queues, queue: 0 };
        self.queues += 1;
        let (near, _) = pair(id, PortId { port: 99, queue: 0 }).expect("eventfds");
        let queue: Box<dyn PortQueue> = Box::new(near.on_interface(ifindex));
        self.handle.attach(queue);
        id
    }

    /// From here on the worker reads no messages.
    fn hold(&mut self) {
        self.client.send_to(b"hold", self.server).expect("sent");
        self.held.recv_timeout(PATIENCE).expect("the worker serves");
    }

    /// Reads the worker's events, like the control loop, until the condition holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Deadline::now() + PATIENCE;
        loop {
            let flushed = self.handle.flush();
            self.handle.events.drain();
            while let Some(event) = self.handle.events.take() {
                match event {
                    Event::Attached(id) => self.attached.push(id),
                    Event::Detached(queue) => self.handle.close(queue),
                    Event::PortRemoved(_) | Event::Untapped(_) => {}
                    Event::Engine(event) => self.engine_said.push(event),
                }
            }
            if holds(self) {
                return;
            }
            assert!(Deadline::now() < deadline, "it does not come that {what}");
            let pause = if flushed { 100_000_000 } else { RETRY_NANOS };
            let pause = Timespec { tv_sec: 0, tv_nsec: pause };
            let _ = poll(&mut [PollFd::new(&self.handle.events, PollFlags::IN)], Some(&pause));
        }
    }

    fn said(&self, is_it: impl Fn(&ServeEvent) -> bool) -> usize {
        self.engine_said.iter().filter(|event| is_it(event)).count()
    }

    fn tell_peers(&mut self, count: u32) {
        for number in 0..count {
            let peer = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
            let update = Update::Learn { peer, answer: Err(KernelReason::Unresolved) };
            self.handle.tell_services(ServeCommand::Egress(update));
        }
    }

    fn tell_addresses(&mut self) {
        self.handle.tell_services(ServeCommand::Addresses([self.server.ip()].into()));
    }
}

const RETRY_NANOS: i64 = twinpath_host::RETRY_INTERVAL.as_nanos() as i64;

#[test]
fn a_full_mailbox_to_a_worker_loses_no_detaching_attaching_or_addresses() {
    let mut rig = Rig::new();
    rig.handle.tell_services(ServeCommand::Begin);
    let first = rig.attach(NEAR);
    rig.until("it serves", |rig| rig.attached == [first] && !rig.engine_said.is_empty());
    rig.hold();
    rig.tell_peers(3000);
    assert!(rig.handle.delayed() >= 3000 - u64::from(MAILBOX_LEN), "the mailbox is full");
    rig.handle.detach(NEAR);
    assert_eq!(rig.handle.leaving(), 1);
    rig.tell_addresses();
    let second = rig.attach(OTHER);
    rig.tell_addresses();
    rig.go_on.send(()).expect("the worker lives");
    rig.until("the former queue is back", |rig| rig.handle.leaving() == 0);
    rig.until("the other one is served", |rig| rig.attached == [first, second]);
    rig.until("the worker gives the former addresses back", |rig| {
        rig.said(|event| matches!(event, ServeEvent::Reclaim(former) if Arc::ptr_eq(former, &rig.addresses)))
            == 1
    });
    assert_eq!(rig.handle.queues().iter().map(|queue| queue.id).collect::<Vec<_>>(), [second]);
    let _ = rig.handle.stop(Duration::from_secs(20));
}

#[test]
fn a_full_mailbox_to_control_loses_nothing_that_detaching_and_taking_over_wait_for() {
    let mut rig = Rig::new();
    let first = rig.attach(NEAR);
    rig.until("it is served", |rig| rig.attached == [first]);
    // Each makes the worker send an event that may be lost, and control reads nothing meanwhile.
    for _ in 0..4 * MAILBOX_LEN {
        rig.tell_addresses();
        while !rig.handle.flush() {
            std::thread::yield_now();
        }
    }
    let second = rig.attach(OTHER);
    rig.handle.detach(NEAR);
    rig.handle.tell_services(ServeCommand::Begin);
    rig.handle.tell_services(ServeCommand::Drain { handed_over: true });
    rig.handle.tell(Command::SetMode(Mode::Interrupt));
    // Read only when the worker has done all of it.
    let deadline = Deadline::now() + PATIENCE;
    while rig.handle.mode() != Mode::Interrupt {
        assert!(Deadline::now() < deadline, "the worker reads no more");
        rig.handle.flush();
        std::thread::yield_now();
    }
    rig.until("the queue is back", |rig| rig.handle.leaving() == 0);
    rig.until("the other one is served", |rig| rig.attached == [first, second]);
    rig.until("it has begun and drained", |rig| {
        rig.said(|event| matches!(event, ServeEvent::Begun)) == 1
            && rig.said(|event| matches!(event, ServeEvent::Drained)) == 1
    });
    let reclaimed = rig.said(|event| matches!(event, ServeEvent::Reclaim(_)));
    assert!(reclaimed < 4 * MAILBOX_LEN as usize, "the mailbox was full: {reclaimed}");
    let _ = rig.handle.stop(Duration::from_secs(20));
}

#[test]
fn a_queue_whose_device_goes_before_it_is_detached_is_waited_for_once() {
    let mut rig = Rig::new();
    let id = rig.attach(NEAR);
    rig.until("it is served", |rig| rig.attached == [id]);
    // The worker returns it without a request, as it does when its device is gone.
    rig.handle.tell(Command::DetachQueue(id));
    rig.until("it is back", |rig| rig.handle.queues().is_empty());
    rig.handle.detach(NEAR);
    assert_eq!(rig.handle.leaving(), 0);
    let _ = rig.handle.stop(Duration::from_secs(20));
}
