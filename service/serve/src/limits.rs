//! The limits on a service's use by peers, for one worker.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use twinpath_udp::admit::SourcePorts;
use twinpath_udp::reply_limit::ReplyLimit;

use crate::streams::TcpTotals;

/// Limits on the resources that all peers of an engine may use. The engine gets them when it is made, and
/// may get new ones while it serves.
pub struct ServiceLimits {
    /// The connections and bytes over all workers, with their limits.
    pub(crate) totals: Arc<TcpTotals>,
    /// The same, for the connections of the fast path.
    pub(crate) fast_totals: Arc<TcpTotals>,
    /// TCP connections that this worker may have at a time.
    pub(crate) connections: u32,
    pub(crate) reply_limit: Option<ReplyLimit>,
    pub(crate) source_ports: SourcePorts,
}

impl ServiceLimits {
    /// The limits for one worker: its part of the `connections`, and the maximum number of replies per
    /// second to one source that are as large as their requests (0: no limit). The rate does not apply to a
    /// service whose replies cannot loop ([`Service::may_loop`](twinpath_service::Service::may_loop)). Such
    /// a service answers every source port, and so does one with `any_source_port`.
    #[must_use]
    pub fn new(
        may_loop: bool,
        totals: Arc<TcpTotals>,
        connections: u32,
        reply_rate: u32,
        any_source_port: bool,
    ) -> Self {
        let limited = reply_rate > 0 && may_loop;
        let reply_limit = limited.then(|| ReplyLimit::new(reply_rate, unforeseeable()));
        let source_ports = SourcePorts::of(may_loop, any_source_port);
        Self { fast_totals: Arc::clone(&totals), totals, connections, reply_limit, source_ports }
    }
}

/// A number that no peer can predict, from the random keys of the standard library.
pub(crate) fn unforeseeable() -> u64 {
    RandomState::new().build_hasher().finish()
}
