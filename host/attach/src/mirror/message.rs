//! Converts rtnetlink messages to changes of the tables, and a route message to a route.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use twinpath_netlink::route::{
    self, ADDRESS_HEADER_LEN, IFA_ADDRESS, IFA_LOCAL, IFF_UP, IFLA_ADDRESS, IFLA_IFNAME, IFLA_INFO_KIND,
    IFLA_LINK, IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_XDP, LinkHeader, RTM_DELADDR,
    RTM_DELLINK, RTM_NEWADDR, RTM_NEWLINK, XDP_PROGRAMS,
};
use twinpath_netlink::{Attributes, Message};
use twinpath_udp::egress::KernelReason;
use twinpath_wire::Mac;

use super::table::{Change, Link, Neighbour, NeighbourState};
use crate::mirror::egress_book::Route;

// linux/rtnetlink.h
pub(crate) const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
/// RTM_NEWQDISC to RTM_DELTFILTER: queueing disciplines, classes, filters.
const TRAFFIC_CONTROL: RangeInclusive<u16> = 36..=45;
const RTM_NEWNETCONF: u16 = 80;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

// linux/socket.h, linux/if_arp.h
const AF_UNSPEC: u8 = 0;
pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;
const ARPHRD_ETHER: u16 = 1;

// linux/if.h, linux/if_link.h
const IFF_LOOPBACK: u32 = 1 << 3;
const IFF_RUNNING: u32 = 1 << 6;
const IFLA_QDISC: u16 = 6;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
/// The queueing discipline that passes each frame on at once (net/sched/sch_generic.c).
const NO_QUEUE: &str = "noqueue";

// linux/if_addr.h
const IFA_F_OPTIMISTIC: u8 = 0x04;
const IFA_F_DADFAILED: u8 = 0x08;
const IFA_F_TENTATIVE: u8 = 0x40;

// linux/neighbour.h
pub(crate) const NEIGHBOUR_HEADER_LEN: usize = 12;
pub(crate) const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_FLAGS_EXT: u16 = 15;
const NTF_PROXY: u8 = 0x08;
const NTF_EXT_LEARNED: u8 = 0x10;
const NTF_EXT_MANAGED: u32 = 1;

// linux/rtnetlink.h
pub(crate) const ROUTE_HEADER_LEN: usize = 12;
pub(crate) const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_VIA: u16 = 18;
const RTA_NEWDST: u16 = 19;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;
const RTAX_MTU: u16 = 2;
const RTN_UNICAST: u8 = 1;
/// RTN_BLACKHOLE to RTN_THROW: blackhole, unreachable, prohibit, throw.
const NO_ROUTE: RangeInclusive<u8> = 6..=9;

// linux/netconf.h
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_RP_FILTER: u16 = 3;
const NETCONFA_IFINDEX_ALL: i32 = -1;

/// A message that ends before its fixed header does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutShort;

/// The change that a message describes; `None` for messages about things that are not mirrored.
///
/// # Errors
/// [`CutShort`].
pub fn change(message: &Message<'_>) -> Result<Option<Change>, CutShort> {
    match message.kind {
        RTM_NEWLINK | RTM_DELLINK => {
            let (header, attributes) = route::link(message).ok_or(CutShort)?;
            if message.kind == RTM_NEWLINK {
                return Ok(link(header, attributes).map(Change::Link));
            }
            // A bridge port that leaves its bridge is announced as RTM_DELLINK of family AF_BRIDGE: the link still exists.
            Ok((header.family == AF_UNSPEC).then_some(Change::LinkGone(header.ifindex)))
        }
        RTM_NEWADDR | RTM_DELADDR => address(message),
        RTM_NEWNEIGH | RTM_DELNEIGH => neighbour(message),
        RTM_NEWROUTE | RTM_DELROUTE | RTM_NEWRULE | RTM_DELRULE | RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
            Ok(Some(Change::Routes))
        }
        RTM_NEWNETCONF => source_check(message),
        kind if TRAFFIC_CONTROL.contains(&kind) => traffic_control(message).map(Some),
        _ => Ok(None),
    }
}

