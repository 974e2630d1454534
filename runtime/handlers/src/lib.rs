//! A service's handlers as a worker calls them: a panic in a callback is caught, and work that may block is done by a pool
//! of threads beside the worker.

mod guarded;
mod pool;

pub use guarded::{Guarded, Panicked};
pub use pool::{Done, HandlerPool, PoolLimits, Requester};
