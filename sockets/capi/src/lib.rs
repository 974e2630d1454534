//! The C interface: `include/twinpath.h` says what each function does. There is no thread, and no state but the table of leases.

pub mod calls;
mod kernel;
pub mod lease;
