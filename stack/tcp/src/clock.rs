//! Arithmetic of times in us, and in minutes.

use twinpath_time::Instant;

/// The time from `at` to `now`, us; at least 1, as it was not at once.
#[inline(always)]
pub(crate) fn micros(now: Instant, at: Instant) -> u32 {
    u32::try_from(now.nanos_since(at) / 1000).unwrap_or(u32::MAX).max(1)
}

/// The time `us` microseconds later.
#[inline(always)]
pub(crate) fn after(at: Instant, us: u64) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_add(us.saturating_mul(1000)))
}

/// The minute of the clock, modulo 256.
pub(crate) const fn minute(now: Instant) -> u8 {
    (now.as_nanos() / 60_000_000_000) as u8
}
