//! The counters of a service's TCP connections on one worker.

use twinpath_inspect::Counter;

/// Counters of one worker's TCP connections; written by the worker, read by control.
#[derive(Debug, Default)]
pub struct TcpCounters {
    /// Connections open now.
    pub connections: Counter,
    /// Connections accepted so far.
    pub accepted: Counter,
    /// Bytes received.
    pub bytes_in: Counter,
    /// Bytes sent.
    pub bytes_out: Counter,
    /// Bytes that connections hold: parts of requests, and replies that their peers have not taken yet.
    pub queued_bytes: Counter,
    /// How often a connection waited for room in the handler pool.
    pub deferred_waits: Counter,
}
