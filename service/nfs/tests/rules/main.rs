//! The server's rules, over a file system in memory: calls and results are encoded and decoded by `nfs3_types`.

mod changes;
mod model;
mod mounting;
mod programs;
mod reading;
mod rig;
mod rights;
mod sequences;
