//! The calendar time of a run's start, for reports only: nothing is timed by it.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time since the beginning of 1970, in UTC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// From the form in [`RunReport::started_unix_s`](twinpath_clients::measure::report::RunReport::started_unix_s).
    pub(crate) fn from_unix_s(unix_s: f64) -> Self {
        Self(Duration::try_from_secs_f64(unix_s).unwrap_or_default())
    }

    pub(crate) fn unix_s(self) -> f64 {
        self.0.as_secs_f64()
    }

    pub(crate) fn since_unix(self) -> Duration {
        self.0
    }

    /// The form that libraries need.
    pub(crate) fn system_time(self) -> SystemTime {
        UNIX_EPOCH + self.0
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(self.system_time()).fmt(f)
    }
}
