//! The port to another process: two rings of slots in shared memory, and a descriptor on each side to sleep on.
//!
//! The *owner* is the process that holds the worker; the *application* is any other. The owner [creates](ShmPort::create)
//! a port and an [`Offer`] of its other end; an application connects to the owner's [`Listener`], says which version it
//! speaks, and gets the memory and the descriptors ([`Application::connect`]). One region serves one application, once:
//! the next one gets a fresh region, so nothing that a former one did can be left in it.
//!
//! Frames are copied in both directions, and nothing is lent ([`twinpath_rings::slots`]). So when the application dies, at
//! whatever instruction, the owner has lost nothing: it sees the connection hang up, detaches the port and drops it.
//!
//! What an application can do to its owner, whatever it writes wherever it can reach:
//!
//! - send frames, as fast as it can write them, and have the worker woken as often as it signals;
//! - break its own port ([`Reason::PeerFault`](twinpath_inspect::Reason)), until it connects anew;
//! - not cut the memory short, which would be a SIGBUS for us: the memfd is sealed;
//! - not block the owner through a shared descriptor. A descriptor's flags belong to all who hold it, so the application
//!   does not get the eventfd that the owner signals, which it could set to blocking and fill: it gets an epoll set with that
//!   eventfd in it. And the eventfd that it signals is drained by a read that can't block.
//!
//! Never here: who may connect, and what the application's frames may say; that is the owner's business.

mod application;
mod offer;
mod port;
mod region;

pub use application::{Application, ConnectError, Packet, Woken};
pub use offer::{Listener, MAGIC, Offer, OfferError, VERSION};
pub use port::{CreateError, ShmPort};
pub use region::{FRAME_LEN_MAX, SLOTS_DEFAULT, ShmConfig};

#[cfg(test)]
mod tests;
