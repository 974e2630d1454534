//! Holds what an instance serves against other processes: ports by kernel sockets, EtherTypes by claims. Passes
//! the sockets from one instance to another.

mod error;
mod held;
mod inherited;
mod ports;

pub use error::HoldError;
pub use held::{Held, KernelSockets, Name, Use, send};
pub use inherited::{Inherited, STOPPING, former_of};
pub use ports::{hold_all_ports, hold_frames};
pub use twinpath_lifecycle::Step;
