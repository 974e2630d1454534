//! What a connection is, whoever moves its bytes.
//!
//! A [`Connection`] reads requests, has a [service](twinpath_service::Service) answer them, and sends the replies: whole, in
//! order, once, within limits and deadlines. It also ends in order: after a half close by its peer, when its service says so, or when the
//! instance stops. It is a function of (state, now, input): bytes move over a [`Transport`], which is the kernel's sockets, a TCP engine,
//! or a test's simulation, and everything else that it needs is asked of its [`Host`].
//!
//! How many connections there are, which of them work in which order, and when their deadlines come is the host's to know.

mod connection;
mod deferred;
mod held;
mod host;
mod transport;
mod turn;

pub use connection::Connection;
pub use host::Host;
pub use transport::{Broken, Received, Transport};
pub use turn::{After, Limits, Scratch, Turn};
