//! TCP on the kernel path: the connections of a service on one worker, on the kernel's sockets.
//!
//! `service/service/src/connections` implements the behaviour of one connection. This module accepts
//! connections, limits them, and decides when the worker serves which of them ([`TcpServer`]).

mod accept;
mod host;
mod limits;
mod polled;
mod read_delay;
mod server;
mod socket;
mod sources;
mod table;
mod waiting;

pub use accept::{FIRST_TOKEN, LISTENERS_MAX};
pub use limits::{CHUNK, TcpTotals};
pub use server::{Call, TcpServer};
