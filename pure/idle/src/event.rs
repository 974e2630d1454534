//! What a policy is told, and what it answers.

use twinpath_time::{Duration, Instant};

/// What to do now that there is no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Look for work again, and go on until then without asking.
    Spin {
        /// What is decided lasts so long.
        until: Instant,
    },
    /// Sleep until something comes, but no later than this.
    Sleep {
        /// [`Instant::NEVER`] if nothing is due or predicted.
        until: Instant,
    },
}

/// Packets found by one turn.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When the first one came: the kernel's time stamp where there is one, else what [`Self::since_look`] says, or the time of the
    /// turn.
    pub first: Instant,
    /// When the last one came.
    pub last: Instant,
    /// How many.
    pub count: u32,
}

impl Arrival {
    /// `count` packets without stamps, found at `now` by a worker that was awake and last looked at `looked`: they are taken to have
    /// come evenly in between. That is a moment, unless others had the CPU. To take what waited for the CPU for a burst would be to
    /// believe in gaps of nothing.
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
    /// A packet came; from its arrival to the worker's first instruction, where known.
    Packet(Option<Duration>),
    /// The time that [`Decision::Sleep`] gave had come.
    Timer,
    /// Anything else: a command, a signal, another deadline.
    Other,
}
