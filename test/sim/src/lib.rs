//! A simulated network from a seed: our engines over ports that lose, duplicate, reorder, corrupt and truncate
//! frames, with time as a number.
//!
//! The simulation is in `tests/`. This library has the TCP of another project, which it runs against our engine. A
//! failure names its seed, which repeats it exactly.

pub mod smoltcp_end;
