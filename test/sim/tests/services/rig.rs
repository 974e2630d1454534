//! A server over an engine, its clients over another, and the network between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use twinpath_inspect::{Drops, TcpCounters};
use twinpath_serve::fast_tcp::EngineListener;
use twinpath_serve::handlers::Guarded;
use twinpath_serve::streams::{Call, StreamServer};
use twinpath_serve::{Served, TcpTotals};
use twinpath_service::Service;
use twinpath_stream::TcpLimits;
use twinpath_tcp::{Config, ConnectionId, Later, Options, Outgoing, Segment, Sink, Tcp, Tuple, Unknown};
use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp;

const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 7);
const CLIENT: [u8; 4] = [192, 0, 2, 2];

/// Segments with their size of pieces, on their way to the server or to the clients.
type Packet = (bool, u16, u16, Vec<u8>);

#[derive(Default)]
struct Wire(Vec<Packet>);

impl Sink for Wire {
    fn send(&mut self, tuple: &Tuple, segment: &Outgoing<'_>) -> bool {
        let mut bytes = vec![0; tcp::HEADER_LEN + segment.options.len() + segment.payload.len()];
        let len = segment.header.emit(segment.options, &mut bytes).unwrap();
        bytes[len..].copy_from_slice(segment.payload);
        let to_server = tuple.remote() == SocketAddr::from(SERVER);
        let port = if to_server { tuple.local_port() } else { tuple.remote_port() };
        self.0.push((to_server, port, segment.unit, bytes));
        true
    }
}

/// What a client says, and what it has heard.
#[derive(Default)]
pub(crate) struct Client {
    id: Option<ConnectionId>,
    says: Vec<u8>,
    said: usize,
    pub(crate) heard: Vec<u8>,
    /// It ends once it has heard so much.
    enough: Option<usize>,
    /// It does not end by itself.
    keeps_open: bool,
    finished: bool,
    pub(crate) is_over: bool,
}

impl Client {
    pub(crate) fn saying(text: &[u8]) -> Self {
        Self { says: text.to_vec(), ..Self::default() }
    }

    pub(crate) fn staying(text: &[u8]) -> Self {
        Self { keeps_open: true, ..Self::saying(text) }
    }

    pub(crate) fn hearing(enough: usize) -> Self {
        Self { enough: Some(enough), ..Self::default() }
    }

    /// Whether it has more to say, or its end.
    fn speaks(&self) -> bool {
        let ends = !self.finished && self.enough.is_none() && !self.keeps_open;
        self.id.is_some() && (self.said < self.says.len() || ends)
    }

    fn work(&mut self, now: Instant, tcp: &mut Tcp, random: &mut fastrand::Rng) {
        let Some(id) = self.id else { return };
        let Some(mut stream) = tcp.stream(now, id) else { return };
        self.heard.extend_from_slice(stream.received());
        stream.consume(usize::MAX);
        if self.enough.is_some_and(|enough| self.heard.len() >= enough) {
            tcp.abort(now, id);
            (self.id, self.is_over) = (None, true);
            return;
        }
        if self.said < self.says.len() {
            let count = random.usize(1..4000).min(self.says.len() - self.said);
            self.said += stream.write(&self.says[self.said..self.said + count]);
        } else if !self.finished && self.enough.is_none() && !self.keeps_open {
            self.finished = true;
            stream.end();
        }
        if stream.is_at_end() {
            self.is_over = true;
            self.id = None;
            tcp.close(now, id);
        }
    }
}

pub(crate) struct Rig<S: Service> {
    server: StreamServer<EngineListener, S::Connection>,
    service: Guarded<S>,
    pub(crate) counters: TcpCounters,
    drops: Drops,
    totals: Arc<TcpTotals>,
    pub(crate) random: fastrand::Rng,
    now: Instant,
    tcp: Tcp,
    clients: Vec<Client>,
    network: BTreeMap<(Instant, u64), Packet>,
    sent: u64,
    delay: Duration,
    loss: f64,
}

impl<S: Service> Rig<S> {
    pub(crate) fn new(service: S, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = TcpLimits { connection_bytes: 65_536, ..TcpLimits::default() };
        let totals = Arc::new(TcpTotals::new(limits, 1));
        let config = Config { time_wait_time: Duration::from_secs(1), ..Config::default() };
        let engine = EngineListener::new(config.clone(), vec![SERVER.into()], [seed, 1]);
        let mut server =
            StreamServer::new(engine, Arc::new(Served::new()), Arc::clone(&totals), limits.connections);
        server.listen(&()).unwrap();
        Self {
            server,
            service: Guarded::new(service, Arc::default()),
            counters: TcpCounters::default(),
            drops: Drops::default(),
            totals,
            now: Instant::from_nanos(1 << 40),
            tcp: Tcp::new(config, Unknown::Reset, [seed, 2]),
            clients: Vec::new(),
            network: BTreeMap::new(),
            sent: 0,
            delay: Duration::from_micros(random.u64(10..20_000)),
            loss: [0.0, 0.01, 0.05][random.usize(..3)],
            random,
        }
    }

