//! Time as a value that is passed as an argument.
//!
//! Nothing below the tier runtime reads a clock. An [`Instant`] can be built from any number, so a test starts at zero and
//! advances time as it likes.

use core::ops::{Add, AddAssign, Sub};
pub use core::time::Duration;

pub mod wheel;

pub use wheel::Wheel;

/// A point in time: nanoseconds since an origin known only to the code that made it.
///
/// In the product, the origin is that of `CLOCK_MONOTONIC`; a test chooses its own. 2^64 ns are 584 years, so
/// arithmetic saturates instead of wrapping: an overflow is a bug elsewhere and no reason to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any other instant: a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` ns after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let second = Duration::from_secs(1);
        assert_eq!(Instant::ZERO - second, Instant::ZERO);
        assert_eq!(Instant::NEVER + second, Instant::NEVER);
        assert_eq!(Instant::ZERO.since(Instant::from_nanos(5)), Duration::ZERO);
        assert_eq!((Instant::from_nanos(7) + second).nanos_since(Instant::from_nanos(7)), 1_000_000_000);
    }
}
