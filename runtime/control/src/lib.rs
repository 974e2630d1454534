//! Control of an instance: services on one interface, from start to stop.
//!
//! It runs on a thread of its own (tokio, current thread). It never touches a frame: workers get values and updates, control gets copies of
//! counters.

pub mod instance;
