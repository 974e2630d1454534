//! What serving counts, beyond the worker's own counters.

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
    /// What it dropped, where its worker has other services as well; else the worker's own counters have it.
    pub drops: Drops,
    /// Datagrams, or whole frames, served that came on the fast path.
    pub fast_requests: Counter,
    /// Replies that left on the fast path.
    pub fast_replies: Counter,
    /// Fast-path requests whose reply left through the kernel's socket: its way out was not known, or too small.
    pub fast_replies_by_kernel: Counter,
    /// Datagrams served that came through the kernel's socket.
    pub kernel_requests: Counter,
    /// Replies that left through the kernel's socket, to whichever request.
    pub kernel_replies: Counter,
    /// Datagrams accepted although their sender had left the checksum to hardware.
    pub partial_checksums: Counter,
    /// Of TCP connections.
    pub tcp: TcpCounters,
    /// Requests that threads which may block work on, or will.
    pub deferred: Counter,
    /// Requests so answered.
    pub deferred_done: Counter,
    /// Peers whose way out is known or asked for.
    pub peers: Counter,
    /// Replies to peers for which there was no room in the egress table.
    pub peers_overflow: Counter,
}

impl ServeCounters {
    /// Counters for so many entries.
    #[must_use]
    pub fn for_entries(entries: usize) -> Self {
        let claims = (0..entries).map(|_| ClaimCounters::default()).collect();
        Self { claims, ..Self::default() }
    }

    /// A request of that entry came on the fast path.
    #[inline]
    pub(crate) fn came_fast(&self, entry: usize) {
        self.fast_requests.add(1);
        if let Some(claim) = self.claims.get(entry) {
            claim.fast.add(1);
        }
    }

    /// A request of that entry came through the kernel's socket.
    #[inline]
    pub(crate) fn came_by_kernel(&self, entry: usize) {
        self.kernel_requests.add(1);
        if let Some(claim) = self.claims.get(entry) {
            claim.kernel.add(1);
        }
    }
}
