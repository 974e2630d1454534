//! Tests of a service without sockets, threads or privileges: a simulated network, peers, and a clock that moves only
//! when the test says so.
//!
//! A [`Simulation`] is one worker with one service, as a value. Connections run through the same code as on
//! a real worker, so limits, time-outs, half-closed connections and deferred replies behave the same. The
//! result of a test depends only on its own calls and the network's seed: tests can run in parallel, and
//! repeat exactly.
//!
//! Not simulated: limits over several connections, the rate of replies to one source, frames of an
//! EtherType, kept replies, several workers or services, and IPv6 addresses.
//!
//! ```
//! use std::net::SocketAddr;
//! use twinpath::test::{Network, Simulation};
//! use twinpath::{Answer, Datagram, Duration, Instant, Output, Reason, Service};
//!
//! /// Answers each line, and each datagram, with its length.
//! struct Length;
//!
//! impl Service for Length {
//!     type Connection = ();
//!
//!     fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
//!         let length = datagram.request().len().to_string();
//!         datagram.answer(length.as_bytes())
//!     }
//!
//!     fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
//!         Ok(())
//!     }
//!
//!     fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
//!         let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
//!         if output.write(format!("{end}\n").as_bytes()) { end + 1 } else { 0 }
//!     }
//! }
//!
//! // Each byte of a stream arrives by itself, 10 ms after it was sent.
//! let slow = Network { delay_min: Duration::from_millis(10), segment_bytes: 1, ..Network::default() };
//! let mut simulation = Simulation::on(slow, Length);
//! let peer = simulation.new_peer();
//! assert_eq!(simulation.ask(peer, b"hello"), [b"5"]);
//!
//! let client = simulation.connect(peer).expect("it accepts all");
//! simulation.write(client, b"one\nthree\n");
//! simulation.advance(Duration::from_millis(15));
//! assert_eq!(simulation.read(client), b"", "the reply is on its way");
//! simulation.advance(Duration::from_millis(5));
//! assert_eq!(simulation.read(client), b"3\n5\n");
//!
//! // A connection on which nothing happens is closed after ten minutes, unless the limits say otherwise.
//! simulation.advance(Duration::from_secs(601));
//! assert_eq!(simulation.closed(client).map(|why| why.name()), Some("idle_timeout"));
//! ```

mod connection;
mod events;

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use twinpath_service::connections::ConnectionLimits;
use twinpath_service::{
    Answer, Begin, Beside, Closed, ConnectionId, Datagram, Message, MessageQueue, NotSent, Outbox, Recipient,
    SendHandle, Service,
};
use twinpath_time::{Duration, Instant};

use self::connection::{Connected, Side};
use self::events::{Events, Happening};
use crate::Reason;

pub use self::connection::Client;

/// The buffer of a datagram: the reply is built in it.
const DATAGRAM_BUFFER: usize = 2048;

/// The longest datagram over IPv4.
const REPLY_MAX: usize = 65_507;

/// Calls without a step of time after which the simulation is considered to be in an endless loop.
const STEPS_MAX: usize = 1_000_000;

/// Pieces of work for other threads that may be under way at a time.
const WORK_MAX: usize = 1024;

/// Maximum number of waiting messages from other threads, as on a worker.
const MESSAGES_MAX: usize = 1024;

/// The time at which a simulation begins.
const BEGIN: Instant = Instant::from_nanos(1_000_000_000);

/// The behaviour of the simulated network. The default delays nothing and loses nothing.
///
/// Streams lose nothing and keep their order, as over TCP; their bytes only arrive later, and in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The seed of all randomness.
    pub seed: u64,
    /// The minimum one-way delay.
    pub delay_min: Duration,
    /// The maximum one-way delay; datagrams can overtake each other if it is more than the minimum.
    pub delay_max: Duration,
    /// The share of datagrams that are lost, 0 to 1, in each direction.
    pub loss: f64,
    /// The share of datagrams that arrive twice, 0 to 1.
    pub duplicates: f64,
    /// The maximum number of bytes of a stream that arrive together.
    pub segment_bytes: usize,
    /// The duration of work handed over to other threads.
    pub work: Duration,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            seed: 0,
            delay_min: Duration::ZERO,
            delay_max: Duration::ZERO,
            loss: 0.0,
            duplicates: 0.0,
            segment_bytes: usize::MAX,
            work: Duration::ZERO,
        }
    }
}

