//! Links and their addresses over rtnetlink (linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h): reading,
//! changing and creating them.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use twinpath_sys::clock;
use twinpath_time::Instant;

use crate::{Attributes, Body, Failure, Message, Netlink, NetlinkError, Protocol, Request, Subscription};

/// RTM_NEWLINK: a link that exists, or is to be created or changed.
pub const RTM_NEWLINK: u16 = 16;
/// RTM_DELLINK
pub const RTM_DELLINK: u16 = 17;
/// RTM_GETLINK
pub const RTM_GETLINK: u16 = 18;

/// RTM_NEWADDR: an address that exists, or is to be added.
pub const RTM_NEWADDR: u16 = 20;
/// RTM_DELADDR
pub const RTM_DELADDR: u16 = 21;
/// RTM_GETADDR
pub const RTM_GETADDR: u16 = 22;

/// Notifications of links.
const RTNLGRP_LINK: u32 = 1;

/// A link-layer address.
pub const IFLA_ADDRESS: u16 = 1;
/// Its name.
pub const IFLA_IFNAME: u16 = 3;
/// Its MTU, bytes.
pub const IFLA_MTU: u16 = 4;
/// Index of the link below.
pub const IFLA_LINK: u16 = 5;
/// Index of the bridge, bond or VRF that it is in.
pub const IFLA_MASTER: u16 = 10;
/// Its operational state: [`IF_OPER_UP`] and others (RFC 2863).
pub const IFLA_OPERSTATE: u16 = 16;
/// Its kind, and attributes of this kind.
pub const IFLA_LINKINFO: u16 = 18;
/// A descriptor of the network namespace to move it to.
pub const IFLA_NET_NS_FD: u16 = 28;
/// The number of another network namespace in which [`IFLA_LINK`] is.
pub const IFLA_LINK_NETNSID: u16 = 37;
/// Its XDP program.
pub const IFLA_XDP: u16 = 43;
/// How it is attached, inside of [`IFLA_XDP`].
pub const IFLA_XDP_ATTACHED: u16 = 2;
/// The IDs of its programs, inside of [`IFLA_XDP`]: of the only program, or of those in the driver, on socket
/// buffers and in the device.
pub const XDP_PROGRAMS: RangeInclusive<u16> = 4..=7;
/// Kind, inside of [`IFLA_LINKINFO`].
pub const IFLA_INFO_KIND: u16 = 1;
/// Attributes of this kind, inside of [`IFLA_LINKINFO`].
pub const IFLA_INFO_DATA: u16 = 2;
/// The other end of a pair, inside of [`IFLA_INFO_DATA`] of a veth.
const VETH_INFO_PEER: u16 = 1;

/// The operational state "up".
pub const IF_OPER_UP: u8 = 6;
/// The flag of a link that is administratively up.
pub const IFF_UP: u32 = 1;
/// Bytes of `struct ifinfomsg`.
pub const LINK_HEADER_LEN: usize = 16;

/// Bytes of `struct ifaddrmsg`.
pub const ADDRESS_HEADER_LEN: usize = 8;
/// An address; on a point-to-point link, the address of the other end.
pub const IFA_ADDRESS: u16 = 1;
/// Our own address.
pub const IFA_LOCAL: u16 = 2;
/// No duplicate address detection, so the address is usable immediately.
const IFA_F_NODAD: u8 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// The bytes of an address, in network byte order.
#[must_use]
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address family of an address, as in headers (`AF_INET`, `AF_INET6`).
#[must_use]
pub const fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

/// An address of a link, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// The link.
    pub ifindex: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub prefix: u8,
}

impl LinkAddress {
    fn body(&self) -> Body {
        let octets = octets(self.address);
        let header = [family(self.address), self.prefix, IFA_F_NODAD, 0];
        let header = [header, self.ifindex.to_ne_bytes()].concat();
        Body::new(header).bytes(IFA_LOCAL, &octets).bytes(IFA_ADDRESS, &octets)
    }

    /// Adds it; it is usable immediately.
    ///
    /// # Errors
    /// [`Failure::Refused`]; `EEXIST`: the link has it.
    pub fn add(&self, netlink: &Netlink) -> Result<(), NetlinkError> {
        let asked = format!("add the address {} to interface {}", self.address, self.ifindex);
        netlink.request(&Request::create(&asked, RTM_NEWADDR, &self.body())).map(drop)
    }

    /// Removes it.
    ///
    /// # Errors
    /// [`Failure::Refused`]; `EADDRNOTAVAIL`: the link does not have it.
    pub fn remove(&self, netlink: &Netlink) -> Result<(), NetlinkError> {
        let asked = format!("remove the address {} from interface {}", self.address, self.ifindex);
        netlink.request(&Request::new(&asked, RTM_DELADDR, &self.body())).map(drop)
    }
}

