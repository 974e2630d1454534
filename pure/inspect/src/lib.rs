//! Live state: counters and histograms that one thread writes and any thread reads, and the closed list of reasons
//! for a drop.
//!
//! A worker adds to its own counters with a plain load and store; the control thread reads them on demand. Nothing
//! here locks, and a reader costs the writer one cache miss at most.

mod counter;
mod histogram;
mod reason;

pub use counter::Counter;
pub use histogram::{Histogram, Times};
pub use reason::{Drops, Reason};
