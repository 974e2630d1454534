//! Requests to the kernel: to read the tables, to find the route to a peer, to resolve a neighbour.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::stream::StreamExt as _;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use tokio::task::JoinHandle;
use twinpath_stack::egress::KernelReason;
use twinpath_time::Duration;

use super::table::Change;
use super::{MirrorError, message};
use crate::egress_book::Route;

/// The kernel answers at once, but this thread may wait for its CPU beside busy ones, and an answer that the library cannot decode
/// never arrives.
const PATIENCE: Duration = Duration::from_secs(10);

/// A table that changed while it was read is read again at most this often; after that, the last reading and the
/// notifications that follow have to suffice.
const DUMP_ATTEMPTS: u32 = 5;

/// The reason that a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The kernel refused the request.
    #[error("the kernel refused: {0}")]
    Refused(#[source] io::Error),
    /// The connection is gone.
    #[error("the netlink connection is closed")]
    Closed,
    /// No answer that could be decoded arrived.
    #[error("no answer that could be decoded within {} s", PATIENCE.as_secs())]
    Silent,
}

/// The connection for requests, closed with its last clone.
#[derive(Clone)]
pub(super) struct Kernel {
    handle: rtnetlink::Handle,
    _connection: Arc<AbortOnDrop>,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Kernel {
    pub(super) fn open() -> Result<Self, MirrorError> {
        let (connection, handle, _unsolicited) = rtnetlink::new_connection().map_err(MirrorError::Open)?;
        let task = tokio::spawn(connection);
        Ok(Self { handle, _connection: Arc::new(AbortOnDrop(task)) })
    }

    /// Links, addresses and neighbours as they are now.
    pub(super) async fn dump(self) -> Result<Vec<Change>, MirrorError> {
        let neighbours = |family| {
            let mut message = NeighbourMessage::default();
            message.header.family = family;
            RouteNetlinkMessage::GetNeighbour(message)
        };
        let tables = [
            ("links", RouteNetlinkMessage::GetLink(LinkMessage::default())),
            ("addresses", RouteNetlinkMessage::GetAddress(AddressMessage::default())),
            ("IPv4 neighbours", neighbours(AddressFamily::Inet)),
            ("IPv6 neighbours", neighbours(AddressFamily::Inet6)),
        ];
        let mut changes = Vec::new();
        for (what, request) in tables {
            let rows = self.read_table(request).await.map_err(|error| MirrorError::Dump { what, error })?;
            changes.extend(rows.into_iter().filter_map(message::change));
        }
        Ok(changes)
    }

    /// Reads a table. The kernel marks a table that changed meanwhile as possibly incomplete: then it is read again.
    async fn read_table(&self, request: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>, AskError> {
        let mut attempt = 1;
        loop {
            let (rows, interrupted) = self.request(request.clone(), NLM_F_DUMP).await?;
            if !interrupted || attempt == DUMP_ATTEMPTS {
                return Ok(rows);
            }
            attempt += 1;
        }
    }

    /// RTM_GETROUTE. `interface` is the VRF in whose table to look, or the link of a link-local peer.
    pub(super) async fn route(
        self,
        peer: IpAddr,
        source: Option<IpAddr>,
        interface: Option<u32>,
    ) -> Result<Route, KernelReason> {
        let mut request = RouteMessage::default();
        let bits = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
        request.header.address_family = family(peer);
        request.header.destination_prefix_length = bits(peer);
        request.attributes.push(RouteAttribute::Destination(RouteAddress::from(peer)));
        if let Some(source) = source {
            request.header.source_prefix_length = bits(source);
            request.attributes.push(RouteAttribute::Source(RouteAddress::from(source)));
        }
        request.attributes.extend(interface.map(RouteAttribute::Oif));
        match self.request(RouteNetlinkMessage::GetRoute(request), 0).await {
            Ok((rows, _)) => rows
                .iter()
                .find_map(|row| match row {
                    RouteNetlinkMessage::NewRoute(route) => Some(message::route(peer, route)),
                    _ => None,
                })
                .unwrap_or(Err(KernelReason::Unknown)),
            Err(AskError::Refused(_)) => Err(KernelReason::NoRoute),
            Err(AskError::Closed | AskError::Silent) => Err(KernelReason::Unknown),
        }
    }

    /// NTF_USE: makes the kernel behave as if it had something to send there itself. It creates the entry if there is
    /// none, resolves the address if it is unknown, and confirms it if it is stale. The mirror gets the notifications.
    /// Needs CAP_NET_ADMIN. Never used for permanent entries, which it would change to ordinary ones (`__neigh_update`,
    /// net/core/neighbour.c).
    pub(super) async fn resolve(self, ifindex: u32, next_hop: IpAddr) -> Result<(), AskError> {
        let mut request = NeighbourMessage::default();
        request.header.family = family(next_hop);
        request.header.ifindex = ifindex;
        request.header.state = NeighbourState::None;
        request.header.flags = NeighbourFlags::Use;
        request.attributes.push(NeighbourAttribute::Destination(match next_hop {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        }));
        self.request(RouteNetlinkMessage::NewNeighbour(request), NLM_F_ACK | NLM_F_CREATE).await.map(|_| ())
    }

    /// Sends one request and collects its answers; the flag says that the kernel marked them as possibly incomplete.
    async fn request(
        &self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(Vec<RouteNetlinkMessage>, bool), AskError> {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST | flags;
        let mut answers = self.handle.clone().request(message).map_err(|_| AskError::Closed)?;
        let (mut rows, mut interrupted) = (Vec::new(), false);
        loop {
            let answer =
                tokio::time::timeout(PATIENCE, answers.next()).await.map_err(|_| AskError::Silent)?;
            let Some(answer) = answer else { return Ok((rows, interrupted)) };
            interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
            match answer.payload {
                NetlinkPayload::InnerMessage(row) => rows.push(row),
                // This host has nothing of that kind, e.g. no IPv6.
                NetlinkPayload::Error(error) if error.code.is_some() => {
                    let error = error.to_io();
                    let nothing =
                        [Errno::AFNOSUPPORT, Errno::OPNOTSUPP].map(|errno| Some(errno.raw_os_error()));
                    if flags & NLM_F_DUMP == NLM_F_DUMP && nothing.contains(&error.raw_os_error()) {
                        return Ok((rows, interrupted));
                    }
                    return Err(AskError::Refused(error));
                }
                NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => return Ok((rows, interrupted)),
                _ => {}
            }
        }
    }
}

const fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
