//! Limits of a service's TCP connections, and the totals that its connections hold at present.

use std::sync::atomic::{AtomicU64, Ordering};

use twinpath_service::connections::ConnectionLimits;
use twinpath_stream::TcpLimits;

use crate::streams::sources::{Source, SourceCounts};

/// The size of a read, and the minimum that a connection may hold in each direction, in bytes.
pub const CHUNK: usize = 64 * 1024;

/// The connections and bytes that all workers of a service hold together, with their limits. Workers update
/// the totals when a connection opens, closes, or holds more or fewer bytes than before. A request that is
/// answered immediately needs no update.
#[derive(Debug)]
pub struct TcpTotals {
    limits: TcpLimits,
    each: ConnectionLimits,
    /// Above this number of held bytes a connection is closed. It is lower than the limit by the bytes that
    /// one connection of each worker may add before they are counted, so the limit holds at all times.
    shed_above: u64,
    sources: SourceCounts,
    bytes: AtomicU64,
}

impl TcpTotals {
    /// Totals for `workers` workers. If `queued_bytes` is less than the minimum that they need to work, it
    /// is raised to it.
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

    /// Counts a connection, unless its source already has the maximum. Returns whether it was counted.
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
