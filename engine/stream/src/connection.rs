//! One connection: received once, answered, sent once. What its peer does not take waits in a buffer of its own, and nothing is received
//! until that has drained; what is not a whole request yet waits in another. An idle connection has neither.

mod answer;

use twinpath_inspect::Reason;
use twinpath_service::{Closed, Next, Service};
use twinpath_time::{Duration, Instant};

use crate::held::Held;
use crate::host::Host;
use crate::transport::{Broken, Received, Transport};
use crate::turn::{After, Limits, Scratch, Turn};

/// The least that a buffer for an incomplete request grows by.
const GROW_MIN: usize = 4096;

/// How long the last bytes to a peer may take to arrive. Closing at once would have the kernel throw them away if the peer
/// has sent something that nobody has read (RFC 2525, 2.17).
const LINGER: Duration = Duration::from_secs(2);

/// Where it is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The peer has sent its last byte; over once everything is answered.
    PeerEnded,
    /// The instance stops: no more is received, and it ends once everything that was received is answered.
    Stopping,
    /// We end it, once what waits has been sent.
    Ending(Closed),
    /// The peer has been told that it is over; what it still sends is thrown away until it ends, too.
    Lingering(Closed),
}

/// Why a connection cannot go on.
enum Fault {
    Broken,
    /// The service panicked: the reason to count that under.
    Service(Reason),
}

impl From<Broken> for Fault {
    fn from(_: Broken) -> Self {
        Self::Broken
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

/// One connection, with what its service keeps for it (`C`).
pub struct Connection<C> {
    state: C,
    held: Option<Box<Held>>,
    /// When bytes moved last, either way.
    touched: Instant,
    /// When the request began of which only a part is here; `NEVER`: there is none.
    asked: Instant,
    stage: Stage,
    /// The transport may have more, and no edge will tell of it.
    readable: bool,
    /// The peer has sent its last byte, or the transport has failed: no edge will come after this one.
    ends: bool,
    /// The service has written something, and has not been told since that there is room again.
    wrote: bool,
}

impl<C> Connection<C> {
    /// One that was just opened.
    #[must_use]
    pub const fn new(now: Instant, state: C) -> Self {
        Self {
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

    /// What the service keeps for it, when it is over.
    #[must_use]
    pub fn into_state(self) -> C {
        self.state
    }

    /// Bytes of memory that it holds beyond itself.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.bytes())
    }

    /// When bytes moved last.
    #[inline]
    #[must_use]
    pub const fn touched(&self) -> Instant {
        self.touched
    }

    /// Whether it is idle in the plain way: its deadline only moves away from now.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.held.is_none() && self.asked == Instant::NEVER && self.stage == Stage::Open && !self.wrote
    }

    /// Whether no request is under way: the peer loses nothing but the connection when it is closed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_plain() || matches!(self.stage, Stage::Lingering(_))
    }

    /// Replies still to come.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.deferred.awaited())
    }

    /// When it is to be closed unless bytes move; `NEVER` while replies are still to come.
    #[must_use]
    pub fn deadline(&self, limits: &Limits) -> Instant {
        self.waits_for(limits).0
    }

    /// Why it is closed when its deadline has come.
    #[must_use]
    pub fn expired(&self, limits: &Limits) -> Closed {
        self.waits_for(limits).1
    }

    /// Why it is closed when a drain has taken too long.
    #[must_use]
    pub const fn cut_off(&self) -> Closed {
        match self.stage {
            // Everything was answered: it is only its peer that has not ended.
            Stage::Lingering(why) => why,
            _ => Closed::For(Reason::DrainTimeout),
        }
    }

    /// An edge came: there may be something to receive, or room to send. `ends`: it was the last one, as the peer has sent its last byte or
    /// the transport has failed.
    #[inline]
    pub const fn woken(&mut self, ends: bool) {
        self.readable = true;
        self.ends |= ends;
    }

    /// Whether the transport may have more although no edge will tell of it.
    #[must_use]
    pub const fn may_have_more(&self) -> bool {
        self.readable
    }

    /// Has it end once what waits has been sent, and what is still to come.
    pub fn end(&mut self, why: Closed) {
        if self.still_answers() {
            self.stage = Stage::Ending(why);
        }
    }

