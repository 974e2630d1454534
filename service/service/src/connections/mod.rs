//! Stream connections of a service, over any transport that moves bytes.
//!
//! A [`Connection`] reads requests, has a [service](crate::Service) answer them, and sends the replies:
//! whole, in order, once, within limits and deadlines. It also ends in an orderly way: after a half close by its peer,
//! when its service says so, or when the instance stops. It is a function of (state, now, input): bytes move over a
//! [`Transport`](twinpath_stream::Transport), which is the kernel's sockets, a TCP engine, or a simulation in tests, and everything else comes from
//! its [`Host`].
//!
//! The host decides how many connections there may be, in which order they work, and keeps track of their deadlines.

mod connection;
mod deferred;
mod held;
mod host;
mod turn;

pub use connection::Connection;
pub use host::Host;
pub use turn::{After, ConnectionLimits, Scratch, Turn};
