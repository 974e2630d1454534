//! Live state: counters and histograms that one thread writes and any thread reads, and the closed lists of reasons
//! for drops and losses. A counter is declared once, with what it is in reports and metrics: [`counters`].
//!
//! The sets that a service and a switch count in are declared here, below both them and the report that has them.
//!
//! A worker adds to its own counters with a plain load and store; the control thread reads them on demand. Nothing
//! here locks, and a reader costs the writer one cache miss at most.

// Where `counters` is used, and in this crate, the same path leads here.
extern crate self as twinpath_inspect;

mod control_reason;
mod counter;
mod declared;
mod histogram;
mod own_metrics;
mod reason;
mod service;
mod serving;
mod switching;
mod tcp;

pub use control_reason::ControlReason;
pub use counter::Counter;
pub use declared::{Column, Computed, Counts, Declared, Live, Metric, MetricKind, Read, Reading};
pub use histogram::{Histogram, Times};
pub use own_metrics::{CounterId, HistogramId, MetricName, OwnMetrics, ReasonId};
pub use reason::{Drops, Reason};
pub use service::{RequestCounts, ServiceCounters, SessionCounts};
pub use serving::{ClaimCounters, ClaimCounts, ServeCounters, ServeCounts};
pub use switching::{SwitchCounters, SwitchCounts};
pub use tcp::{TcpCounters, TcpCounts};

#[doc(hidden)]
pub use serde;
