//! Workers: one thread, its ports, one engine, and the policy that decides when it may sleep.
//!
//! A [`Worker`] runs turns: it reads the clock once, takes a burst from each port, lets the engine work, reads its
//! mailbox, and flushes the ports ([`Worker::turn`]). Between turns the idle policy ([`idle`]) decides whether to
//! turn again or to sleep; only [`crate::thread::sleep`] sleeps. [`place`] gives a worker a thread of its own. A
//! turn does not need one, so an application's loop can drive a worker as well.
//!
//! A worker never blocks, locks, allocates or logs while packets flow. Commands from control arrive through a
//! bounded mailbox ([`mailbox`]). Work that the worker must not do itself (closing a device) goes back to control
//! the same way.

pub mod costs;
mod counters;
mod engine;
mod fds;
mod hosted;
pub mod idle;
mod message;
pub mod peers;
pub mod place;
mod ports;
mod tap;
pub mod thread;
mod turn;
mod wake;

pub use crate::thread::mailbox;
pub use counters::{GuardCounts, IdleCounts, WorkerCounters, WorkerCounts};
pub use engine::{Engine, Io, PARTS_MAX, part_of};
pub use fds::Fds;
pub use hosted::{EngineCommand, Hosted};
pub use message::{Command, Event};
pub use ports::Attached;
pub use tap::{CopiesError, CopyConsumer, CopyProducer, TAPS_MAX, Tap, TapCounters, copies, tag};
pub use turn::{ENGINE_RESERVE, EVENTS_RESERVE, Remains, Worker, WorkerConfig};
