//! The counters of a service's TCP connections on one worker.

use crate::{Computed, Counter, counters};

counters! {
    /// Counters of one worker's TCP connections; written by the worker, read by control.
    pub struct TcpCounters {
        /// What a service's connections have counted, in a report.
        #[derive(Copy, PartialEq, Eq)]
        TcpCounts {
            /// TCP connections open.
            connections: Counter => gauge("twinpath_service_connections");
            /// TCP connections accepted.
            accepted: Counter => counter("twinpath_service_connections_accepted");
            /// Bytes that TCP connections hold: parts of requests, and replies not read.
            queued_bytes: Counter => gauge("twinpath_service_queued_bytes");
            /// Bytes received on TCP connections.
            stream_bytes_in: Counter => counter("twinpath_service_stream_bytes_received");
            /// Bytes sent on TCP connections.
            stream_bytes_out: Counter => counter("twinpath_service_stream_bytes_sent");
            /// Times that a connection waited for room among the threads that may block.
            deferred_waits: Counter => counter("twinpath_service_deferred_waits");
        }
    } and {}
}

counters! {
    /// Counters of one worker's TCP engine for a service; written by the worker, read by control.
    pub struct FastTcpCounters {
        /// What a service's TCP engines have counted, in a report.
        #[derive(Copy, PartialEq, Eq)]
        FastTcpCounts {
            /// TCP connections open on the fast path.
            fast_connections: Computed => gauge("twinpath_service_fast_connections");
            /// TCP connections accepted on the fast path.
            fast_accepted: Computed => counter("twinpath_service_fast_connections_accepted");
            /// TCP connections whose handshake is under way on the fast path.
            fast_half_open: Counter => gauge("twinpath_service_fast_half_open");
            /// TCP connections of the fast path in TIME_WAIT.
            fast_time_wait: Counter => gauge("twinpath_service_fast_time_wait");
            /// TCP segments received on the fast path.
            fast_segments_in: Counter => counter("twinpath_service_fast_segments_received");
            /// TCP segments sent on the fast path.
            fast_segments_out: Counter => counter("twinpath_service_fast_segments_sent");
            /// TCP segments sent again on the fast path.
            fast_retransmitted: Counter => counter("twinpath_service_fast_segments_retransmitted");
            /// TCP connections of the fast path that either end has reset.
            fast_resets: Counter => counter("twinpath_service_fast_connections_reset");
            /// Requests for a TCP connection that were left to the kernel although they had been taken: the next hop is
            /// not one of the fast path, or a table was full.
            fast_declined: Counter => counter("twinpath_service_fast_connections_declined");
            /// Handshakes that a drain has given up, as their peers had not completed them within a second.
            fast_given_up: Counter => counter("twinpath_service_fast_handshakes_given_up");
            /// Messages of routers that a segment of the fast path was too long, by which its connection shortened the
            /// next ones.
            fast_path_told: Counter => counter("twinpath_service_fast_path_told");
            /// Such messages that quote no segment in flight, and were ignored.
            fast_path_forged: Counter => counter("twinpath_service_fast_path_forged");
            /// TCP connections that went on in sockets of the kernel when the fast path ended.
            fast_moved: Counter => counter("twinpath_service_fast_connections_moved");
            /// TCP connections that could not go on in a socket of the kernel, and were reset.
            fast_not_moved: Counter => counter("twinpath_service_fast_connections_not_moved");
            /// Open TCP connections that wait for an address or a route, which have gone with the interface.
            fast_kept: Counter => gauge("twinpath_service_fast_connections_kept");
            /// Open TCP connections that have moved to sockets of the kernel.
            fast_in_kernel: Counter => gauge("twinpath_service_fast_connections_in_kernel");
        }
    } and {}
}
