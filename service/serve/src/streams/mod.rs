//! The stream connections of a service on one worker, from any source.
//!
//! `service/service/src/connections` implements the behaviour of one connection. This module accepts connections,
//! limits them, and decides when the worker serves which of them ([`StreamServer`]). It has no descriptor: where
//! connections come from, and how their bytes move, is behind a [`Listener`].

mod host;
mod limits;
mod listener;
mod polled;
mod read_delay;
mod server;
mod sources;
mod table;
mod waiting;

pub use limits::{CHUNK, TcpTotals};
pub use listener::{Listener, Ready};
pub use server::{Call, Change, StreamServer};

#[cfg(test)]
mod tests;
