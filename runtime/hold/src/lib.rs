//! Holding what an instance serves, so that no other process serves it too: ports by kernel sockets, EtherTypes by claims; and passing
//! the sockets on from one instance to another.

mod error;
mod held;
mod inherited;
mod ports;

pub use error::HoldError;
pub use held::{Held, KernelSockets, Name, Use, send};
pub use inherited::{Inherited, STOPPING, Step, former_of};
pub use ports::{hold_all_ports, hold_frames};
