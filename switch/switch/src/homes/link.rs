//! What is changed of an interface itself.

use twinpath_netlink::route::LinkChange;
use twinpath_netlink::{Netlink, NetlinkError, Protocol};

/// Sets an interface of the calling thread's network namespace up or down.
///
/// # Errors
/// `ENODEV`: it is not there. `EPERM`: the process lacks CAP_NET_ADMIN in that namespace.
pub(crate) fn set_up(ifindex: u32, up: bool) -> Result<(), NetlinkError> {
    LinkChange::of(ifindex).up(up).change(&Netlink::open(Protocol::Route)?)
}
