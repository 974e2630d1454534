//! Accepts, reads and answers without ever blocking, and decides which connection works when.
//!
//! A turn reads a connection once, has the service answer all that came, and sends the answers at once: two system calls, and
//! none that only finds out that there is nothing more. Connections are watched by edges, registered once; one that is alone
//! is polled without the epoll ([`polled`]). What a connection cannot send waits in a bounded buffer of its own, and it is
//! not read until that has drained: a client that sends and never reads stops itself, and nobody else. Times are kept in a
//! wheel that is touched when a connection begins to wait for something, not when it is served.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_handlers::{Guarded, HandlerPool};
use twinpath_inspect::Reason;
use twinpath_service::{Closed, Service};
use twinpath_stack::served::Served;
use twinpath_stream::{After, Connection, Scratch, Turn};
use twinpath_time::{Instant, Wheel};
use twinpath_worker::Fds;

use crate::accept::{Acceptor, FIRST_TOKEN, LISTENERS_MAX};
use crate::counters::TcpCounters;
use crate::host::Lent;
use crate::limits::{CHUNK, Share};
use crate::polled::Polled;
use crate::socket::Socket;
use crate::sources::{Source, Sources};
use crate::table::Table;
use crate::waiting::Waiting;

/// Tokens of connections begin here, above those of the listeners.
const FIRST_CONNECTION_TOKEN: u32 = FIRST_TOKEN + LISTENERS_MAX;

/// Bytes sent in a turn after which other connections wait for the next one, so that ports and deadlines are looked at in between.
const TURN_BYTES: usize = 1 << 20;

/// Connections accepted per turn.
const ACCEPT_BURST: usize = 64;

/// Connections closed for their time, or told to end, in one turn.
const CLOSE_BURST: u32 = 64;

/// Connections looked at to find one that may make room for another. Those that are found busy are not looked at again while they are.
const DISPLACE_LOOKS: u32 = 64;

/// Times that a connection which is told to end is read before, as long as each read finds all the room filled.
const LAST_READS: u32 = 8;

/// What the engine lends the server for one call.
pub struct Call<'a, 'io, S> {
    /// The turn's time.
    pub now: Instant,
    /// The service.
    pub service: &'a mut Guarded<S>,
    /// Where it counts.
    pub counters: &'a TcpCounters,
    /// The worker's epoll, and what counts drops.
    pub fds: &'a Fds<'io>,
    /// The threads for work that may block, if the service has such work.
    pub handlers: Option<&'a mut HandlerPool>,
}

/// One of its connections.
struct Entry<C> {
    socket: Socket,
    connection: Connection<C>,
    source: Source,
    /// The time under which it is listed among those that may be closed to make room, if it is.
    idle_since: Option<Instant>,
}

/// The TCP connections of one service on one worker.
pub struct TcpServer<C> {
    acceptor: Acceptor,
    served: Arc<Served>,
    share: Arc<Share>,
    table: Table<Entry<C>>,
    /// Connections that it may have at a time.
    most: u32,
    sources: Sources,
    deadlines: Wheel,
    polled: Polled,
    /// Those with more to do that no descriptor tells of.
    again: Waiting,
    /// Those that want work done that may block, and found no room.
    want_room: Waiting,
    scratch: Scratch,
    /// Bytes came in the last run, from connections that are asked without the epoll.
    found: bool,
    /// Bytes that its connections hold.
    held: u64,
    /// Bytes that its connections have sent since the turn began, and received.
    sent: usize,
    received: usize,
    /// The next connection to be told to end, while all are.
    ending: Option<u32>,
}

impl<C: Send> TcpServer<C> {
    /// A server for these listeners, at most [`LISTENERS_MAX`], of at most `most` connections of what is `served`.
    #[must_use]
    pub fn new(listeners: Vec<OwnedFd>, served: Arc<Served>, share: Arc<Share>, most: u32) -> Self {
        let limits = share.limits();
        Self {
            acceptor: Acceptor::new(listeners),
            served,
            table: Table::new(most),
            most,
            sources: Sources::default(),
            deadlines: Wheel::new(),
            polled: Polled::default(),
            again: Waiting::default(),
            sent: 0,
            received: 0,
            want_room: Waiting::default(),
            scratch: Scratch::new(CHUNK, limits.connection_bytes as usize),
            found: false,
            held: 0,
            ending: None,
            share,
        }
    }

