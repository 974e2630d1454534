//! What a worker's thread may take of its CPU, and what a panic on it means.
//!
//! A thread asks for a [`priority`] and makes CPU latency requests ([`request`]). Two budgets bound how long it is awake:
//! [`guard`] where it shares its CPU and could keep others off it, and [`spin_limit`] wherever no packets come. A
//! thread that dies would leave claims that nobody serves, so a panic ends the process ([`panics`]).
//!
//! It sleeps in one place ([`sleep`]), on all of its descriptors and a timer.
//!
//! The budgets are values without a clock or a descriptor. The worker (`core/worker`) obeys them. Threads talk through
//! bounded mailboxes ([`mailbox`]).

pub mod guard;
pub mod mailbox;
pub mod panics;
mod pool_limits;
pub mod priority;
pub mod request;
pub mod sleep;
pub mod spin_limit;

pub use pool_limits::PoolLimits;
