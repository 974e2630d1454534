//! Metrics of a program with workers; without the feature `metrics`, they cannot be offered.

#[cfg(feature = "metrics")]
pub use twinpath_observe::metrics::{Counters, MetricsError, Offered, Server, serve_where_offered};

#[cfg(not(feature = "metrics"))]
pub use crate::no_metrics::{Counters, MetricsError, Offered, Server, serve_where_offered};
