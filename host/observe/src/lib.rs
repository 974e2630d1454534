//! The state of an instance for its users: its report, its metrics, its command socket, captures of its
//! frames, and the holders of ports.
//!
//! Everything here runs on the control thread; workers only count.

#[cfg(feature = "capture")]
pub mod capture;
pub mod command;
pub mod holders;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod report;
pub mod together;
