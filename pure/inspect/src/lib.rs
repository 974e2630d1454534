//! Live state: counters and histograms that one thread writes and any may read, and the closed list of reasons for a drop.
//!
//! A worker owns its counters and adds to them with a plain load and store; the control thread reads them whenever
//! somebody asks. Nothing here locks, and a reader never slows the writer down beyond one cache miss.

mod counter;
mod histogram;
mod reason;

pub use counter::Counter;
pub use histogram::{Histogram, Times};
pub use reason::{Drops, Reason};
