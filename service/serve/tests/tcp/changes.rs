//! Services that are added, removed, and change their limits while their worker serves.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use twinpath_serve::{Demux, DemuxCommand, Prepare, Routes, ServiceLimits, ServicePart, Switch};
use twinpath_sys::UdpSocket;

use super::*;

/// A worker whose services the test changes.
struct Changing {
    worker: Worker<Demux>,
    commands: Sender<Command<DemuxCommand>>,
    events: Receiver<Event<ServeEvent>>,
    serve: HashMap<usize, Arc<ServeCounters>>,
    now: Instant,
}

fn totals(limits: TcpLimits) -> Arc<TcpTotals> {
    Arc::new(TcpTotals::new(limits, 1))
}

fn port_of(listener: &OwnedFd) -> SocketAddr {
    SocketAddr::try_from(rustix::net::getsockname(listener).unwrap()).unwrap()
}

fn routes() -> Routes {
    Routes::of([])
}

impl Changing {
    fn new() -> Self {
        let (commands, inbox) = mailbox(16).unwrap();
        let (outbox, events) = mailbox(64).unwrap();
        let config = WorkerConfig { idle: twinpath_worker::idle::IdleConfig::default() };
        let demux = Demux::new(routes());
        let worker =
            Worker::new(&config, demux, Pool::new(64).unwrap(), inbox, outbox, Arc::default()).unwrap();
        let mut changing = Self { worker, commands, events, serve: HashMap::new(), now: Instant::ZERO };
        changing.worker.start().unwrap();
        changing
    }

    fn turns(&mut self) {
        for _ in 0..50 {
            self.now += Duration::from_micros(100);
            self.worker.turn(self.now);
        }
    }

    fn tell(&mut self, command: DemuxCommand) {
        assert!(self.commands.send(Command::Engine(command)).is_ok());
        self.turns();
    }

    /// Adds a service that waits, on duplicates of the descriptors.
    fn prepare(&mut self, part: usize, listener: &OwnedFd, udp: Option<UdpSocket>) {
        let kernel = KernelSide {
            udp: udp.into_iter().collect(),
            receives: true,
            listeners: vec![listener.try_clone().unwrap()],
            totals: totals(LIMITS),
            connections: LIMITS.connections,
            waits: true,
            ..KernelSide::default()
        };
        let addresses: Arc<[IpAddr]> = [Ipv4Addr::LOCALHOST.into()].into();
        let config = ServeConfig {
            served: Arc::default(),
            addresses,
            reply_rate: 0,
            any_source_port: false,
            keeper: None,
            fast_tcp: None,
            kernel,
        };
        let serve = Arc::<ServeCounters>::default();
        let engine = ServeEngine::new(Lengths::default(), config, Arc::clone(&serve));
        self.serve.insert(part, Arc::clone(&serve));
        let services = vec![(part, ServicePart::new(engine, serve))];
        self.tell(DemuxCommand::Prepare(Box::new(Prepare { number: 7, services, routes: routes() })));
        assert!(self.told(|event| matches!(event, ServeEvent::Prepared { number: 7, outcome: Ok(()), .. })));
    }

    fn switch(&mut self, begin: &[usize], leave: &[usize], limits: Vec<(usize, ServiceLimits)>) {
        let (begin, leave) = (begin.to_vec(), leave.to_vec());
        let switch = Switch { number: 7, routes: routes(), begin, leave, limits };
        self.tell(DemuxCommand::Switch(Box::new(switch)));
    }

    /// Whether one of the worker's events is the expected one; the others are discarded.
    fn told(&mut self, is: impl Fn(&ServeEvent) -> bool) -> bool {
        let mut told = false;
        while let Some(event) = self.events.take() {
            told |= matches!(&event, Event::Engine(event) if is(event));
        }
        told
    }

    fn has_left(&mut self, part: usize) -> bool {
        self.told(|event| matches!(event, ServeEvent::Left { part: left, .. } if *left == part))
    }

    fn connect(&mut self, to: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nonblocking(true).unwrap();
        self.turns();
        stream
    }

    /// Requests `len` bytes; returns how many arrived, and whether the stream ended.
    fn ask(&mut self, stream: &mut TcpStream, len: usize) -> (usize, bool) {
        stream.write_all(format!("{len}\n").as_bytes()).unwrap();
        self.turns();
        read(stream)
    }

    fn accepted(&self, part: usize) -> u64 {
        self.serve[&part].tcp.accepted.get()
    }
}

fn read(stream: &mut TcpStream) -> (usize, bool) {
    let (mut got, mut buffer) = (0, [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (got, true),
            Ok(len) => got += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (got, false),
            Err(_) => return (got, true),
        }
    }
}

