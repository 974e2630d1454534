//! The interface between a worker and a service's handlers: catches panics in callbacks, runs work that may
//! block on a pool of threads, and queues messages from other threads.

mod guarded;
mod pool;
mod sends;

pub use guarded::{Guarded, Panicked};
pub use pool::{Done, HandlerPool, Requester};
pub use sends::Sends;
