//! Requests to the kernel: to read the tables, to find the route to a peer, to resolve a neighbour.

use std::net::IpAddr;

use rustix::io::Errno;
use twinpath_netlink::route::{
    ADDRESS_HEADER_LEN, LINK_HEADER_LEN, RTM_GETADDR, RTM_GETLINK, family, octets,
};
use twinpath_netlink::{Body, Failure, Netlink, NetlinkError, Protocol, Request};
use twinpath_udp::egress::KernelReason;

use super::table::Change;
use super::{MirrorError, message};
use crate::mirror::egress_book::Route;
use crate::mirror::message::{
    AF_INET, AF_INET6, NDA_DST, NEIGHBOUR_HEADER_LEN, ROUTE_HEADER_LEN, RTA_OIF, RTM_NEWROUTE,
};

// linux/rtnetlink.h, linux/neighbour.h
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const NTF_USE: u8 = 1;

/// The socket for requests.
pub(super) struct Kernel(Netlink);

impl Kernel {
    pub(super) fn open() -> Result<Self, MirrorError> {
        Netlink::open(Protocol::Route).map(Self).map_err(MirrorError::Open)
    }

    /// Links, addresses and neighbours as they are now.
    pub(super) fn dump(&self) -> Result<Vec<Change>, MirrorError> {
        let neighbours = |family: u8| {
            let mut header = [0; NEIGHBOUR_HEADER_LEN];
            header[0] = family;
            Body::new(header)
        };
        let tables = [
            ("list the links", RTM_GETLINK, Body::new([0; LINK_HEADER_LEN])),
            ("list the addresses", RTM_GETADDR, Body::new([0; ADDRESS_HEADER_LEN])),
            ("list the IPv4 neighbours", RTM_GETNEIGH, neighbours(AF_INET)),
            ("list the IPv6 neighbours", RTM_GETNEIGH, neighbours(AF_INET6)),
        ];
        let mut changes = Vec::new();
        for (asked, kind, body) in tables {
            match self.0.request(&Request::list(asked, kind, &body)) {
                Ok(rows) => {
                    changes.extend(rows.iter().filter_map(|row| message::change(&row).ok().flatten()))
                }
                // This host does not support these, e.g. no IPv6.
                Err(error) if error.is(Errno::AFNOSUPPORT) || error.is(Errno::OPNOTSUPP) => {}
                Err(error) => return Err(MirrorError::Dump(error)),
            }
        }
        Ok(changes)
    }

    /// RTM_GETROUTE. `interface` is the VRF in whose table to look, or the link of a link-local peer.
    pub(super) fn route(
        &self,
        peer: IpAddr,
        source: Option<IpAddr>,
        interface: Option<u32>,
    ) -> Result<Route, KernelReason> {
        let mut header = [0; ROUTE_HEADER_LEN];
        (header[0], header[1]) = (family(peer), bits(peer));
        header[2] = source.map_or(0, bits);
        let mut body = Body::new(header).bytes(RTA_DST, octets(peer));
        if let Some(source) = source {
            body = body.bytes(RTA_SRC, octets(source));
        }
        if let Some(interface) = interface {
            body = body.u32(RTA_OIF, interface);
        }
        match self.0.request(&Request::new("find a route", RTM_GETROUTE, &body)) {
            Ok(rows) => {
                let route = rows.iter().find(|row| row.kind == RTM_NEWROUTE);
                route.map_or(Err(KernelReason::Unknown), |route| message::route(peer, &route))
            }
            Err(error) if matches!(error.failure(), Failure::Refused { .. }) => Err(KernelReason::NoRoute),
            Err(error) => {
                tracing::debug!("{peer}: {error}");
                Err(KernelReason::Unknown)
            }
        }
    }

    /// NTF_USE: makes the kernel behave as if it had something to send there itself. The kernel creates the
    /// entry if there is none, resolves an unknown address, and confirms a stale one. The mirror gets the
    /// notifications. Needs CAP_NET_ADMIN. Never used for permanent entries, because it would make them
    /// ordinary ones (`__neigh_update`, net/core/neighbour.c).
    pub(super) fn resolve(&self, ifindex: u32, next_hop: IpAddr) -> Result<(), NetlinkError> {
        // `struct ndmsg`: family, padding, index, state, flags, type.
        let mut header = [0; NEIGHBOUR_HEADER_LEN];
        header[0] = family(next_hop);
        header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        header[10] = NTF_USE;
        let body = Body::new(header).bytes(NDA_DST, octets(next_hop));
        self.0.request(&Request::set("resolve a neighbour", RTM_NEWNEIGH, &body)).map(drop)
    }
}

const fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
