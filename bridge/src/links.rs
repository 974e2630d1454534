//! The two links of an exception port, read and changed by netlink.

use twinpath_attach::mirror::message;
use twinpath_attach::mirror::table::Link;
use twinpath_netlink::route::LinkChange;
use twinpath_netlink::{Netlink, NetlinkError, Protocol};
use twinpath_wire::Mac;

use super::sides::LinkState;

/// A netlink socket for requests about links. Each call waits for the answer, so it returns the present state.
pub(super) struct Links(Netlink);

impl Links {
    pub(super) fn open() -> Result<Self, NetlinkError> {
        Netlink::open(Protocol::Route).map(Self)
    }

    /// A link as it is now; `None` if it is not in our namespace.
    pub(super) fn get(&self, ifindex: u32) -> Option<Link> {
        LinkChange::of(ifindex).look(&self.0, message::link).ok()?
    }

    pub(super) fn set_mtu(&self, ifindex: u32, mtu: u32) -> Result<(), NetlinkError> {
        LinkChange::of(ifindex).mtu(mtu).change(&self.0)
    }

    pub(super) fn set_mac(&self, ifindex: u32, mac: Mac) -> Result<(), NetlinkError> {
        LinkChange::of(ifindex).address(mac.0).change(&self.0)
    }

    pub(super) fn set_up(&self, ifindex: u32, up: bool) -> Result<(), NetlinkError> {
        LinkChange::of(ifindex).up(up).change(&self.0)
    }
}

/// The mirrored properties of a link; `None` without an Ethernet address.
pub(super) fn state(link: &Link) -> Option<LinkState> {
    Some(LinkState { mtu: link.mtu, mac: link.mac?, up: link.up, running: link.running })
}
