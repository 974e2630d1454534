//! Limits of the handler threads beside a worker, which run code that may block.

use twinpath_time::Duration;

/// Limits of a handler pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Minimum number of threads per worker, which run all the time; at least one.
    pub threads_min: u32,
    /// Maximum number of threads per worker.
    pub threads_max: u32,
    /// Requests per worker that wait or are being handled. At the limit, requests of connections wait unread.
    pub requests: u32,
    /// Of these, the requests of one connection or UDP peer.
    pub connection_requests: u32,
    /// Of these, the requests that came by datagram. At the limit, datagrams are dropped.
    pub datagram_requests: u32,
    /// A thread beyond the minimum ends when it has not been needed for this long.
    pub idle: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            threads_min: 1,
            threads_max: 8,
            requests: 1024,
            connection_requests: 64,
            datagram_requests: 512,
            idle: Duration::from_secs(10),
        }
    }
}
