//! The TCP engine as a source of connections.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::io::Errno;
use twinpath_stream::{Broken, Lent, Received, Transport};
use twinpath_tcp::{
    Config, ConnectionId, Events, Later, ListenerId, Options, Segment, Sink, Stream, Tcp, Tuple, Unknown,
    Verdict,
};
use twinpath_time::Instant;

use crate::streams::{Listener, Ready};

/// Connections that may wait to be accepted at one end, half-open ones included: Linux's `somaxconn`.
const BACKLOG: u32 = 4096;

/// What accepts at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing: what arrives for no connection is not answered.
    Stopped,
    Listening,
    /// Nothing new: handshakes that have begun are completed.
    Closing,
    /// Nothing.
    Closed,
}

/// A TCP engine that accepts connections at some local ends.
#[derive(Debug)]
pub struct EngineListener {
    tcp: Tcp,
    locals: Vec<SocketAddr>,
    /// One for each local end, as long as connections can arrive.
    listeners: Vec<ListenerId>,
    phase: Phase,
    /// The time of the last call.
    now: Instant,
    /// The server's connection with its number, by the engine's small number.
    watched: Vec<Option<(ConnectionId, u32)>>,
    ready: VecDeque<Ready>,
}

impl EngineListener {
    /// A listener at `locals`, whose addresses may be unspecified. `secret` must not be known to peers. What arrives
    /// for no connection is the kernel's.
    #[must_use]
    pub fn new(config: Config, locals: Vec<SocketAddr>, secret: [u64; 2]) -> Self {
        Self {
            tcp: Tcp::new(config, Unknown::LeaveToKernel, secret).telling_what_is_gone(),
            locals,
            listeners: Vec::new(),
            phase: Phase::Stopped,
            now: Instant::ZERO,
            watched: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// The engine.
    #[must_use]
    pub const fn tcp(&self) -> &Tcp {
        &self.tcp
    }

    /// The engine, to be configured.
    pub const fn tcp_mut(&mut self) -> &mut Tcp {
        &mut self.tcp
    }

    /// Takes a segment whose checksum was verified; see [`Tcp::segment`].
    pub fn segment(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) -> Verdict {
        self.now = now;
        self.tcp.segment(now, tuple, segment, &mut Later, sink)
    }

    /// Does what is due, up to `burst` timers, and sends what is to be sent.
    pub fn advance(&mut self, now: Instant, burst: u32, sink: &mut impl Sink) {
        self.now = now;
        self.tcp.advance(now, burst, sink);
    }

    /// Sends what calls have left to be sent.
    pub fn output(&mut self, now: Instant, sink: &mut impl Sink) {
        self.now = now;
        self.tcp.output(now, sink);
    }

    /// How many more connections may begin: none if it does not listen, or `connections` exist already.
    #[must_use]
    pub fn room(&self, connections: u32) -> u32 {
        if self.phase != Phase::Listening {
            return 0;
        }
        let (open, half_open, _) = self.tcp.count();
        let config = self.tcp.config();
        let waiting = self.listeners.iter().map(|listener| self.tcp.acceptable(*listener)).max().unwrap_or(0);
        let backlog = (BACKLOG as usize).saturating_sub(half_open + waiting);
        let table = (connections.min(config.connections) as usize).saturating_sub(open + half_open);
        let half_open = (config.half_open as usize).saturating_sub(half_open);
        backlog.min(table).min(half_open) as u32
    }

    /// Whether it accepts connections, or will once it is told to.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.phase == Phase::Listening
    }

    /// The next event for the server.
    pub fn next_ready(&mut self) -> Option<Ready> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        while let Some((id, events)) = self.tcp.next_event() {
            // Those that were not accepted yet are told again then.
            if let Some(Some((watched, number))) = self.watched.get(id.index() as usize)
                && *watched == id
            {
                return Some(Ready::Connection { number: *number, ends: events.has(Events::ENDED) });
            }
        }
        let waits = |listener: &ListenerId| self.tcp.acceptable(*listener) > 0;
        self.listeners.iter().position(waits).map(Ready::Accept)
    }

    /// Resets all connections, once the server has closed its own. New ones are accepted as before.
    pub fn abort_all(&mut self, now: Instant) {
        self.now = now;
        self.ready.clear();
        self.tcp.abort_all(now);
    }

