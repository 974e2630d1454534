//! Metrics in a program built without the feature `metrics`: requesting them is an error.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use twinpath_inspect::Counter;
use twinpath_observe::report::Report;
use twinpath_sys::event_loop::Latest;

/// Counts of clients, of which there are none.
#[derive(Debug, Default)]
pub struct Counters {
    /// Clients disconnected because there were too many.
    pub refused_full: Counter,
    /// Clients disconnected because they were too slow, or did not send HTTP.
    pub cut_off: Counter,
}

/// The present listener, which there never is.
pub type Offered = Latest<Option<Rc<Server>>>;

/// Metrics were requested.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot offer metrics on {0}: this program is built without them; build it with the feature `metrics` of the library"
)]
pub struct MetricsError(SocketAddr);

/// The listener, which cannot exist.
#[derive(Debug)]
pub struct Server(Infallible);

impl Server {
    /// Refuses.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn bind(address: SocketAddr) -> Result<Self, MetricsError> {
        Err(MetricsError(address))
    }

    /// Never called, as there is none.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        match self.0 {}
    }

    /// Never called, as there is none.
    #[must_use]
    pub const fn counters(&self) -> &Arc<Counters> {
        match self.0 {}
    }
}

/// Serves nobody, and runs until dropped.
pub async fn serve_where_offered<F, H>(_: Offered, _: F) -> Infallible
where
    F: Fn() -> H,
    H: Future<Output = Option<Report>>,
{
    std::future::pending().await
}
