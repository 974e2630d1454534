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
use crate::counters::ServeCounters;
use crate::pool::Desk;

/// The least that a buffer for an incomplete request grows by.
const GROW_MIN: usize = 4096;

/// Times that a connection's full output is sent in one turn before the others get theirs.
const SENDS_PER_TURN: u32 = 4;

/// How long the last bytes to a peer may take to arrive. Closing at once would have the kernel throw them away if the peer
/// has sent something that nobody has read (RFC 2525, 2.17).
const LINGER: Duration = Duration::from_secs(2);

/// What a call needs besides the connection.
pub(crate) struct Turn<'a, S> {
    pub(crate) now: Instant,
    pub(crate) service: &'a mut S,
    pub(crate) counters: &'a ServeCounters,
    pub(crate) limits: &'a TcpLimits,
    pub(crate) scratch: &'a mut Scratch,
    /// Who does what may block, if the service has such work; and the connection's number, which its replies come back to.
    pub(crate) desk: Option<&'a mut Desk>,
    pub(crate) number: u32,
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
    /// The socket refused some of it.
    was_full: bool,
    /// Replies that are still to come, and what waits for them.
    deferred: Deferred,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.unsent.is_empty() && self.deferred.is_empty()
    }
}

/// What the service wants next.
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
    /// It stands in the list of those with more to do.
    pub(crate) listed: bool,
}

impl<C> Connection<C> {
    pub(crate) const fn new(now: Instant, fd: OwnedFd, state: C) -> Self {
        Self {
            fd,
            state,
            held: None,
            touched: now,
            asked: Instant::NEVER,
            stage: Stage::Open,
            readable: false,
            ends: false,
            listed: false,
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
        self.held.is_none() && self.asked == Instant::NEVER && self.stage == Stage::Open
    }

    fn is_full(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.unsent.is_empty())
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
            Stage::Open if self.held.is_none() => self.read_and_answer(turn),
            _ => self.go_on(turn),
        };
        done.unwrap_or_else(|_| After::Close(self.broken()))
    }

    /// The common case: what comes is a number of whole requests, is answered, and nothing is kept.
    #[inline]
    fn read_and_answer<S: Service<Connection = C>>(
        &mut self,
        turn: &mut Turn<'_, S>,
    ) -> Result<After, Errno> {
        let mut input = std::mem::take(&mut turn.scratch.input);
        let len = match recv(&self.fd, &mut *input, RecvFlags::DONTWAIT) {
            Ok((len, _)) => len,
            Err(error) => {
                turn.scratch.input = input;
                return self.nothing_read(error);
            }
        };
        let served = if len == 0 {
            self.stage = Stage::PeerEnded;
            Ok(Served { used: 0, again: false, when_room: false })
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
        if self.is_plain() && !self.readable { Ok(After::Keep) } else { self.settle(turn, &served) }
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

    /// Some bytes wait in one of its buffers, or it is about to end.
    fn go_on<S: Service<Connection = C>>(&mut self, turn: &mut Turn<'_, S>) -> Result<After, Errno> {
        turn.scratch.output.clear();
        let mut served = Served { used: 0, again: false, when_room: false };
        self.send_unsent(turn)?;
        if self.is_full() {
            return self.settle(turn, &served);
        }
        let was_full = self.held.as_mut().is_some_and(|held| std::mem::take(&mut held.was_full));
        if was_full {
            let mut output = Output::new(&mut turn.scratch.output, turn.limits.connection_bytes as usize);
            turn.service.writable(turn.now, &mut self.state, &mut output);
            let next = output.next();
            self.heed(next);
        }
        // What waited for room comes before what waits in the socket.
        if !was_full && self.stage == Stage::Open {
            self.read_behind(turn)?;
        }
        let mut unread = self.held.as_mut().map(|held| std::mem::take(&mut held.unread)).unwrap_or_default();
        if self.still_answers() && !unread.is_empty() {
            served = self.serve(&unread, turn)?;
            unread.drain(..served.used);
        } else {
            self.send(turn)?;
        }
        if matches!(self.stage, Stage::Ending(_)) || unread.is_empty() {
            unread = Vec::new();
        }
        if !unread.is_empty() {
            self.held.get_or_insert_default().unread = unread;
        }
        self.let_go();
        self.settle(turn, &served)
    }

    /// Gives the service input for as long as it uses some, and sends what it writes.
    #[inline]
    fn serve<S: Service<Connection = C>>(
        &mut self,
        input: &[u8],
        turn: &mut Turn<'_, S>,
    ) -> Result<Served, Errno> {
        let (mut used, mut sends, mut again, mut when_room, mut wrote) = (0, 0, false, false, false);
        let mut unfinished;
        let limit = turn.limits.connection_bytes as usize;
        loop {
            let rest = &input[used..];
            let mut output = match &turn.desk {
                None => Output::new(&mut turn.scratch.output, limit),
                Some(desk) => {
                    turn.scratch.later.allow(desk.room(self.awaited()));
                    Output::with_later(&mut turn.scratch.output, limit, &mut turn.scratch.later)
                }
            };
            let took = turn.service.stream(turn.now, &mut self.state, rest, &mut output).min(rest.len());
            let next = output.next();
            unfinished = output.is_unfinished();
            used += took;
            if turn.desk.is_some() {
                when_room = self.defer(turn)?;
            }
            if next != Next::Keep {
                self.heed(next);
                break;
            }
            if used == input.len() || when_room || self.is_full() {
                break;
            }
            if took > 0 {
                continue;
            }
            if turn.scratch.output.is_empty() {
                break;
            }
            // It waits for more input or for more room: the latter it can have.
            wrote = true;
            self.send(turn)?;
            sends += 1;
            again = sends == SENDS_PER_TURN;
            if again || self.is_full() {
                break;
            }
        }
        wrote |= !turn.scratch.output.is_empty();
        self.send(turn)?;
        let partial = unfinished || used < input.len();
        if !partial {
            self.asked = Instant::NEVER;
        } else if self.asked == Instant::NEVER || wrote || (used > 0 && !unfinished) {
            self.asked = turn.now;
        }
        Ok(Served { used, again, when_room })
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
            // A service that makes nothing of a full buffer never will.
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
        if sent < bytes.len() {
            let held = self.held.get_or_insert_default();
            (held.unsent, held.sent, held.was_full) = (bytes[sent..].to_vec(), 0, true);
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
        } else {
            held.was_full = true;
        }
        Ok(())
    }
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
