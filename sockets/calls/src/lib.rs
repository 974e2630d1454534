//! The receiving and waiting calls of the C library, with its arguments and results. Some of the descriptors have a
//! lease.
//!
//! The C interface, and the library that is loaded into unmodified programs, are both built on these. A descriptor is
//! the kernel's socket; a table says which descriptors have a lease. A call on any other descriptor goes to the kernel.
//!
//! No call waits for a lock. None allocates except [`table::lend`], [`table::ask`] and [`table::take_up`]. Each may be
//! made from a signal handler. If the handler has interrupted a call on the same socket, its own call takes the
//! kernel's path.

pub mod earning;
pub mod epoll;
mod identity;
mod kernel;
mod limit;
mod message;
pub mod nested;
mod on_socket;
mod options;
mod pointers;
pub mod poll;
mod presence;
pub mod receive;
pub mod select;
mod signals;
pub mod table;
mod thread_words;
mod times;
mod users;
mod waiting;

pub use identity::kind_of;
pub use kernel::{Kernel, errno, set_errno};
pub use pointers::{can_read, can_write};
pub use thread_words::ThreadWords;
pub use twinpath_leases::WhyKernel;
pub use twinpath_leases::sockets::{Access, LentBy, early};
pub use twinpath_sys::fork::OfProcess;
pub use twinpath_sys::socket_kind::SocketKind;
