//! The counters of serving, beside the worker's own counters.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use twinpath_inspect::{Counter, Drops};
use twinpath_kernel_tcp::TcpCounters;

/// Counters of one entry of [`Served`](crate::Served).
#[derive(Debug, Default)]
pub struct ClaimCounters {
    /// Requests that came on the fast path.
    pub fast: Counter,
    /// Requests that came through the kernel's socket.
    pub kernel: Counter,
}

/// Counters of one serving engine; written by its worker, read by control.
#[derive(Debug, Default)]
pub struct ServeCounters {
    /// One per entry of what is served.
    pub claims: Box<[ClaimCounters]>,
    /// Dropped frames and requests, if the worker has several services; otherwise they are in the worker's
    /// counters.
    pub drops: Drops,
    /// Datagrams, or whole frames, that came by the fast path and were served.
    pub fast_requests: Counter,
    /// Replies that left on the fast path.
    pub fast_replies: Counter,
    /// Requests of the fast path whose reply the kernel's socket sent, because the egress was not known yet or
    /// the reply was too large for it.
    pub fast_replies_by_kernel: Counter,
    /// Datagrams that came through the kernel's socket and were served.
    pub kernel_requests: Counter,
    /// Replies that the kernel's socket sent, whichever path the request came by.
    pub kernel_replies: Counter,
    /// Datagrams accepted although their sender had left the checksum to hardware.
    pub partial_checksums: Counter,
    /// Whether a callback of the service has been called and has not returned.
    pub called: Arc<AtomicBool>,
    /// The counters of TCP connections.
    pub tcp: TcpCounters,
    /// Requests handed to the handler pool.
    pub deferred: Counter,
    /// Requests that the handler pool has answered.
    pub deferred_done: Counter,
    /// Peers in the egress table: the egress is known or asked for.
    pub peers: Counter,
    /// Replies to peers for which there was no room in the egress table.
    pub peers_overflow: Counter,
}

impl ServeCounters {
    /// Counters for a service with `entries` entries.
    #[must_use]
    pub fn for_entries(entries: usize) -> Self {
        let claims = (0..entries).map(|_| ClaimCounters::default()).collect();
        Self { claims, ..Self::default() }
    }

    /// Counts a request of entry `entry` that came by the fast path.
    #[inline]
    pub(crate) fn came_fast(&self, entry: usize) {
        self.fast_requests.add(1);
        if let Some(claim) = self.claims.get(entry) {
            claim.fast.add(1);
        }
    }

    /// Counts a request of entry `entry` that came through the kernel's socket.
    #[inline]
    pub(crate) fn came_by_kernel(&self, entry: usize) {
        self.kernel_requests.add(1);
        if let Some(claim) = self.claims.get(entry) {
            claim.kernel.add(1);
        }
    }
}
