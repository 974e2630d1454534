//! Stream connections of a service, over any transport that moves bytes.
//!
//! A [`Connection`] reads requests, passes them to its [service](crate::Service), and sends the replies:
//! whole, in order, once, within limits and deadlines. It also ends in an orderly way: after a half close
//! by its peer, when its service says so, or when the instance stops. It is a function of (state, now,
//! input). Bytes move over a [`Transport`](twinpath_stream::Transport): the kernel's sockets, a TCP engine,
//! or a simulation in tests. Everything else comes from its [`Host`].
//!
//! The host decides how many connections there may be and in which order they work, and it tracks their
//! deadlines.

mod chain;
mod connection;
mod deferred;
mod held;
mod host;
mod turn;

pub use connection::Connection;
pub use host::Host;
pub use turn::{After, ConnectionLimits, Scratch, Turn};
