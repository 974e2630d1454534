//! What an instance says of itself: its report, its metrics, its command socket, captures of its frames, and who holds a port.
//!
//! Everything here runs on control's thread; workers only count.

#[cfg(feature = "capture")]
pub mod capture;
pub mod command;
pub mod holders;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod report;
