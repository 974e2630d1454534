//! Computes how long ago the kernel stamped a packet. The stamps are from `CLOCK_REALTIME`, which may be set at any
//! time. So only very recent stamps are used, and only the difference leaves this file.

use rustix::time::{ClockId, clock_gettime};
use twinpath_time::{Duration, Instant};

use crate::clock;

/// How long before `now` the stamp was made, if it was after `since`; `None` if that is impossible because the clock
/// was set.
#[must_use]
pub fn age(stamp_ns: u64, since: Instant, now: Instant) -> Option<Duration> {
    let passed_ns = clock::now().nanos_since(now);
    let wall = clock_gettime(ClockId::Realtime);
    let wall_ns =
        u64::try_from(wall.tv_sec).ok()?.checked_mul(1_000_000_000)?.checked_add(wall.tv_nsec as u64)?;
    let age_ns = wall_ns.checked_sub(stamp_ns)?.checked_sub(passed_ns)?;
    (age_ns <= now.nanos_since(since)).then(|| Duration::from_nanos(age_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_from_before_or_from_the_future_is_none() {
        let wall = clock_gettime(ClockId::Realtime);
        let wall_ns = wall.tv_sec as u64 * 1_000_000_000 + wall.tv_nsec as u64;
        let now = clock::now();
        let long_ago = Instant::from_nanos(now.as_nanos() - 1_000_000_000);
        let age_of = |stamp_ns| age(stamp_ns, long_ago, now);
        let half = age_of(wall_ns - 500_000_000).expect("half a second ago");
        assert!(half >= Duration::from_millis(490) && half < Duration::from_secs(1), "{half:?}");
        assert_eq!(age_of(wall_ns + 3_600_000_000_000), None);
        assert_eq!(age_of(wall_ns - 2_000_000_000), None);
        assert_eq!(age_of(0), None);
    }
}
