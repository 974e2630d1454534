//! One connection: read once, answered, sent once. What its peer does not take waits in a buffer of its own, and it is not
//! read until that has drained; what is not a whole request yet waits in another. An idle connection has neither.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use twinpath_inspect::Reason;
use twinpath_service::{Closed, Later, Next, Output, Service};
use twinpath_time::{Duration, Instant};

use super::deferred::Deferred;
use super::limits::{CHUNK, TcpLimits};
use super::sources::Source;
use crate::counters::ServeCounters;
use crate::guarded::Guarded;
use crate::pool::Desk;

/// The least that a buffer for an incomplete request grows by.
const GROW_MIN: usize = 4096;

/// Bytes after which a connection waits for the next turn, so that one reply without end does not hold up the others; and sends, for
/// a service that writes little at a time.
const TURN_BYTES: usize = 256 << 10;
const TURN_SENDS: u32 = 16;

/// How long the last bytes to a peer may take to arrive. Closing at once would have the kernel throw them away if the peer
/// has sent something that nobody has read (RFC 2525, 2.17).
const LINGER: Duration = Duration::from_secs(2);

/// What a call needs besides the connection.
pub(crate) struct Turn<'a, S> {
    pub(crate) now: Instant,
    pub(crate) service: &'a mut Guarded<S>,
    pub(crate) counters: &'a ServeCounters,
    pub(crate) limits: &'a TcpLimits,
    pub(crate) scratch: &'a mut Scratch,
    /// Who does what may block, if the service has such work; and the connection's number, which its replies come back to.
    pub(crate) desk: Option<&'a mut Desk>,
    pub(crate) number: u32,
    /// What the service has written for this connection in this turn: bytes, and sends.
    pub(crate) written: (usize, u32),
}

impl<S> Turn<'_, S> {
    /// Whether the connection has had its part of this turn.
    const fn is_over(&self) -> bool {
        self.written.0 >= TURN_BYTES || self.written.1 >= TURN_SENDS
    }
}

/// Buffers that a worker's connections take turns with.
pub(crate) struct Scratch {
    input: Box<[u8]>,
    output: Vec<u8>,
    later: Later,
}

impl Scratch {
    pub(crate) fn new(limits: &TcpLimits) -> Self {
        let output = Vec::with_capacity(limits.connection_bytes as usize);
        Self { input: vec![0; CHUNK].into_boxed_slice(), output, later: Later::default() }
    }
}

/// What to do with a connection after work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing until its socket or its deadline says so.
    Keep,
    /// Call again in the next turn: there is more to do that no descriptor tells of.
    Again,
    /// Call again when work that may block has been done: there was no room for its own.
    WhenRoom,
    /// Close it.
    Close(Closed),
}

/// Where it is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The peer has sent its last byte; over once everything is answered.
    PeerEnded,
    /// The instance stops: no more is read, and it ends once everything that was read is answered.
    Stopping,
    /// We end it, once what waits has been sent.
    Ending(Closed),
    /// The peer has been told that it is over; what it still sends is thrown away until it ends, too.
    Lingering(Closed),
}

/// Bytes that a connection holds.
#[derive(Default)]
struct Held {
    /// Input that the service has not used yet.
    unread: Vec<u8>,
    /// Output that the socket has not taken yet, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// Replies that are still to come, and what waits for them.
    deferred: Deferred,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.unsent.is_empty() && self.deferred.is_empty()
    }
}

/// Why a connection cannot go on.
enum Fault {
    /// Its socket failed.
    Socket,
    /// The service panicked: the reason to count that under.
    Service(Reason),
}

impl From<Errno> for Fault {
    fn from(_: Errno) -> Self {
        Self::Socket
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self::Service(reason)
    }
}

/// What the service wants next.
#[derive(Default)]
struct Served {
    /// Bytes of input that it used.
    used: usize,
    /// It could go on at once.
    again: bool,
    /// It could go on when there is room for work that may block.
    when_room: bool,
}

pub(crate) struct Connection<C> {
    pub(crate) fd: OwnedFd,
    pub(crate) source: Source,
    /// The time under which it is listed among those that may be closed to make room, if it is.
    pub(crate) idle_since: Option<Instant>,
    pub(crate) state: C,
    held: Option<Box<Held>>,
    /// When bytes moved last, either way.
    touched: Instant,
    /// When the request began of which only a part is here; `NEVER`: there is none.
    asked: Instant,
    stage: Stage,
    /// The socket may have more to read, and no edge will tell of it.
    readable: bool,
    /// The peer has sent its last byte, or the socket has an error: no edge will come after this one.
    ends: bool,
    /// The service has written something, and has not been told since that there is room again.
    wrote: bool,
}