/// The fixed header of a link's message (`struct ifinfomsg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHeader {
    /// Address family: 0, or that of a bridge's port.
    pub family: u8,
    /// Type of the device (ARPHRD_*).
    pub device_type: u16,
    /// The link.
    pub ifindex: u32,
    /// `IFF_*`.
    pub flags: u32,
}

/// Header and attributes of a link's message.
#[must_use]
pub fn link<'a>(message: &Message<'a>) -> Option<(LinkHeader, Attributes<'a>)> {
    let (header, attributes) = message.parts::<LINK_HEADER_LEN>()?;
    let [family, _, type_low, type_high, a, b, c, d, e, f, g, h, ..] = *header;
    let header = LinkHeader {
        family,
        device_type: u16::from_ne_bytes([type_low, type_high]),
        ifindex: u32::from_ne_bytes([a, b, c, d]),
        flags: u32::from_ne_bytes([e, f, g, h]),
    };
    Some((header, attributes))
}

/// A link that is to be changed or created. Only the named settings are changed.
#[derive(Clone, Debug)]
pub struct LinkChange {
    which: String,
    header: [u32; 4],
    attributes: Body,
}

impl LinkChange {
    /// The link with this index.
    #[must_use]
    pub fn of(ifindex: u32) -> Self {
        let which = format!("interface {ifindex}");
        Self { which, header: [0, ifindex, 0, 0], attributes: Body::new([]) }
    }

    /// The link with this name, or a new link that gets it.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { which: name.to_owned(), header: [0; 4], attributes: Body::new([]).text(IFLA_IFNAME, name) }
    }

    /// Up or down.
    #[must_use]
    pub fn up(mut self, up: bool) -> Self {
        (self.header[2], self.header[3]) = (if up { IFF_UP } else { 0 }, IFF_UP);
        self
    }

    /// Any attribute.
    #[must_use]
    pub fn with(self, kind: u16, value: impl AsRef<[u8]>) -> Self {
        Self { attributes: self.attributes.bytes(kind, value), ..self }
    }

    /// Its Ethernet address.
    #[must_use]
    pub fn address(self, address: [u8; 6]) -> Self {
        self.with(IFLA_ADDRESS, address)
    }

    /// Its MTU, bytes.
    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        self.with(IFLA_MTU, mtu.to_ne_bytes())
    }

    /// Another name.
    #[must_use]
    pub fn renamed(self, name: &str) -> Self {
        self.with(IFLA_IFNAME, [name.as_bytes(), b"\0"].concat())
    }

    /// The bridge, bond or VRF to be in.
    #[must_use]
    pub fn master(self, ifindex: u32) -> Self {
        self.with(IFLA_MASTER, ifindex.to_ne_bytes())
    }

    /// The network namespace to be in.
    #[must_use]
    pub fn namespace(self, namespace: BorrowedFd<'_>) -> Self {
        self.with(IFLA_NET_NS_FD, namespace.as_raw_fd().to_ne_bytes())
    }

    /// Its kind, and the attributes of this kind.
    #[must_use]
    pub fn kind(self, kind: &str, data: &Body) -> Self {
        let info = Body::new([]).text(IFLA_INFO_KIND, kind).nested(IFLA_INFO_DATA, data);
        Self { attributes: self.attributes.nested(IFLA_LINKINFO, &info), ..self }
    }

    /// One end of a veth pair, with its other end.
    #[must_use]
    pub fn pair(self, other: &Self) -> Self {
        self.kind("veth", &Body::new([]).nested(VETH_INFO_PEER, &other.body()))
    }

    fn body(&self) -> Body {
        let header = self.header.map(u32::to_ne_bytes).concat();
        Body::new([&header[..], self.attributes.as_slice()].concat())
    }

    /// Changes the link.
    ///
    /// # Errors
    /// [`Failure::Refused`]: the link is not there, the process lacks CAP_NET_ADMIN in its namespace, or the setting is impossible.
    pub fn change(&self, netlink: &Netlink) -> Result<(), NetlinkError> {
        let asked = format!("change {}", self.which);
        netlink.request(&Request::new(&asked, RTM_NEWLINK, &self.body())).map(drop)
    }

    /// Makes the link.
    ///
    /// # Errors
    /// As [`Self::change`]; `EEXIST`: the name is taken.
    pub fn make(&self, netlink: &Netlink) -> Result<(), NetlinkError> {
        let asked = format!("make {}", self.which);
        netlink.request(&Request::create(&asked, RTM_NEWLINK, &self.body())).map(drop)
    }

    /// Removes the link.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn remove(&self, netlink: &Netlink) -> Result<(), NetlinkError> {
        let asked = format!("remove {}", self.which);
        netlink.request(&Request::new(&asked, RTM_DELLINK, &self.body())).map(drop)
    }

    /// Asks for the link, and passes header and attributes to `read`.
    ///
    /// # Errors
    /// `ENODEV`: it is not there.
    pub fn look<T>(
        &self,
        netlink: &Netlink,
        read: impl FnOnce(LinkHeader, Attributes<'_>) -> T,
    ) -> Result<T, NetlinkError> {
        let asked = format!("tell about {}", self.which);
        let answers = netlink.request(&Request::new(&asked, RTM_GETLINK, &self.body()))?;
        let found = answers.iter().find(|message| message.kind == RTM_NEWLINK);
        let (header, attributes) = found.as_ref().and_then(link).ok_or(Failure::Unexpected { asked })?;
        Ok(read(header, attributes))
    }
}

