//! The counters of a service's TCP connections on one worker.

use crate::{Counter, counters};

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
