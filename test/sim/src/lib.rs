//! A simulated network from a seed: our engines over ports that lose, duplicate, reorder, corrupt and truncate
//! frames, with time as a number.
//!
//! This library is empty; the simulation is in `tests/`. A failure names its seed, which repeats it exactly.