/// `struct netconfmsg` has one byte, and attributes follow after its padding.
fn source_check(message: &Message<'_>) -> Result<Option<Change>, CutShort> {
    let (_, attributes) = message.parts::<1>().ok_or(CutShort)?;
    let is_told = attributes.get(NETCONFA_RP_FILTER).is_some();
    Ok(match attributes.i32(NETCONFA_IFINDEX).filter(|_| is_told) {
        Some(NETCONFA_IFINDEX_ALL) => Some(Change::SourceCheck { ifindex: None }),
        Some(ifindex) if ifindex >= 0 => Some(Change::SourceCheck { ifindex: Some(ifindex as u32) }),
        // The default of future links, or something else.
        _ => None,
    })
}

/// `struct tcmsg`: the index of the link follows its family and padding.
fn traffic_control(message: &Message<'_>) -> Result<Change, CutShort> {
    let ([_, _, _, _, index @ ..], _) = message.parts::<8>().ok_or(CutShort)?;
    Ok(Change::TrafficControl { ifindex: u32::from_ne_bytes(*index) })
}

/// A link, from header and attributes of its message; `None` if the message is about a bridge's port.
#[must_use]
pub fn link(header: LinkHeader, attributes: Attributes<'_>) -> Option<Link> {
    if header.family != AF_UNSPEC {
        return None;
    }
    let has = |flag: u32| header.flags & flag != 0;
    let ethernet = header.device_type == ARPHRD_ETHER;
    let mut link = Link {
        ifindex: header.ifindex,
        name: String::new(),
        mac: None,
        mtu: 0,
        has_queue: true,
        up: has(IFF_UP),
        running: has(IFF_RUNNING),
        ethernet,
        loopback: has(IFF_LOOPBACK),
        kind: String::new(),
        master: None,
        port_kind: String::new(),
        lower: None,
        xdp_program: None,
        rx_queues: 1,
        tx_queues: 1,
        gro_max: 0,
    };
    let mut lower_elsewhere = false;
    // One pass, because there are dozens of attributes.
    for (kind, value) in attributes.iter() {
        let number = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let index = number.filter(|index| *index != 0);
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_ADDRESS if ethernet => link.mac = mac(value),
            IFLA_MTU => link.mtu = number.unwrap_or(0),
            IFLA_QDISC => link.has_queue = text(value) != NO_QUEUE,
            IFLA_MASTER => link.master = index,
            IFLA_LINK => link.lower = index,
            IFLA_LINK_NETNSID => lower_elsewhere = true,
            IFLA_NUM_RX_QUEUES => link.rx_queues = number.unwrap_or(1),
            IFLA_NUM_TX_QUEUES => link.tx_queues = number.unwrap_or(1),
            IFLA_GRO_MAX_SIZE | IFLA_GRO_IPV4_MAX_SIZE => {
                link.gro_max = link.gro_max.max(number.unwrap_or(0));
            }
            IFLA_LINKINFO => {
                let info = Attributes::of(value);
                link.kind = info.text(IFLA_INFO_KIND).unwrap_or_default();
                link.port_kind = info.text(IFLA_INFO_SLAVE_KIND).unwrap_or_default();
            }
            IFLA_XDP => {
                let xdp = Attributes::of(value);
                let programs = xdp.iter().filter(|(kind, _)| XDP_PROGRAMS.contains(kind));
                let ids = programs.filter_map(|(_, id)| id.first_chunk().map(|id| u32::from_ne_bytes(*id)));
                link.xdp_program = ids.into_iter().find(|id| *id != 0);
            }
            _ => {}
        }
    }
    if lower_elsewhere {
        link.lower = None;
    }
    Some(link)
}

