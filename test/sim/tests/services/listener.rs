//! The engine as a source of connections.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use rustix::io::Errno;
use twinpath_serve::streams::{Listener, Ready};
use twinpath_stream::{Broken, Lent, Received, Transport};
use twinpath_tcp::{
    Config, ConnectionId, Events, Later, ListenerId, Options, Segment, Sink, Stream, Tcp, Tuple, Unknown,
};
use twinpath_time::Instant;

/// An engine with one listener.
pub(crate) struct Engine {
    pub(crate) tcp: Tcp,
    listener: Option<ListenerId>,
    local: SocketAddr,
    is_closed: bool,
    now: Instant,
    /// The server's numbers of connections, and what was told of the others.
    numbers: HashMap<ConnectionId, u32>,
    early: HashMap<ConnectionId, bool>,
    ready: VecDeque<Ready>,
}

impl Engine {
    pub(crate) fn new(config: Config, local: SocketAddr, seed: u64) -> Self {
        Self {
            tcp: Tcp::new(config, Unknown::Reset, [seed, 1]),
            listener: None,
            local,
            is_closed: false,
            now: Instant::ZERO,
            numbers: HashMap::new(),
            early: HashMap::new(),
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn segment(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) {
        self.now = now;
        self.tcp.segment(now, tuple, segment, &mut Later, sink);
    }

    pub(crate) fn advance(&mut self, now: Instant, sink: &mut impl Sink) {
        self.now = now;
        self.tcp.advance(now, u32::MAX, sink);
    }

    /// The events for the server.
    pub(crate) fn next_ready(&mut self) -> Option<Ready> {
        while let Some((id, events)) = self.tcp.next_event() {
            let info = self.tcp.info(self.now, id);
            let ends = events.has(Events::ENDED) || info.is_none();
            match self.numbers.get(&id) {
                Some(number) => self.ready.push_back(Ready::Connection { number: *number, ends }),
                None => *self.early.entry(id).or_default() |= ends,
            }
        }
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        let waits = self.listener.is_some_and(|listener| self.tcp.acceptable(listener) > 0);
        waits.then_some(Ready::Accept(0))
    }
}

/// A connection for the time of a call; nothing if it is gone.
pub(crate) struct Moves<'a>(Option<Stream<'a>>);

impl Transport for Moves<'_> {
    fn receive(&mut self, bytes_max: usize) -> Result<Received, Broken> {
        self.0.as_mut().ok_or(Broken)?.receive(bytes_max)
    }

    fn lend(&mut self, room_max: usize) -> Lent<'_> {
        match &mut self.0 {
            Some(stream) => stream.lend(room_max),
            None => Lent { received: &[], room: &mut [] },
        }
    }

    fn consume(&mut self, bytes: usize) {
        if let Some(stream) = &mut self.0 {
            Transport::consume(stream, bytes);
        }
    }

    fn commit(&mut self, bytes: usize) -> Result<usize, Broken> {
        self.0.as_mut().ok_or(Broken)?.commit(bytes)
    }

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

impl Listener for Engine {
    type Io<'io> = ();
    type Stream = ConnectionId;
    type Transport<'a> = Moves<'a>;

    fn listen(&mut self, (): &()) -> Result<(), Errno> {
        self.listener =
            Some(self.tcp.listen(self.local, 64, Options { no_delay: true, ..Options::default() }));
        Ok(())
    }

    fn stop(&mut self, (): &()) {
        if let Some(listener) = self.listener.take() {
            self.tcp.stop_listening(self.now, listener);
        }
    }

    fn close(&mut self, io: &()) {
        self.stop(io);
        self.is_closed = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn places(&self) -> usize {
        1
    }

    fn accept(&mut self, _place: usize, _now: Instant, (): &()) -> Option<(ConnectionId, SocketAddr)> {
        let id = self.tcp.accept(self.listener?)?;
        let peer = self.tcp.tuple(id)?.remote();
        Some((id, peer))
    }

    fn watch(&mut self, stream: &mut ConnectionId, number: u32, (): &()) -> Result<(), Errno> {
        self.numbers.insert(*stream, number);
        let ends = self.early.remove(stream).unwrap_or(false);
        self.ready.push_back(Ready::Connection { number, ends });
        Ok(())
    }

    fn has_bytes(&self, stream: &ConnectionId) -> bool {
        self.tcp.info(self.now, *stream).is_some_and(|info| info.queued > 0)
    }

    fn held(&self, _: &ConnectionId) -> usize {
        // The engine limits its buffers.
        0
    }

    fn transport<'a>(&'a mut self, stream: &'a mut ConnectionId, now: Instant) -> Moves<'a> {
        Moves(self.tcp.stream(now, *stream))
    }

    fn end(&mut self, stream: ConnectionId) {
        self.numbers.remove(&stream);
        self.tcp.close(self.now, stream);
    }
}
