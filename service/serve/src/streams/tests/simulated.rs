//! A simulated listener with its peers, and the part of a worker that drives the server.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_inspect::{Drops, Reason, TcpCounters};
use twinpath_service::{Output, Service};
use twinpath_stream::{Broken, Lent, Received, TcpLimits, Transport};
use twinpath_time::wheel::TICK;
use twinpath_time::{Duration, Instant};
use twinpath_udp::served::Served;

use crate::handlers::Guarded;
use crate::streams::{Call, Listener, Ready, StreamServer, TcpTotals};

pub(super) const LIMITS: TcpLimits = TcpLimits {
    connections: 600,
    connections_per_source: 600,
    connection_bytes: 65_536,
    queued_bytes: 1 << 20,
    idle: Duration::from_secs(1_000),
    request: Duration::from_secs(10),
    send: Duration::from_secs(20),
};

/// Sends whole lines back.
pub(super) struct Lines;

impl Service for Lines {
    type Connection = ();

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        if output.write(&input[..=end]) { end + 1 } else { 0 }
    }
}

/// Numbers from a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// A few lines, the last of which may have no end.
    pub(super) fn text(&mut self) -> Vec<u8> {
        (0..1 + self.below(400))
            .map(|_| if self.below(30) == 0 { b'\n' } else { b'a' + self.below(26) as u8 })
            .collect()
    }
}

/// A peer, and the stream to it.
pub(super) struct Peer {
    /// Bytes that it has sent and nobody has consumed, and how many of them were received.
    pub(super) arrived: Vec<u8>,
    received: usize,
    room: Vec<u8>,
    /// The most that is lent at a time. `usize::MAX`: all that is asked for, and a part may not be taken.
    pub(super) piece: usize,
    /// How many more bytes it takes.
    pub(super) window: usize,
    pub(super) taken: Vec<u8>,
    has_ended: bool,
    is_reset: bool,
    /// It was told that nothing more comes.
    pub(super) is_finished: bool,
    /// The server has given the stream back.
    pub(super) is_over: bool,
    number: Option<u32>,
    has_edge: bool,
}

/// Accepts connections of simulated peers.
#[derive(Default)]
pub(super) struct Simulated {
    peers: Vec<Peer>,
    waiting: VecDeque<usize>,
    listens: bool,
    is_closed: bool,
    paused_until: Option<Instant>,
}

impl Listener for Simulated {
    type Io<'io> = ();
    type Stream = usize;
    type Transport<'a> = &'a mut Peer;

    fn listen(&mut self, (): &()) -> Result<(), Errno> {
        self.listens = true;
        Ok(())
    }

    fn stop(&mut self, (): &()) {
        self.listens = false;
    }

    fn close(&mut self, (): &()) {
        (self.listens, self.is_closed) = (false, true);
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn places(&self) -> usize {
        1
    }

    fn accept(&mut self, place: usize, _now: Instant, (): &()) -> Option<(usize, SocketAddr)> {
        assert_eq!(place, 0);
        let peer = self.waiting.pop_front()?;
        Some((peer, SocketAddr::from(([192, 0, 2, 1], peer as u16))))
    }

    fn paused_until(&self) -> Instant {
        self.paused_until.unwrap_or(Instant::NEVER)
    }

    fn resume(&mut self, (): &()) {
        self.paused_until = None;
    }

    fn watch(&mut self, peer: &mut usize, number: u32, (): &()) -> Result<(), Errno> {
        let peer = &mut self.peers[*peer];
        (peer.number, peer.has_edge) = (Some(number), true);
        Ok(())
    }

    fn has_bytes(&self, peer: &usize) -> bool {
        self.peers[*peer].arrived.len() > self.peers[*peer].received
    }

    fn held(&self, peer: &usize) -> usize {
        self.peers[*peer].received
    }

    fn transport<'a>(&'a mut self, peer: &'a mut usize, _now: Instant) -> &'a mut Peer {
        &mut self.peers[*peer]
    }

    fn end(&mut self, peer: usize) {
        let peer = &mut self.peers[peer];
        assert!(!std::mem::replace(&mut peer.is_over, true), "once");
        (peer.number, peer.has_edge) = (None, false);
    }
}

impl Transport for &mut Peer {
    fn receive(&mut self, bytes_max: usize) -> Result<Received, Broken> {
        if self.is_reset {
            return Err(Broken);
        }
        let now = self.arrived.len().min(bytes_max);
        let len = now - std::mem::replace(&mut self.received, now);
        Ok(match len {
            0 if self.has_ended => Received::End,
            0 => Received::Nothing,
            len => Received::Bytes { len, more: now < self.arrived.len() },
        })
    }

    fn lend(&mut self, room_max: usize) -> Lent<'_> {
        let free =
            if self.piece == usize::MAX { room_max } else { room_max.min(self.piece).min(self.window) };
        if self.room.len() < free {
            self.room.resize(free, 0);
        }
        let Peer { arrived, received, room, .. } = &mut **self;
        Lent { received: &arrived[..*received], room: &mut room[..free] }
    }

    fn consume(&mut self, bytes: usize) {
        self.arrived.drain(..bytes);
        self.received -= bytes;
    }

