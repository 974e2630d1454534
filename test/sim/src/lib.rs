//! A seeded network: our own engines over ports that lose, double, reorder, corrupt and cut, with time as a number.
//!
//! There is nothing to import here; the simulation is in `tests/`. A failure names its seed, and the seed repeats it exactly.
