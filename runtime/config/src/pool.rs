//! `[pool]`: threads for work that may block, of services that have such work.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use twinpath_serve::PoolLimits;
use twinpath_time::Duration;

/// Threads per worker: they share its CPU, and each has a stack.
const THREADS: RangeInclusive<u32> = 1..=256;
/// Requests per worker: each is some 100 bytes, and what its work holds.
const REQUESTS: RangeInclusive<u32> = 1..=65_536;
/// An hour after a burst its threads are gone.
const IDLE_MS: RangeInclusive<u32> = 1..=3_600_000;

/// `[pool]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// Threads per worker that are always there.
    pub threads_min: u32,
    /// Threads per worker, at most.
    pub threads_max: u32,
    /// Requests per worker that wait or are worked on.
    pub requests: u32,
    /// Those of one connection, or of one UDP peer, among them.
    pub connection_requests: u32,
    /// Those that came by datagram among them.
    pub datagram_requests: u32,
    /// A thread beyond the least ends when it was not needed for so long, ms.
    pub idle_ms: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Self::from(PoolLimits::default())
    }
}

impl From<PoolLimits> for Pool {
    fn from(limits: PoolLimits) -> Self {
        let PoolLimits { threads_min, threads_max, requests, connection_requests, datagram_requests, idle } =
            limits;
        let idle_ms = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
        Self { threads_min, threads_max, requests, connection_requests, datagram_requests, idle_ms }
    }
}

/// A key and what is wrong with it.
type Wrong = (&'static str, String);

impl Pool {
    /// Everything that cannot work.
    pub(super) fn faults(&self) -> Vec<Wrong> {
        let ranges = [
            ("pool.threads_min", self.threads_min, THREADS),
            ("pool.threads_max", self.threads_max, THREADS),
            ("pool.requests", self.requests, REQUESTS),
            ("pool.connection_requests", self.connection_requests, REQUESTS),
            ("pool.datagram_requests", self.datagram_requests, REQUESTS),
            ("pool.idle_ms", self.idle_ms, IDLE_MS),
        ];
        let outside = ranges.into_iter().filter(|(_, value, range)| !range.contains(value));
        let mut faults: Vec<Wrong> = outside
            .map(|(key, value, range)| (key, format!("{value}: give {} to {}", range.start(), range.end())))
            .collect();
        if faults.is_empty() && self.threads_max < self.threads_min {
            let sentence =
                format!("{}: give pool.threads_min ({}) or more", self.threads_max, self.threads_min);
            faults.push(("pool.threads_max", sentence));
        }
        faults
    }

    /// What a worker's pool is made with.
    #[must_use]
    pub fn limits(&self) -> PoolLimits {
        let Self { threads_min, threads_max, requests, connection_requests, datagram_requests, idle_ms } =
            *self;
        let idle = Duration::from_millis(idle_ms.into());
        PoolLimits { threads_min, threads_max, requests, connection_requests, datagram_requests, idle }
    }
}
