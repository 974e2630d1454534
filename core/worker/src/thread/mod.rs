//! Limits on a worker's thread: how much of its CPU it may take, and what happens on a panic.
//!
//! A thread asks for a [`priority`] and makes CPU latency requests ([`request`]). Two budgets bound how long it is
//! awake: [`guard`] if it shares its CPU and could keep others off it, and [`spin_limit`] if no packets come. A
//! thread that dies would leave claims that nobody serves, so a panic ends the process ([`panics`]).
//!
//! It sleeps only in [`sleep`], on all of its descriptors and a timer.
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
