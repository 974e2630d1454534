//! The library that `twinpath run` loads into unmodified programs: it takes the place of those calls of the C library that receive from
//! UDP sockets, wait for them, and make and close descriptors. Sockets for which a rule asks for it get a lease; every other call is
//! passed on as it is.
//!
//! It has no thread. Nothing happens before a program binds a UDP socket, or receives from it.

mod decide;
mod descriptors;
mod explain;
mod group;
mod interface;
mod own;
mod passing;
mod preloader;
mod process;
mod real;
mod receiving;
mod started;
mod waiting;

pub use descriptors::*;
pub use passing::*;
pub use preloader::twinpath_preload;
pub use receiving::*;
pub use waiting::*;
