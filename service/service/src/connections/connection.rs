//! One connection: in each turn, bytes are received once, answered, and sent once. Output that the transport
//! does not take waits in a buffer, and nothing is received until that is empty. An incomplete request
//! waits in the transport. An idle connection has neither.

mod answer;

use twinpath_inspect::Reason;
use twinpath_stream::{Broken, Received, Transport};
use twinpath_time::{Duration, Instant};

use crate::connections::held::Held;
use crate::connections::host::Host;
use crate::connections::turn::{After, ConnectionLimits, Turn};
use crate::{Closed, Next, Service};

/// How long the last bytes to a peer may take to arrive. If we closed immediately while input from the peer
/// was unread, the kernel would discard our last bytes (RFC 2525, 2.17).
const LINGER: Duration = Duration::from_secs(2);

/// The stages of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The peer has sent its last byte; the connection is over once everything is answered.
    PeerEnded,
    /// The instance is stopping, and no request was complete yet: the first one is still received, and answered.
    StoppingAfterFirst,
    /// The instance is stopping: no more is received, and the connection ends once everything received is answered.
    Stopping,
    /// We end it once the waiting output has been sent.
    Ending(Closed),
    /// We have sent the end to the peer; what it still sends is discarded until it ends, too.
    Lingering(Closed),
}

/// The cause for which a connection cannot continue.
enum Fault {
    Broken,
    /// The service panicked; this reason is counted.
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

/// The service's progress in a call, and whether it can continue.
#[derive(Default)]
struct Progress {
    /// Bytes of input that it used.
    used: usize,
    /// Bytes before them that it used and the transport has given to work.
    given: usize,
    /// It could continue immediately.
    again: bool,
    /// It could continue when there is room for work that may block.
    when_room: bool,
}

/// One connection, with the state that its service keeps for it (`C`).
pub struct Connection<C> {
    state: C,
    held: Option<Box<Held>>,
    /// Bytes that the transport has received and the service has not used.
    unread: usize,
    /// When bytes last moved, in either direction.
    touched: Instant,
    /// When the incomplete request began; `NEVER`: there is none.
    asked: Instant,
    stage: Stage,
    /// The transport may have more input without a further edge.
    readable: bool,
    /// The peer has sent its last byte, or the transport has failed: no edge will follow.
    ends: bool,
    /// The service has written something, and has not been told of room since then.
    wrote: bool,
    /// No request has been complete since the connection was opened.
    is_new: bool,
    /// The service wanted to be woken at `wake_at`, and has not been since.
    wake_due: bool,
    /// When the service wants to be woken.
    wake_at: Instant,
}

impl<C> Connection<C> {
    /// A connection that was just opened.
    #[must_use]
    pub const fn new(now: Instant, state: C) -> Self {
        Self {
            state,
            held: None,
            unread: 0,
            touched: now,
            asked: Instant::NEVER,
            stage: Stage::Open,
            readable: false,
            ends: false,
            wrote: false,
            is_new: true,
            wake_due: false,
            wake_at: Instant::NEVER,
        }
    }

    /// The service's state, when the connection is over.
    #[must_use]
    pub fn into_state(self) -> C {
        self.state
    }

    /// Bytes of memory that it holds besides itself. The transport has its own.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.bytes())
    }

    /// When bytes last moved.
    #[inline]
    #[must_use]
    pub const fn touched(&self) -> Instant {
        self.touched
    }

