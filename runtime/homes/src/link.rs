//! What is changed of an interface itself.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use twinpath_netlink::Netlink;

// linux/rtnetlink.h, linux/if.h
const RTM_NEWLINK: u16 = 16;
const IFF_UP: u32 = 1;

/// Sets an interface of the calling thread's network namespace up or down.
///
/// # Errors
/// `ENODEV`: it is not there. `EPERM`: the process lacks CAP_NET_ADMIN in that namespace.
pub(crate) fn set_up(ifindex: u32, up: bool) -> io::Result<()> {
    let flags = if up { IFF_UP } else { 0 };
    // `struct ifinfomsg`: family, padding, type, index, flags, and which flags to change.
    let body = [0, ifindex, flags, IFF_UP].map(u32::to_ne_bytes).concat();
    Netlink::connect(NETLINK_ROUTE)?.request(RTM_NEWLINK, 0, &body, |_, _| ())
}
