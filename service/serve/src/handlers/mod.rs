//! A service's handlers as a worker calls them: a panic in a callback is caught, and work that may block is done by a pool
//! of threads beside the worker. Messages of other threads to the service wait here, too.

mod guarded;
mod pool;
mod sends;

pub use guarded::{Guarded, Panicked};
pub use pool::{Done, HandlerPool, Requester};
pub use sends::Sends;
