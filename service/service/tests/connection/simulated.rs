//! A simulated transport, host and peer as values, without descriptor or thread; the test sets the time.

use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};

use twinpath_inspect::Reason;
use twinpath_service::connections::{After, Connection, ConnectionLimits, Host, Scratch, Turn};
use twinpath_service::{Closed, ConnectionId, Service, Work};
use twinpath_stream::{Broken, Lent, Received, Transport};
use twinpath_time::{Duration, Instant};

pub(crate) const LIMITS: ConnectionLimits = ConnectionLimits {
    bytes: 65_536,
    idle: Duration::from_secs(100),
    request: Duration::from_secs(10),
    send: Duration::from_secs(20),
};

/// What a simulated transport lends of the room that it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lends {
    /// All of it, like the kernel's sockets: when it is committed, a part may not be taken.
    #[default]
    All,
    /// At most this many bytes, and no more than its window, like a send buffer: all that is committed is taken.
    InPieces(usize),
}

/// A simulated transport: it holds received bytes, takes as many as its window allows, and reports changes by edges.
/// It checks that its user keeps to the contract.
#[derive(Default)]
pub(crate) struct Simulated {
    /// Bytes that have arrived and were not consumed, and how many of them were received.
    arrived: Vec<u8>,
    received: usize,
    /// Bytes were received since the last time that some were consumed.
    is_owed: bool,
    peer_ended: bool,
    reset: bool,
    is_broken: bool,
    pub(crate) lends: Lends,
    room: Vec<u8>,
    lent: usize,
    /// How many more bytes it takes.
    window: usize,
    /// It has refused bytes, and will report when it takes more.
    refused: bool,
    /// An edge that was not reported yet, and whether the peer had ended by then.
    edge: Option<bool>,
    /// Bytes that it has taken, and the peer has not.
    pub(crate) taken: Vec<u8>,
    sent: u64,
    pub(crate) finished: bool,
}

impl Simulated {
    fn edge(&mut self) {
        self.edge = Some(self.peer_ended || self.reset);
    }

    pub(crate) fn arrive(&mut self, bytes: &[u8]) {
        self.arrived.extend(bytes);
        self.edge();
    }

    pub(crate) fn open_window(&mut self, bytes: usize) {
        self.window = self.window.saturating_add(bytes);
        if bytes > 0 && std::mem::take(&mut self.refused) {
            self.edge();
        }
    }

    pub(crate) fn close_window(&mut self) {
        self.window = 0;
    }

    pub(crate) fn end(&mut self) {
        self.peer_ended = true;
        self.edge();
    }

    pub(crate) fn reset(&mut self) {
        self.reset = true;
        self.edge();
    }

    /// An edge without any change.
    pub(crate) fn nudge(&mut self) {
        self.edge();
    }
}

impl Simulated {
    /// Bytes that have been received and not consumed.
    pub(crate) const fn unread(&self) -> usize {
        self.received
    }

    /// The connection's turn is over.
    fn rest(&mut self) {
        assert!(!self.is_owed, "received and not consumed");
        self.lent = 0;
    }

    fn fail_if_reset(&mut self) -> Result<(), Broken> {
        assert!(!self.is_broken, "used after it has failed");
        self.is_broken = self.reset;
        if self.reset { Err(Broken) } else { Ok(()) }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        assert!(!self.finished, "the peer was told that no more comes");
        assert!(!bytes.is_empty(), "a send of nothing");
        self.fail_if_reset()?;
        let len = bytes.len().min(self.window);
        assert!(self.lends == Lends::All || len == bytes.len(), "more than was lent");
        self.window -= len;
        self.refused |= len < bytes.len();
        self.sent += len as u64;
        self.taken.extend_from_slice(&bytes[..len]);
        Ok(len)
    }
}

impl Transport for Simulated {
    fn receive(&mut self, bytes_max: usize) -> Result<Received, Broken> {
        assert!(bytes_max > self.received, "asked for nothing");
        assert!(!self.is_owed, "received and not consumed");
        self.fail_if_reset()?;
        let before = std::mem::replace(&mut self.received, self.arrived.len().min(bytes_max));
        Ok(match self.received - before {
            0 if self.peer_ended => Received::End,
            0 => Received::Nothing,
            len => {
                self.is_owed = true;
                // Like the kernel, it does not look for more than it was asked for.
                Received::Bytes { len, more: self.received == bytes_max }
            }
        })
    }