    /// Whether it is open and in its normal state: its deadline only moves into the future.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.stage == Stage::Open && self.has_no_request()
    }

    /// Whether no request is in progress: closing it loses nothing but the connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_plain() || matches!(self.stage, Stage::Lingering(_))
    }

    /// The number of replies still to come.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.deferred.awaited())
    }

    /// When it is to be closed unless bytes move, or its service woken.
    #[must_use]
    pub fn deadline(&self, limits: &ConnectionLimits) -> Instant {
        self.waits_for(limits).0.min(self.wake_at)
    }

    /// Whether its service wants to be woken at some time.
    #[inline]
    #[must_use]
    pub fn has_timer(&self) -> bool {
        self.wake_at != Instant::NEVER
    }

    /// Whether its service is to be woken: by [`Self::wake`], before anything expires.
    #[must_use]
    pub fn is_wake_due(&self, now: Instant) -> bool {
        self.wake_at <= now
    }

    /// The reason for closing it when its deadline has come.
    #[must_use]
    pub fn expired(&self, limits: &ConnectionLimits) -> Closed {
        self.waits_for(limits).1
    }

    /// The reason for closing it when a drain has taken too long.
    #[must_use]
    pub fn cut_off(&self) -> Closed {
        match self.stage {
            // Everything was answered: only the peer's end is missing.
            Stage::Lingering(why) => why,
            // It had no request.
            Stage::StoppingAfterFirst if self.has_no_request() => Closed::Stopped,
            _ => Closed::For(Reason::DrainTimeout),
        }
    }

    /// An edge arrived: there may be input, or room for output. `ends`: it was the last edge, because the
    /// peer has sent its last byte or the transport has failed.
    #[inline]
    pub const fn woken(&mut self, ends: bool) {
        self.readable = true;
        self.ends |= ends;
    }

    /// Whether the transport may have more input without a further edge.
    #[must_use]
    pub const fn may_have_more(&self) -> bool {
        self.readable
    }

    /// Ends the connection once all waiting output and all deferred replies have been sent.
    pub fn end(&mut self, why: Closed) {
        if self.still_answers() {
            self.stage = Stage::Ending(why);
        }
    }

    /// Ends the connection once everything received is answered. A connection without a complete request
    /// ends after its first one, because an accepted client expects an answer.
    pub fn stop(&mut self) {
        if self.stage == Stage::Open {
            self.stage = if self.is_new { Stage::StoppingAfterFirst } else { Stage::Stopping };
        }
    }

    /// A deferred reply is ready: it is sent in its place when the connection works next. Returns whether
    /// it belongs to this connection.
    pub fn done(&mut self, number: u64, reply: Vec<u8>) -> bool {
        let half_written = self.is_half_written();
        let Some(held) = &mut self.held else { return false };
        // Output that was refused for lack of room may fit once this reply has been sent.
        self.wrote = true;
        held.done(number, reply, half_written)
    }

    /// Sends bytes outside of a reply: immediately, or after a reply that is half written. The connection
    /// must be given work afterwards.
    ///
    /// # Errors
    /// The reason why they are dropped.
    pub fn push(&mut self, now: Instant, bytes: &[u8], limits: &ConnectionLimits) -> Result<(), Reason> {
        if !self.still_answers() {
            return Err(Reason::LateReply);
        }
        let waiting = self.held.as_ref().map_or(0, |held| held.unsent());
        if waiting == 0 {
            // From now on its peer has the send time-out to take them.
            self.touched = now;
        }
        if waiting + bytes.len() > limits.bytes {
            return Err(Reason::OutboxFull);
        }
        let half_written = self.is_half_written();
        (self.wrote, self.is_new) = (true, false);
        self.held.get_or_insert_default().push(bytes, half_written);
        Ok(())
    }

    /// Lets the service begin: called once, before anything else.
    pub fn begin<H>(&mut self, transport: &mut impl Transport, turn: &mut Turn<'_, H>) -> After
    where
        H: Host<Service: Service<Connection = C>>,
    {
        turn.scratch.beside.clear();
        let mut progress = Progress::default();
        let begun = self
            .call_aside("opened", <H::Service as Service>::opened, transport, turn, &mut progress)
            .and_then(|()| Ok(self.settle(transport, turn, &progress)?));
        self.or_close(begun, turn)
    }

    /// Wakes the service, now or as soon as no output waits.
    pub fn wake<H>(&mut self, transport: &mut impl Transport, turn: &mut Turn<'_, H>) -> After
    where
        H: Host<Service: Service<Connection = C>>,
    {
        (self.wake_at, self.wake_due) = (Instant::NEVER, true);
        match self.stage {
            Stage::Lingering(_) => After::Keep,
            _ => {
                let done = self.go_on(transport, turn);
                self.or_close(done, turn)
            }
        }
    }

    /// Sends the waiting output; if there is none, receives and answers. Does so once per call, so that
    /// other connections get their turn.
    #[inline]
    pub fn work<H>(&mut self, transport: &mut impl Transport, turn: &mut Turn<'_, H>) -> After
    where
        H: Host<Service: Service<Connection = C>>,
    {
        let done = match self.stage {
            Stage::Lingering(why) => return self.discard(transport, why),
            Stage::Open if self.held.is_none() && self.unread == 0 && !self.wrote => {
                self.read_and_answer(transport, turn)
            }
            _ => self.go_on(transport, turn),
        };
        self.or_close(done, turn)
    }

    /// Closes the connection after a fault.
    #[inline]
    fn or_close<H: Host>(&self, done: Result<After, Fault>, turn: &mut Turn<'_, H>) -> After {
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

    /// Whether it has neither a part of a request nor a reply to send.
    fn has_no_request(&self) -> bool {
        self.held.is_none() && self.unread == 0 && self.asked == Instant::NEVER && !self.wrote
    }

    /// Whether it receives requests.
    const fn receives(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::StoppingAfterFirst)
    }

    /// Whether output written now has to wait for deferred replies.
    fn is_held_back(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.deferred.holds_back())
    }

    /// Whether the output may end in the middle of a reply that is not fully written yet.
    fn is_half_written(&self) -> bool {
        self.wrote && self.still_answers() && !self.is_held_back()
    }

    const fn still_answers(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::PeerEnded | Stage::StoppingAfterFirst | Stage::Stopping)
    }

    fn waits_for(&self, limits: &ConnectionLimits) -> (Instant, Closed) {
        if let Stage::Lingering(why) = self.stage {
            (self.touched + LINGER, why)
        } else if self.is_full() {
            (self.touched + limits.send, Closed::For(Reason::PeerNotReading))
        } else if self.awaited() > 0 {
            // The delay is on our side, not the peer's.
            (Instant::NEVER, Closed::Broken)
        } else if self.asked != Instant::NEVER {
            (self.asked + limits.request, Closed::For(Reason::RequestTimeout))
        } else {
            (self.touched + limits.idle, Closed::For(Reason::IdleTimeout))
        }
    }

    /// The reason for closing it when its transport fails.
    const fn broken(&self) -> Closed {
        match self.stage {
            Stage::Ending(why) | Stage::Lingering(why) => why,
            _ => Closed::Broken,
        }
    }

    /// The common case: the input consists of whole requests, which are answered, and nothing is kept.
    #[inline]
    fn read_and_answer<H>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<After, Fault>
    where
        H: Host<Service: Service<Connection = C>>,
    {
        let progress = match transport.receive(turn.limits.bytes)? {
            Received::Bytes { len, more } => {
                self.was_read(len, more, turn);
                turn.scratch.beside.clear();
                self.serve(transport, turn)?
            }
            Received::End => {
                self.stage = Stage::PeerEnded;
                Progress::default()
            }
            Received::Nothing => {
                self.readable = false;
                return Ok(After::Keep);
            }
        };
        if self.is_plain() && !self.readable {
            Ok(After::Keep)
        } else {
            Ok(self.settle(transport, turn, &progress)?)
        }
    }

    /// Records that bytes were received.
    #[inline]
    fn was_read<H: Host>(&mut self, len: usize, more: bool, turn: &mut Turn<'_, H>) {
        self.touched = turn.now;
        self.unread += len;
        self.readable = more || self.ends;
        turn.count_received(len);
    }

    /// The general case: bytes wait in one of its buffers, the service has more to write, or the connection is about to
    /// end.
    fn go_on<H>(&mut self, transport: &mut impl Transport, turn: &mut Turn<'_, H>) -> Result<After, Fault>
    where
        H: Host<Service: Service<Connection = C>>,
    {
        turn.scratch.beside.clear();
        let mut progress = Progress::default();
        self.send_unsent(transport, turn)?;
        if self.is_full() {
            return Ok(self.settle(transport, turn, &progress)?);
        }
        // Output that waited for room comes before input that waits in the transport.
        self.tell_of_room(transport, turn, &mut progress)?;
        if self.wake_due && self.still_answers() && !self.wrote && !self.is_full() && !self.is_held_back() {
            self.wake_due = false;
            self.call_aside("woken", <H::Service as Service>::woken, transport, turn, &mut progress)?;
        }
        if self.receives() && !self.is_full() {
            self.read_behind(transport, turn)?;
        }
        if self.still_answers() && !self.is_full() && self.unread > 0 {
            progress = self.serve(transport, turn)?;
        }
        if matches!(self.stage, Stage::Ending(_)) {
            self.drop_unread(transport);
        }
        self.let_go();
        Ok(self.settle(transport, turn, &progress)?)
    }

    /// Notes when the service wants to be woken, if it has said so.
    #[inline]
    const fn heed_wake(&mut self, at: Option<Instant>) {
        if let Some(at) = at {
            self.wake_at = at;
        }
    }

    /// Carries out the service's decision about the connection.
    fn heed(&mut self, next: Next) {
        match next {
            Next::Keep => {}
            Next::End => self.end(Closed::Ended),
            Next::Refuse(reason) => self.end(Closed::For(reason)),
        }
    }

    /// Decides how the connection continues.
    fn settle<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &Turn<'_, H>,
        progress: &Progress,
    ) -> Result<After, Broken> {
        let room = self.unread < turn.limits.bytes;
        if self.is_full() {
            return Ok(After::Keep);
        }
        if progress.again || progress.when_room {
            return Ok(if progress.again { After::Again } else { After::WhenRoom });
        }
        if self.stage == Stage::StoppingAfterFirst && !self.is_new && !self.readable {
            self.stage = Stage::Stopping;
        }
        if self.awaited() > 0 && !self.receives() && !matches!(self.stage, Stage::Lingering(_)) {
            return Ok(After::Keep);
        }
        match self.stage {
            // A service that uses nothing of a full buffer never will, unless it waits for replies or for a time.
            Stage::Open | Stage::StoppingAfterFirst if !room && (self.awaited() > 0 || self.has_timer()) => {
                Ok(After::Keep)
            }
            Stage::Open | Stage::StoppingAfterFirst if !room => {
                Ok(After::Close(Closed::For(Reason::RequestTooLarge)))
            }
            Stage::Open | Stage::StoppingAfterFirst => {
                Ok(if self.readable { After::Again } else { After::Keep })
            }
            Stage::PeerEnded => {
                let cut_short = self.unread > 0 || self.asked != Instant::NEVER;
                Ok(After::Close(if cut_short { Closed::Broken } else { Closed::Ended }))
            }
            Stage::Ending(_) | Stage::Stopping => {
                let why = if let Stage::Ending(why) = self.stage { why } else { Closed::Stopped };
                self.stage = Stage::Lingering(why);
                (self.touched, self.held) = (turn.now, None);
                self.drop_unread(transport);
                transport.finish()?;
                // Input that arrived meanwhile is discarded; it may include the peer's end of stream.
                Ok(After::Again)
            }
            Stage::Lingering(_) => Ok(After::Keep),
        }
    }

    /// Receives and discards input after our end was sent.
    fn discard(&mut self, transport: &mut impl Transport, why: Closed) -> After {
        match transport.receive(usize::MAX) {
            Ok(Received::Bytes { len, .. }) => {
                transport.consume(len);
                After::Again
            }
            Ok(Received::Nothing) => {
                self.readable = false;
                After::Keep
            }
            Ok(Received::End) | Err(Broken) => After::Close(why),
        }
    }

    /// Receives more bytes after those that the service has not used.
    fn read_behind<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<(), Broken> {
        if !self.readable || self.unread >= turn.limits.bytes {
            return Ok(());
        }
        match transport.receive(turn.limits.bytes)? {
            Received::Bytes { len, more } => self.was_read(len, more, turn),
            Received::Nothing => self.readable = false,
            Received::End => self.stage = Stage::PeerEnded,
        }
        Ok(())
    }

    /// Discards the input that the service has not used.
    fn drop_unread(&mut self, transport: &mut impl Transport) {
        if self.unread > 0 {
            transport.consume(std::mem::take(&mut self.unread));
        }
    }

    /// Frees empty buffers.
    fn let_go(&mut self) {
        if self.held.as_ref().is_some_and(|held| held.is_empty()) {
            self.held = None;
        }
    }
}
