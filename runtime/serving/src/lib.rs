//! The workers of an instance: their services, the stand-in for a stuck worker, captures of their frames, and
//! their part of the report.

mod own;
mod service;
mod stand_in;
mod worker;

pub use own::own_metrics;
pub use service::{ForWorkers, NewService, ServiceHandle, cpu_of, limits_for};
pub use stand_in::StandIn;
pub use worker::{Stuck, WorkerHandle};
