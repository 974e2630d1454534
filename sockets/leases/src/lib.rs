//! Leases: sockets of unmodified programs whose datagrams arrive by rings of their own.
//!
//! - [`rules`]: which sockets of which programs get a lease.
//! - [`lending`]: what the owner of an interface (`sockets/owner`) and a program say to each other.
//! - [`sockets`]: the program's end: a socket, its ring, and what keeps both in order.
//! - [`WhyKernel`]: why a socket is not accelerated.

pub mod lending;
pub mod rules;
pub mod sockets;
mod why;

pub use why::WhyKernel;
