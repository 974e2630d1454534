//! Converts rtnetlink messages to changes of the tables, and a route message to a route.

use std::net::IpAddr;

use netlink_packet_core::{NlasIterator, parse_i32};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage,
    NeighbourState as KernelState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use twinpath_stack::egress::KernelReason;
use twinpath_wire::Mac;

use super::table::{Change, Link, Neighbour, NeighbourState};
use crate::egress_book::Route;

/// The change that a message describes; `None` for messages about other tables.
#[must_use]
pub fn change(message: RouteNetlinkMessage) -> Option<Change> {
    match message {
        RouteNetlinkMessage::NewLink(link) => self::link(link).map(Change::Link),
        // A bridge port that leaves its bridge is announced as RTM_DELLINK of family AF_BRIDGE: the link still exists.
        RouteNetlinkMessage::DelLink(link) if link.header.interface_family == AddressFamily::Unspec => {
            Some(Change::LinkGone(link.header.index))
        }
        RouteNetlinkMessage::NewAddress(address) => self::address(&address, false),
        RouteNetlinkMessage::DelAddress(address) => self::address(&address, true),
        RouteNetlinkMessage::NewNeighbour(neighbour) => self::neighbour(&neighbour, false),
        RouteNetlinkMessage::DelNeighbour(neighbour) => self::neighbour(&neighbour, true),
        RouteNetlinkMessage::NewRoute(_)
        | RouteNetlinkMessage::DelRoute(_)
        | RouteNetlinkMessage::NewRule(_)
        | RouteNetlinkMessage::DelRule(_) => Some(Change::Routes),
        _ => None,
    }
}

/// RTM_NEWQDISC to RTM_DELTFILTER of linux/rtnetlink.h: queueing disciplines, classes, filters.
const TRAFFIC_CONTROL: std::ops::RangeInclusive<u16> = 36..=45;
/// RTM_NEWNETCONF.
const NETCONF: u16 = 80;
/// RTM_NEWNEXTHOP and RTM_DELNEXTHOP.
const NEXT_HOPS: [u16; 2] = [104, 105];

// linux/netconf.h
const NETCONFA_IFINDEX: u16 = 1;
const NETCONFA_RP_FILTER: u16 = 3;
const NETCONFA_IFINDEX_ALL: i32 = -1;

/// The change that a message of this kind stands for, if the message crate does not decode it or need not;
/// `body` is what follows the header. `Some(None)`: it concerns nothing that we mirror. `None`: it has to be
/// decoded.
pub(crate) fn change_by_kind(kind: u16, body: &[u8]) -> Option<Option<Change>> {
    match kind {
        _ if NEXT_HOPS.contains(&kind) => Some(Some(Change::Routes)),
        NETCONF => Some(source_check(body)),
        _ if TRAFFIC_CONTROL.contains(&kind) => Some(traffic_control(body)),
        _ => None,
    }
}

/// `struct netconfmsg` has one byte, and attributes follow after its padding.
fn source_check(body: &[u8]) -> Option<Change> {
    let attributes = || NlasIterator::new(body.get(4..).unwrap_or_default()).filter_map(Result::ok);
    let is_told = attributes().any(|attribute| attribute.kind() == NETCONFA_RP_FILTER);
    let of = attributes().find(|attribute| attribute.kind() == NETCONFA_IFINDEX)?;
    match parse_i32(of.value()).ok()? {
        _ if !is_told => None,
        NETCONFA_IFINDEX_ALL => Some(Change::SourceCheck { ifindex: None }),
        // The setting of future links.
        default if default < 0 => None,
        ifindex => Some(Change::SourceCheck { ifindex: Some(ifindex as u32) }),
    }
}

/// `struct tcmsg`: the index of the link follows its family and padding.
fn traffic_control(body: &[u8]) -> Option<Change> {
    let ifindex = u32::from_ne_bytes(*body.get(4..)?.first_chunk()?);
    Some(Change::TrafficControl { ifindex })
}