    fn commit(&mut self, bytes: usize) -> Result<usize, Broken> {
        assert!(!self.is_finished, "it was told that nothing more comes");
        if self.is_reset {
            return Err(Broken);
        }
        let len = bytes.min(self.window);
        assert!(self.piece == usize::MAX || len == bytes, "more than was lent");
        self.window -= len;
        let Peer { taken, room, .. } = &mut **self;
        taken.extend_from_slice(&room[..len]);
        Ok(len)
    }

    fn finish(&mut self) -> Result<(), Broken> {
        self.is_finished = true;
        if self.is_reset { Err(Broken) } else { Ok(()) }
    }

    fn acknowledged(&self) -> u64 {
        self.taken.len() as u64
    }
}

/// A server with its service, and what a worker lends it.
pub(super) struct Rig<S: Service> {
    pub(super) server: StreamServer<Simulated, S::Connection>,
    service: Guarded<S>,
    pub(super) counters: TcpCounters,
    pub(super) drops: Drops,
    pub(super) totals: Arc<TcpTotals>,
    now: Instant,
}

impl<S: Service> Rig<S> {
    pub(super) fn new(service: S, limits: TcpLimits) -> Self {
        let totals = Arc::new(TcpTotals::new(limits, 1));
        let (served, most) = (Arc::new(Served::new()), limits.connections);
        let mut server = StreamServer::new(Simulated::default(), served, Arc::clone(&totals), most);
        server.listen(&()).expect("there is nothing to fail");
        let service = Guarded::new(service, Arc::default());
        let (counters, drops) = (TcpCounters::default(), Drops::default());
        Self { server, service, counters, drops, totals, now: Instant::from_nanos(1_000_000_000) }
    }

    fn call<R>(
        &mut self,
        call: impl FnOnce(&mut StreamServer<Simulated, S::Connection>, Call<'_, '_, S, Simulated>) -> R,
    ) -> R {
        let Self { server, service, counters, drops, now, .. } = self;
        call(server, Call { now: *now, service, counters, drops, io: &(), handlers: None })
    }

    /// A turn: events, then what is due. Returns whether there was anything to do.
    pub(super) fn turn(&mut self) -> bool {
        self.turn_after(Duration::from_micros(100))
    }

    /// A turn, so long after the one before. Returns whether there was anything to do.
    pub(super) fn turn_after(&mut self, time: Duration) -> bool {
        self.now += time;
        let listener = self.server.listener();
        let mut events = Vec::new();
        if listener.listens && listener.paused_until.is_none() && !listener.waiting.is_empty() {
            events.push(Ready::Accept(0));
        }
        for peer in &mut listener.peers {
            if let Some(number) = peer.number.filter(|_| std::mem::take(&mut peer.has_edge)) {
                events.push(Ready::Connection { number, ends: peer.has_ended || peer.is_reset });
            }
        }
        let mut is_busy = !events.is_empty();
        for event in events {
            self.call(|server, call| server.ready(event, call));
        }
        is_busy |= self.call(|server, call| server.run(call));
        is_busy
    }

    pub(super) fn turns(&mut self) {
        for _ in 0..100_000 {
            if !self.turn() {
                return;
            }
        }
        panic!("it spins");
    }

    /// How long the worker may wait now.
    pub(super) fn may_wait(&self) -> Duration {
        self.server.next_deadline().since(self.now)
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time + Duration::from_nanos(2 * TICK);
        self.turns();
    }

    /// A peer connects, and nobody has accepted it yet.
    pub(super) fn connect_only(&mut self) -> usize {
        let listener = self.server.listener();
        listener.peers.push(Peer {
            arrived: Vec::new(),
            received: 0,
            room: Vec::new(),
            piece: usize::MAX,
            window: 1_000,
            taken: Vec::new(),
            has_ended: false,
            is_reset: false,
            is_finished: false,
            is_over: false,
            number: None,
            has_edge: false,
        });
        listener.waiting.push_back(listener.peers.len() - 1);
        listener.peers.len() - 1
    }

    pub(super) fn connect(&mut self) -> usize {
        let peer = self.connect_only();
        self.turns();
        peer
    }

    pub(super) fn peer(&mut self, peer: usize) -> &mut Peer {
        &mut self.server.listener().peers[peer]
    }

    pub(super) fn say(&mut self, peer: usize, bytes: &[u8]) {
        let peer = self.peer(peer);
        peer.arrived.extend_from_slice(bytes);
        peer.has_edge = true;
    }

    pub(super) fn open_window(&mut self, peer: usize, bytes: usize) {
        let peer = self.peer(peer);
        peer.window += bytes;
        peer.has_edge = true;
    }

    pub(super) fn half_close(&mut self, peer: usize) {
        let peer = self.peer(peer);
        (peer.has_ended, peer.has_edge) = (true, true);
    }

    pub(super) fn reset(&mut self, peer: usize) {
        let peer = self.peer(peer);
        (peer.is_reset, peer.has_edge) = (true, true);
    }

    pub(super) fn pause(&mut self, time: Duration) {
        let until = self.now + time;
        self.server.listener().paused_until = Some(until);
    }

    pub(super) fn drain(&mut self, handed_over: bool) {
        self.call(|server, call| server.drain(handed_over, call));
    }

    pub(super) fn cut(&mut self) {
        self.call(|server, call| server.cut(call));
    }

    /// Checks that no connection is open and no byte is held.
    pub(super) fn holds_nothing(&self) {
        let counters = (self.counters.connections.get(), self.counters.queued_bytes.get());
        assert_eq!((counters, self.totals.bytes()), ((0, 0), 0));
    }
}
