//! `[pool]`: threads for work that may block, of services that have such work.

use twinpath_time::Duration;
use twinpath_worker::thread::PoolLimits;

use super::Wrong;
use super::key::section;

/// Threads per worker: they share its CPU, and each has a stack.
const THREADS_MAX: u64 = 256;
/// Requests per worker: each takes about 100 bytes, plus the memory of its work.
const REQUESTS_MAX: u64 = 65_536;
/// One hour after a burst its threads have ended.
const IDLE_MS_MAX: u64 = 3_600_000;

section! {
    /// `[pool]`
    pub struct Pool, PoolOverrides in "pool" {
        /// Minimum number of threads per worker, on its CPU
        threads_min: u32 = PoolLimits::default().threads_min => range(1, THREADS_MAX), unit("threads");

        /// Maximum number of threads per worker
        threads_max: u32 = PoolLimits::default().threads_max =>
            range(1, THREADS_MAX), values_are("`threads_min` to 256"), unit("threads");

        /// Maximum number of requests per worker, both waiting and in work
        requests: u32 = PoolLimits::default().requests => range(1, REQUESTS_MAX), unit("requests");

        /// Maximum number of these of one connection or UDP peer
        connection_requests: u32 = PoolLimits::default().connection_requests =>
            range(1, REQUESTS_MAX), unit("requests");

        /// Maximum number of these that came by datagram
        datagram_requests: u32 = PoolLimits::default().datagram_requests =>
            range(1, REQUESTS_MAX), unit("requests");

        /// A thread beyond threads_min ends after this time without work
        idle_ms: u32 = PoolLimits::default().idle.as_millis() as u32 => range(1, IDLE_MS_MAX), unit("ms");
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

impl Pool {
    /// Everything that cannot work.
    pub(super) fn faults(&self) -> Vec<Wrong> {
        let mut faults = self.range_faults();
        if faults.is_empty() && self.threads_max < self.threads_min {
            let sentence =
                format!("{}: give pool.threads_min ({}) or more", self.threads_max, self.threads_min);
            faults.push(("pool.threads_max", sentence));
        }
        faults
    }

    /// The limits of a worker's handler pool.
    #[must_use]
    pub fn limits(&self) -> PoolLimits {
        let Self { threads_min, threads_max, requests, connection_requests, datagram_requests, idle_ms } =
            *self;
        let idle = Duration::from_millis(idle_ms.into());
        PoolLimits { threads_min, threads_max, requests, connection_requests, datagram_requests, idle }
    }
}
