//! What attaching costs the kernel's own traffic: measured, judged, said.
//!
//! There is no peer on a user's link that would play along, and nothing may be sent there. So two things are measured
//! that need neither: what the programs cost a frame that stays the kernel's, by the kernel's own test runs with the
//! claims in force; and what kernel sockets reach on a scratch link of our own, a veth pair between two anonymous
//! namespaces, without and with the same programs, claims and sockets attached. The second holds what a test run cannot
//! show (packet sockets, lost offloads); the first holds for any device, as the programs and the CPU are the same.
//! Neither knows the driver of a real NIC, nor its caches under load: docs/operations.md says what that leaves open.
//!
//! Pure: [`loss`] (samples to a loss, with its interval), [`traffic`] (frames and claims to run programs on). `scratch`
//! and `measure` do the work.

pub mod loss;
mod measure;
mod scratch;
pub mod traffic;

pub use measure::{FallbackError, Found, FrameCost, Question, measure, test_runs};
pub use twinpath_steer_bpf::ProgramCost;
