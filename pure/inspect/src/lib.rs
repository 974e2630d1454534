//! Live state: counters and histograms that one thread writes and any thread reads, and the closed lists of reasons
//! for drops and losses.
//!
//! A worker adds to its own counters with a plain load and store; the control thread reads them on demand. Nothing
//! here locks, and a reader costs the writer one cache miss at most.

mod control_reason;
mod counter;
mod histogram;
mod reason;

pub use control_reason::ControlReason;
pub use counter::Counter;
pub use histogram::{Histogram, Times};
pub use reason::{Drops, Reason};
