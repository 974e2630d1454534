//! The TCP engine as a source of connections. Its connections may move to sockets of the kernel.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use twinpath_stream::{Broken, Lent, Received, Transport};
use twinpath_tcp::{
    Config, ConnectionId, Events, Later, ListenerId, Options, Segment, Sink, Stream, Tcp, Tuple, Unknown,
    Verdict,
};
use twinpath_time::Instant;

use super::moving::{User, len_of, to_socket};
use crate::kernel_tcp::{Buffers, KernelStream, Socket};
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
    /// Of the connections that have moved to sockets: once there are some.
    buffers: Option<Buffers>,
    /// How many of these are open.
    moved: u32,
}

/// A connection of the engine, or one that has moved to a socket.
pub struct EngineConnection(Carrier);

impl EngineConnection {
    /// The socket that it has moved to.
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match &self.0 {
            Carrier::Engine(_) => None,
            Carrier::Kernel(socket) => Some(socket),
        }
    }
}

enum Carrier {
    Engine(ConnectionId),
    // Few connections move: the others do without its memory.
    Kernel(Box<Socket>),
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
            buffers: None,
            moved: 0,
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

    /// Its local ends; an address may be unspecified.
    #[must_use]
    pub fn locals(&self) -> &[SocketAddr] {
        &self.locals
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

    /// How many open connections have moved to sockets.
    #[must_use]
    pub const fn moved(&self) -> u32 {
        self.moved
    }

    /// Lets a socket of the kernel go on with a connection, unless one does. Returns the socket, to be watched under the
    /// connection's number unless it is closed now, and how many bytes were copied. `output_max`: bytes that it sends in
    /// one call; `ifindex`: the link of addresses that need one.
    ///
    /// # Errors
    /// What the kernel returns: the engine has the connection as before.
    pub(crate) fn move_to_kernel<'a>(
        &mut self,
        now: Instant,
        connection: &'a mut EngineConnection,
        user: User,
        (output_max, ifindex): (usize, u32),
    ) -> io::Result<Option<(&'a Socket, usize)>> {
        let Carrier::Engine(id) = connection.0 else { return Ok(None) };
        let snapshot = self.tcp.snapshot(now, id).ok_or(io::ErrorKind::NotConnected)?;
        let bytes = len_of(&snapshot);
        let socket = to_socket(&snapshot, user, ifindex)?;
        self.forget(id);
        self.moved += 1;
        self.buffers.get_or_insert_with(|| Buffers::new(output_max));
        connection.0 = Carrier::Kernel(Box::new(socket));
        Ok(match &connection.0 {
            Carrier::Kernel(socket) => Some((socket, bytes)),
            Carrier::Engine(_) => None,
        })
    }

    /// Our address of a connection, unless it has moved to a socket.
    pub(crate) fn local_of(&self, connection: &EngineConnection) -> Option<IpAddr> {
        let Carrier::Engine(id) = connection.0 else { return None };
        Some(self.tcp.tuple(id)?.local().ip())
    }

    /// Our address of the connection with this index of the engine, if the server is done with it.
    pub(crate) fn local_of_orphan(&self, index: u32) -> Option<IpAddr> {
        let (id, _) = self.tcp.connection_at(index).filter(|(_, is_orphan)| *is_orphan)?;
        Some(self.tcp.tuple(id)?.local().ip())
    }

    /// Has a connection end by a reset, whatever it has to send: the server closes it next.
    pub(crate) fn reset(&mut self, now: Instant, connection: &EngineConnection) {
        match &connection.0 {
            Carrier::Engine(id) => self.tcp.abort(now, *id),
            // The kernel takes this from each socket.
            Carrier::Kernel(socket) => _ = sockopt::set_socket_linger(&**socket, Some(Duration::ZERO)),
        }
    }

    /// Lets the kernel deliver what the connection with this index of the engine has to send, if the server is done with
    /// it, or resets it if no socket can go on with it, unless `is_kept` says otherwise. Returns how many bytes were copied;
    /// `None`: there is no such connection.
    ///
    /// # Errors
    /// What the kernel returns; the connection was reset then, or is kept.
    pub(crate) fn leave_orphan(
        &mut self,
        now: Instant,
        index: u32,
        ifindex: u32,
        is_kept: impl FnOnce(&io::Error) -> bool,
    ) -> io::Result<Option<usize>> {
        let Some((id, true)) = self.tcp.connection_at(index) else { return Ok(None) };
        let Some(snapshot) = self.tcp.snapshot(now, id) else { return Ok(None) };
        let bytes = len_of(&snapshot);
        // Closed, it goes on without a user.
        if let Err(error) = to_socket(&snapshot, User::None, ifindex) {
            if !is_kept(&error) {
                self.tcp.abort(now, id);
            }
            return Err(error);
        }
        self.forget(id);
        Ok(Some(bytes))
    }

    /// Whether the connection with this index of the engine is, or will be, one of the server's, and can move.
    pub(crate) fn may_move(&self, now: Instant, index: u32) -> bool {
        let own = self.tcp.connection_at(index).filter(|(_, is_orphan)| !is_orphan);
        own.is_some_and(|(id, _)| self.tcp.snapshot(now, id).is_some())
    }

