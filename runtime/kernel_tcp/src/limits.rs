//! Limits of a service's TCP connections, and what all of its connections hold at present.

use std::sync::atomic::{AtomicU64, Ordering};

use twinpath_stream::ConnectionLimits;
use twinpath_time::Duration;

use crate::sources::{Source, SourceCounts};

/// The size of a read, and the least that a connection may hold in each direction, in bytes.
pub const CHUNK: usize = 64 * 1024;

/// Limits of a service's TCP connections. [`Duration::MAX`] means no time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Connections at a time. Each worker may have an equal part of them. If a worker has its part, it closes
    /// its longest idle connection, of the source that has most there, for a new one. If none is idle it
    /// refuses the new one.
    pub connections: u32,
    /// Connections at a time of one source (an IPv4 address, or a /64 of IPv6), over all workers. Further ones
    /// are refused.
    pub connections_per_source: u32,
    /// Bytes that one connection may hold in each direction: of an incomplete request, and of replies that its
    /// peer has not taken. At least [`CHUNK`].
    pub connection_bytes: u32,
    /// Bytes that all connections of the service may hold together. Above that, the connection whose bytes have
    /// waited longest is closed.
    pub queued_bytes: u64,
    /// How long a connection may be idle: nothing sent, nothing received, no request under way.
    pub idle: Duration,
    /// How long a request may take from its first byte to its last.
    pub request: Duration,
    /// How long replies may wait while the peer takes nothing of them.
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

/// The connections and bytes that all workers of a service hold together, with their limits. Workers update it
/// when a connection opens, closes, or holds more or fewer bytes than before; a request that is answered at
/// once needs no update.
#[derive(Debug)]
pub struct TcpTotals {
    limits: TcpLimits,
    each: ConnectionLimits,
    /// Above this number of held bytes a connection is closed. It is lower than the limit by the number of
    /// bytes that one connection of each worker may add before they are counted, so that the limit holds at all
    /// times.
    shed_above: u64,
    sources: SourceCounts,
    bytes: AtomicU64,
}

impl TcpTotals {
    /// Totals for `workers` workers. `queued_bytes` is raised to the least that they need to work, if it is
    /// less.
    #[must_use]
    pub fn new(limits: TcpLimits, workers: u32) -> Self {
        let TcpLimits { connection_bytes, idle, request, send, .. } = limits;
        let each = ConnectionLimits { bytes: connection_bytes as usize, idle, request, send };
        let both_directions = 2 * u64::from(connection_bytes);
        let shed_above = limits.queued_bytes.saturating_sub(both_directions * u64::from(workers));
        let sources = SourceCounts::new(limits.connections);
        Self { limits, each, shed_above, sources, bytes: AtomicU64::new(0) }
    }

    /// The limits of all connections.
    #[inline]
    #[must_use]
    pub const fn limits(&self) -> &TcpLimits {
        &self.limits
    }

    /// The limits of one connection.
    #[inline]
    pub(crate) const fn each(&self) -> &ConnectionLimits {
        &self.each
    }

    /// The bytes held at present.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts a connection, unless its source has as many as it may have. Returns whether it was counted.
    pub(crate) fn opened(&self, source: Source) -> bool {
        self.sources.opened(source, self.limits.connections_per_source)
    }

    /// Counts a connection that is open already; it may exceed the limit of its source.
    pub(crate) fn adopted(&self, source: Source) {
        self.sources.opened(source, u32::MAX);
    }

    pub(crate) fn closed(&self, source: Source) {
        self.sources.closed(source);
    }

    /// Counts that a connection holds `now` bytes instead of `before`. Returns whether too many bytes are held
    /// in all.
    pub(crate) fn holds(&self, before: usize, now: usize) -> bool {
        let added = (now as u64).wrapping_sub(before as u64);
        self.bytes.fetch_add(added, Ordering::Relaxed).wrapping_add(added) > self.shed_above
    }
}
