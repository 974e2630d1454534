//! The other end of a veth pair.

use twinpath_netlink::route::{
    IFLA_ADDRESS, IFLA_INFO_KIND, IFLA_LINK, IFLA_LINK_NETNSID, IFLA_LINKINFO, LinkChange,
};
use twinpath_netlink::{Netlink, NetlinkError, Protocol};

// linux/if_link.h
const IFLA_TARGET_NETNSID: u16 = 46;

/// The address of the other end of a veth pair, if that end is in another network namespace and the kernel tells; `None` for
/// all other interfaces. The interface is one of the calling thread's namespace.
///
/// # Errors
/// There is no such interface, or the kernel does not answer.
pub fn peer_of(ifindex: u32) -> Result<Option<[u8; 6]>, NetlinkError> {
    let netlink = Netlink::open(Protocol::Route)?;
    let (kind, peer, namespace) = LinkChange::of(ifindex).look(&netlink, |_, own| {
        let kind = own.inside(IFLA_LINKINFO).text(IFLA_INFO_KIND);
        (kind, own.u32(IFLA_LINK), own.i32(IFLA_LINK_NETNSID))
    })?;
    let (Some(peer), Some(namespace)) = (peer, namespace) else { return Ok(None) };
    if kind.as_deref() != Some("veth") || namespace < 0 {
        return Ok(None);
    }
    // The number that the calling thread's namespace has for the other one.
    let there = LinkChange::of(peer).with(IFLA_TARGET_NETNSID, namespace.to_ne_bytes());
    Ok(there.look(&netlink, |_, peer| peer.array(IFLA_ADDRESS)).ok().flatten())
}
