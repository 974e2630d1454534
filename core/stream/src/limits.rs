//! Limits of a service's stream connections.

use twinpath_time::Duration;

/// Limits of a service's TCP connections. [`Duration::MAX`] means no time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Maximum number of connections. Each worker may have an equal part of them. A worker that has its part closes
    /// a connection to make room for a new one: the longest idle one of the source with the most connections there.
    /// If none is idle, it refuses the new one.
    pub connections: u32,
    /// Maximum number of connections from one source (an IPv4 address, or a /64 of IPv6), over all workers. Further
    /// ones are refused.
    pub connections_per_source: u32,
    /// Bytes that one connection may hold in each direction: of an incomplete request, and of replies that its
    /// peer has not taken. At least 64 KiB, which is the size of a read.
    pub connection_bytes: u32,
    /// Bytes that all connections of the service may hold together. Above that, the connection whose bytes have
    /// waited longest is closed.
    pub queued_bytes: u64,
    /// How long a connection may be idle: nothing sent, nothing received, no request under way.
    pub idle: Duration,
    /// How long a request may take from its first byte to its last.
    pub request: Duration,
    /// How long replies may wait while the peer reads none of them.
    pub send: Duration,
}

impl Default for TcpLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_source: 256,
            connection_bytes: 256 << 10,
            queued_bytes: 64 << 20,
            idle: Duration::from_secs(600),
            request: Duration::from_secs(30),
            send: Duration::from_secs(60),
        }
    }
}
