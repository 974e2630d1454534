//! The port to another process: two rings of slots in shared memory, and a descriptor on each side to sleep on.
//!
//! The *owner* is the process with the worker; the *application* is any other. The owner [creates](ShmPort::create)
//! a port and an [`Offer`] of its other end. An application connects to the owner's [`Listener`], states the
//! version it uses, and receives the memory and the descriptors ([`Application::connect`]). One region serves one
//! application, once. The next one gets a new region, so nothing of a former application can be left in it.
//!
//! Frames are copied in both directions, and nothing is lent ([`twinpath_rings::slots`]). So when the application
//! dies, at any instruction, the owner has lost nothing: it sees the connection hang up, detaches the port and drops
//! it.
//!
//! How an application can affect its owner, whatever it writes into the shared memory:
//!
//! - It can send frames as fast as it can write them, and wake the worker as often as it signals.
//! - It can break its own port ([`Reason::PeerFault`](twinpath_inspect::Reason)), until it connects again.
//! - It cannot shrink the memory, which would be a SIGBUS for the owner: the memfd is sealed.
//! - It cannot block the owner through a shared descriptor, whose flags are shared by all its holders. It could set
//!   the eventfd that the owner signals to blocking and fill it. So it does not get that eventfd, but an epoll set
//!   that contains it. The eventfd that the application signals is drained by a read that cannot block.
//!
//! Never here: decisions about who may connect, and about the contents of the application's frames; both are the
//! owner's.

mod application;
mod offer;
mod port;
mod region;

pub use application::{Application, ConnectError, Packet, Woken};
pub use offer::{Listener, MAGIC, Offer, OfferError, VERSION};
pub use port::{CreateError, ShmPort};
pub use region::{FRAME_LEN_MAX, SLOTS_DEFAULT, ShmConfig};
pub use twinpath_rings::slots::Fault;

#[cfg(test)]
mod tests;
