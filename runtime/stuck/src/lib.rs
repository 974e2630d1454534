//! Finds workers, and whole processes, that leave what waits in their sockets. No timer runs while nothing waits there.

mod process;
mod sockets;
mod waiting;

pub use process::{First, FirstWatch};
pub use sockets::{Found, Unserved, Watched};
