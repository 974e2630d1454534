//! The stream connections of a service on one worker.
//!
//! `service/service/src/connections` implements the behaviour of one connection. This module accepts connections,
//! limits them, and decides when the worker serves which of them ([`TcpServer`]).

mod host;
mod limits;
mod polled;
mod read_delay;
mod server;
mod sources;
mod table;
mod waiting;

pub use limits::{CHUNK, TcpTotals};
pub use server::{Call, TcpServer};