#[test]
fn one_takes_the_place_of_another_at_the_same_socket_and_waiting_peers_are_served() {
    let mut worker = Changing::new();
    let listener = listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap();
    let at = port_of(&listener);
    worker.prepare(0, &listener, None);
    let mut early = TcpStream::connect(at).unwrap();
    early.set_nonblocking(true).unwrap();
    worker.turns();
    assert_eq!(worker.accepted(0), 0, "it waits");
    worker.switch(&[0], &[], vec![]);
    assert!(worker.told(|event| matches!(event, ServeEvent::Switched { number: 7, .. })));
    assert_eq!(worker.ask(&mut early, 5), (5, false));

    worker.prepare(3, &listener, None);
    // It connects in the turn of the change, and sends its request before it is accepted.
    let mut between = TcpStream::connect(at).unwrap();
    between.set_nonblocking(true).unwrap();
    between.write_all(b"9\n").unwrap();
    worker.switch(&[3], &[0], vec![]);
    assert_eq!(read(&mut between), (9, true), "answered, and ended with who answered it");
    assert_eq!(read(&mut early), (0, true));
    drop((early, between));
    worker.turns();
    assert!(worker.has_left(0));
    let mut later = worker.connect(at);
    assert_eq!(worker.ask(&mut later, 7), (7, false));
    assert_eq!((worker.accepted(0), worker.accepted(3)), (2, 1));
    // The part is free, and the former descriptor, which was closed there, causes no event.
    worker.prepare(0, &listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap(), None);
    assert_eq!(worker.ask(&mut later, 3), (3, false));
}

#[test]
fn one_that_leaves_stays_until_its_peer_has_its_answer_or_it_is_cut_off() {
    let mut worker = Changing::new();
    let listener = listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap();
    worker.prepare(0, &listener, None);
    worker.prepare(1, &listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap(), None);
    worker.switch(&[0, 1], &[], vec![]);
    let mut deaf = worker.connect(port_of(&listener));
    deaf.write_all("60000\n".repeat(1_000).as_bytes()).unwrap();
    worker.turns();
    worker.switch(&[], &[0], vec![]);
    assert!(!worker.has_left(0), "its peer has not taken its answers");
    worker.tell(DemuxCommand::One(0, ServeCommand::Cut));
    assert!(worker.has_left(0));
    // A part that never existed is ignored.
    worker.switch(&[], &[0, 9], vec![]);
    assert!(!worker.has_left(0));
}

#[test]
fn one_that_is_undone_before_it_began_takes_nothing_from_its_sockets() {
    let mut worker = Changing::new();
    let socket = UdpSocket::bind_at(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap();
    let port = socket.port();
    let second = rustix::io::fcntl_dupfd_cloexec(&socket, 0).unwrap();
    let second = UdpSocket::inherited(second, socket.address(), port);
    worker.prepare(2, &listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap(), Some(second));
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(b"for another", ("127.0.0.1", port)).unwrap();
    worker.switch(&[], &[2], vec![]);
    assert!(worker.has_left(2));
    assert_eq!(socket.receive(&mut [0; 64]).map(|received| received.len), Ok(11));
}

#[test]
fn limits_change_for_connections_that_there_are() {
    let mut worker = Changing::new();
    let listener = listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap();
    let at = port_of(&listener);
    worker.prepare(0, &listener, None);
    worker.switch(&[0], &[], vec![]);
    let mut kept: Vec<_> = (0..3).map(|_| worker.connect(at)).collect();
    let limits = TcpLimits { connections_per_source: 4, idle: Duration::from_secs(5), ..LIMITS };
    let exchanged = ServiceLimits::new(true, totals(limits), limits.connections, 0, false);
    worker.switch(&[], &[], vec![(0, exchanged)]);
    let mut fourth = worker.connect(at);
    let mut fifth = worker.connect(at);
    assert_eq!(worker.ask(&mut fourth, 2), (2, false));
    assert_eq!(read(&mut fifth), (0, true), "the four that there are count");
    drop(kept.pop());
    worker.turns();
    let mut again = worker.connect(at);
    assert_eq!(worker.ask(&mut again, 2), (2, false), "a place given back under the new limits");
    worker.now += Duration::from_secs(5) + Duration::from_nanos(2 * TICK);
    worker.turns();
    assert!(kept.iter_mut().all(|stream| read(stream) == (0, true)), "and so do the new times");
}

#[test]
fn one_that_steps_back_leaves_what_waits_and_goes_on_with_what_it_has() {
    let mut worker = Changing::new();
    let listener = listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap();
    let at = port_of(&listener);
    worker.prepare(0, &listener, None);
    worker.tell(DemuxCommand::Each(ServeCommand::Begin));
    let mut kept = worker.connect(at);
    worker.tell(DemuxCommand::Each(ServeCommand::StepBack));
    let mut waits = worker.connect(at);
    assert_eq!(worker.ask(&mut waits, 4), (0, false));
    assert_eq!(worker.ask(&mut kept, 4), (4, false));
    assert_eq!(worker.accepted(0), 1);
    worker.tell(DemuxCommand::Each(ServeCommand::Begin));
    assert_eq!((read(&mut waits), worker.accepted(0)), ((4, false), 2));
}

#[test]
fn a_worker_reports_that_its_listeners_are_closed_and_leaves_later_connections_to_another_instance() {
    let mut worker = Changing::new();
    let listener = listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap();
    let at = port_of(&listener);
    worker.prepare(0, &listener, None);
    worker.prepare(3, &listen(Some(Ipv4Addr::LOCALHOST.into()), 0, None).unwrap(), None);
    worker.tell(DemuxCommand::Each(ServeCommand::Begin));
    let is_closed = |event: &ServeEvent| matches!(event, ServeEvent::ListenersClosed);
    assert!(!worker.told(is_closed));
    worker.tell(DemuxCommand::Each(ServeCommand::Drain { handed_over: true }));
    assert!(worker.told(is_closed));
    let mut waits = worker.connect(at);
    assert_eq!((read(&mut waits), worker.accepted(0)), ((0, false), 0));
    assert!(rustix::net::accept(&listener).is_ok(), "it is there for the other one");
}