    fn lend(&mut self, room_max: usize) -> Lent<'_> {
        let free = match self.lends {
            Lends::All => room_max,
            Lends::InPieces(piece) => room_max.min(piece).min(self.window),
        };
        self.refused |= free == 0 && room_max > 0;
        self.room.resize(self.room.len().max(free), 0);
        self.lent = self.lent.max(free);
        Lent { received: &self.arrived[..self.received], room: &mut self.room[..free] }
    }

    fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.received, "more than was lent");
        self.arrived.drain(..bytes);
        self.received -= bytes;
        self.is_owed = false;
    }

    fn commit(&mut self, bytes: usize) -> Result<usize, Broken> {
        assert!(bytes <= std::mem::take(&mut self.lent), "more than was lent");
        let room = self.room.clone();
        self.take(&room[..bytes])
    }

    fn finish(&mut self) -> Result<(), Broken> {
        assert!(!std::mem::replace(&mut self.finished, true), "told once");
        self.fail_if_reset()
    }

    fn acknowledged(&self) -> u64 {
        self.sent - self.taken.len() as u64
    }
}

/// A simulated host: a service, and work that completes when the test says so.
pub(crate) struct Hosting<S> {
    pub(crate) service: S,
    /// Pieces of work that may be in progress at a time; `None`: there are no threads for work.
    pub(crate) workers: Option<usize>,
    pub(crate) work: Vec<(u64, Work)>,
    next: u64,
}

impl<S: Service> Host for Hosting<S> {
    type Service = S;

    fn connection(&self) -> ConnectionId {
        ConnectionId::new(0, 1)
    }

    fn call<R>(&mut self, _: &'static str, call: impl FnOnce(&mut S) -> R) -> Result<R, Reason> {
        catch_unwind(AssertUnwindSafe(|| call(&mut self.service))).map_err(|_| Reason::HandlerFailed)
    }

    fn room_for_work(&self, _awaited: usize) -> Option<usize> {
        self.workers.map(|workers| workers.saturating_sub(self.work.len()))
    }

    fn hand_over(&mut self, work: Work) -> u64 {
        assert!(self.room_for_work(0) > Some(0), "more than there is room for");
        self.next += 1;
        self.work.push((self.next, work));
        self.next
    }
}

/// One connection, and the part of a worker that drives it.
pub(crate) struct Rig<S: Service> {
    pub(crate) transport: Simulated,
    pub(crate) hosting: Hosting<S>,
    connection: Option<Connection<S::Connection>>,
    scratch: Scratch,
    pub(crate) limits: ConnectionLimits,
    pub(crate) now: Instant,
    again: bool,
    waits_for_room: bool,
    /// Why it was closed, if it was.
    pub(crate) closed: Option<Closed>,
    /// Bytes in each direction, as reported by the connection.
    pub(crate) received: usize,
    pub(crate) sent: usize,
}

/// Calls in one turn after which a connection is considered to be in an endless loop.
const TURNS_MAX: usize = 100_000;

