//! Leases: sockets of unmodified programs whose datagrams arrive by rings of their own.
//!
//! - [`rules`]: which sockets of which programs get a lease.
//! - [`owner`]: the process that has the rights, loads the programs of the kernel and gives leases.
//! - [`lending`]: what owner and program say to each other.
//! - [`sockets`]: the program's end: a socket, its ring, and what keeps both in order.

pub mod lending;
pub mod owner;
pub mod rules;
pub mod sockets;