/// Waits until the link of this name in the calling thread's network namespace has carrier; false if it has none at
/// `until`.
///
/// # Errors
/// As [`LinkChange::look`].
pub fn wait_for_carrier(name: &str, until: Instant) -> Result<bool, NetlinkError> {
    // Subscribe before looking, so that no change is missed.
    let mut links = Subscription::open(Protocol::Route, &[RTNLGRP_LINK])?;
    let netlink = Netlink::open(Protocol::Route)?;
    let link = LinkChange::named(name);
    let failed = |error| Failure::Socket { asked: format!("tell when {name} carries"), error };
    loop {
        if link.look(&netlink, |_, attributes| attributes.array(IFLA_OPERSTATE) == Some([IF_OPER_UP]))? {
            return Ok(true);
        }
        if clock::now() >= until || !links.wait(until).map_err(failed)? {
            return Ok(false);
        }
        links.take_all().map_err(failed)?;
    }
}

#[cfg(test)]
mod tests {
    use twinpath_sys::Namespace;
    use twinpath_time::Duration;

    use super::*;
    use crate::Heard;

    #[test]
    fn a_pair_is_made_changed_and_removed_and_each_change_is_announced() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let seen = Namespace::new().and_then(|namespace| {
            namespace.run(|| {
                let netlink = Netlink::open(Protocol::Route).expect("a socket");
                let mut links = Subscription::open(Protocol::Route, &[RTNLGRP_LINK]).expect("a subscription");
                let other = LinkChange::named("p1").address([2, 0, 0, 0, 0, 2]);
                LinkChange::named("p0").pair(&other).make(&netlink).expect("it is made");
                let again = LinkChange::named("p0").pair(&other).make(&netlink).expect_err("it is there");
                assert!(again.is(rustix::io::Errno::EXIST), "{again}");
                LinkChange::named("p1").mtu(1400).up(true).change(&netlink).expect("it is changed");
                let look = LinkChange::named("p1");
                let seen = look.look(&netlink, |header, attributes| {
                    let address = attributes.array(IFLA_ADDRESS);
                    (header.flags & IFF_UP, attributes.u32(IFLA_MTU), address)
                });
                let seen = seen.expect("it is there");
                LinkChange::named("p0").remove(&netlink).expect("it is removed");
                let gone = look.look(&netlink, |_, _| ()).expect_err("both ends are gone");
                assert!(gone.is(rustix::io::Errno::NODEV), "{gone}");
                assert!(links.wait(clock::now() + Duration::from_secs(10)).expect("a socket"));
                let mut gone = false;
                while let Heard::Messages(messages) = links.read().expect("a socket") {
                    for message in messages {
                        gone |= message.kind == RTM_DELLINK;
                    }
                }
                assert!(gone);
                seen
            })
        });
        assert_eq!(seen.expect("a namespace"), (IFF_UP, Some(1400), Some([2, 0, 0, 0, 0, 2])));
    }

    #[test]
    fn a_subscription_that_was_too_small_says_so_and_goes_on() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let heard = Namespace::new().and_then(|namespace| {
            namespace.run(|| {
                let netlink = Netlink::open(Protocol::Route).expect("a socket");
                let mut links = Subscription::open(Protocol::Route, &[RTNLGRP_LINK]).expect("a subscription");
                links.set_room(4096).expect("a size");
                for mtu in 1000..1100 {
                    LinkChange::named("lo").mtu(mtu).change(&netlink).expect("it is changed");
                }
                let mut overruns = 0;
                loop {
                    match links.read().expect("a socket") {
                        Heard::Overrun => overruns += 1,
                        Heard::Messages(_) => {}
                        Heard::Nothing => break,
                    }
                }
                LinkChange::named("lo").mtu(2000).change(&netlink).expect("it is changed");
                (overruns, matches!(links.read().expect("a socket"), Heard::Messages(_)))
            })
        });
        assert_eq!(heard.expect("a namespace"), (1, true));
    }
}
