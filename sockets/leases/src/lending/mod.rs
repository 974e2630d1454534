//! Who gives the UDP sockets of this process rings on an interface. If the process has the rights to open the
//! interface, it does so itself. Otherwise the interface's owner does (`twinpath sockets`), another process that gives
//! each program rings for its own sockets and nothing more.
//!
//! The owner loads a program into the kernel for each of these processes, attaches it to the interface, and hands out
//! the memory of its rings. From then on no thread of the owner is involved. The kernel's program puts frames straight
//! into the ring, and only frames that the kernel would give to that socket. A process shows its socket by its
//! descriptor, so the owner reads the port from the socket itself. The process sends by its socket, as always. If the
//! owner ends, its programs end with it, and every datagram comes by the kernel's socket again.
//!
//! - [`Lender`]: either of the two, for the sockets of one process on one interface.
//! - [`Connection`]: a process's end of its connection to the owner; [`message`] has what is said there.

mod borrower;
mod connection;
mod lender;
mod lent;
pub mod message;
mod place;

pub use borrower::AskedFor;
pub use connection::{CLIENT_NAME, Connection, OwnerError, PATIENCE};
pub use lender::{Access, LendError, Lender, Open, OwnInterface, owner_socket};
pub use lent::{Lent, Withdrawal};
pub use place::{Place, Started};
