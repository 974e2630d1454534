//! One connection: read once, answered, sent once. What its peer does not take waits in a buffer of its own, and it is not
//! read until that has drained; what is not a whole request yet waits in another. An idle connection has neither.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use twinpath_inspect::Reason;
use twinpath_service::{Closed, Next, Output, Service};
use twinpath_time::{Duration, Instant};
use twinpath_worker::Io;

use super::limits::{CHUNK, TcpLimits};
use crate::counters::ServeCounters;
use crate::engine::ServeEvent;

/// The least that a buffer for an incomplete request grows by.
const GROW_MIN: usize = 4096;

/// Times that a connection's full output is sent in one turn before the others get theirs.
const SENDS_PER_TURN: u32 = 4;

/// How long the last bytes to a peer may take to arrive. Closing at once would have the kernel throw them away if the peer
/// has sent something that nobody has read (RFC 2525, 2.17).
const LINGER: Duration = Duration::from_secs(2);

/// What a call needs besides the connection.
pub(crate) struct Turn<'a, 'io, S> {
    pub(crate) now: Instant,
    pub(crate) service: &'a mut S,
    pub(crate) counters: &'a ServeCounters,
    pub(crate) io: &'a Io<'io, ServeEvent>,
    /// The connection's.
    pub(crate) token: u32,
}

/// Buffers that a worker's connections take turns with.
pub(crate) struct Scratch {
    input: Box<[u8]>,
    output: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new(limits: &TcpLimits) -> Self {
        let output = Vec::with_capacity(limits.connection_bytes as usize);
        Self { input: vec![0; CHUNK].into_boxed_slice(), output }
    }
}

/// What to do with a connection after work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing until its socket or its deadline says so.
    Keep,
    /// Call again in the next turn: there is more to do that no descriptor tells of.
    Again,
    /// Close it.
    Close(Closed),
}