    /// Forgets the handshakes that are under way, and resets what waits to be accepted.
    pub fn cut(&mut self) {
        for listener in self.listeners.drain(..) {
            self.tcp.stop_listening(self.now, listener);
        }
        if self.phase != Phase::Stopped {
            self.phase = Phase::Closed;
        }
    }
}

/// The bytes of a connection during a call; nothing if the connection is gone.
pub struct EngineStream<'a>(Option<Stream<'a>>);

impl Transport for EngineStream<'_> {
    #[inline]
    fn receive(&mut self, bytes_max: usize) -> Result<Received, Broken> {
        self.0.as_mut().ok_or(Broken)?.receive(bytes_max)
    }

    #[inline]
    fn lend(&mut self, room_max: usize) -> Lent<'_> {
        match &mut self.0 {
            Some(stream) => stream.lend(room_max),
            None => Lent { received: &[], room: &mut [] },
        }
    }

    #[inline]
    fn consume(&mut self, bytes: usize) {
        if let Some(stream) = &mut self.0 {
            Transport::consume(stream, bytes);
        }
    }

    #[inline]
    fn commit(&mut self, bytes: usize) -> Result<usize, Broken> {
        self.0.as_mut().ok_or(Broken)?.commit(bytes)
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        self.0.as_mut().ok_or(Broken)?.send(bytes)
    }

    fn finish(&mut self) -> Result<(), Broken> {
        self.0.as_mut().ok_or(Broken)?.finish()
    }

    fn acknowledged(&self) -> u64 {
        self.0.as_ref().map_or(0, Transport::acknowledged)
    }
}

impl Listener for EngineListener {
    type Io<'io> = ();
    type Stream = ConnectionId;
    type Transport<'a> = EngineStream<'a>;

    fn listen(&mut self, (): &()) -> Result<(), Errno> {
        if self.listeners.is_empty() {
            let options = Options { no_delay: true, ..Options::default() };
            let listen = |local: &SocketAddr| self.tcp.listen(*local, BACKLOG, options);
            self.listeners = self.locals.iter().map(listen).collect();
        }
        self.phase = Phase::Listening;
        Ok(())
    }

    /// Connections whose handshake has begun are still accepted: no other instance has them.
    fn stop(&mut self, (): &()) {
        if self.phase == Phase::Listening {
            self.phase = Phase::Stopped;
        }
    }

    /// The same.
    fn close(&mut self, (): &()) {
        self.phase = Phase::Closing;
    }

    fn is_closed(&self) -> bool {
        let is_over = || {
            let waits = self.listeners.iter().any(|listener| self.tcp.acceptable(*listener) > 0);
            self.tcp.count().1 == 0 && !waits
        };
        match self.phase {
            Phase::Stopped | Phase::Listening => false,
            Phase::Closing => is_over(),
            Phase::Closed => true,
        }
    }

    fn places(&self) -> usize {
        self.listeners.len()
    }

    fn accept(&mut self, place: usize, now: Instant, (): &()) -> Option<(ConnectionId, SocketAddr)> {
        self.now = now;
        let id = self.tcp.accept(*self.listeners.get(place)?)?;
        let peer = self.tcp.tuple(id)?.remote();
        Some((id, peer))
    }

    fn watch(&mut self, stream: &mut ConnectionId, number: u32, (): &()) -> Result<(), Errno> {
        let index = stream.index() as usize;
        if index >= self.watched.len() {
            self.watched.resize(index + 1, None);
        }
        self.watched[index] = Some((*stream, number));
        self.ready.push_back(Ready::Connection { number, ends: false });
        Ok(())
    }

    fn has_bytes(&self, stream: &ConnectionId) -> bool {
        self.tcp.info(self.now, *stream).is_some_and(|info| info.queued > 0)
    }

    fn held(&self, _: &ConnectionId) -> usize {
        // The engine limits its buffers.
        0
    }

    #[inline]
    fn transport<'a>(&'a mut self, stream: &'a mut ConnectionId, now: Instant) -> EngineStream<'a> {
        EngineStream(self.tcp.stream(now, *stream))
    }

    fn end(&mut self, stream: ConnectionId) {
        if let Some(watched) = self.watched.get_mut(stream.index() as usize)
            && watched.is_some_and(|(id, _)| id == stream)
        {
            *watched = None;
        }
        self.tcp.close(self.now, stream);
    }
}
