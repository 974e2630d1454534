//! The workers of an instance: their services, the stand-in for one that is stuck, captures of their frames, and what is reported of
//! them.

mod captures;
mod service;
mod stand_in;
mod worker;

pub use captures::Captures;
pub use service::{ForWorkers, NewService, ServiceHandle, cpu_of, limits_for};
pub use stand_in::StandIn;
pub use worker::{Stuck, WorkerHandle};