    fn forget(&mut self, id: ConnectionId) {
        self.unwatch_id(id);
        self.tcp.forget(id);
    }

    fn unwatch_id(&mut self, id: ConnectionId) {
        if let Some(watched) = self.watched.get_mut(id.index() as usize)
            && watched.is_some_and(|(watched, _)| watched == id)
        {
            *watched = None;
        }
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

/// The bytes of a connection during a call.
pub struct EngineStream<'a>(Bytes<'a>);

enum Bytes<'a> {
    Engine(Stream<'a>),
    Kernel(KernelStream<'a>),
    /// The connection is gone.
    Gone,
}

impl Transport for EngineStream<'_> {
    #[inline]
    fn receive(&mut self, bytes_max: usize) -> Result<Received, Broken> {
        match &mut self.0 {
            Bytes::Engine(stream) => stream.receive(bytes_max),
            Bytes::Kernel(stream) => stream.receive(bytes_max),
            Bytes::Gone => Err(Broken),
        }
    }

    #[inline]
    fn lend(&mut self, room_max: usize) -> Lent<'_> {
        match &mut self.0 {
            Bytes::Engine(stream) => stream.lend(room_max),
            Bytes::Kernel(stream) => stream.lend(room_max),
            Bytes::Gone => Lent { received: &[], room: &mut [] },
        }
    }

    #[inline]
    fn consume(&mut self, bytes: usize) {
        match &mut self.0 {
            Bytes::Engine(stream) => Transport::consume(stream, bytes),
            Bytes::Kernel(stream) => stream.consume(bytes),
            Bytes::Gone => {}
        }
    }

    fn take(&mut self, from: usize, used: usize) -> (Vec<u8>, usize) {
        match &mut self.0 {
            Bytes::Engine(stream) => stream.take(from, used),
            Bytes::Kernel(stream) => stream.take(from, used),
            Bytes::Gone => (Vec::new(), 0),
        }
    }

    #[inline]
    fn commit(&mut self, bytes: usize) -> Result<usize, Broken> {
        match &mut self.0 {
            Bytes::Engine(stream) => stream.commit(bytes),
            Bytes::Kernel(stream) => stream.commit(bytes),
            Bytes::Gone => Err(Broken),
        }
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        match &mut self.0 {
            Bytes::Engine(stream) => stream.send(bytes),
            Bytes::Kernel(stream) => stream.send(bytes),
            Bytes::Gone => Err(Broken),
        }
    }

    fn finish(&mut self) -> Result<(), Broken> {
        match &mut self.0 {
            Bytes::Engine(stream) => stream.finish(),
            Bytes::Kernel(stream) => stream.finish(),
            Bytes::Gone => Err(Broken),
        }
    }

    fn acknowledged(&self) -> u64 {
        match &self.0 {
            Bytes::Engine(stream) => Transport::acknowledged(stream),
            Bytes::Kernel(stream) => stream.acknowledged(),
            Bytes::Gone => 0,
        }
    }
}

impl Listener for EngineListener {
    type Io<'io> = ();
    type Stream = EngineConnection;
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

    fn accept(&mut self, place: usize, now: Instant, (): &()) -> Option<(EngineConnection, SocketAddr)> {
        self.now = now;
        let id = self.tcp.accept(*self.listeners.get(place)?)?;
        let peer = self.tcp.tuple(id)?.remote();
        Some((EngineConnection(Carrier::Engine(id)), peer))
    }

    fn watch(&mut self, connection: &mut EngineConnection, number: u32, (): &()) -> Result<(), Errno> {
        // Sockets were watched when the connections moved.
        let Carrier::Engine(id) = connection.0 else { return Ok(()) };
        let index = id.index() as usize;
        if index >= self.watched.len() {
            self.watched.resize(index + 1, None);
        }
        self.watched[index] = Some((id, number));
        self.ready.push_back(Ready::Connection { number, ends: false });
        Ok(())
    }

    fn has_bytes(&self, connection: &EngineConnection) -> bool {
        match &connection.0 {
            Carrier::Engine(id) => self.tcp.info(self.now, *id).is_some_and(|info| info.queued > 0),
            Carrier::Kernel(socket) => socket.has_bytes(),
        }
    }

    #[inline]
    fn held(&self, connection: &EngineConnection) -> usize {
        match &connection.0 {
            // The engine limits its buffers.
            Carrier::Engine(_) => 0,
            Carrier::Kernel(socket) => socket.held(),
        }
    }

    #[inline]
    fn transport<'a>(&'a mut self, connection: &'a mut EngineConnection, now: Instant) -> EngineStream<'a> {
        EngineStream(match &mut connection.0 {
            Carrier::Engine(id) => self.tcp.stream(now, *id).map_or(Bytes::Gone, Bytes::Engine),
            Carrier::Kernel(socket) => {
                self.buffers.as_mut().map_or(Bytes::Gone, |buffers| Bytes::Kernel(socket.with(buffers)))
            }
        })
    }

    fn end(&mut self, connection: EngineConnection) {
        match connection.0 {
            Carrier::Engine(id) => {
                self.unwatch_id(id);
                self.tcp.close(self.now, id);
            }
            Carrier::Kernel(socket) => {
                self.moved = self.moved.saturating_sub(1);
                drop(socket);
            }
        }
    }
}
