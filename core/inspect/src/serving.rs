//! The counters of serving, beside the worker's own counters.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::{Computed, Counter, Drops, FastTcpCounters, TcpCounters, counters};

counters! {
    /// Counters of one entry of what a service is served by.
    pub struct ClaimCounters {
        /// What an entry has counted, in a report.
        #[derive(Copy, PartialEq, Eq)]
        ClaimCounts {
            /// Requests for this claim that came on the fast path.
            fast_requests: Counter;
            /// Requests for this claim that came through the kernel's UDP sockets.
            kernel_requests: Counter;
            /// Replies by the kernel's programs, without a worker.
            reflex_replies: Computed => counter("twinpath_claim_reflex_replies");
        }
    } and {}
}

counters! {
    /// Counters of one serving engine; written by its worker, read by control.
    pub struct ServeCounters {
        /// What a service's engines have counted, in a report.
        #[derive(Copy, PartialEq, Eq)]
        ServeCounts {
            /// Requests served that came on the fast path: datagrams, or whole frames.
            fast_requests: Counter => counter("twinpath_service_requests"), about(REQUESTS), label("path", "fast");
            /// Requests served that came through the kernel's sockets.
            kernel_requests: Counter => counter("twinpath_service_requests"), about(REQUESTS), label("path", "kernel");
            /// Replies that left on the fast path.
            fast_replies: Counter => counter("twinpath_service_replies"), about(REPLIES), label("path", "fast");
            /// Replies sent through the kernel's sockets, to requests of both paths.
            kernel_replies: Counter => counter("twinpath_service_replies"), about(REPLIES), label("path", "kernel");
            /// Fast-path requests answered through the kernel, because the next hop was not known or the MTU too small.
            fast_replies_by_kernel: Counter => counter("twinpath_service_fast_requests_answered_by_kernel");
            /// Requests that threads which may block handle, or will handle.
            deferred: Counter => gauge("twinpath_service_deferred");
            /// Requests answered by such threads.
            deferred_done: Counter => counter("twinpath_service_deferred_done");
            /// Such threads.
            deferred_threads: Computed => gauge("twinpath_service_deferred_threads");
            /// Peers whose next hop is known or asked for.
            peers: Counter => gauge("twinpath_service_peers");
        }
    } and {
        /// One per entry served.
        pub claims: Box<[ClaimCounters]>,
        /// Dropped frames and requests, if the worker has several services; otherwise they are in the worker's
        /// counters.
        pub drops: Drops,
        /// Datagrams accepted although their sender had left the checksum to hardware.
        pub partial_checksums: Counter,
        /// Whether a callback of the service has been called and has not returned.
        pub called: Arc<AtomicBool>,
        /// The counters of TCP connections over the kernel's sockets.
        pub tcp: TcpCounters,
        /// The counters of TCP connections on the fast path.
        pub fast_connections: TcpCounters,
        /// The counters of the TCP engine of the fast path.
        pub fast_tcp: FastTcpCounters,
        /// Replies to peers for which there was no room in the egress table.
        pub peers_overflow: Counter,
    }
}

const REQUESTS: &str = "Requests served, by their path.";
const REPLIES: &str = "Replies sent, by their path.";

impl ServeCounters {
    /// Counters for a service with `entries` entries.
    #[must_use]
    pub fn for_entries(entries: usize) -> Self {
        let claims = (0..entries).map(|_| ClaimCounters::default()).collect();
        Self { claims, ..Self::default() }
    }

    /// Counts a request of entry `entry` that came by the fast path.
    #[inline]
    pub fn came_fast(&self, entry: usize) {
        self.fast_requests.add(1);
        if let Some(claim) = self.claims.get(entry) {
            claim.fast_requests.add(1);
        }
    }

    /// Counts a request of entry `entry` that came through the kernel's socket.
    #[inline]
    pub fn came_by_kernel(&self, entry: usize) {
        self.kernel_requests.add(1);
        if let Some(claim) = self.claims.get(entry) {
            claim.kernel_requests.add(1);
        }
    }
}
