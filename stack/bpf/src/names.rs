//! The names of interfaces, and of our own programs.

use twinpath_sys::packet_socket;

use crate::SteerError;

/// The names of all our programs begin with this.
pub(crate) const OURS: &str = "twinpath_";

/// The program at tc ingress of a port of a switch.
pub(crate) const PORT_INGRESS: &str = "twinpath_port_in";

/// The name of an interface of the calling thread's network namespace.
pub(crate) fn interface_name(ifindex: u32) -> Result<String, SteerError> {
    packet_socket::interface_name(ifindex).map_err(|error| SteerError::NoInterface { ifindex, error })
}
