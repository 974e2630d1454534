//! The policy's inputs and its decisions.

use twinpath_time::{Duration, Instant};

/// What the worker should do while it has no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Look for work again, and do not ask before `until`.
    Spin {
        /// The end of this decision.
        until: Instant,
    },
    /// Sleep until something comes, but no later than `until`.
    Sleep {
        /// [`Instant::NEVER`] if nothing is due or predicted.
        until: Instant,
    },
}

/// Packets found by one turn.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When the first one came: the kernel's time stamp if there is one, otherwise the value of [`Self::since_look`],
    /// or the time of the turn.
    pub first: Instant,
    /// When the last one came.
    pub last: Instant,
    /// How many.
    pub count: u32,
}

impl Arrival {
    /// `count` packets without stamps, found at `now` by a worker that was awake and last looked at `looked`. They
    /// are assumed to have come evenly in between, which is a short time unless others had the CPU. If packets that
    /// waited for the CPU were taken for a burst, the policy would learn gaps of zero length.
    #[must_use]
    pub fn since_look(looked: Instant, now: Instant, count: u32) -> Self {
        let count = count.max(1);
        let apart = Duration::from_nanos(now.nanos_since(looked)) / count;
        let first = looked + apart / 2;
        Self { first, last: first + apart * (count - 1), count }
    }
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A packet came; the time from its arrival to the worker's first instruction, if known.
    Packet(Option<Duration>),
    /// The time given in [`Decision::Sleep`] was reached.
    Timer,
    /// Anything else: a command, a signal, another deadline.
    Other,
}
