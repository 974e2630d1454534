//! The stream connections of one service on one worker: accepts, reads and answers without blocking.
//!
//! A turn reads a connection once, passes all received bytes to the service, and sends the answers
//! immediately. There is no further read only to find that nothing is left, so over the kernel's sockets a call costs
//! two system calls. Connections announce their changes by edges. Where announcing costs much, a single busy connection
//! is read without it ([`polled`]). If the peer does not take its replies, they wait in a bounded buffer,
//! and the connection is not read until that has drained: a client that sends and never reads delays nobody
//! else. Deadlines are in a timer wheel, which changes when a connection starts to wait for something, not
//! with each request.

mod moving;
mod opening;
mod outside;

pub use moving::Change;

use std::sync::Arc;

use rustix::io::Errno;
use twinpath_inspect::{Drops, Reason, TcpCounters};
use twinpath_service::connections::{After, Connection, Scratch, Turn};
use twinpath_service::{Closed, ConnectionId, Service};
use twinpath_time::{Instant, Wheel};
use twinpath_udp::served::Served;

use crate::handlers::{Guarded, HandlerPool};
use crate::listing::WhyKernel;
use crate::streams::host::ConnectionHost;
use crate::streams::limits::TcpTotals;
use crate::streams::listener::{Listener, Ready};
use crate::streams::polled::Polled;
use crate::streams::sources::{Source, Sources};
use crate::streams::table::Table;
use crate::streams::waiting::Waiting;

/// After this many bytes sent in a turn, other connections wait for the next turn, so that ports and deadlines
/// are served in between.
const TURN_BYTES: usize = 1 << 20;

/// Maximum number of connections accepted per turn.
const ACCEPT_BURST: usize = 64;

/// Maximum number of connections that are closed at their deadline, or told to end, in one turn.
const CLOSE_BURST: u32 = 64;

/// A connection that is told to end is first read up to this many times, while each read fills its buffer.
const LAST_READS: u32 = 8;

/// What the engine passes to each call of the server.
pub struct Call<'a, 'io, S, L: Listener> {
    /// The time of the turn.
    pub now: Instant,
    /// The service's callbacks; a panic in one is caught.
    pub service: &'a mut Guarded<S>,
    /// The counters of the service's connections.
    pub counters: &'a TcpCounters,
    /// Counters for what is dropped or refused.
    pub drops: &'a Drops,
    /// What the listener needs of the worker.
    pub io: &'a L::Io<'io>,
    /// The handler pool, if the service has work that may block.
    pub handlers: Option<&'a mut HandlerPool>,
}

/// A connection with its stream and its place in the lists.
struct Tracked<L: Listener, C> {
    stream: L::Stream,
    connection: Connection<C>,
    id: ConnectionId,
    source: Source,
    /// Why it is not on the fast path, if it is not.
    why: WhyKernel,
    /// Since when it has been idle, if it is listed among the connections that can be closed for a new one; `NEVER`: it is
    /// not.
    idle_since: Instant,
}

impl<L: Listener, C> Tracked<L, C> {
    /// Bytes of memory that it holds besides itself.
    #[inline]
    fn held(&self, listener: &L) -> usize {
        self.connection.held() + listener.held(&self.stream)
    }
}

/// The stream connections of one service on one worker.
pub struct StreamServer<L: Listener, C> {
    listener: L,
    served: Arc<Served>,
    totals: Arc<TcpTotals>,
    table: Table<Tracked<L, C>>,
    /// Maximum number of connections at a time.
    most: u32,
    /// Connections of the same worker that count as well, but are another server's.
    elsewhere: u32,
    /// A bit that all numbers of its connections have outside of it.
    mark: u32,
    sources: Sources,
    deadlines: Wheel,
    polled: Polled,
    /// An event has named the connection in `polled`, and its read is delayed.
    is_delayed: bool,
    /// Connections that have more to do, although no descriptor will report an event for them.
    again: Waiting,
    /// Connections that wait for room in the handler pool.
    want_room: Waiting,
    scratch: Scratch,
    /// Whether the last `run` received bytes from the polled connection.
    found: bool,
    /// Bytes that all its connections hold.
    held: u64,
    /// Bytes sent and received since the turn began.
    sent: usize,
    received: usize,
    /// During a drain: the number of the next connection to be told to end.
    ending: Option<u32>,
    /// Whether a drain has begun.
    draining: bool,
    /// Connections opened so far.
    opened: u64,
    /// Why connections that begin now are not on the fast path.
    why: WhyKernel,
}