fn link(message: LinkMessage) -> Option<Link> {
    if message.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    let flags = message.header.flags;
    let mut link = Link {
        ifindex: message.header.index,
        name: String::new(),
        mac: None,
        mtu: 0,
        mtu_max: None,
        up: flags.contains(LinkFlags::Up),
        running: flags.contains(LinkFlags::Running),
        ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        loopback: flags.contains(LinkFlags::Loopback),
        kind: String::new(),
        master: None,
        port_kind: String::new(),
        lower: None,
        xdp_program: None,
        rx_queues: 1,
        tx_queues: 1,
    };
    let mut lower_elsewhere = false;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(address) if link.ethernet => link.mac = mac(&address),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::MaxMtu(mtu) => link.mtu_max = Some(mtu).filter(|mtu| *mtu != 0),
            LinkAttribute::Controller(master) => link.master = Some(master).filter(|index| *index != 0),
            LinkAttribute::Link(lower) => link.lower = Some(lower).filter(|index| *index != 0),
            LinkAttribute::LinkNetNsId(_) => lower_elsewhere = true,
            LinkAttribute::NumRxQueues(queues) => link.rx_queues = queues,
            LinkAttribute::NumTxQueues(queues) => link.tx_queues = queues,
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(kind) => link.kind = kind.to_string(),
                        LinkInfo::PortKind(kind) => link.port_kind = kind.to_string(),
                        _ => {}
                    }
                }
            }
            LinkAttribute::Xdp(xdp) => {
                link.xdp_program = xdp.iter().find_map(|part| match part {
                    LinkXdp::ProgId(id)
                    | LinkXdp::DrvProgId(id)
                    | LinkXdp::SkbProgId(id)
                    | LinkXdp::HwProgId(id)
                        if *id != 0 =>
                    {
                        Some(*id)
                    }
                    _ => None,
                });
            }
            _ => {}
        }
    }
    if lower_elsewhere {
        link.lower = None;
    }
    Some(link)
}

fn address(message: &AddressMessage, gone: bool) -> Option<Change> {
    let (mut local, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            _ => {}
        }
    }
    // On a point-to-point link IFA_ADDRESS is the other end's address and IFA_LOCAL ours (linux/if_addr.h).
    let address = local.or(other)?;
    let (ifindex, prefix) = (message.header.index, message.header.prefix_len);
    let not_ours_yet = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    let optimistic = message.header.flags.contains(AddressHeaderFlags::Optimistic);
    if gone || (message.header.flags.intersects(not_ours_yet) && !optimistic) {
        Some(Change::AddressGone { ifindex, address, prefix })
    } else {
        Some(Change::Address { ifindex, address, prefix })
    }
}

fn neighbour(message: &NeighbourMessage, gone: bool) -> Option<Change> {
    // Bridge forwarding entries come in the same group, and proxied addresses are not neighbours.
    if !matches!(message.header.family, AddressFamily::Inet | AddressFamily::Inet6)
        || message.header.flags.contains(NeighbourFlags::Proxy)
    {
        return None;
    }
    let mut address = None;
    let mut mac = None;
    let mut kept_by_other = message.header.flags.contains(NeighbourFlags::ExtLearned);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = self::mac(bytes),
            NeighbourAttribute::ExtFlags(flags) => {
                kept_by_other |= flags.contains(NeighbourExtFlags::Managed);
            }
            _ => {}
        }
    }
    let (ifindex, address) = (message.header.ifindex, address?);
    if gone {
        return Some(Change::NeighbourGone { ifindex, address });
    }
    let state = match message.header.state {
        KernelState::Incomplete => NeighbourState::Incomplete,
        KernelState::Reachable => NeighbourState::Reachable,
        KernelState::Stale => NeighbourState::Stale,
        KernelState::Delay => NeighbourState::Delay,
        KernelState::Probe => NeighbourState::Probe,
        KernelState::Failed => NeighbourState::Failed,
        KernelState::Noarp => NeighbourState::NoArp,
        KernelState::Permanent => NeighbourState::Permanent,
        _ => NeighbourState::None,
    };
    Some(Change::Neighbour { ifindex, address, neighbour: Neighbour { mac, state, kept_by_other } })
}

/// The route in the kernel's answer to RTM_GETROUTE for `peer`.
///
/// # Errors
/// [`KernelReason::NotPlain`] if sending a frame to a neighbour on one link is not enough.
pub fn route(peer: IpAddr, message: &RouteMessage) -> Result<Route, KernelReason> {
    match message.header.kind {
        RouteType::Unicast => {}
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit | RouteType::Throw => {
            return Err(KernelReason::NoRoute);
        }
        _ => return Err(KernelReason::NotPlain),
    }
    let (mut ifindex, mut next_hop, mut mtu) = (None, peer, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => next_hop = IpAddr::V4(*v4),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => next_hop = IpAddr::V6(*v6),
            // A gateway of the other family: RFC 5549, `via inet6`.
            RouteAttribute::Via(RouteVia::Inet(v4)) => next_hop = IpAddr::V4(*v4),
            RouteAttribute::Via(RouteVia::Inet6(v6)) => next_hop = IpAddr::V6(*v6),
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) if *mtu != 0 => Some(*mtu),
                    _ => None,
                });
            }
            RouteAttribute::Gateway(_)
            | RouteAttribute::Via(_)
            | RouteAttribute::Encap(_)
            | RouteAttribute::EncapType(_)
            | RouteAttribute::MultiPath(_)
            | RouteAttribute::NewDestination(_) => return Err(KernelReason::NotPlain),
            _ => {}
        }
    }
    let ifindex = ifindex.ok_or(KernelReason::NoRoute)?;
    Ok(Route { ifindex, next_hop, mtu })
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    <[u8; 6]>::try_from(bytes).ok().map(Mac)
}

#[cfg(test)]
mod tests;