/// A service on a simulated worker, with a simulated network and its own time.
///
/// A panic of the service is a panic of the test.
pub struct Simulation<S: Service> {
    service: S,
    now: Instant,
    local: SocketAddr,
    limits: ConnectionLimits,
    network: Network,
    events: Events,
    connections: Vec<Connected<S::Connection>>,
    beside: Beside,
    received: HashMap<SocketAddr, Vec<Vec<u8>>>,
    dropped: HashMap<Reason, u64>,
    messages: Arc<Messages>,
    draining: bool,
    peers: u16,
    work: u64,
}

/// Messages from other threads that wait for the simulated worker.
#[derive(Default)]
struct Messages(Mutex<VecDeque<Message>>);

impl Messages {
    fn take(&self) -> Option<Message> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl MessageQueue for Messages {
    fn push(&self, message: Message) -> Result<(), NotSent> {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() >= MESSAGES_MAX {
            return Err(NotSent::Full);
        }
        messages.push_back(message);
        Ok(())
    }
}

impl<S: Service> Simulation<S> {
    /// A service on a network without any delay or loss.
    #[must_use]
    pub fn new(service: S) -> Self {
        Self::on(Network::default(), service)
    }

    /// A service on this network.
    #[must_use]
    pub fn on(network: Network, mut service: S) -> Self {
        let limits = twinpath_stream::TcpLimits::default();
        let messages = Arc::<Messages>::default();
        let sender =
            service.sends_later().then(|| SendHandle::new(Arc::clone(&messages) as Arc<dyn MessageQueue>));
        service.start(BEGIN, &Begin::new(0, sender));
        Self {
            service,
            now: BEGIN,
            local: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 7)),
            limits: limits_of(&limits),
            events: Events::new(&network),
            network,
            connections: Vec::new(),
            beside: Beside::default(),
            received: HashMap::new(),
            dropped: HashMap::new(),
            messages,
            draining: false,
            peers: 0,
            work: 0,
        }
    }

    /// Sets the limits of connections.
    #[must_use]
    pub fn limits(mut self, limits: &twinpath_stream::TcpLimits) -> Self {
        self.limits = limits_of(limits);
        self
    }

    /// The present time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The service's own address, at which peers send to it.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The service, to look into its state or to change it.
    pub const fn service(&mut self) -> &mut S {
        &mut self.service
    }

    /// Returns an address that no other peer has.
    pub fn new_peer(&mut self) -> SocketAddr {
        self.peers += 1;
        SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), 1024 + self.peers))
    }

    /// How often something was dropped, refused or closed for this reason.
    #[must_use]
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.dropped.get(&reason).copied().unwrap_or(0)
    }

    /// Sends a datagram from a peer. It is under way until time passes.
    pub fn send(&mut self, peer: SocketAddr, datagram: &[u8]) {
        self.events
            .datagram(self.now, &self.network, || Happening::Request { peer, bytes: datagram.to_vec() });
    }

    /// The datagrams that have arrived at a peer since the last call.
    pub fn received(&mut self, peer: SocketAddr) -> Vec<Vec<u8>> {
        self.received.remove(&peer).unwrap_or_default()
    }

    /// Sends a datagram from a peer; returns the datagrams that arrive at the peer until nothing is under
    /// way any more.
    pub fn ask(&mut self, peer: SocketAddr, datagram: &[u8]) -> Vec<Vec<u8>> {
        self.send(peer, datagram);
        self.settle();
        self.received(peer)
    }

    /// Opens a connection. The service is asked immediately, and may send first.
    ///
    /// # Errors
    /// The reason for which the service refuses it; [`Reason::DrainTimeout`] if the worker drains and accepts none.
    pub fn connect(&mut self, peer: SocketAddr) -> Result<Client, Reason> {
        if self.draining {
            return Err(Reason::DrainTimeout);
        }
        let state = self.service.accept(self.now, peer).inspect_err(|reason| {
            *self.dropped.entry(*reason).or_default() += 1;
        })?;
        let client = Client(self.connections.len());
        let id = ConnectionId::new(client.0 as u32, client.0 as u64 + 1);
        self.connections.push(Connected::new(self.now, id, state, &self.limits));
        self.work_on(client);
        Ok(client)
    }

    /// Sends bytes from the client. They are under way until time passes.
    pub fn write(&mut self, client: Client, bytes: &[u8]) {
        self.events.stream(self.now, &self.network, client, Side::Service, bytes);
    }

    /// Sends the client's end of stream; it still reads.
    pub fn finish(&mut self, client: Client) {
        self.events.after_stream(self.now, &self.network, client, Happening::End { client });
    }

    /// Resets the connection from the client's side.
    pub fn reset(&mut self, client: Client) {
        self.events.after_stream(self.now, &self.network, client, Happening::Reset { client });
    }

    /// Sets how many more bytes the client takes, like a receive window: 0 for a client that does not read.
    /// Unlimited until this is called.
    pub fn set_window(&mut self, client: Client, bytes: usize) {
        self.connections[client.0].set_window(bytes);
        self.work_on(client);
    }

    /// The bytes that have arrived at the client since the last call.
    pub fn read(&mut self, client: Client) -> Vec<u8> {
        std::mem::take(&mut self.connections[client.0].arrived)
    }

    /// Whether the client has received the service's end of stream.
    #[must_use]
    pub fn is_finished(&self, client: Client) -> bool {
        self.connections[client.0].finished
    }

    /// Why the connection was closed, if it was.
    #[must_use]
    pub fn closed(&self, client: Client) -> Option<Closed> {
        self.connections[client.0].closed
    }

    /// Starts a drain: the service's worker accepts no more, and each connection ends once its requests are
    /// answered.
    pub fn drain(&mut self) {
        self.draining = true;
        for at in 0..self.connections.len() {
            self.connections[at].stop();
            self.work_on(Client(at));
        }
    }

    /// Lets time pass until nothing is under way and no work is pending. Timers and time-outs that are due
    /// only after that do not fire.
    pub fn settle(&mut self) {
        self.run(None);
    }

    /// Lets this much time pass; every event happens at its time, in order.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        self.run(Some(end));
        self.now = end;
    }

    /// Runs to `end`; without one, until nothing is under way.
    fn run(&mut self, end: Option<Instant>) {
        let (mut steps, mut at) = (0, self.now);
        loop {
            self.take_messages();
            let on_its_way = self.events.next();
            let deadline = self.connections.iter().map(|it| it.deadline(&self.limits)).min();
            let deadline = deadline.unwrap_or(Instant::NEVER).min(self.service.deadline());
            if end.is_none() && on_its_way == Instant::NEVER && deadline > self.now {
                return;
            }
            let next = on_its_way.min(deadline);
            if end.is_some_and(|end| next > end) || next == Instant::NEVER {
                return;
            }
            self.now = self.now.max(next);
            steps = if self.now == at { steps + 1 } else { 0 };
            at = self.now;
            assert!(steps < STEPS_MAX, "the service and its peers go on without end, and no time passes");
            match self.events.take(self.now) {
                Some(happening) => self.happen(happening),
                None => self.run_timers(),
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Request { peer, bytes } => self.serve(peer, &bytes),
            Happening::Reply { peer, bytes } => self.received.entry(peer).or_default().push(bytes),
            Happening::Late { peer, number, reply } => {
                match self.service.late_reply(self.now, peer, number, &reply) {
                    Ok(()) => self.reply(peer, reply),
                    Err(reason) => self.count(reason),
                }
            }
            Happening::Bytes { client, side: Side::Client, bytes } => {
                self.connections[client.0].arrived.extend_from_slice(&bytes);
            }
            Happening::Bytes { client, side: Side::Service, bytes } => {
                self.connections[client.0].arrive(&bytes);
                self.work_on(client);
            }
            Happening::End { client } => {
                self.connections[client.0].end();
                self.work_on(client);
            }
            Happening::Reset { client } => {
                self.connections[client.0].reset();
                self.work_on(client);
            }
            Happening::Finished { client } => self.connections[client.0].finished = true,
            Happening::Done { client, number, reply } => {
                if !self.connections[client.0].done(number, reply) {
                    self.count(Reason::LateReply);
                }
                self.work_on(client);
            }
        }
    }

    /// Calls the timers that are due, and closes the connections that have timed out.
    fn run_timers(&mut self) {
        if self.service.deadline() <= self.now {
            self.service.timer(self.now, &mut self.beside.outbox);
            self.send_besides();
        }
        for at in 0..self.connections.len() {
            if self.connections[at].is_wake_due(self.now) {
                self.work_on(Client(at));
            } else if self.connections[at].deadline(&self.limits) <= self.now {
                let why = self.connections[at].expired(&self.limits);
                self.close(Client(at), why);
            }
        }
    }

    fn serve(&mut self, peer: SocketAddr, request: &[u8]) {
        let mut buffer = vec![0; DATAGRAM_BUFFER.max(request.len())];
        buffer[..request.len()].copy_from_slice(request);
        self.beside.later.allow(WORK_MAX);
        let datagram = Datagram::new(self.now, peer, self.local, &mut buffer, request.len());
        let answer = self.service.datagram(&mut datagram.with(&mut self.beside));
        self.send_besides();
        match answer {
            Answer::Nothing => self.count(Reason::NoReply),
            Answer::Drop(reason) => self.count(reason),
            Answer::Reply { len } => self.reply(peer, buffer[..len.min(DATAGRAM_BUFFER)].to_vec()),
            Answer::Long => {
                let reply = std::mem::take(&mut self.beside.reply);
                self.reply(peer, reply);
            }
            Answer::Later => {
                let jobs: Vec<_> = self.beside.later.take().collect();
                for job in jobs {
                    let done = self.now + self.network.work;
                    self.events.at(done, Happening::Late { peer, number: job.number, reply: job.work.run() });
                }
            }
        }
    }

    /// Takes the messages that other threads have sent so far.
    fn take_messages(&mut self) {
        while let Some(message) = self.messages.take() {
            match message {
                Message::Send(to, bytes) => self.send_one(to, &bytes),
                Message::Notify(number) => {
                    self.service.notified(self.now, number, &mut self.beside.outbox);
                    self.send_besides();
                }
            }
        }
    }

    fn send_besides(&mut self) {
        let outbox: Outbox = std::mem::take(&mut self.beside.outbox);
        for (to, bytes) in outbox.sends() {
            self.send_one(to, bytes);
        }
    }

    fn send_one(&mut self, to: Recipient, bytes: &[u8]) {
        match to {
            Recipient::Peer { local, .. } if local.ip() != self.local.ip() => {
                self.count(Reason::NotOwnAddress)
            }
            Recipient::Peer { local, .. } if local != self.local => self.count(Reason::KernelSocketRefused),
            Recipient::Peer { peer, .. } => self.reply(peer, bytes.to_vec()),
            Recipient::Connection(connection) => {
                let client = Client(connection.number() as usize);
                let connected = self.connections.get_mut(client.0).ok_or(Reason::LateReply);
                match connected.and_then(|connected| connected.push(self.now, bytes, &self.limits)) {
                    Ok(()) => self.work_on(client),
                    Err(reason) => self.count(reason),
                }
            }
        }
    }

    fn reply(&mut self, peer: SocketAddr, bytes: Vec<u8>) {
        if bytes.len() > REPLY_MAX {
            return self.count(Reason::ReplyTooLarge);
        }
        self.events.datagram(self.now, &self.network, || Happening::Reply { peer, bytes: bytes.clone() });
    }

    fn count(&mut self, reason: Reason) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    /// Lets a connection work until it has nothing left to do.
    fn work_on(&mut self, client: Client) {
        let connected = &mut self.connections[client.0];
        let why = connected.work(self.now, &self.limits, &mut self.service, &mut self.work);
        let (sent, finished) = connected.take_sent();
        for (number, reply) in connected.take_work() {
            self.events.at(self.now + self.network.work, Happening::Done { client, number, reply });
        }
        self.events.stream(self.now, &self.network, client, Side::Client, &sent);
        if finished {
            self.events.after_reply(self.now, &self.network, client, Happening::Finished { client });
        }
        if let Some(why) = why {
            self.close(client, why);
        }
    }

    fn close(&mut self, client: Client, why: Closed) {
        if let Some(state) = self.connections[client.0].close(why) {
            if let Closed::For(reason) = why {
                self.count(reason);
            }
            self.service.close(state, why);
            self.events.after_reply(self.now, &self.network, client, Happening::Finished { client });
        }
    }
}

fn limits_of(limits: &twinpath_stream::TcpLimits) -> ConnectionLimits {
    let twinpath_stream::TcpLimits { connection_bytes, idle, request, send, .. } = *limits;
    ConnectionLimits { bytes: connection_bytes as usize, idle, request, send }
}

impl<S: Service> std::fmt::Debug for Simulation<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connections = self.connections.len();
        f.debug_struct("Simulation")
            .field("now", &self.now)
            .field("connections", &connections)
            .finish_non_exhaustive()
    }
}
