//! Reliable Datagram Sockets between hosts: an engine that sends and receives the messages of all programs of a host.
//!
//! Between two addresses there is a connection of TCP, or several, each a path with places of its own. A message has a
//! place on a path, and stays there until TCP has acknowledged it. When a connection ends, the next one repeats what was not
//! acknowledged, and the receiver drops what it had. So a message arrives once and in order, whatever happens to connections.
//!
//! [`Rds`] is a function of (state, now, input). It reads no socket: its [`Host`] connects, reads and writes. It keeps no
//! payload either: the host does, and keeps the [`Position`] of each path as well, so that the engine of its next life goes
//! on where this one has ended.
//!
//! Source of the rules: net/rds of Linux, in its form of before 2026 and since.

mod engine;
mod path;
mod peer;
mod queue;
mod reason;
mod values;

pub use engine::Rds;
pub use peer::{PathView, PeerView};
pub use reason::{Drops, Reason};
pub use values::{
    Config, ConnId, Delivered, Delivery, Host, Outgoing, Pair, Piece, Position, SendError, Stamp, Token,
};