impl<S: Service> Rig<S> {
    pub(crate) fn new(mut service: S, limits: ConnectionLimits, workers: Option<usize>) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 900));
        let state = service.accept(now, peer).expect("nobody is refused");
        Self {
            transport: Simulated { window: usize::MAX, ..Simulated::default() },
            hosting: Hosting { service, workers, work: Vec::new(), next: 0 },
            connection: Some(Connection::new(now, state)),
            scratch: Scratch::new(limits.bytes),
            limits,
            now,
            again: false,
            waits_for_room: false,
            closed: None,
            received: 0,
            sent: 0,
        }
    }

    pub(crate) fn connection(&mut self) -> &mut Connection<S::Connection> {
        self.connection.as_mut().expect("it is open")
    }

    /// Bytes that the connection and its transport hold.
    pub(crate) fn held(&self) -> usize {
        self.connection.as_ref().map_or(0, Connection::held) + self.transport.unread()
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Lets it work once, if an edge or the connection itself asks for it; returns whether it did.
    pub(crate) fn turn(&mut self) -> bool {
        let edge = self.transport.edge.take();
        if edge.is_none() && !self.again {
            return false;
        }
        let Some(connection) = &mut self.connection else { return false };
        if let Some(ends) = edge {
            connection.woken(ends);
        }
        self.work();
        true
    }

    pub(crate) fn work(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let mut turn = Turn::new(self.now, &self.limits, &mut self.scratch, &mut self.hosting);
        let after = connection.work(&mut self.transport, &mut turn);
        (self.received, self.sent) = (self.received + turn.received(), self.sent + turn.sent());
        self.again = after == After::Again;
        self.waits_for_room |= after == After::WhenRoom;
        match after {
            After::Close(why) => self.close(why),
            _ => self.transport.rest(),
        }
    }

    /// Runs turns until there is nothing to do.
    pub(crate) fn turns(&mut self) {
        let mut turns = 0;
        while self.turn() {
            turns += 1;
            assert!(turns < TURNS_MAX, "it spins");
        }
    }

    fn close(&mut self, why: Closed) {
        if let Some(connection) = self.connection.take() {
            self.hosting.service.close(connection.into_state(), why);
            self.closed = Some(why);
        }
    }

    /// The peer sends this.
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.transport.arrive(bytes.as_ref());
        self.turns();
    }

    /// The bytes that the peer has received since the last call.
    pub(crate) fn heard(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.transport.taken)
    }

    /// Checks that the peer receives exactly this.
    #[track_caller]
    pub(crate) fn hears(&mut self, expected: impl AsRef<[u8]>) {
        let heard = self.heard();
        // The message does not contain both of them, because they may be long.
        assert!(
            heard == expected.as_ref(),
            "heard {} bytes: {:.100}",
            heard.len(),
            String::from_utf8_lossy(&heard)
        );
    }

    /// Lets the connection work in another way.
    pub(crate) fn aside(
        &mut self,
        work: impl FnOnce(&mut Connection<S::Connection>, &mut Simulated, &mut Turn<'_, Hosting<S>>) -> After,
    ) {
        let Some(connection) = &mut self.connection else { return };
        let mut turn = Turn::new(self.now, &self.limits, &mut self.scratch, &mut self.hosting);
        let after = work(connection, &mut self.transport, &mut turn);
        self.again |= after == After::Again;
        match after {
            After::Close(why) => self.close(why),
            _ => self.transport.rest(),
        }
        self.turns();
    }

    /// Lets time pass, and wakes the service or closes the connection if its deadline comes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        if self.connection.as_ref().is_some_and(|connection| connection.is_wake_due(self.now)) {
            self.aside(|connection, transport, turn| connection.wake(transport, turn));
        }
        if let Some(connection) = &self.connection
            && self.now >= connection.deadline(&self.limits)
        {
            let why = connection.expired(&self.limits);
            self.close(why);
        }
    }

    /// Completes one of the pieces of work, and delivers its reply.
    pub(crate) fn do_work(&mut self, at: usize) {
        let (number, work) = self.hosting.work.remove(at);
        let reply = catch_unwind(AssertUnwindSafe(|| work.run()));
        if let Some(connection) = &mut self.connection {
            match reply {
                Ok(reply) => assert!(connection.done(number, reply), "it is awaited"),
                Err(_) => return self.close(Closed::For(Reason::HandlerFailed)),
            }
            self.work();
        }
        self.again |= std::mem::take(&mut self.waits_for_room);
    }

    /// Sets how many pieces of work may be in progress from now on.
    pub(crate) fn set_workers(&mut self, workers: usize) {
        self.hosting.workers = Some(workers);
        self.again |= std::mem::take(&mut self.waits_for_room);
    }

    /// The peer closes its sending direction.
    pub(crate) fn half_close(&mut self) {
        self.transport.end();
        self.turns();
    }

    /// The instance stops.
    pub(crate) fn stop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.woken(false);
            self.work();
        }
        if let Some(connection) = &mut self.connection {
            connection.stop();
            self.work();
        }
        self.turns();
    }
}
