//! Control: everything that is slow, or asks the kernel, so that workers need not.
//!
//! Configuration, the mirror of the kernel's tables, the choice of a path per interface, the command socket and what
//! `show` says. It runs on a thread of its own (tokio, current thread). It never touches a frame: workers get values
//! and updates, control gets copies of counters.

pub mod bridge;
pub mod fallback;
pub mod instance;
mod notify;
mod outbox;
mod readable;
mod signals;
