//! The host of workers: what control needs whichever engine they run. Handles of workers, what waits to be told to them, what control loops
//! wait for, and what all instances say of themselves.

mod control;
mod engines;
pub mod notify;
mod outbox;
mod readable;
mod signals;
mod watchdog;
mod worker;

pub use control::{ASKED_MAX, Ready, flush, hand_over, report_process, watched};
pub use engines::Hosted;
pub use outbox::{EngineCommand, RETRY_INTERVAL};
pub use readable::{any_readable, readable, readable_copy};
pub use signals::{Signalled, Signals};
pub use watchdog::Watchdog;
pub use worker::{KnownQueue, StartError, WorkerHandle, WorkerPlan, rows};
