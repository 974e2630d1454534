//! The host of workers with any engine: their handles, the commands that wait for them, and the control loop of
//! every program with workers.

pub mod aside;
#[cfg(feature = "capture")]
mod captures;
mod control;
mod door;
pub mod machine;
pub mod metrics;
#[cfg(not(feature = "capture"))]
mod no_captures;
#[cfg(not(feature = "metrics"))]
mod no_metrics;
pub mod notify;
mod outbox;
mod readable;
pub mod sandbox;
mod signals;
mod stuck;
mod watchdog;
mod worker;

#[cfg(feature = "capture")]
pub use captures::Captures;
pub use control::{
    Addresses, Controlled, MESSAGES_MAX, Offers, Ready, flush, report_process, run, run_to_end, to_end,
};
pub use door::{Door, DoorError};
#[cfg(not(feature = "capture"))]
pub use no_captures::Captures;
pub use outbox::RETRY_INTERVAL;
pub use readable::{Awaited, readable_copy, until, until_readable};
pub use signals::{Ended, Heard, Remote, Signals};
pub use stuck::StuckChange;
pub use worker::{KnownQueue, StartError, Supervised, WorkerHandle, WorkerPlan, rows, stop_all};