    /// Has it end once everything that was received is answered.
    pub fn stop(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Stopping;
        }
    }

    /// A reply that was to come has: it leaves in its place when the connection works next. Says whether it is one of this connection's.
    pub fn done(&mut self, number: u64, reply: Vec<u8>) -> bool {
        let half_written = self.is_half_written();
        let Some(held) = &mut self.held else { return false };
        // What the service was refused for want of room may fit once this has left.
        self.wrote = true;
        held.done(number, reply, half_written)
    }

    /// Sends what waits, else receives and answers; once per call, so that the others get their turn.
    #[inline]
    pub fn work<H>(&mut self, transport: &mut impl Transport, turn: &mut Turn<'_, H>) -> After
    where
        H: Host<Service: Service<Connection = C>>,
    {
        let done = match self.stage {
            Stage::Lingering(why) => return self.discard(transport, why, turn.scratch),
            Stage::Open if self.held.is_none() && !self.wrote => self.read_and_answer(transport, turn),
            _ => self.go_on(transport, turn),
        };
        done.unwrap_or_else(|fault| {
            After::Close(match fault {
                Fault::Broken => self.broken(),
                Fault::Service(reason) => {
                    turn.scratch.later.take().for_each(drop);
                    Closed::For(reason)
                }
            })
        })
    }

    fn is_full(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_full())
    }

    /// Whether what is written now waits for replies that are still to come.
    fn is_held_back(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.deferred.holds_back())
    }

    /// Whether what has been sent or waits to be may end in the middle of a reply, with the rest of it still to be written.
    fn is_half_written(&self) -> bool {
        self.wrote && self.still_answers() && !self.is_held_back()
    }

    const fn still_answers(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::PeerEnded | Stage::Stopping)
    }

    fn waits_for(&self, limits: &Limits) -> (Instant, Closed) {
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

    /// Why it is closed when its transport fails.
    const fn broken(&self) -> Closed {
        match self.stage {
            Stage::Ending(why) | Stage::Lingering(why) => why,
            Stage::Open | Stage::PeerEnded | Stage::Stopping => Closed::Broken,
        }
    }

    /// The common case: what comes is a number of whole requests, is answered, and nothing is kept.
    #[inline]
    fn read_and_answer<H>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<After, Fault>
    where
        H: Host<Service: Service<Connection = C>>,
    {
        let mut input = std::mem::take(&mut turn.scratch.input);
        input.clear();
        let received = transport.receive(&mut input);
        let served = match received {
            Ok(Received::Bytes(len)) => {
                self.was_read(len, input.capacity(), turn);
                turn.scratch.output.clear();
                self.serve(&input, transport, turn)
            }
            Ok(Received::End) => {
                self.stage = Stage::PeerEnded;
                Ok(Served::default())
            }
            Ok(Received::Nothing) => {
                self.readable = false;
                turn.scratch.input = input;
                return Ok(After::Keep);
            }
            Err(broken) => Err(broken.into()),
        };
        if let Ok(Served { used, .. }) = served
            && used < input.len()
            && !matches!(self.stage, Stage::Ending(_))
        {
            self.held.get_or_insert_default().unread = input[used..].to_vec();
        }
        turn.scratch.input = input;
        let served = served?;
        if self.is_plain() && !self.readable {
            Ok(After::Keep)
        } else {
            Ok(self.settle(transport, turn, &served)?)
        }
    }

    /// Notes bytes that came into room for `room`: fewer than that, and an edge will tell of the next.
    #[inline]
    fn was_read<H: Host>(&mut self, len: usize, room: usize, turn: &mut Turn<'_, H>) {
        self.touched = turn.now;
        self.readable = len == room || self.ends;
        turn.count_received(len);
    }

    /// Some bytes wait in one of its buffers, the service has more to write, or it is about to end.
    fn go_on<H>(&mut self, transport: &mut impl Transport, turn: &mut Turn<'_, H>) -> Result<After, Fault>
    where
        H: Host<Service: Service<Connection = C>>,
    {
        turn.scratch.output.clear();
        let mut served = Served::default();
        self.send_unsent(transport, turn)?;
        if self.is_full() {
            return Ok(self.settle(transport, turn, &served)?);
        }
        // What waited for room comes before what waits in the transport.
        self.tell_of_room(transport, turn, &mut served)?;
        if self.stage == Stage::Open && !self.is_full() {
            self.read_behind(transport, turn)?;
        }
        let mut unread = self.held.as_mut().map(|held| std::mem::take(&mut held.unread)).unwrap_or_default();
        if self.still_answers() && !self.is_full() && !unread.is_empty() {
            served = self.serve(&unread, transport, turn)?;
            unread.drain(..served.used);
        }
        if matches!(self.stage, Stage::Ending(_)) || unread.is_empty() {
            unread = Vec::new();
        }
        if !unread.is_empty() {
            self.held.get_or_insert_default().unread = unread;
        }
        self.let_go();
        Ok(self.settle(transport, turn, &served)?)
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
    fn settle<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &Turn<'_, H>,
        served: &Served,
    ) -> Result<After, Broken> {
        let unread = self.held.as_ref().map_or(0, |held| held.unread.len());
        let room = unread < turn.limits.bytes;
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
                transport.finish()?;
                // What came meanwhile is thrown away, and the peer's end may be among it.
                Ok(After::Again)
            }
            Stage::Lingering(_) => Ok(After::Keep),
        }
    }

    /// Receives what the peer still sends after the end was said, for nobody.
    fn discard(&mut self, transport: &mut impl Transport, why: Closed, scratch: &mut Scratch) -> After {
        scratch.input.clear();
        match transport.receive(&mut scratch.input) {
            Ok(Received::Bytes(_)) => After::Again,
            Ok(Received::Nothing) => {
                self.readable = false;
                After::Keep
            }
            Ok(Received::End) | Err(Broken) => After::Close(why),
        }
    }

    /// Receives behind what is there already.
    fn read_behind<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<(), Broken> {
        if !self.readable {
            return Ok(());
        }
        let unread = &mut self.held.get_or_insert_default().unread;
        let room = turn.limits.bytes.saturating_sub(unread.len());
        if room == 0 {
            return Ok(());
        }
        if unread.capacity() - unread.len() < GROW_MIN.min(room) {
            unread.reserve_exact(unread.len().max(GROW_MIN).min(room));
        }
        let room = unread.capacity() - unread.len();
        match transport.receive(unread)? {
            Received::Bytes(len) => self.was_read(len, room, turn),
            Received::Nothing => self.readable = false,
            Received::End => self.stage = Stage::PeerEnded,
        }
        Ok(())
    }

    /// Gives back memory that nothing waits in.
    fn let_go(&mut self) {
        if self.held.as_ref().is_some_and(|held| held.is_empty()) {
            self.held = None;
        }
    }
}