impl<L: Listener, C: Send> StreamServer<L, C> {
    /// A server of `served` for the connections of `listener`, at most `most` at a time.
    #[must_use]
    pub fn new(listener: L, served: Arc<Served>, totals: Arc<TcpTotals>, most: u32) -> Self {
        let limits = totals.limits();
        Self {
            listener,
            served,
            table: Table::new(most),
            most,
            elsewhere: 0,
            mark: 0,
            sources: Sources::default(),
            deadlines: Wheel::new(),
            polled: Polled::default(),
            is_delayed: false,
            again: Waiting::default(),
            sent: 0,
            received: 0,
            want_room: Waiting::default(),
            scratch: Scratch::new(limits.connection_bytes as usize),
            found: false,
            held: 0,
            ending: None,
            draining: false,
            opened: 0,
            why: WhyKernel::NotAsked,
            totals,
        }
    }

    /// The same with a bit that its connections' names have, so that they differ from those of another server: a high
    /// one, above every number.
    #[must_use]
    pub fn with_mark(mut self, mark: u32) -> Self {
        self.mark = mark;
        self
    }

    /// The source of its connections.
    pub const fn listener(&mut self) -> &mut L {
        &mut self.listener
    }

    /// The same, to be read.
    pub const fn listener_ref(&self) -> &L {
        &self.listener
    }

    /// Connections that are open.
    pub const fn open_connections(&self) -> u32 {
        self.table.open()
    }

    /// Maximum number of connections at a time.
    pub const fn most(&self) -> u32 {
        self.most
    }

    /// Sets how many connections of another server count against the maximum of this one.
    pub const fn count_elsewhere(&mut self, connections: u32) {
        self.elsewhere = connections;
    }

    /// Says why connections that begin from now on are not on the fast path.
    pub const fn explain(&mut self, why: WhyKernel) {
        self.why = why;
    }

    /// The stream of the connection with this number, if there is one, and why it is not on the fast path.
    pub(crate) fn stream_at(&mut self, number: u32) -> Option<(&L::Stream, WhyKernel)> {
        let tracked = self.table.get(number)?;
        Some((&tracked.stream, tracked.why))
    }

    /// Applies new limits: its connections are counted in the new totals from now on, and their deadlines
    /// follow the new limits. The former totals are returned in place of the new ones, because a worker
    /// frees nothing.
    pub fn exchange_limits(&mut self, totals: &mut Arc<TcpTotals>, most: u32) {
        std::mem::swap(&mut self.totals, totals);
        self.most = most;
        for number in 0..self.table.end() {
            let Some(Tracked { connection, source, .. }) = self.table.get(number) else { continue };
            totals.closed(*source);
            self.totals.adopted(*source);
            let deadline = connection.deadline(self.totals.each());
            if deadline < self.deadlines.deadline(number) {
                self.deadlines.set(number, deadline);
            }
        }
        totals.holds(self.held as usize, 0);
        self.totals.holds(0, self.held as usize);
    }

    /// Starts accepting.
    pub fn listen(&mut self, io: &L::Io<'_>) -> Result<(), Errno> {
        self.listener.listen(io)
    }

    /// Stops accepting until the next [`Self::listen`].
    pub fn listen_no_more(&mut self, io: &L::Io<'_>) {
        self.listener.stop(io);
    }