fn address(message: &Message<'_>) -> Result<Option<Change>, CutShort> {
    let (header, attributes) = message.parts::<ADDRESS_HEADER_LEN>().ok_or(CutShort)?;
    let [_, prefix, flags, _, index @ ..] = *header;
    // On a point-to-point link IFA_ADDRESS is the other end's address and IFA_LOCAL ours (linux/if_addr.h).
    let address = attributes.get(IFA_LOCAL).or_else(|| attributes.get(IFA_ADDRESS)).and_then(ip);
    let Some(address) = address else { return Ok(None) };
    let ifindex = u32::from_ne_bytes(index);
    let not_ours_yet = flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED) != 0 && flags & IFA_F_OPTIMISTIC == 0;
    Ok(Some(match message.kind == RTM_DELADDR || not_ours_yet {
        true => Change::AddressGone { ifindex, address, prefix },
        false => Change::Address { ifindex, address, prefix },
    }))
}

fn neighbour(message: &Message<'_>) -> Result<Option<Change>, CutShort> {
    let (header, attributes) = message.parts::<NEIGHBOUR_HEADER_LEN>().ok_or(CutShort)?;
    // `struct ndmsg`: family, padding, index, state, flags, type.
    let [family, _, _, _, a, b, c, d, state_low, state_high, flags, _] = *header;
    // Bridge forwarding entries arrive in the same group, and proxied addresses are not neighbours.
    if !matches!(family, AF_INET | AF_INET6) || flags & NTF_PROXY != 0 {
        return Ok(None);
    }
    let Some(address) = attributes.get(NDA_DST).and_then(ip) else { return Ok(None) };
    let ifindex = u32::from_ne_bytes([a, b, c, d]);
    if message.kind == RTM_DELNEIGH {
        return Ok(Some(Change::NeighbourGone { ifindex, address }));
    }
    // NUD_* of linux/neighbour.h.
    let state = match u16::from_ne_bytes([state_low, state_high]) {
        0x01 => NeighbourState::Incomplete,
        0x02 => NeighbourState::Reachable,
        0x04 => NeighbourState::Stale,
        0x08 => NeighbourState::Delay,
        0x10 => NeighbourState::Probe,
        0x20 => NeighbourState::Failed,
        0x40 => NeighbourState::NoArp,
        0x80 => NeighbourState::Permanent,
        _ => NeighbourState::None,
    };
    let managed = attributes.u32(NDA_FLAGS_EXT).unwrap_or(0) & NTF_EXT_MANAGED != 0;
    let kept_by_other = managed || flags & NTF_EXT_LEARNED != 0;
    let mac = attributes.get(NDA_LLADDR).and_then(mac);
    Ok(Some(Change::Neighbour { ifindex, address, neighbour: Neighbour { mac, state, kept_by_other } }))
}

/// The route in the kernel's answer to RTM_GETROUTE for `peer`.
///
/// # Errors
/// [`KernelReason::NotPlain`] if sending a frame to a neighbour on one link is not enough.
pub fn route(peer: IpAddr, message: &Message<'_>) -> Result<Route, KernelReason> {
    let (header, attributes) = message.parts::<ROUTE_HEADER_LEN>().ok_or(KernelReason::Unknown)?;
    match header[7] {
        RTN_UNICAST => {}
        kind if NO_ROUTE.contains(&kind) => return Err(KernelReason::NoRoute),
        _ => return Err(KernelReason::NotPlain),
    }
    let (mut ifindex, mut next_hop, mut mtu) = (None, peer, None);
    for (kind, value) in attributes.iter() {
        match kind {
            RTA_OIF => ifindex = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)),
            RTA_GATEWAY => next_hop = ip(value).ok_or(KernelReason::NotPlain)?,
            // A gateway of the other family (RFC 5549, `via inet6`), after the number of that family.
            RTA_VIA => next_hop = value.get(2..).and_then(ip).ok_or(KernelReason::NotPlain)?,
            RTA_METRICS => mtu = Attributes::of(value).u32(RTAX_MTU).filter(|mtu| *mtu != 0),
            RTA_ENCAP | RTA_ENCAP_TYPE | RTA_MULTIPATH | RTA_NEWDST => return Err(KernelReason::NotPlain),
            _ => {}
        }
    }
    let ifindex = ifindex.ok_or(KernelReason::NoRoute)?;
    Ok(Route { ifindex, next_hop, mtu })
}

/// The address of the family that has this length.
fn ip(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    <[u8; 6]>::try_from(bytes).ok().map(Mac)
}

#[cfg(test)]
mod tests;