    pub(crate) fn connect(&mut self, mut client: Client) -> usize {
        let number = self.clients.len();
        let local = SocketAddr::from((CLIENT, 4000 + number as u16));
        client.id = Some(self.tcp.connect(self.now, local, SERVER.into(), Options::default()).unwrap());
        self.clients.push(client);
        number
    }

    pub(crate) fn client(&self, number: usize) -> &Client {
        &self.clients[number]
    }

    fn call<R>(
        &mut self,
        call: impl FnOnce(&mut StreamServer<EngineListener, S::Connection>, Call<'_, '_, S, EngineListener>) -> R,
    ) -> R {
        let Self { server, service, counters, drops, now, .. } = self;
        call(server, Call { now: *now, service, counters, drops, io: &(), handlers: None })
    }

    fn take(&mut self, wire: Wire) {
        for packet in wire.0 {
            if self.random.f64() < self.loss {
                continue;
            }
            self.sent += 1;
            let late = self.random.u8(..10) == 0;
            let delay = if late { self.delay * 2 } else { self.delay };
            self.network.insert((self.now + delay, self.sent), packet);
        }
    }

    /// Events, turns of the server and of the clients, and what they send.
    fn turn(&mut self) {
        while let Some(event) = self.server.listener().next_ready() {
            self.call(|server, call| server.ready(event, call));
        }
        while self.call(|server, call| server.run(call)) {}
        let (now, mut wire) = (self.now, Wire::default());
        self.server.listener().advance(now, u32::MAX, &mut wire);
        while self.tcp.next_event().is_some() {}
        for client in &mut self.clients {
            client.work(now, &mut self.tcp, &mut self.random);
        }
        self.tcp.advance(now, u32::MAX, &mut wire);
        self.take(wire);
    }

    /// When something happens next.
    fn next(&mut self) -> Instant {
        let network = self.network.keys().next().map_or(Instant::NEVER, |(at, _)| *at);
        let engines = self.tcp.next_deadline().min(self.server.listener().tcp().next_deadline());
        network.min(engines).min(self.server.next_deadline())
    }

    fn deliver(&mut self) {
        while let Some(first) = self.network.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            let (to_server, port, unit, bytes) = first.remove();
            let view = tcp::Segment::parse(&bytes).unwrap();
            let segment = Segment::new(&view, false, unit);
            let (client, server) = (SocketAddr::from((CLIENT, port)), SocketAddr::from(SERVER));
            let mut wire = Wire::default();
            if to_server {
                let now = self.now;
                self.server.listener().segment(now, &Tuple::new(server, client), &segment, &mut wire);
            } else {
                self.tcp.segment(self.now, &Tuple::new(client, server), &segment, &mut Later, &mut wire);
            }
            self.take(wire);
        }
    }

    pub(crate) fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            self.turn();
            if is_done(self) {
                return;
            }
            let next = self.next();
            let speaks = self.clients.iter().any(Client::speaks);
            assert!(next != Instant::NEVER || speaks, "nothing happens any more");
            let next = if speaks { next.min(self.now + Duration::from_millis(1)) } else { next };
            self.now = self.now.max(next);
            self.deliver();
        }
        panic!("no end");
    }

    /// Until all clients are done and nothing is on its way.
    pub(crate) fn run(&mut self) {
        self.run_until(|rig| {
            rig.clients.iter().all(|client| client.is_over)
                && rig.network.is_empty()
                && rig.tcp.count() == (0, 0, 0)
        });
        let end = self.now + Duration::from_secs(400);
        while self.now < end {
            self.turn();
            let next = self.next();
            if next == Instant::NEVER {
                return;
            }
            self.now = self.now.max(next);
            self.deliver();
        }
    }

    pub(crate) fn drain(&mut self) {
        self.call(|server, call| server.drain(false, call));
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.server.is_drained()
    }

    /// Checks that neither the server nor its engine holds anything.
    pub(crate) fn holds_nothing(&mut self) {
        let counters = (self.counters.connections.get(), self.counters.queued_bytes.get());
        assert_eq!((counters, self.totals.bytes()), ((0, 0), 0));
        let tcp = self.server.listener().tcp();
        assert_eq!((tcp.count(), tcp.memory()), ((0, 0, 0), 0));
    }
}