    /// When there is work that no event announces: a deadline, or work left from this turn.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        if !self.again.is_empty() || self.ending.is_some() {
            return Instant::ZERO;
        }
        let read = if self.is_delayed { self.polled.next_read() } else { Instant::NEVER };
        self.deadlines.next().min(self.listener.paused_until()).min(read)
    }

    /// Whether a connection is polled without an event, so that the worker must not sleep.
    #[inline]
    pub const fn spins(&self) -> bool {
        L::MAY_POLL && self.polled.number().is_some()
    }

    /// Whether the last run received bytes from the polled connection.
    #[inline]
    pub const fn found(&self) -> bool {
        self.found
    }

    /// Called before the worker sleeps: every connection is watched again.
    pub fn rest(&mut self, io: &L::Io<'_>) {
        self.poll_nobody(io);
    }

    fn poll_nobody(&mut self, io: &L::Io<'_>) {
        if !L::MAY_POLL {
            return;
        }
        let polled = self.polled.number();
        // A connection does not become the polled one over several sleeps: each sleep would undo it.
        self.polled.forget();
        if let Some(number) = polled
            && let Some(Tracked { stream, connection, .. }) = self.table.get(number)
            && self.listener.watch(stream, number, io).is_err()
        {
            // The kernel has no memory to watch it: no event would ever come for it.
            connection.end(Closed::For(Reason::ConnectionLimit));
            self.again.add(number);
        }
    }

    /// Stops accepting, and ends each connection once its requests are answered.
    ///
    /// With `handed_over`, connections that wait in the listeners are left to another instance, which has the
    /// same listeners.
    pub fn drain<S: Service<Connection = C>>(&mut self, handed_over: bool, mut call: Call<'_, '_, S, L>) {
        let own = if handed_over { 0 } else { self.listener.places() };
        for place in 0..own {
            while self.accept(place, &mut call) == ACCEPT_BURST {}
        }
        self.listener.close(call.io);
        (self.ending, self.draining) = (Some(0), true);
    }

    /// Closes all remaining connections.
    pub fn cut<S: Service<Connection = C>>(&mut self, mut call: Call<'_, '_, S, L>) {
        self.ending = None;
        for number in 0..self.table.end() {
            self.cut_one(number, &mut call);
        }
    }

    /// Closes the connection with this number, as [`Self::cut`] does. Returns whether there was one.
    pub fn cut_one<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        call: &mut Call<'_, '_, S, L>,
    ) -> bool {
        let Some(tracked) = self.table.get(number) else { return false };
        let (held, why) = (tracked.held(&self.listener), tracked.connection.cut_off());
        self.close(number, held, why, call);
        true
    }

    /// Whether the drain has ended: no listener and no connection is left.
    pub fn is_drained(&self) -> bool {
        self.listener.is_closed() && self.ending.is_none() && self.table.open() == 0
    }

    /// Reads the polled connection, and does the work that is due or left from the last turn. Returns
    /// whether there was any.
    #[inline]
    pub fn run<S: Service<Connection = C>>(&mut self, mut call: Call<'_, '_, S, L>) -> bool {
        let spins = self.spins();
        (self.sent, self.received) = (0, 0);
        let busy = spins && self.read_polled(&mut call);
        let busy = self.run_due(&mut call) || busy;
        self.found = spins && self.received > 0;
        busy
    }

    /// Whether enough was sent in this turn: ports and deadlines then come first.
    #[inline]
    const fn is_turn_over(&self) -> bool {
        self.sent >= TURN_BYTES
    }

    #[inline]
    fn run_due<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S, L>) -> bool {
        if call.now < self.next_deadline() {
            return false;
        }
        if call.now >= self.listener.paused_until() {
            self.listener.resume(call.io);
        }
        if self.is_delayed && self.polled.may_read(call.now) {
            self.read_delayed(call);
        }
        for _ in 0..CLOSE_BURST {
            let Some(number) = self.deadlines.take_due(call.now) else { break };
            self.came_due(number, call);
        }
        // Each of them once: a connection that still has work is added at the end, for the next turn.
        for _ in 0..self.again.len() {
            if self.is_turn_over() {
                break;
            }
            let Some(number) = self.again.take() else { break };
            self.work(number, call);
        }
        self.end_some(call);
        true
    }

    /// Reads the polled connection. Returns whether bytes moved.
    #[inline]
    fn read_polled<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S, L>) -> bool {
        let Some(number) = self.polled.number() else { return false };
        let Some(Tracked { stream, connection, .. }) = self.table.get(number) else { return false };
        if !self.polled.may_read(call.now) {
            // Reading is delayed. The worker may sleep, as every connection is watched again by then.
            return false;
        }
        let before = self.received;
        if !self.polled.pipelines() || self.listener.has_something(stream) {
            connection.woken(false);
            self.work(number, call);
        }
        self.polled.was_read(call.now, (self.received - before) as u64);
        // The connection may have closed meanwhile.
        let Some(Tracked { connection, .. }) = self.table.get(number) else { return true };
        let moved = connection.touched() == call.now;
        let well = connection.is_plain();
        if !well || self.polled.is_over(call.now) {
            self.poll_nobody(call.io);
        }
        moved
    }

    /// Handles an event of the listener. Returns whether bytes moved, or a connection opened or closed.
    pub fn ready<S: Service<Connection = C>>(&mut self, event: Ready, mut call: Call<'_, '_, S, L>) -> bool {
        let (number, ends) = match event {
            Ready::Connection { number, ends } => (number, ends),
            Ready::Accept(place) => return self.accept(place, &mut call) > 0,
        };
        if !L::MAY_POLL && self.delays(number, ends, call.now) {
            return false;
        }
        // The connection may have closed earlier in this turn.
        let Some(Tracked { connection, .. }) = self.table.get(number) else { return false };
        connection.woken(ends);
        if self.is_turn_over() {
            self.again.add(number);
            return true;
        }
        let before = self.received;
        if self.listener.wants_stamp(call.io) {
            self.work_stamped(number, &mut call);
        } else {
            self.work(number, &mut call);
        }
        if !L::MAY_POLL && self.polled.number() == Some(number) {
            self.polled.was_read(call.now, (self.received - before) as u64);
        } else if self.polled.named(number, call.now) && L::MAY_POLL {
            self.poll(number, call.io);
        }
        self.table.get(number).is_none_or(|entry| entry.connection.touched() == call.now)
    }

    /// Whether the read of a connection that an event has named is delayed, so that several of its requests are answered
    /// together. For a listener that tells of all connections at no cost: none has to be polled.
    #[inline]
    fn delays(&mut self, number: u32, ends: bool, now: Instant) -> bool {
        if self.polled.number().is_none() {
            return false;
        }
        if self.polled.is_over(now) {
            self.forget_polled();
            return false;
        }
        if self.polled.number() != Some(number) {
            return false;
        }
        self.is_delayed = !ends && !self.polled.may_read(now);
        self.is_delayed
    }

    /// Reads the connection whose delay is over.
    fn read_delayed<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S, L>) {
        self.is_delayed = false;
        let Some(number) = self.polled.number() else { return };
        let Some(Tracked { connection, .. }) = self.table.get(number) else { return self.polled.forget() };
        connection.woken(false);
        let before = self.received;
        self.work(number, call);
        self.polled.was_read(call.now, (self.received - before) as u64);
    }

    /// No read is delayed any more.
    fn forget_polled(&mut self) {
        if std::mem::take(&mut self.is_delayed)
            && let Some(number) = self.polled.number()
            && let Some(Tracked { connection, .. }) = self.table.get(number)
        {
            connection.woken(false);
            self.again.add(number);
        }
        self.polled.forget();
    }

    /// Like [`Self::work`], for a connection that the worker was woken for: the idle policy learns when its
    /// bytes arrived.
    #[cold]
    fn work_stamped<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S, L>) {
        let Some(Tracked { stream, .. }) = self.table.get(number) else { return };
        self.listener.ask_stamp(stream);
        self.work(number, call);
        // The connection may have closed meanwhile.
        if let Some(Tracked { stream, .. }) = self.table.get(number) {
            self.listener.give_stamp(stream, call.io);
        }
    }

    /// Accepts the connections that wait at a place, up to a burst; returns their number.
    fn accept<S: Service<Connection = C>>(&mut self, place: usize, call: &mut Call<'_, '_, S, L>) -> usize {
        for count in 0..ACCEPT_BURST {
            let Some((stream, peer)) = self.listener.accept(place, call.now, call.io) else { return count };
            self.open(stream, peer, call);
        }
        ACCEPT_BURST
    }

    fn poll(&mut self, number: u32, io: &L::Io<'_>) {
        let listener = &mut self.listener;
        let out = self
            .table
            .get(number)
            .is_some_and(|entry| entry.connection.is_plain() && listener.unwatch(&mut entry.stream, io));
        if !out {
            self.polled.forget();
        }
    }

    #[inline]
    fn work<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S, L>) {
        let Self { table, listener, scratch, totals, .. } = self;
        let Some(tracked) = table.get(number) else { return };
        let before = tracked.held(listener);
        let Tracked { stream, connection, id, idle_since, .. } = tracked;
        let mut host =
            ConnectionHost { service: &mut *call.service, handlers: call.handlers.as_deref_mut(), id: *id };
        let mut turn = Turn::new(call.now, totals.each(), scratch, &mut host);
        let after = connection.work(&mut listener.transport(stream, call.now), &mut turn);
        let (received, sent) = (turn.received(), turn.sent());
        (self.received, self.sent) = (self.received + received, self.sent + sent);
        call.counters.stream_bytes_in.add(received as u64);
        call.counters.stream_bytes_out.add(sent as u64);
        let is_plain = connection.is_plain() && !connection.has_timer();
        if after == After::Keep && before == 0 && is_plain && *idle_since != Instant::NEVER {
            return;
        }
        self.note(number, before, after, call);
    }

    /// Updates deadlines, lists and totals for a connection that holds bytes, waits for something, or ends.
    fn note<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        before: usize,
        after: After,
        call: &mut Call<'_, '_, S, L>,
    ) {
        if let After::Close(why) = after {
            return self.close(number, before, why, call);
        }
        let Some(tracked) = self.table.get(number) else { return };
        let held = tracked.held(&self.listener);
        let Tracked { connection, source, idle_since, .. } = tracked;
        match after {
            After::Again => self.again.add(number),
            After::WhenRoom => {
                call.counters.deferred_waits.add(1);
                self.want_room.add(number);
            }
            After::Keep | After::Close(_) => {}
        }
        let deadline = connection.deadline(self.totals.each());
        if deadline < self.deadlines.deadline(number) {
            self.deadlines.set(number, deadline);
        }
        let moved = connection.touched() == call.now;
        if *idle_since == Instant::NEVER && connection.is_idle() {
            *idle_since = connection.touched();
            self.sources.list(*source, connection.touched(), number);
        }
        if held == 0 {
            self.table.holds_none(number);
        } else if moved || before == 0 {
            self.table.holds_some(number);
        }
        if held != before {
            self.holds(before, held, call);
        }
    }

    /// Counts held bytes, and closes connections while the total is too high.
    fn holds<S: Service<Connection = C>>(
        &mut self,
        before: usize,
        now: usize,
        call: &mut Call<'_, '_, S, L>,
    ) {
        self.held = self.held + now as u64 - before as u64;
        let mut too_many = self.totals.holds(before, now);
        while too_many && let Some(number) = self.table.longest_held() {
            let held = self.table.get(number).map_or(0, |entry| entry.held(&self.listener));
            self.close(number, held, Closed::For(Reason::ServiceBytes), call);
            too_many = self.totals.holds(0, 0);
        }
        call.counters.queued_bytes.set(self.held);
    }

    /// The handler pool has room again: the connections that waited for it continue.
    pub fn has_room(&mut self) {
        while let Some(number) = self.want_room.take() {
            self.again.add(number);
        }
    }

    /// Passes the result of deferred work to its connection: the reply, or the message of the panic that ended
    /// the work.
    pub fn take_reply<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        ticket: u64,
        reply: Result<Vec<u8>, String>,
        call: &mut Call<'_, '_, S, L>,
    ) {
        let number = number & !self.mark;
        let Some(tracked) = self.table.get(number) else {
            return call.drops.add(Reason::LateReply, 1);
        };
        let before = tracked.held(&self.listener);
        let failed = reply.as_ref().err().map(|why| call.service.failed("deferred work", why.clone()));
        if !tracked.connection.done(ticket, reply.unwrap_or_default()) {
            return call.drops.add(Reason::LateReply, 1);
        }
        let held = tracked.held(&self.listener);
        if let Some(reason) = failed {
            return self.close(number, before, Closed::For(reason), call);
        }
        self.holds(before, held, call);
        self.work(number, call);
    }

    /// Closes a connection whose deadline has passed, unless the deadline has moved meanwhile.
    fn came_due<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S, L>) {
        let limits = self.totals.each();
        let Some(tracked) = self.table.get(number) else { return };
        let (held, connection) = (tracked.held(&self.listener), &tracked.connection);
        let deadline = connection.deadline(limits);
        if call.now < deadline {
            return self.deadlines.set(number, deadline);
        }
        if connection.is_wake_due(call.now) {
            return self.wake(number, call);
        }
        let why = connection.expired(limits);
        self.close(number, held, why, call);
    }

    fn close<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        held: usize,
        why: Closed,
        call: &mut Call<'_, '_, S, L>,
    ) {
        let Some(closed) = self.table.remove(number) else { return };
        let Tracked { stream, connection, source, idle_since, .. } = closed;
        self.deadlines.set(number, Instant::NEVER);
        if self.polled.number() == Some(number) {
            self.polled.forget();
        }
        if held > 0 {
            self.held -= held as u64;
            self.totals.holds(held, 0);
            call.counters.queued_bytes.set(self.held);
        }
        if idle_since != Instant::NEVER {
            self.sources.unlist(source, idle_since, number);
        }
        self.sources.closed(source);
        self.totals.closed(source);
        if let Closed::For(reason) = why {
            call.drops.add(reason, 1);
        }
        self.listener.end(stream);
        close(connection.into_state(), why, call);
        call.counters.connections.set(u64::from(self.table.open()));
        self.listener.resume(call.io);
    }

    /// During a drain: tells the next few connections to answer their requests and end.
    fn end_some<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S, L>) {
        let Some(first) = self.ending else { return };
        self.poll_nobody(call.io);
        let beyond = self.table.end().min(first + CLOSE_BURST);
        for number in first..beyond {
            self.answer_and_end(number, call);
        }
        self.ending = (beyond < self.table.end()).then_some(beyond);
    }

    fn answer_and_end<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S, L>) {
        for _ in 0..LAST_READS {
            let Some(Tracked { connection, .. }) = self.table.get(number) else { return };
            connection.woken(false);
            self.work(number, call);
            if !self.table.get(number).is_some_and(|entry| entry.connection.may_have_more()) {
                break;
            }
        }
        if let Some(Tracked { connection, .. }) = self.table.get(number) {
            connection.stop();
            self.work(number, call);
        }
    }
}

/// Tells the service that a connection is closed.
fn close<S: Service, L: Listener>(state: S::Connection, why: Closed, call: &mut Call<'_, '_, S, L>) {
    if let Err(reason) = call.service.call("close", |service| service.close(state, why)) {
        call.drops.add(reason, 1);
    }
}
