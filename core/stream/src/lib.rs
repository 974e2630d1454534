//! The seam between what moves the bytes of a stream connection and who uses them: the kernel's sockets, a TCP engine or a
//! simulation below, a service's connections above.

mod limits;
mod transport;

pub use limits::TcpLimits;
pub use transport::{Broken, Received, Transport};
