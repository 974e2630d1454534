//! The subscription to notifications, on a netlink socket of its own: a lost notification is detected, and waiting ones
//! use a kernel buffer of fixed size.

use std::io;
use std::os::fd::AsFd as _;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE};
use rtnetlink::MulticastGroup;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

use super::table::Change;
use super::{MirrorError, message};

/// Everything the tables and the egress answers depend on, and what control would otherwise have to look for regularly.
const GROUPS: [MulticastGroup; 11] = [
    MulticastGroup::Link,
    MulticastGroup::Neigh,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
    MulticastGroup::Nexthop,
    MulticastGroup::Ipv4Netconf,
    MulticastGroup::Tc,
];

/// Longest datagram the kernel builds for a netlink socket: 32 KiB (since 4.9), twice that for safety.
const DATAGRAM_BYTES: usize = 64 * 1024;

/// Length of `struct nlmsghdr`, and the alignment between messages.
const HEADER_BYTES: usize = 16;
const ALIGN: usize = 4;

/// The result of one read of the socket.
#[derive(Debug)]
pub(super) enum Heard {
    /// Changes, in order.
    Changes(Vec<Change>),
    /// Notifications were lost because the socket was full.
    Overrun,
}

/// The subscribed socket.
pub(super) struct Watch {
    socket: TokioSocket,
    buffer: Vec<u8>,
    undecoded: u64,
}

impl Watch {
    /// Subscribes, with room for about `buffer_bytes` of notifications.
    pub(super) fn open(buffer_bytes: usize) -> Result<Self, MirrorError> {
        let mut socket = TokioSocket::new(NETLINK_ROUTE).map_err(MirrorError::Open)?;
        set_receive_buffer(&socket, buffer_bytes)?;
        let by_bind = GROUPS.iter().filter(|group| !group.need_via_add_membership());
        let mask = by_bind.fold(0_u32, |mask, group| mask | 1 << (*group as u32 - 1));
        socket.socket_mut().bind(&SocketAddr::new(0, mask)).map_err(MirrorError::Subscribe)?;
        for group in GROUPS.iter().filter(|group| group.need_via_add_membership()) {
            // Next-hop objects came with Linux 5.3; without them routes alone are enough.
            if let Err(error) = socket.socket_mut().add_membership(*group as u32) {
                tracing::debug!(%error, ?group, "no such notifications on this kernel");
            }
        }
        Ok(Self { socket, buffer: Vec::with_capacity(DATAGRAM_BYTES), undecoded: 0 })
    }

    /// Messages that could not be decoded and were skipped.
    pub(super) const fn undecoded(&self) -> u64 {
        self.undecoded
    }

    /// Waits for the next datagram. Cancelling loses nothing.
    pub(super) async fn next(&mut self) -> Result<Heard, MirrorError> {
        loop {
            self.buffer.clear();
            self.buffer.reserve(DATAGRAM_BYTES);
            match self.socket.recv_from(&mut self.buffer).await {
                // Only messages from the kernel count.
                Ok(sender) if sender.port_number() != 0 => {}
                Ok(_) => return Ok(Heard::Changes(self.decode())),
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    return Ok(Heard::Overrun);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(MirrorError::Receive(error)),
            }
        }
    }

    fn decode(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut rest = self.buffer.as_slice();
        while let Some((message, kind, after)) = split(rest) {
            rest = after;
            if let Some(change) = message::change_by_kind(kind, &message[HEADER_BYTES..]) {
                changes.extend(change);
                continue;
            }
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(message) {
                Ok(decoded) => {
                    if let NetlinkPayload::InnerMessage(inner) = decoded.payload {
                        changes.extend(message::change(inner));
                    }
                }
                Err(error) => {
                    self.undecoded += 1;
                    tracing::debug!(%error, kind, "netlink message skipped");
                }
            }
        }
        changes
    }
}

/// The first message of `bytes`, its type, and the bytes after it; `None` at the end or for inconsistent lengths.
fn split(bytes: &[u8]) -> Option<(&[u8], u16, &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(0..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    if length < HEADER_BYTES {
        return None;
    }
    let message = bytes.get(..length)?;
    let next = length.next_multiple_of(ALIGN).min(bytes.len());
    Some((message, kind, &bytes[next..]))
}

/// A size above `net.core.rmem_max` needs CAP_NET_ADMIN; without it the host's limit applies.
fn set_receive_buffer(socket: &TokioSocket, bytes: usize) -> Result<(), MirrorError> {
    let fd = socket.socket_ref().as_fd();
    set_socket_recv_buffer_size_force(fd, bytes)
        .or_else(|_| set_socket_recv_buffer_size(fd, bytes))
        .map_err(|error| MirrorError::Buffer { bytes, error: error.into() })
}
