//! The interface between a service's stream connections and the transport that moves their bytes: the kernel's
//! sockets, a TCP engine or a simulation.

mod limits;
mod transport;

pub use limits::TcpLimits;
pub use transport::{Broken, Lent, Received, Transport};
