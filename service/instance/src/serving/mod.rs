//! The workers of an instance: their services, the stand-in for a stuck worker, captures of their frames, and
//! their part of the report.

mod connections;
mod kept;
mod own;
mod reflexes;
mod service;
mod stand_in;
mod worker;

pub(crate) use connections::Connections;
pub use kept::{KeptPart, KeptStore};
pub use own::{own_metrics, own_procedures};
pub use reflexes::{KeptEntries, ServedReflexes};
pub use service::{ForWorkers, NewService, ServiceHandle, cpu_of, limits_for};
pub use stand_in::StandIn;
pub use worker::WorkerHandle;