    /// Takes a share of other limits; its former share is left in its place. What its connections take is counted there from now on, and their
    /// times are those of the new limits.
    pub fn exchange_limits(&mut self, share: &mut Arc<Share>, most: u32) {
        std::mem::swap(&mut self.share, share);
        self.most = most;
        for number in 0..self.table.places() {
            let Some(Entry { connection, source, .. }) = self.table.get(number) else { continue };
            share.closed(*source);
            self.share.adopted(*source);
            let deadline = connection.deadline(self.share.each());
            if deadline < self.deadlines.deadline(number) {
                self.deadlines.set(number, deadline);
            }
        }
        share.holds(self.held as usize, 0);
        self.share.holds(0, self.held as usize);
    }

    /// Accepts from here on.
    pub fn listen(&self, fds: &Fds<'_>) -> Result<(), Errno> {
        self.acceptor.start(fds)
    }

    /// Accepts no more, until the next [`Self::listen`].
    pub fn listen_no_more(&mut self, fds: &Fds<'_>) {
        self.acceptor.stop(fds);
    }

    /// When there is something to do although no descriptor tells of it.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        if !self.again.is_empty() || self.ending.is_some() {
            return Instant::ZERO;
        }
        self.deadlines.next().min(self.acceptor.resume_at())
    }

    /// Whether connections are asked without the epoll.
    #[inline]
    pub const fn spins(&self) -> bool {
        self.polled.number().is_some()
    }

    /// Whether the last run found bytes on such a connection.
    #[inline]
    pub const fn found(&self) -> bool {
        self.found
    }

    /// Before the worker sleeps: everything stands in the epoll.
    pub fn rest(&mut self, fds: &Fds<'_>) {
        self.poll_nobody(fds);
    }

    fn poll_nobody(&mut self, fds: &Fds<'_>) {
        let polled = self.polled.number();
        // Nor does one begin to be one over sleeps: it would go out of the epoll only to come back.
        self.polled.forget();
        if let Some(number) = polled
            && let Some(Entry { socket, connection, .. }) = self.table.get(number)
            && fds.watch_edges(&*socket, FIRST_CONNECTION_TOKEN + number).is_err()
        {
            // No memory for its place there: nobody would hear of it again.
            connection.end(Closed::For(Reason::ConnectionLimit));
            self.again.add(number);
        }
    }

    /// Has every connection end once what it asked is answered, and takes no more.
    pub fn drain<S: Service<Connection = C>>(&mut self, handed_over: bool, mut call: Call<'_, '_, S>) {
        let own = if handed_over { 0 } else { self.acceptor.len() };
        for listener in 0..own {
            while self.accept(listener, &mut call) == ACCEPT_BURST {}
        }
        self.acceptor.close(call.fds);
        self.ending = Some(0);
    }

    /// Closes every connection that has not ended by itself.
    pub fn cut<S: Service<Connection = C>>(&mut self, mut call: Call<'_, '_, S>) {
        self.ending = None;
        for number in 0..self.table.places() {
            if let Some(Entry { connection, .. }) = self.table.get(number) {
                let (held, why) = (connection.held(), connection.cut_off());
                self.close(number, held, why, &mut call);
            }
        }
    }

    /// Whether it has drained.
    pub const fn is_drained(&self) -> bool {
        self.acceptor.is_closed() && self.ending.is_none() && self.table.open() == 0
    }

    /// What is due, and what is left from the last turn; says whether there was anything.
    #[inline]
    pub fn run<S: Service<Connection = C>>(&mut self, mut call: Call<'_, '_, S>) -> bool {
        let spins = self.spins();
        (self.sent, self.received) = (0, 0);
        let busy = spins && self.read_polled(&mut call);
        let busy = self.run_due(&mut call) || busy;
        self.found = spins && self.received > 0;
        busy
    }

    /// Whether so much was sent in this turn that everybody else comes first.
    #[inline]
    const fn is_turn_over(&self) -> bool {
        self.sent >= TURN_BYTES
    }

    #[inline]
    fn run_due<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S>) -> bool {
        if call.now < self.next_deadline() {
            return false;
        }
        if call.now >= self.acceptor.resume_at() {
            self.acceptor.resume(call.fds);
        }
        for _ in 0..CLOSE_BURST {
            let Some(number) = self.deadlines.take_due(call.now) else { break };
            self.came_due(number, call);
        }
        // Each once: one that has yet more to do stands behind them, for the next turn.
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

    /// Says whether it had something.
    #[inline]
    fn read_polled<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S>) -> bool {
        let Some(number) = self.polled.number() else { return false };
        let Some(Entry { socket, connection, .. }) = self.table.get(number) else { return false };
        if !self.polled.may_read(call.now) {
            // Nothing came, as far as is known. The worker may even sleep: by then everything is in the epoll.
            return false;
        }
        let before = self.received;
        if !self.polled.pipelines() || socket.has_something() {
            connection.woken(false);
            self.work(number, call);
        }
        self.polled.was_read(call.now, (self.received - before) as u64);
        // It may be gone by now.
        let Some(Entry { connection, .. }) = self.table.get(number) else { return true };
        let moved = connection.touched() == call.now;
        let well = connection.is_plain();
        if !well || self.polled.is_over(call.now) {
            self.poll_nobody(call.fds);
        }
        moved
    }

    /// Says whether bytes moved, or a connection came or went.
    pub fn ready<S: Service<Connection = C>>(
        &mut self,
        token: u32,
        ends: bool,
        mut call: Call<'_, '_, S>,
    ) -> bool {
        if let Some(number) = token.checked_sub(FIRST_CONNECTION_TOKEN) {
            // Its place may be empty: it was closed earlier in this very turn.
            let Some(Entry { connection, .. }) = self.table.get(number) else { return false };
            connection.woken(ends);
            if self.is_turn_over() {
                self.again.add(number);
                return true;
            }
            self.work(number, &mut call);
            if self.polled.named(number, call.now) {
                self.poll(number, call.fds);
            }
            self.table.get(number).is_none_or(|entry| entry.connection.touched() == call.now)
        } else {
            let listener = (token - FIRST_TOKEN) as usize;
            self.accept(listener, &mut call) > 0
        }
    }

    /// Opens what waits at a listener, up to a burst; says how many there were.
    fn accept<S: Service<Connection = C>>(&mut self, listener: usize, call: &mut Call<'_, '_, S>) -> usize {
        for count in 0..ACCEPT_BURST {
            let Some((fd, peer)) = self.acceptor.accept(listener, call.now, call.fds) else { return count };
            self.open(fd, peer, call);
        }
        ACCEPT_BURST
    }

    fn poll(&mut self, number: u32, fds: &Fds<'_>) {
        let out = self
            .table
            .get(number)
            .is_some_and(|entry| entry.connection.is_plain() && fds.unwatch(&entry.socket).is_ok());
        if !out {
            self.polled.forget();
        }
    }

    #[inline]
    fn work<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S>) {
        let Self { table, scratch, share, .. } = self;
        let Some(Entry { socket, connection, idle_since, .. }) = table.get(number) else { return };
        let before = connection.held();
        let mut host = Lent { service: &mut *call.service, handlers: call.handlers.as_deref_mut(), number };
        let mut turn = Turn::new(call.now, share.each(), scratch, &mut host);
        let after = connection.work(socket, &mut turn);
        let (received, sent) = (turn.received(), turn.sent());
        (self.received, self.sent) = (self.received + received, self.sent + sent);
        call.counters.bytes_in.add(received as u64);
        call.counters.bytes_out.add(sent as u64);
        if after == After::Keep && before == 0 && connection.is_plain() && idle_since.is_some() {
            return;
        }
        self.note(number, before, after, call);
    }

    /// Keeps the books of a connection that holds bytes, waits for something, or ends.
    fn note<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        before: usize,
        after: After,
        call: &mut Call<'_, '_, S>,
    ) {
        if let After::Close(why) = after {
            return self.close(number, before, why, call);
        }
        let Some(Entry { connection, source, idle_since, .. }) = self.table.get(number) else { return };
        match after {
            After::Again => self.again.add(number),
            After::WhenRoom => {
                call.counters.deferred_waits.add(1);
                self.want_room.add(number);
            }
            After::Keep | After::Close(_) => {}
        }
        let deadline = connection.deadline(self.share.each());
        if deadline < self.deadlines.deadline(number) {
            self.deadlines.set(number, deadline);
        }
        let (held, moved) = (connection.held(), connection.touched() == call.now);
        if idle_since.is_none() && connection.is_idle() {
            *idle_since = Some(connection.touched());
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

    /// Counts held bytes; sheds connections while there are too many.
    fn holds<S: Service<Connection = C>>(&mut self, before: usize, now: usize, call: &mut Call<'_, '_, S>) {
        self.held = self.held + now as u64 - before as u64;
        let mut too_many = self.share.holds(before, now);
        while too_many && let Some(number) = self.table.longest_held() {
            let held = self.table.get(number).map_or(0, |entry| entry.connection.held());
            self.close(number, held, Closed::For(Reason::ServiceBytes), call);
            too_many = self.share.holds(0, 0);
        }
        call.counters.queued_bytes.set(self.held);
    }

    /// There is room now for those who wanted some.
    pub fn has_room(&mut self) {
        while let Some(number) = self.want_room.take() {
            self.again.add(number);
        }
    }

    /// The reply of work that may block has come back, or what the panic said that it ended with.
    pub fn take_reply<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        ticket: u64,
        reply: Result<Vec<u8>, String>,
        call: &mut Call<'_, '_, S>,
    ) {
        let Some(Entry { connection, .. }) = self.table.get(number) else {
            return call.fds.drops().add(Reason::LateReply, 1);
        };
        let before = connection.held();
        let failed = reply.as_ref().err().map(|why| call.service.failed("deferred work", why.clone()));
        if !connection.done(ticket, reply.unwrap_or_default()) {
            return call.fds.drops().add(Reason::LateReply, 1);
        }
        let held = connection.held();
        if let Some(reason) = failed {
            return self.close(number, before, Closed::For(reason), call);
        }
        self.holds(before, held, call);
        self.work(number, call);
    }

    /// Its deadline has come, if it has not moved on meanwhile.
    fn came_due<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S>) {
        let limits = self.share.each();
        let Some(Entry { connection, .. }) = self.table.get(number) else { return };
        let deadline = connection.deadline(limits);
        if call.now < deadline {
            return self.deadlines.set(number, deadline);
        }
        let (held, why) = (connection.held(), connection.expired(limits));
        self.close(number, held, why, call);
    }

    fn open<S: Service<Connection = C>>(
        &mut self,
        fd: OwnedFd,
        peer: SocketAddr,
        call: &mut Call<'_, '_, S>,
    ) {
        if let Err(reason) = self.try_open(fd, peer, call) {
            call.fds.drops().add(reason, 1);
        }
        call.counters.connections.set(u64::from(self.table.open()));
    }

    fn try_open<S: Service<Connection = C>>(
        &mut self,
        fd: OwnedFd,
        peer: SocketAddr,
        call: &mut Call<'_, '_, S>,
    ) -> Result<(), Reason> {
        // Closed before it is served: the same senders as over UDP.
        if !self.served.allows(peer.ip()) {
            return Err(Reason::SourceNotAllowed);
        }
        let source = Source::of(peer.ip());
        if !self.share.opened(source) {
            return Err(Reason::SourceLimit);
        }
        let opened = self.try_open_of(source, fd, peer, call);
        opened.inspect_err(|_| self.share.closed(source))
    }

    fn try_open_of<S: Service<Connection = C>>(
        &mut self,
        source: Source,
        fd: OwnedFd,
        peer: SocketAddr,
        call: &mut Call<'_, '_, S>,
    ) -> Result<(), Reason> {
        let is_full = self.table.open() >= self.most;
        let displaced = if is_full { Some(self.idlest().ok_or(Reason::ConnectionLimit)?) } else { None };
        let accepted = call.service.call("accept", |service| service.accept(call.now, peer));
        let state = accepted.and_then(|accepted| accepted)?;
        if let Some(number) = displaced {
            let held = self.table.get(number).map_or(0, |entry| entry.connection.held());
            self.close(number, held, Closed::For(Reason::ConnectionDisplaced), call);
        }
        let number = self.table.next_place();
        self.deadlines.reserve(self.table.places() as usize);
        if call.fds.watch_edges(&fd, FIRST_CONNECTION_TOKEN + number).is_err() {
            close(state, Closed::Broken, call);
            return Err(Reason::ConnectionLimit);
        }
        let (socket, connection) = (Socket::new(fd), Connection::new(call.now, state));
        self.deadlines.set(number, connection.deadline(self.share.each()));
        self.table.insert(Entry { socket, connection, source, idle_since: Some(call.now) });
        self.sources.opened(source);
        self.sources.list(source, call.now, number);
        call.counters.accepted.add(1);
        Ok(())
    }

    /// The connection that has been idle for longest, of the source that has most.
    fn idlest(&mut self) -> Option<u32> {
        for _ in 0..DISPLACE_LOOKS {
            let number = self.sources.first()?;
            let Entry { socket, connection, source, idle_since } = self.table.get(number)?;
            let (source, touched) = (*source, connection.touched());
            let since = (*idle_since)?;
            // What has come and was not read yet is a request under way.
            let is_idle = connection.is_idle() && !socket.has_bytes();
            if is_idle && touched == since {
                return Some(number);
            }
            // It stands elsewhere in the order, or is listed again once it is idle.
            *idle_since = is_idle.then_some(touched);
            self.sources.unlist(source, since, number);
            if is_idle {
                self.sources.list(source, touched, number);
            }
        }
        None
    }

    fn close<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        held: usize,
        why: Closed,
        call: &mut Call<'_, '_, S>,
    ) {
        let Some(Entry { connection, source, idle_since, .. }) = self.table.remove(number) else { return };
        self.deadlines.set(number, Instant::NEVER);
        if self.polled.number() == Some(number) {
            self.polled.forget();
        }
        if held > 0 {
            self.held -= held as u64;
            self.share.holds(held, 0);
            call.counters.queued_bytes.set(self.held);
        }
        if let Some(since) = idle_since {
            self.sources.unlist(source, since, number);
        }
        self.sources.closed(source);
        self.share.closed(source);
        if let Closed::For(reason) = why {
            call.fds.drops().add(reason, 1);
        }
        close(connection.into_state(), why, call);
        call.counters.connections.set(u64::from(self.table.open()));
        self.acceptor.resume(call.fds);
    }

    /// While it drains: the next few connections answer what has come, and end.
    fn end_some<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S>) {
        let Some(first) = self.ending else { return };
        self.poll_nobody(call.fds);
        let beyond = self.table.places().min(first + CLOSE_BURST);
        for number in first..beyond {
            self.answer_and_end(number, call);
        }
        self.ending = (beyond < self.table.places()).then_some(beyond);
    }

    fn answer_and_end<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S>) {
        for _ in 0..LAST_READS {
            let Some(Entry { connection, .. }) = self.table.get(number) else { return };
            connection.woken(false);
            self.work(number, call);
            if !self.table.get(number).is_some_and(|entry| entry.connection.may_have_more()) {
                break;
            }
        }
        if let Some(Entry { connection, .. }) = self.table.get(number) {
            connection.stop();
            self.work(number, call);
        }
    }
}

/// Tells the service that a connection is over.
fn close<S: Service>(state: S::Connection, why: Closed, call: &mut Call<'_, '_, S>) {
    if let Err(reason) = call.service.call("close", |service| service.close(state, why)) {
        call.fds.drops().add(reason, 1);
    }
}
