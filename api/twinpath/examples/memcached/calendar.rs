//! When values are over: exptimes of the protocol, as times of the workers' clock.

use std::time::{SystemTime, UNIX_EPOCH};

use twinpath::{Duration, Instant};

/// Exptimes up to this many seconds are from now on; greater ones are seconds since 1970.
const RELATIVE_MAX: u64 = 30 * 24 * 3600;

/// Which date it was at one time of the workers' clock. As with memcached, setting the date later changes nothing.
#[derive(Clone, Copy)]
pub(crate) struct Calendar {
    at: Instant,
    /// Seconds since 1970 at that time.
    unix_s: u64,
}

impl Calendar {
    pub(crate) const fn new(at: Instant, unix_s: u64) -> Self {
        Self { at, unix_s }
    }

    /// Today's, by the system's clock.
    pub(crate) fn of_system(at: Instant) -> Self {
        Self::new(at, SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// From when on a value is there no more: 0 means never, and less that it is over already.
    pub(crate) fn until(&self, now: Instant, exptime: i64) -> Instant {
        match u64::try_from(exptime) {
            Ok(0) => Instant::NEVER,
            Ok(seconds @ 1..=RELATIVE_MAX) => now + Duration::from_secs(seconds),
            Ok(unix_s) => match unix_s.checked_sub(self.unix_s) {
                Some(seconds) => self.at + Duration::from_secs(seconds),
                None => now,
            },
            Err(_) => now,
        }
    }
}
