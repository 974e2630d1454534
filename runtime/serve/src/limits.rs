//! What peers may take of a service on one worker.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use twinpath_kernel_tcp::Share;
use twinpath_stack::reply_limit::ReplyLimit;

/// Bounds of what peers may take of an engine, as a whole: given to it when it is made, or in place of its former ones.
pub struct Limits {
    /// Of TCP connections, with those of the other workers.
    pub(crate) share: Arc<Share>,
    /// How many connections there may be at a time.
    pub(crate) connections: u32,
    pub(crate) reply_limit: Option<ReplyLimit>,
}

impl Limits {
    /// For one worker's engine of a service: its part of the `connections`, and replies per second to one source that are as large as
    /// their requests; 0: no limit. That does not hold for a service whose replies cannot loop
    /// ([`Service::may_loop`](twinpath_service::Service::may_loop)).
    #[must_use]
    pub fn new(may_loop: bool, share: Arc<Share>, connections: u32, reply_rate: u32) -> Self {
        let limited = reply_rate > 0 && may_loop;
        let reply_limit = limited.then(|| ReplyLimit::new(reply_rate, unforeseeable()));
        Self { share, connections, reply_limit }
    }
}

/// A number that nobody outside can know: from the keys that the standard library gets from the system.
fn unforeseeable() -> u64 {
    RandomState::new().build_hasher().finish()
}
