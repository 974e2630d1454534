//! What a service's connections may take, each and together.

use std::sync::atomic::{AtomicU64, Ordering};

use twinpath_stream::Limits;
use twinpath_time::Duration;

use crate::sources::{Source, SourceCounts};

/// Bytes read at once, and the least that a connection may hold each way.
pub const CHUNK: usize = 64 * 1024;

/// Bounds of a service's TCP connections. A time of [`Duration::MAX`] is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Connections at a time, of all workers, which have equal parts of it. For one more, the worker that it comes to closes the idlest of
    /// its own, of the source that has most there; it is refused if none of them is idle.
    pub connections: u32,
    /// Those of one source, at all workers together: an IPv4 address, or 64 bits of an IPv6 address. One more is refused.
    pub connections_per_source: u32,
    /// Bytes that one connection may hold: of a request that is not complete, and as many of replies that its peer has not
    /// taken. At least [`CHUNK`].
    pub connection_bytes: u32,
    /// Bytes that all connections of the service hold together. At the limit, the one whose bytes have moved least lately is
    /// closed.
    pub queued_bytes: u64,
    /// Without a byte either way, and nothing asked.
    pub idle: Duration,
    /// From the first byte of a request to its last.
    pub request: Duration,
    /// With replies waiting of which the peer takes nothing.
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

/// What the connections of all of a service's workers take together: touched when one opens, closes, or holds more or fewer
/// bytes, and never while requests are answered as they come.
#[derive(Debug)]
pub struct Share {
    limits: TcpLimits,
    each: Limits,
    /// Held bytes above which one is shed. Below the limit by what one connection of each worker may add before it is looked at,
    /// so that the limit holds at every instant.
    shed_above: u64,
    sources: SourceCounts,
    bytes: AtomicU64,
}

impl Share {
    /// For so many workers. If `queued_bytes` is too small for that many, it is taken as what they need to work at all.
    #[must_use]
    pub fn new(limits: TcpLimits, workers: u32) -> Self {
        let TcpLimits { connection_bytes, idle, request, send, .. } = limits;
        let each = Limits { bytes: connection_bytes as usize, idle, request, send };
        let both_directions = 2 * u64::from(connection_bytes);
        let shed_above = limits.queued_bytes.saturating_sub(both_directions * u64::from(workers));
        let sources = SourceCounts::new(limits.connections);
        Self { limits, each, shed_above, sources, bytes: AtomicU64::new(0) }
    }

    /// The limits.
    #[inline]
    #[must_use]
    pub const fn limits(&self) -> &TcpLimits {
        &self.limits
    }

    /// Those of one connection.
    #[inline]
    pub(crate) const fn each(&self) -> &Limits {
        &self.each
    }

    /// Bytes held now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts a connection unless its source has as many as it may; says whether it did.
    pub(crate) fn opened(&self, source: Source) -> bool {
        self.sources.opened(source, self.limits.connections_per_source)
    }

    /// Counts a connection that was there before these limits.
    pub(crate) fn adopted(&self, source: Source) {
        self.sources.opened(source, u32::MAX);
    }

    pub(crate) fn closed(&self, source: Source) {
        self.sources.closed(source);
    }

    /// A connection holds `now` bytes where it held `before`; says whether too many are held.
    pub(crate) fn holds(&self, before: usize, now: usize) -> bool {
        let added = (now as u64).wrapping_sub(before as u64);
        self.bytes.fetch_add(added, Ordering::Relaxed).wrapping_add(added) > self.shed_above
    }
}
