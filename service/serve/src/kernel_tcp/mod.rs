//! TCP on the kernel path: the kernel's listening sockets as a source of connections ([`KernelListener`]), and its
//! connected ones as transports.

mod accept;
mod socket;

pub use accept::{FIRST_TOKEN, KernelListener, LISTENERS_MAX, ready};
pub(crate) use socket::{Buffers, Former, KernelStream, Socket};

use crate::streams::{Call, StreamServer};

/// Connections over the kernel's sockets.
pub type TcpServer<C> = StreamServer<KernelListener, C>;

/// What a call of it gets.
pub type TcpCall<'a, 'io, S> = Call<'a, 'io, S, KernelListener>;
