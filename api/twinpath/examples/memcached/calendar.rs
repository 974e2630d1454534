//! When values expire: converts the protocol's exptimes to times of the workers' clock.

use std::time::{SystemTime, UNIX_EPOCH};

use twinpath::{Duration, Instant};

/// Exptimes up to this many seconds are relative; greater ones are seconds since 1970.
const RELATIVE_MAX: u64 = 30 * 24 * 3600;

/// The date at one time of the workers' clock. As with memcached, setting the system's clock later changes
/// nothing.
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

    /// The present date, by the system's clock.
    pub(crate) fn of_system(at: Instant) -> Self {
        Self::new(at, SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }

    /// When a value expires. An exptime of 0 means never; a negative one means that it has expired already.
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