/// Where it is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The peer has sent its last byte; over once everything is answered.
    PeerEnded,
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
    watches_read: bool,
    watches_write: bool,
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
            watches_read: true,
            watches_write: false,
            listed: false,
        }
    }

    /// Bytes of memory that it holds beyond itself.
    pub(crate) fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.unread.capacity() + held.unsent.capacity())
    }

    /// When bytes moved last.
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
        } else if self.asked != Instant::NEVER {
            (self.asked + limits.request, Closed::For(Reason::RequestTimeout))
        } else {
            (self.touched + limits.idle, Closed::For(Reason::IdleTimeout))
        }
    }

    /// Whether anything its peer does would be read.
    pub(crate) const fn watches_read(&self) -> bool {
        self.watches_read
    }

    /// What it is closed as when its socket reports an error.
    pub(crate) const fn broken(&self) -> Closed {
        match self.stage {
            Stage::Ending(why) | Stage::Lingering(why) => why,
            Stage::Open | Stage::PeerEnded => Closed::Broken,
        }
    }

    /// Has it end once what waits has been sent.
    pub(crate) fn end(&mut self, why: Closed) {
        if matches!(self.stage, Stage::Open | Stage::PeerEnded) {
            self.stage = Stage::Ending(why);
        }
    }

    /// Sends what waits, else reads and answers; once per call, so that the others get their turn.
    #[inline]
    pub(crate) fn work<S: Service<Connection = C>>(
        &mut self,
        turn: &mut Turn<'_, '_, S>,
        scratch: &mut Scratch,
        limits: &TcpLimits,
    ) -> After {
        let done = match self.stage {
            Stage::Lingering(why) => return self.discard(why, scratch),
            Stage::Open if self.held.is_none() => self.read_and_answer(turn, scratch, limits),
            _ => self.go_on(turn, scratch, limits),
        };
        done.unwrap_or_else(|_| After::Close(self.broken()))
    }

    /// The common case: what comes is a number of whole requests, is answered, and nothing is kept.
    #[inline]
    fn read_and_answer<S: Service<Connection = C>>(
        &mut self,
        turn: &mut Turn<'_, '_, S>,
        scratch: &mut Scratch,
        limits: &TcpLimits,
    ) -> Result<After, Errno> {
        let len = match recv(&self.fd, &mut *scratch.input, RecvFlags::DONTWAIT) {
            Ok((len, _)) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(After::Keep),
            Err(error) => return Err(error),
        };
        if len == 0 {
            self.stage = Stage::PeerEnded;
            return self.settle(turn, limits, false);
        }
        self.touched = turn.now;
        turn.counters.stream_bytes_in.add(len as u64);
        scratch.output.clear();
        let Scratch { input, output } = scratch;
        let (used, again) = self.serve(&input[..len], output, turn, limits)?;
        if used < len {
            self.keep_unread(&input[used..len]);
        }
        if self.is_plain() { Ok(After::Keep) } else { self.settle(turn, limits, again) }
    }

    /// Some bytes wait in one of its buffers, or it is about to end.
    fn go_on<S: Service<Connection = C>>(
        &mut self,
        turn: &mut Turn<'_, '_, S>,
        scratch: &mut Scratch,
        limits: &TcpLimits,
    ) -> Result<After, Errno> {
        scratch.output.clear();
        let mut fresh = false;
        if self.is_full() {
            self.send_unsent(turn)?;
            if self.is_full() {
                return self.settle(turn, limits, false);
            }
            fresh = true;
            let mut output = Output::new(&mut scratch.output, limits.connection_bytes as usize);
            turn.service.writable(turn.now, &mut self.state, &mut output);
            let next = output.next();
            self.heed(next);
        }
        // What waited for room comes before what waits in the socket.
        if !fresh && self.stage == Stage::Open {
            self.read_behind(turn, limits)?;
        }
        let mut unread = self.held.as_mut().map(|held| std::mem::take(&mut held.unread)).unwrap_or_default();
        let mut again = false;
        if matches!(self.stage, Stage::Open | Stage::PeerEnded) && !unread.is_empty() {
            let (used, more) = self.serve(&unread, &mut scratch.output, turn, limits)?;
            again = more;
            unread.drain(..used);
        } else {
            self.send(&mut scratch.output, turn)?;
        }
        if matches!(self.stage, Stage::Ending(_)) {
            unread = Vec::new();
        }
        self.put_back(unread);
        let full =
            self.held.as_ref().is_some_and(|held| held.unread.len() >= limits.connection_bytes as usize);
        if full && !self.is_full() && !again {
            // A service that makes nothing of a full buffer never will.
            return Ok(After::Close(Closed::For(Reason::RequestTooLarge)));
        }
        self.settle(turn, limits, again)
    }

    /// Gives the service input for as long as it uses some, and sends what it writes. Returns how much it used, and whether there
    /// is more to do for it at once.
    #[inline]
    fn serve<S: Service<Connection = C>>(
        &mut self,
        input: &[u8],
        bytes: &mut Vec<u8>,
        turn: &mut Turn<'_, '_, S>,
        limits: &TcpLimits,
    ) -> Result<(usize, bool), Errno> {
        let (mut used, mut sends, mut again, mut wrote) = (0, 0, false, false);
        let mut unfinished;
        loop {
            let mut output = Output::new(bytes, limits.connection_bytes as usize);
            let rest = &input[used..];
            let took = turn.service.stream(turn.now, &mut self.state, rest, &mut output).min(rest.len());
            let next = output.next();
            unfinished = output.is_unfinished();
            used += took;
            if next != Next::Keep {
                self.heed(next);
                break;
            }
            if used == input.len() {
                break;
            }
            if took > 0 {
                continue;
            }
            if bytes.is_empty() {
                break;
            }
            // It waits for more input or for more room: the latter it can have.
            wrote = true;
            self.send(bytes, turn)?;
            sends += 1;
            again = sends == SENDS_PER_TURN;
            if again || self.is_full() {
                break;
            }
        }
        wrote |= !bytes.is_empty();
        self.send(bytes, turn)?;
        let partial = unfinished || used < input.len();
        if !partial {
            self.asked = Instant::NEVER;
        } else if self.asked == Instant::NEVER || wrote || (used > 0 && !unfinished) {
            self.asked = turn.now;
        }
        Ok((used, again))
    }

    /// Does what the service wants of the connection.
    fn heed(&mut self, next: Next) {
        match next {
            Next::Keep => {}
            Next::End => self.end(Closed::Ended),
            Next::Refuse(reason) => self.end(Closed::For(reason)),
        }
    }

    /// Decides what becomes of it, and has the worker watch for what it waits for.
    fn settle<S: Service<Connection = C>>(
        &mut self,
        turn: &mut Turn<'_, '_, S>,
        limits: &TcpLimits,
        again: bool,
    ) -> Result<After, Errno> {
        let full = self.is_full();
        let room = self.held.as_ref().is_none_or(|held| held.unread.len() < limits.connection_bytes as usize);
        if !full && !again {
            match self.stage {
                // A service that makes nothing of a full buffer never will.
                Stage::Open if !room => {
                    return Ok(After::Close(Closed::For(Reason::RequestTooLarge)));
                }
                Stage::PeerEnded => {
                    let cut_short = self.held.is_some() || self.asked != Instant::NEVER;
                    return Ok(After::Close(if cut_short { Closed::Broken } else { Closed::Ended }));
                }
                Stage::Ending(why) => {
                    self.stage = Stage::Lingering(why);
                    (self.touched, self.held) = (turn.now, None);
                    shutdown(&self.fd, Shutdown::Write)?;
                }
                Stage::Open | Stage::Lingering(_) => {}
            }
        }
        let read = match self.stage {
            Stage::Open => !full && room,
            Stage::PeerEnded | Stage::Ending(_) => false,
            Stage::Lingering(_) => true,
        };
        if (read, full) != (self.watches_read, self.watches_write) {
            turn.io.rewatch(&self.fd, turn.token, read, full)?;
            (self.watches_read, self.watches_write) = (read, full);
        }
        Ok(if again { After::Again } else { After::Keep })
    }

    /// Reads what the peer still sends after the end was said, to nobody.
    fn discard(&self, why: Closed, scratch: &mut Scratch) -> After {
        match recv(&self.fd, &mut *scratch.input, RecvFlags::DONTWAIT) {
            Ok((0, _)) => After::Close(why),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => After::Keep,
            Err(_) => After::Close(why),
        }
    }

    /// Reads behind what is there already.
    fn read_behind<S>(&mut self, turn: &Turn<'_, '_, S>, limits: &TcpLimits) -> Result<(), Errno> {
        let unread = &mut self.held.get_or_insert_default().unread;
        let room = (limits.connection_bytes as usize).saturating_sub(unread.len());
        if room == 0 {
            return Ok(());
        }
        if unread.capacity() - unread.len() < GROW_MIN.min(room) {
            unread.reserve_exact(unread.len().max(GROW_MIN).min(room));
        }
        match recv(&self.fd, spare_capacity(unread), RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.stage = Stage::PeerEnded,
            Ok((_, len)) => {
                self.touched = turn.now;
                turn.counters.stream_bytes_in.add(len as u64);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn keep_unread(&mut self, rest: &[u8]) {
        if !matches!(self.stage, Stage::Ending(_)) {
            self.held.get_or_insert_default().unread = rest.to_vec();
        }
    }

    /// What is left of the input that was taken out.
    fn put_back(&mut self, unread: Vec<u8>) {
        if let Some(held) = &mut self.held {
            if unread.is_empty() && held.unsent.is_empty() {
                self.held = None;
            } else {
                held.unread = if unread.is_empty() { Vec::new() } else { unread };
            }
        } else if !unread.is_empty() {
            self.held.get_or_insert_default().unread = unread;
        }
    }

    /// Sends `bytes`, and keeps what the socket does not take.
    #[inline]
    fn send<S>(&mut self, bytes: &mut Vec<u8>, turn: &Turn<'_, '_, S>) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = send_now(&self.fd, bytes, turn.counters)?;
        if sent < bytes.len() {
            let held = self.held.get_or_insert_default();
            held.unsent = bytes[sent..].to_vec();
            held.sent = 0;
        }
        bytes.clear();
        Ok(())
    }

    fn send_unsent<S>(&mut self, turn: &Turn<'_, '_, S>) -> Result<(), Errno> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let sent = send_now(&self.fd, &held.unsent[held.sent..], turn.counters)?;
        held.sent += sent;
        if sent > 0 {
            self.touched = turn.now;
        }
        if held.sent == held.unsent.len() {
            (held.unsent, held.sent) = (Vec::new(), 0);
            if held.unread.is_empty() {
                self.held = None;
            }
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
