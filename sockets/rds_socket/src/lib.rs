//! A program's end of Reliable Datagram Sockets: a socket whose descriptor is real, and the messages between it and the
//! daemon (`twinpath rds`), which has the connections of all programs of a host.
//!
//! The descriptor is one end of a UNIX socket, and the daemon has the other one. So `poll(2)`, `select(2)` and `epoll(7)` wait
//! for it among other descriptors, and it can be duplicated, inherited and passed.

pub mod message;
mod socket;

pub use socket::{RdsError, RdsSocket, Received, default_path};
