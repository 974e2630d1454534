//! A simulated network from a seed: our engines over ports that lose, duplicate, reorder, corrupt and truncate
//! frames, with time as a number.
//!
//! The simulation is in `tests/`. A failure names its seed, which repeats it exactly. This library has the TCP of another
//! project, which runs against our engine there, and whose instructions are counted beside those of ours
//! (`test/sim/src/instructions`).

pub mod smoltcp_end;
