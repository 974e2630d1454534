//! What serving counts, beyond the worker's own counters.

use twinpath_inspect::Counter;

/// Counters of one serving engine; written by its worker, read by control.
#[derive(Debug, Default)]
pub struct ServeCounters {
    /// Datagrams served that came on the fast path.
    pub fast_requests: Counter,
    /// Replies that left on the fast path.
    pub fast_replies: Counter,
    /// Fast-path requests whose reply left through the kernel's socket: its way out was not known, or too small.
    pub fast_replies_by_kernel: Counter,
    /// Frames of a claimed EtherType served.
    pub frame_requests: Counter,
    /// Answers to them sent.
    pub frame_replies: Counter,
    /// Datagrams served that came through the kernel's socket.
    pub kernel_requests: Counter,
    /// Replies that left through the kernel's socket, to whichever request.
    pub kernel_replies: Counter,
    /// Datagrams accepted although their sender had left the checksum to hardware.
    pub partial_checksums: Counter,
    /// TCP connections open now.
    pub connections: Counter,
    /// TCP connections accepted so far.
    pub accepted: Counter,
    /// Bytes received on TCP connections.
    pub stream_bytes_in: Counter,
    /// Bytes sent on TCP connections.
    pub stream_bytes_out: Counter,
    /// Peers whose way out is known or asked for.
    pub peers: Counter,
    /// Replies to peers for which there was no room in the egress table.
    pub peers_overflow: Counter,
}
