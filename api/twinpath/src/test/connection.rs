//! A connection of a simulation: the same state machine as on a worker, over a simulated transport.

use twinpath_service::connections::{After, Connection, ConnectionLimits, Host, Scratch, Turn};
use twinpath_service::{Closed, ConnectionId, Service, Work};
use twinpath_stream::{Broken, Lent, Received, Transport};
use twinpath_time::Instant;

use super::{STEPS_MAX, WORK_MAX};
use crate::Reason;

/// The client's end of a simulated connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client(pub(super) usize);

/// The end that bytes go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Service,
    Client,
}

/// The service's end of the transport.
#[derive(Default)]
struct Pipe {
    /// Bytes that have arrived and were not consumed, and how many of them were received.
    arrived: Vec<u8>,
    received: usize,
    ended: bool,
    reset: bool,
    room: Vec<u8>,
    /// How many more bytes the client takes; `None`: unlimited.
    window: Option<usize>,
    taken: Vec<u8>,
    /// Bytes taken, in all.
    sent: u64,
    finished: bool,
    /// Set if something has changed: whether the peer had ended by then.
    edge: Option<bool>,
}

impl Transport for Pipe {
    fn receive(&mut self, bytes_max: usize) -> Result<Received, Broken> {
        if self.reset {
            return Err(Broken);
        }
        let before = std::mem::replace(&mut self.received, self.arrived.len().min(bytes_max));
        Ok(match self.received - before {
            0 if self.ended => Received::End,
            0 => Received::Nothing,
            len => Received::Bytes { len, more: self.received < self.arrived.len() },
        })
    }

    fn lend(&mut self, room_max: usize) -> Lent<'_> {
        if self.room.len() < room_max {
            self.room = vec![0; room_max];
        }
        Lent { received: &self.arrived[..self.received], room: &mut self.room[..room_max] }
    }

    fn consume(&mut self, bytes: usize) {
        self.arrived.drain(..bytes);
        self.received -= bytes;
    }

    fn commit(&mut self, bytes: usize) -> Result<usize, Broken> {
        if self.reset {
            return Err(Broken);
        }
        let len = bytes.min(self.window.unwrap_or(usize::MAX));
        self.window = self.window.map(|window| window - len);
        self.taken.extend_from_slice(&self.room[..len]);
        self.sent += len as u64;
        Ok(len)
    }

    fn finish(&mut self) -> Result<(), Broken> {
        self.finished = true;
        if self.reset { Err(Broken) } else { Ok(()) }
    }

    /// The client has received all that was taken.
    fn acknowledged(&self) -> u64 {
        self.sent
    }
}

/// The service, for one connection.
struct Hosting<'a, S> {
    id: ConnectionId,
    service: &'a mut S,
    work: &'a mut Vec<(u64, Work)>,
    next: &'a mut u64,
}

impl<S: Service> Host for Hosting<'_, S> {
    type Service = S;

    fn connection(&self) -> ConnectionId {
        self.id
    }

    fn call<R>(&mut self, _: &'static str, call: impl FnOnce(&mut S) -> R) -> Result<R, Reason> {
        Ok(call(self.service))
    }

    fn room_for_work(&self, awaited: usize) -> Option<usize> {
        self.service.defers().then(|| WORK_MAX.saturating_sub(awaited))
    }

    fn hand_over(&mut self, work: Work) -> u64 {
        *self.next += 1;
        self.work.push((*self.next, work));
        *self.next
    }
}

pub(super) struct Connected<C> {
    id: ConnectionId,
    connection: Option<Connection<C>>,
    pipe: Pipe,
    scratch: Scratch,
    work: Vec<(u64, Work)>,
    again: bool,
    /// It has not been told yet that it is open.
    is_new: bool,
    /// The bytes that the client has received and not read, and whether it has received the end.
    pub(super) arrived: Vec<u8>,
    pub(super) finished: bool,
    pub(super) closed: Option<Closed>,
}

