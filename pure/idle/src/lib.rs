//! The idle policy of a worker: when to spin, when to sleep, when to be woken ahead of an arrival, when to hold a CPU latency
//! request; learnt from the gaps between arrivals and from what wake-ups take on the machine.
//!
//! A value: told what happened and what time it is ([`Policy`]). It never reads a clock, never sleeps, never allocates after it was
//! made. [`replay`] holds it against fixed settings and a clairvoyant on traces made from seeds.

mod beliefs;
mod config;
mod contention;
mod costs;
mod crowd;
mod density;
mod event;
mod expert;
mod experts;
mod explain;
mod gaps;
mod goal;
mod machine;
mod pending;
mod plan;
mod policy;
pub mod replay;
mod solve;

pub use config::Config;
pub use contention::Contention;
pub use costs::{SPIN_MAX, SPIN_MAX_WAKES};
pub use event::{Arrival, Decision, Woken};
pub use expert::Expert;
pub use explain::{Counts, Explanation, Summary};
pub use goal::Goal;
pub use machine::Machine;
pub use plan::{Plan, Window};
pub use policy::Policy;
