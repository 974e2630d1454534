//! A connection's part in a turn of its host: the limits and buffers it may use, and the result.

use twinpath_time::{Duration, Instant};

use crate::connections::held::Held;
use crate::connections::host::Host;
use crate::{Closed, Later, Output};

/// Maximum number of bytes that a connection sends per turn, so that one endless reply does not delay the
/// others. Also the maximum number of sends, for a service that writes little at a time.
const TURN_BYTES: usize = 256 << 10;
const TURN_SENDS: u32 = 16;

/// The limits of one connection. A time of [`Duration::MAX`] means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of bytes of an incomplete request, and of replies that the peer has not taken.
    pub bytes: usize,
    /// Maximum time without a byte in either direction and without a request in progress.
    pub idle: Duration,
    /// Maximum time from the first byte of a request to its last.
    pub request: Duration,
    /// Maximum time during which replies wait and the peer takes no byte.
    pub send: Duration,
}

/// The action that the host must take after a connection has worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// None, until its transport or its deadline requires it.
    Keep,
    /// Let it work again in the next turn: there is more to do, and no edge will announce it.
    Again,
    /// Let it work again when some blocking work has completed: there was no room for more.
    WhenRoom,
    /// Close it.
    Close(Closed),
}

/// What connections use one after another: an idle connection has none.
pub struct Scratch {
    /// Output for which the transport has lent no room, or that was appended to a buffer.
    pub(crate) beside: Vec<u8>,
    pub(crate) later: Later,
}

impl Scratch {
    /// A buffer for an output of up to `output` bytes.
    #[must_use]
    pub fn new(output: usize) -> Self {
        Self { beside: Vec::with_capacity(output), later: Later::default() }
    }
}

/// One connection's part of a turn of its host.
pub struct Turn<'a, H> {
    pub(crate) now: Instant,
    pub(crate) limits: &'a ConnectionLimits,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) host: &'a mut H,
    /// Bytes of output in the transport's room that were not committed.
    pub(crate) filled: usize,
    /// Bytes that the service has written, and the number of sends.
    pub(crate) written: usize,
    sends: u32,
    received: usize,
    sent: usize,
}

impl<'a, H: Host> Turn<'a, H> {
    /// A turn at `now`.
    #[inline]
    pub const fn new(
        now: Instant,
        limits: &'a ConnectionLimits,
        scratch: &'a mut Scratch,
        host: &'a mut H,
    ) -> Self {
        Self { now, limits, scratch, host, filled: 0, written: 0, sends: 0, received: 0, sent: 0 }
    }

    /// Bytes that the connection has received in this turn.
    #[inline]
    #[must_use]
    pub const fn received(&self) -> usize {
        self.received
    }

    /// Bytes that the transport has taken in this turn.
    #[inline]
    #[must_use]
    pub const fn sent(&self) -> usize {
        self.sent
    }

    /// Whether the connection has used up its share of the turn.
    pub(crate) const fn is_over(&self) -> bool {
        self.written >= TURN_BYTES || self.sends >= TURN_SENDS
    }

    /// Bytes of output that were not sent.
    #[inline]
    pub(crate) const fn output_len(&self) -> usize {
        self.filled + self.scratch.beside.len()
    }

    pub(crate) const fn count_received(&mut self, bytes: usize) {
        self.received += bytes;
    }

    pub(crate) const fn count_sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    pub(crate) const fn count_written(&mut self, bytes: usize) {
        self.written += bytes;
        self.sends += 1;
    }
}

/// The service's output in `room`, after the `filled` bytes that it has written already: the remaining room, less the
/// bytes that wait for replies.
#[inline]
pub(crate) fn output<'a, H: Host>(
    room: &'a mut [u8],
    filled: usize,
    scratch: &'a mut Scratch,
    host: &H,
    limits: &ConnectionLimits,
    held: Option<&Held>,
) -> Output<'a> {
    let (awaited, waiting) = held.map_or((0, 0), |held| (held.deferred.awaited(), held.deferred.bytes()));
    let Scratch { beside, later, .. } = scratch;
    let Some(allowed) = host.room_for_work(awaited) else {
        return Output::new(beside, limits.bytes).into_room(room, filled).of(host.connection());
    };
    later.allow(allowed);
    let limit = limits.bytes.saturating_sub(waiting);
    Output::with_later(beside, limit, later).into_room(room, filled).of(host.connection())
}