impl<C> Connected<C> {
    pub(super) fn new(now: Instant, id: ConnectionId, state: C, limits: &ConnectionLimits) -> Self {
        Self {
            id,
            connection: Some(Connection::new(now, state)),
            pipe: Pipe::default(),
            scratch: Scratch::new(limits.bytes),
            work: Vec::new(),
            again: false,
            is_new: true,
            arrived: Vec::new(),
            finished: false,
            closed: None,
        }
    }

    pub(super) fn deadline(&self, limits: &ConnectionLimits) -> Instant {
        self.connection.as_ref().map_or(Instant::NEVER, |connection| connection.deadline(limits))
    }

    pub(super) fn expired(&self, limits: &ConnectionLimits) -> Closed {
        self.connection.as_ref().map_or(Closed::Ended, |connection| connection.expired(limits))
    }

    pub(super) fn push(
        &mut self,
        now: Instant,
        bytes: &[u8],
        limits: &ConnectionLimits,
    ) -> Result<(), Reason> {
        self.again = true;
        self.connection.as_mut().ok_or(Reason::LateReply)?.push(now, bytes, limits)
    }

    pub(super) fn is_wake_due(&self, now: Instant) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_wake_due(now))
    }

    fn edge(&mut self) {
        self.pipe.edge = Some(self.pipe.ended || self.pipe.reset);
    }

    pub(super) fn arrive(&mut self, bytes: &[u8]) {
        self.pipe.arrived.extend(bytes);
        self.edge();
    }

    pub(super) fn end(&mut self) {
        self.pipe.ended = true;
        self.edge();
    }

    pub(super) fn reset(&mut self) {
        self.pipe.reset = true;
        self.edge();
    }

    pub(super) fn set_window(&mut self, bytes: usize) {
        self.pipe.window = Some(bytes);
        self.edge();
    }

    pub(super) fn stop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.stop();
            self.again = true;
        }
    }

    /// Passes a deferred reply on; returns whether it is awaited.
    pub(super) fn done(&mut self, number: u64, reply: Vec<u8>) -> bool {
        self.again = true;
        self.connection.as_mut().is_some_and(|connection| connection.done(number, reply))
    }

    /// Lets it work until it has nothing left to do. Returns why it is to be closed, if it is.
    pub(super) fn work<S: Service<Connection = C>>(
        &mut self,
        now: Instant,
        limits: &ConnectionLimits,
        service: &mut S,
        next: &mut u64,
    ) -> Option<Closed> {
        let mut steps = 0;
        while self.is_new || self.pipe.edge.is_some() || self.again || self.is_wake_due(now) {
            let is_new = std::mem::take(&mut self.is_new);
            let connection = self.connection.as_mut()?;
            if let Some(ends) = self.pipe.edge.take() {
                connection.woken(ends);
            }
            let (id, is_wake_due) = (self.id, connection.is_wake_due(now));
            let mut hosting = Hosting { id, service: &mut *service, work: &mut self.work, next: &mut *next };
            let mut turn = Turn::new(now, limits, &mut self.scratch, &mut hosting);
            let after = if is_new {
                connection.begin(&mut self.pipe, &mut turn)
            } else if is_wake_due {
                connection.wake(&mut self.pipe, &mut turn)
            } else {
                connection.work(&mut self.pipe, &mut turn)
            };
            self.again = after == After::Again;
            if let After::Close(why) = after {
                return Some(why);
            }
            steps += 1;
            assert!(steps < STEPS_MAX, "the service writes to a connection without end");
        }
        None
    }

    /// The bytes that the service has sent since the last call, and whether it has sent its end with them.
    pub(super) fn take_sent(&mut self) -> (Vec<u8>, bool) {
        (std::mem::take(&mut self.pipe.taken), std::mem::take(&mut self.pipe.finished))
    }

    /// Does the work that was handed over; returns the replies with their numbers.
    pub(super) fn take_work(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.work.drain(..).map(|(number, work)| (number, work.run())).collect()
    }

    /// Closes it; returns the service's state if it was open.
    pub(super) fn close(&mut self, why: Closed) -> Option<C> {
        let connection = self.connection.take()?;
        self.closed = Some(why);
        Some(connection.into_state())
    }
}