impl<C> Connection<C> {
    pub(crate) const fn new(now: Instant, fd: OwnedFd, source: Source, state: C) -> Self {
        Self {
            fd,
            source,
            idle_since: Some(now),
            state,
            held: None,
            touched: now,
            asked: Instant::NEVER,
            stage: Stage::Open,
            readable: false,
            ends: false,
            wrote: false,
        }
    }

    /// Bytes of memory that it holds beyond itself.
    pub(crate) fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| {
            size_of::<Held>() + held.unread.capacity() + held.unsent.capacity() + held.deferred.bytes()
        })
    }

    /// When bytes moved last.
    #[inline]
    pub(crate) const fn touched(&self) -> Instant {
        self.touched
    }

    /// Whether it is idle in the plain way: its deadline only moves away from now.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.held.is_none() && self.asked == Instant::NEVER && self.stage == Stage::Open && !self.wrote
    }

    /// Whether no request is under way: the peer loses nothing but the connection when it is closed.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_plain() || matches!(self.stage, Stage::Lingering(_))
    }

    fn is_full(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.unsent.is_empty())
    }

    /// Whether what is written now waits for replies that are still to come.
    fn is_held_back(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.deferred.holds_back())
    }

    /// Replies still to come.
    pub(crate) fn awaited(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.deferred.awaited())
    }

    /// When it is closed unless bytes move.
    pub(crate) fn deadline(&self, limits: &TcpLimits) -> Instant {
        self.waits_for(limits).0
    }

    /// What it is closed as when its deadline has come.
    pub(crate) fn expired(&self, limits: &TcpLimits) -> Closed {
        self.waits_for(limits).1
    }

    fn waits_for(&self, limits: &TcpLimits) -> (Instant, Closed) {
        if let Stage::Lingering(why) = self.stage {
            (self.touched + LINGER, why)
        } else if self.is_full() {
            (self.touched + limits.send, Closed::For(Reason::PeerNotReading))
        } else if self.awaited() > 0 {
            // It is we who are slow.
            (Instant::NEVER, Closed::Broken)
        } else if self.asked != Instant::NEVER {
            (self.asked + limits.request, Closed::For(Reason::RequestTimeout))
        } else {
            (self.touched + limits.idle, Closed::For(Reason::IdleTimeout))
        }
    }

    /// What it is closed as when its socket fails.
    const fn broken(&self) -> Closed {
        match self.stage {
            Stage::Ending(why) | Stage::Lingering(why) => why,
            Stage::Open | Stage::PeerEnded | Stage::Stopping => Closed::Broken,
        }
    }

    /// An edge came: there may be something to read, or room to write.
    #[inline]
    pub(crate) const fn woken(&mut self, ends: bool) {
        self.readable = true;
        self.ends |= ends;
    }

    /// Whether the last read did not find the end of what there is.
    pub(crate) const fn may_have_more(&self) -> bool {
        self.readable
    }

    /// Has it end once what waits has been sent, and come.
    pub(crate) fn end(&mut self, why: Closed) {
        if self.still_answers() {
            self.stage = Stage::Ending(why);
        }
    }

    /// Has it end once everything that was read is answered.
    pub(crate) fn stop(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Stopping;
        }
    }

    /// What it is closed as when a drain has taken too long.
    pub(crate) const fn cut_off(&self) -> Closed {
        match self.stage {
            // Everything was answered: it is only its peer that has not ended.
            Stage::Lingering(why) => why,
            _ => Closed::For(Reason::DrainTimeout),
        }
    }

    const fn still_answers(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::PeerEnded | Stage::Stopping)
    }

    /// Sends what waits, else reads and answers; once per call, so that the others get their turn.
    #[inline]
    pub(crate) fn work<S: Service<Connection = C>>(&mut self, turn: &mut Turn<'_, S>) -> After {
        let done = match self.stage {
            Stage::Lingering(why) => return self.discard(why, turn.scratch),
            Stage::Open if self.held.is_none() && !self.wrote => self.read_and_answer(turn),
            _ => self.go_on(turn),
        };
        done.unwrap_or_else(|fault| {
            After::Close(match fault {
                Fault::Socket => self.broken(),
                Fault::Service(reason) => {
                    turn.scratch.later.take().for_each(drop);
                    Closed::For(reason)
                }
            })
        })
    }

    /// The common case: what comes is a number of whole requests, is answered, and nothing is kept.
    #[inline]
    fn read_and_answer<S: Service<Connection = C>>(
        &mut self,
        turn: &mut Turn<'_, S>,
    ) -> Result<After, Fault> {
        let mut input = std::mem::take(&mut turn.scratch.input);
        let len = match recv(&self.fd, &mut *input, RecvFlags::DONTWAIT) {
            Ok((len, _)) => len,
            Err(error) => {
                turn.scratch.input = input;
                return Ok(self.nothing_read(error)?);
            }
        };
        let served = if len == 0 {
            self.stage = Stage::PeerEnded;
            Ok(Served::default())
        } else {
            self.was_read(len, input.len(), turn);
            turn.scratch.output.clear();
            self.serve(&input[..len], turn)
        };
        if let Ok(Served { used, .. }) = served
            && used < len
            && !matches!(self.stage, Stage::Ending(_))
        {
            self.held.get_or_insert_default().unread = input[used..len].to_vec();
        }
        turn.scratch.input = input;
        let served = served?;
        if self.is_plain() && !self.readable { Ok(After::Keep) } else { Ok(self.settle(turn, &served)?) }
    }

    /// Books bytes that were read into room for `room`: fewer than that, and an edge will tell of the next.
    #[inline]
    fn was_read<S>(&mut self, len: usize, room: usize, turn: &Turn<'_, S>) {
        self.touched = turn.now;
        self.readable = len == room || self.ends;
        turn.counters.stream_bytes_in.add(len as u64);
    }

    fn nothing_read(&mut self, error: Errno) -> Result<After, Errno> {
        match error {
            Errno::AGAIN => {
                self.readable = false;
                Ok(After::Keep)
            }
            Errno::INTR => Ok(After::Again),
            error => Err(error),
        }
    }

    /// Some bytes wait in one of its buffers, the service has more to write, or it is about to end.
    fn go_on<S: Service<Connection = C>>(&mut self, turn: &mut Turn<'_, S>) -> Result<After, Fault> {
        turn.scratch.output.clear();
        let mut served = Served::default();
        self.send_unsent(turn)?;
        if self.is_full() {
            return Ok(self.settle(turn, &served)?);
        }
        // What waited for room comes before what waits in the socket.
        self.tell_of_room(turn, &mut served)?;
        if self.stage == Stage::Open && !self.is_full() {
            self.read_behind(turn)?;
        }
        let mut unread = self.held.as_mut().map(|held| std::mem::take(&mut held.unread)).unwrap_or_default();
        if self.still_answers() && !self.is_full() && !unread.is_empty() {
            served = self.serve(&unread, turn)?;
            unread.drain(..served.used);
        }
        if matches!(self.stage, Stage::Ending(_)) || unread.is_empty() {
            unread = Vec::new();
        }
        if !unread.is_empty() {
            self.held.get_or_insert_default().unread = unread;
        }
        self.let_go();
        Ok(self.settle(turn, &served)?)
    }

    /// Gives the service input for as long as it uses some, sends what it writes, and tells it of the room that this makes.
    #[inline]
    fn serve<S: Service<Connection = C>>(
        &mut self,
        input: &[u8],
        turn: &mut Turn<'_, S>,
    ) -> Result<Served, Fault> {
        let (mut served, written_before) = (Served::default(), turn.written);
        let mut unfinished;
        loop {
            let rest = &input[served.used..];
            let mut output = output(turn.scratch, turn.desk.as_deref(), turn.limits, self.held.as_deref());
            let state = &mut self.state;
            let took =
                turn.service.call("stream", |service| service.stream(turn.now, state, rest, &mut output))?;
            let took = took.min(rest.len());
            let next = output.next();
            unfinished = output.is_unfinished();
            served.used += took;
            self.wrote |= !turn.scratch.output.is_empty();
            if turn.desk.is_some() {
                served.when_room = self.defer(turn)?;
            }
            if next != Next::Keep {
                self.heed(next);
                break;
            }
            if served.used == input.len() || served.when_room || self.is_full() {
                break;
            }
            if took > 0 {
                continue;
            }
            if !self.wrote || self.is_held_back() {
                break;
            }
            // It waits for more input or for more room: the latter it can have.
            self.send(turn)?;
            self.tell_of_room(turn, &mut served)?;
            if served.again || served.when_room || self.is_full() || !self.still_answers() {
                break;
            }
        }
        self.send(turn)?;
        if !served.again && !served.when_room {
            self.tell_of_room(turn, &mut served)?;
        }
        let partial = unfinished || served.used < input.len();
        if !partial {
            self.asked = Instant::NEVER;
        } else if self.asked == Instant::NEVER
            || turn.written != written_before
            || (served.used > 0 && !unfinished)
        {
            self.asked = turn.now;
        }
        Ok(served)
    }

    /// Tells the service that what it wrote has been sent, until it writes nothing more. The others get their turn in between.
    #[inline]
    fn tell_of_room<S: Service<Connection = C>>(
        &mut self,
        turn: &mut Turn<'_, S>,
        served: &mut Served,
    ) -> Result<(), Fault> {
        while self.wrote && self.still_answers() && !self.is_full() && !self.is_held_back() {
            if turn.is_over() {
                served.again = true;
                break;
            }
            let mut output = output(turn.scratch, turn.desk.as_deref(), turn.limits, self.held.as_deref());
            let state = &mut self.state;
            turn.service.call("writable", |service| service.writable(turn.now, state, &mut output))?;
            let next = output.next();
            self.wrote = !turn.scratch.output.is_empty();
            if self.wrote && self.asked != Instant::NEVER {
                self.asked = turn.now;
            }
            if turn.desk.is_some() && self.defer(turn)? {
                // It is told once more when that has room.
                (self.wrote, served.when_room) = (true, true);
            }
            self.heed(next);
            self.send(turn)?;
            if served.when_room {
                break;
            }
        }
        Ok(())
    }

    /// Hands over what the service wants done by others. What it wrote up to there is sent first. Says whether it wanted more done
    /// than there is room for.
    #[cold]
    fn defer<S>(&mut self, turn: &mut Turn<'_, S>) -> Result<bool, Errno> {
        let Turn { desk: Some(desk), scratch, number, .. } = turn else { return Ok(false) };
        let Scratch { output, later, .. } = &mut **scratch;
        let refused = later.is_refused();
        if !later.is_empty() {
            let held = self.held.get_or_insert_default();
            held.deferred.hand_over(*number, output, later, desk);
            self.send(turn)?;
        } else if let Some(held) = &mut self.held {
            held.deferred.hold_back(output);
        }
        Ok(refused)
    }

    /// A reply that was to come has: it leaves as soon as those before it have.
    /// Says whether it was one of this connection's.
    pub(crate) fn done(&mut self, ticket: u64, reply: Vec<u8>) -> bool {
        let Some(held) = &mut self.held else { return false };
        if held.sent > 0 {
            held.unsent.drain(..held.sent);
            held.sent = 0;
        }
        // What the service was refused for want of room may fit once this has left.
        self.wrote = true;
        held.deferred.done(ticket, reply, &mut held.unsent)
    }

    /// Does what the service wants of the connection.
    fn heed(&mut self, next: Next) {
        match next {
            Next::Keep => {}
            Next::End => self.end(Closed::Ended),
            Next::Refuse(reason) => self.end(Closed::For(reason)),
        }
    }

    /// Decides what becomes of it.
    fn settle<S: Service<Connection = C>>(
        &mut self,
        turn: &Turn<'_, S>,
        served: &Served,
    ) -> Result<After, Errno> {
        let unread = self.held.as_ref().map_or(0, |held| held.unread.len());
        let room = unread < turn.limits.connection_bytes as usize;
        if self.is_full() {
            return Ok(After::Keep);
        }
        if served.again || served.when_room {
            return Ok(if served.again { After::Again } else { After::WhenRoom });
        }
        if self.awaited() > 0 && !matches!(self.stage, Stage::Open | Stage::Lingering(_)) {
            return Ok(After::Keep);
        }
        match self.stage {
            // A service that makes nothing of a full buffer never will, unless it waits for replies.
            Stage::Open if !room && self.awaited() > 0 => Ok(After::Keep),
            Stage::Open if !room => Ok(After::Close(Closed::For(Reason::RequestTooLarge))),
            Stage::Open => Ok(if self.readable { After::Again } else { After::Keep }),
            Stage::PeerEnded => {
                let cut_short = unread > 0 || self.asked != Instant::NEVER;
                Ok(After::Close(if cut_short { Closed::Broken } else { Closed::Ended }))
            }
            Stage::Ending(_) | Stage::Stopping => {
                let why = if let Stage::Ending(why) = self.stage { why } else { Closed::Stopped };
                self.stage = Stage::Lingering(why);
                (self.touched, self.held) = (turn.now, None);
                shutdown(&self.fd, Shutdown::Write)?;
                // What came meanwhile is thrown away, and the peer's end may be among it.
                Ok(After::Again)
            }
            Stage::Lingering(_) => Ok(After::Keep),
        }
    }

    /// Reads what the peer still sends after the end was said, to nobody.
    fn discard(&mut self, why: Closed, scratch: &mut Scratch) -> After {
        match recv(&self.fd, &mut *scratch.input, RecvFlags::DONTWAIT) {
            Ok((0, _)) => After::Close(why),
            Ok(_) => After::Again,
            Err(error) => self.nothing_read(error).unwrap_or(After::Close(why)),
        }
    }

    /// Reads behind what is there already.
    fn read_behind<S>(&mut self, turn: &Turn<'_, S>) -> Result<(), Errno> {
        if !self.readable {
            return Ok(());
        }
        let unread = &mut self.held.get_or_insert_default().unread;
        let room = (turn.limits.connection_bytes as usize).saturating_sub(unread.len());
        if room == 0 {
            return Ok(());
        }
        if unread.capacity() - unread.len() < GROW_MIN.min(room) {
            unread.reserve_exact(unread.len().max(GROW_MIN).min(room));
        }
        let room = unread.capacity() - unread.len();
        match recv(&self.fd, spare_capacity(unread), RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.stage = Stage::PeerEnded,
            Ok((_, len)) => self.was_read(len, room, turn),
            Err(error) => drop(self.nothing_read(error)?),
        }
        Ok(())
    }

    /// Gives back memory that nothing waits in.
    fn let_go(&mut self) {
        if self.held.as_ref().is_some_and(|held| held.is_empty()) {
            self.held = None;
        }
    }

    /// Sends what was written, and keeps what the socket does not take.
    #[inline]
    fn send<S>(&mut self, turn: &mut Turn<'_, S>) -> Result<(), Errno> {
        let bytes = &mut turn.scratch.output;
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = send_now(&self.fd, bytes, turn.counters)?;
        turn.written = (turn.written.0 + bytes.len(), turn.written.1 + 1);
        if sent > 0 {
            self.touched = turn.now;
        }
        if sent < bytes.len() {
            let held = self.held.get_or_insert_default();
            (held.unsent, held.sent) = (bytes[sent..].to_vec(), 0);
        }
        bytes.clear();
        Ok(())
    }

    fn send_unsent<S>(&mut self, turn: &Turn<'_, S>) -> Result<(), Errno> {
        let Some(held) = self.held.as_mut().filter(|held| !held.unsent.is_empty()) else { return Ok(()) };
        let sent = send_now(&self.fd, &held.unsent[held.sent..], turn.counters)?;
        held.sent += sent;
        if sent > 0 {
            self.touched = turn.now;
        }
        if held.sent == held.unsent.len() {
            (held.unsent, held.sent) = (Vec::new(), 0);
        }
        Ok(())
    }
}

/// What the service may write into, behind what it has written already: as much as fits beside what waits for replies to come.
#[inline]
fn output<'a>(
    scratch: &'a mut Scratch,
    desk: Option<&Desk>,
    limits: &TcpLimits,
    held: Option<&Held>,
) -> Output<'a> {
    let limit = limits.connection_bytes as usize;
    let Some(desk) = desk else { return Output::new(&mut scratch.output, limit) };
    let (awaited, waiting) = held.map_or((0, 0), |held| (held.deferred.awaited(), held.deferred.bytes()));
    scratch.later.allow(desk.room(awaited));
    Output::with_later(&mut scratch.output, limit.saturating_sub(waiting), &mut scratch.later)
}

/// Bytes that the socket took.
#[inline]
fn send_now(fd: &OwnedFd, bytes: &[u8], counters: &ServeCounters) -> Result<usize, Errno> {
    let sent = match send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(sent) => sent,
        Err(Errno::AGAIN | Errno::INTR) => 0,
        Err(error) => return Err(error),
    };
    counters.stream_bytes_out.add(sent as u64);
    Ok(sent)
}
