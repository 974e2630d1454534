//! Decides when to repeat the measurement: rarely, only while nothing is served, and for at most a ten-thousandth of a
//! CPU.

use twinpath_time::{Duration, Instant};

/// Minimum time between two measurements. The cost of a wake-up changes when a virtual machine moves or a governor
/// is changed.
const INTERVAL: Duration = Duration::from_secs(600);

/// The same after a measurement that other work has disturbed.
const INTERVAL_DISTURBED: Duration = Duration::from_secs(60);

/// One part in this many of the CPU's time: each measurement is paid for before the next one begins.
const SHARE: u32 = 10_000;

/// The schedule, as a value: the caller passes in the time.
#[derive(Clone, Copy, Debug)]
pub struct Again {
    due: Instant,
}

impl Again {
    /// The schedule after a measurement that ended at `now` and used this much CPU time. `disturbed`: its result may be
    /// unreliable.
    #[must_use]
    pub fn after(now: Instant, cpu: Duration, disturbed: bool) -> Self {
        let paid = cpu.saturating_mul(SHARE);
        Self { due: now + paid.max(if disturbed { INTERVAL_DISTURBED } else { INTERVAL }) }
    }

    /// Whether to measure now. `quiet`: nothing was served recently, and no request is held.
    #[must_use]
    pub fn is_due(&self, now: Instant, quiet: bool) -> bool {
        quiet && now >= self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_is_paid_for_and_waits_for_quiet() {
        let start = Instant::from_nanos(5);
        let cheap = Again::after(start, Duration::from_millis(6), false);
        let ten_minutes = start + Duration::from_secs(600);
        assert!(!cheap.is_due(start + Duration::from_secs(599), true));
        assert!(cheap.is_due(ten_minutes, true) && !cheap.is_due(ten_minutes, false));
        // 100 ms of CPU take a thousand seconds to pay for.
        let dear = Again::after(start, Duration::from_millis(100), false);
        assert!(!dear.is_due(start + Duration::from_secs(999), true));
        assert!(dear.is_due(start + Duration::from_secs(1000), true));
        let disturbed = Again::after(start, Duration::from_millis(7), true);
        assert!(!disturbed.is_due(start + Duration::from_secs(69), true));
        assert!(disturbed.is_due(start + Duration::from_secs(70), true));
    }
}
