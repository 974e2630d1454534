//! The idle policy of a worker: it decides when to spin, when to sleep, when to wake ahead of an arrival, and when to
//! hold a CPU latency request. It learns from the gaps between arrivals and from the latency of wake-ups on the
//! machine.
//!
//! [`Policy`] is a value: the caller passes in events and the time. It never reads a clock, never sleeps, and never
//! allocates after its creation. [`replay`] compares it with fixed settings and an oracle on traces generated from
//! seeds.

mod answering;
mod beliefs;
mod config;
mod contention;
mod costs;
mod density;
mod during_wakeup;
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

pub use answering::{Answering, Tried, Word};
pub use config::Config;
pub use contention::Contention;
pub use costs::{SPIN_MAX, SPIN_MAX_WAKES};
pub use event::{Arrival, Decision, Woken};
pub use expert::Expert;
pub use explain::{Counts, Explanation, Summary};
pub use goal::Goal;
pub use machine::Machine;
pub use plan::{IdlePlan, Window};
pub use policy::Policy;
