//! Live state: counters and histograms that one thread writes and any thread reads, and the closed lists of reasons
//! for drops and losses. A counter is declared once, together with its place in reports and metrics: [`counters`].
//!
//! The sets of counters of a service and of a switch are declared here, because this crate is below both and below
//! the report that contains them.
//!
//! A worker adds to its own counters with a plain load and store; the control thread reads them on demand. Nothing
//! here locks, and a reader costs the writer at most one cache miss.

// So that the macro's path also resolves within this crate.
extern crate self as twinpath_inspect;

mod control_reason;
mod counter;
mod declared;
mod histogram;
mod own_metrics;
mod procedure;
mod reason;
mod service;
mod serving;
mod switching;
mod tcp;

pub use control_reason::ControlReason;
pub use counter::Counter;
pub use declared::{Column, Computed, Counts, Declared, Live, Metric, MetricKind, Read, Reading};
pub use histogram::{Histogram, Times};
pub use own_metrics::{CounterId, HistogramId, MetricName, OwnMetrics, ProcedureId, ReasonId};
pub use procedure::{ProcedureCounters, ProcedureCounts, ProcedureName};
pub use reason::{Drops, Reason};
pub use service::{RequestCounts, ServiceCounters, SessionCounts};
pub use serving::{ClaimCounters, ClaimCounts, ServeCounters, ServeCounts};
pub use switching::{SwitchCounters, SwitchCounts};
pub use tcp::{FastTcpCounters, FastTcpCounts, TcpCounters, TcpCounts};

#[doc(hidden)]
pub use serde;
