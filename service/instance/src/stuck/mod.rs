//! Detects stuck workers and stuck processes by the requests that wait in their sockets. No timer runs
//! while nothing waits there.

mod process;
mod sockets;
mod waiting;

pub use process::{First, FirstWatch, ToStandby};
pub use sockets::{Unserved, WatchEvent, Watched};
