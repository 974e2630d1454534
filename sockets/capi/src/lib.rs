//! The C interface: `include/twinpath.h` says what each function does. It starts no thread, and its only state is the
//! table of leases.

pub mod calls;
mod kernel;
pub mod lease;
