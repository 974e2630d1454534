//! UDP sockets of applications with two paths: the kernel's own socket, and a lease on it while a thread of the application
//! looks for datagrams.
//!
//! The descriptor of a [`UdpSocket`] is the kernel's, with everything that this means. While a thread spins in a receiving
//! call, or works for not too long between two of them, the socket's datagrams come through a ring in memory instead, and no
//! system call is made for them. Before the thread sleeps it gives the lease back, and sleeps in the kernel's call. The idle policy
//! decides when it spins and when it sleeps. If the application asks for it, datagrams to peers that the kernel has just
//! sent to leave as frames, with the same headers; all others by the kernel.
//!
//! - [`UdpSocket`]: shaped as the standard library's; [`holder`](crate) is its receiving side, [`sender`](crate) its sending one.
//! - [`Lessee`]: the lease alone, for a library whose callers have only a descriptor.
//! - [`Poll`]: waits for such sockets and any other descriptors, in one call.
//!
//! There is no thread beside the application's.

mod address;
mod beside;
mod counts;
pub mod early;
mod handing;
mod holder;
mod interfaces;
mod leading;
mod lessee;
mod others;
mod poll;
mod precise;
mod sender;
mod socket;
mod waiting;

pub use crate::lending::{Access, Lent};
pub use counts::SocketCounts;
pub use holder::{Call, KernelRead, Readiness, Received, Step, Wait};
pub use leading::{Lead, Watch};
pub use lessee::{Asking, LentBy, LentOn, Lessee, Waits, await_lapse};
pub use poll::{Event, Interest, Poll};
pub use precise::Precise;
pub use socket::{SendBy, SocketPath, UdpSocket};
pub use waiting::{Awaited, wait};
