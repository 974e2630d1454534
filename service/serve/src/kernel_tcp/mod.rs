//! The kernel's TCP sockets: listening ones, from which connections come, and connected ones as transports.

pub(crate) mod accept;
pub(crate) mod socket;

pub use accept::{FIRST_TOKEN, LISTENERS_MAX};
