//! Measures and judges the cost of attaching for the kernel's own traffic.
//!
//! A measurement on a user's link is not possible: no peer there would take part, and nothing may be sent
//! there. So two things are measured that need neither. The first is the run time of the programs on a
//! frame that stays with the kernel, from the kernel's test runs with the present claims. It is valid for
//! any device, because the programs and the CPU are the same. The second is the performance of kernel
//! sockets on a scratch link, a veth pair between two anonymous namespaces, without and with the same
//! programs, claims and sockets attached. It includes effects that a test run cannot show (packet sockets,
//! lost offloads). Neither includes the driver of a real NIC, or its caches under load: docs/paths.md says
//! what remains open.
//!
//! [`loss`] (from samples to a loss, with its interval) and [`traffic`] (frames and claims for test runs)
//! are pure; `scratch` and `measure` do the work. An instance is given [`measure_for_instance`], and
//! chooses a path by its result.

pub mod loss;
mod measure;
mod scratch;
pub mod traffic;

pub use measure::{
    FallbackError, FrameCost, Measured, Question, measure, measure_for_instance, test_runs,
    test_runs_with_connections,
};
pub use twinpath_bpf::ProgramCost;
