//! A port to the switches of other hosts: Ethernet frames in UDP datagrams (VXLAN, RFC 7348), over the kernel's
//! sockets.
//!
//! A port is one network (VNI) with one or several remotes; several ports share a UDP port (`shared`). All remotes
//! together are one port. A frame that came from one remote does not leave through the port again, so it never goes
//! to another remote, and a full mesh of switches has no loop. The port learns behind which remote an address is.
//! Frames to unknown addresses, and to groups, go to each remote (head-end replication).
//!
//! Datagrams are received by one socket, at the port assigned to VXLAN, and sent by several, from a source port
//! that depends on the flow: routers and receivers spread flows by it. Frames of equal length are sent as one
//! message, and datagrams that arrive together are received as one, so that they pass the kernel's stack once on
//! each host.
//!
//! Between hosts, frames are plain: a super-frame inside a tunnel cannot be described in the kernel's interfaces,
//! so the port takes none, and checksums are complete. A kernel with a VXLAN interface above a virtual device does
//! not follow this rule: it sends frames longer than any MTU, with checksums left to be completed. Both can be
//! detected from the frame, and are marked in its metadata (`inner`).
//!
//! The kernel routes, resolves addresses and learns the path MTU. A frame that is longer than the path MTU is
//! dropped and counted; a tunnel does not fragment (RFC 7348 section 4.3).
//!
//! Never here: which frames go to the port, multicast groups of remotes, a timer.

mod flow;
mod inner;
mod open;
mod receive;
mod remotes;
mod send;
mod shared;
mod sockets;

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use twinpath_frame::{Burst, Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_port::{Capabilities, PortQueue, QueueInfo, Received, WaitSource};
use twinpath_time::Instant;
use twinpath_wire::vxlan::Packet;
use twinpath_wire::{ParseError, vxlan};

pub use crate::open::VxlanConfig;
use crate::receive::{Datagram, Receiver};
use crate::remotes::Remotes;
use crate::send::Sender;
pub use crate::shared::UdpPorts;
pub use crate::sockets::{OpenError, REMOTES_MAX};

/// The longest frame: the longest datagram over IPv4 without the header.
const FRAME_LEN_MAX: usize = 65_507 - vxlan::HEADER_LEN;

/// Chunks that one call of [`PortQueue::receive`] takes, exceeded by at most one frame: enough for two frames of 64
/// KiB.
const CHUNKS_PER_TURN: usize = 66;

/// The port, with its only queue.
#[derive(Debug)]
pub struct VxlanPort {
    info: QueueInfo,
    vni: u32,
    inner_mtu: u32,
    remotes: Remotes,
    receiver: Receiver,
    sender: Sender,
}

impl VxlanPort {
    /// Opens the sockets, in the network namespace of the calling thread, whose VXLAN ports share `udp_ports`. No remote need be
    /// reachable yet.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: &VxlanConfig, udp_ports: &mut UdpPorts) -> Result<Self, OpenError> {
        let opened = open::open(config, udp_ports)?;
        let mapped = |address: &IpAddr| match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => *v6,
        };
        let addresses: Box<[Ipv6Addr]> = config.remotes.iter().map(mapped).collect();
        let sender = Sender::new(opened.sources, config.vni, addresses.iter().copied(), config.udp_port);
        Ok(Self {
            info: QueueInfo::new(config.id, 0),
            vni: config.vni,
            inner_mtu: opened.inner_mtu,
            remotes: Remotes::new(addresses, config.ageing, config.seed),
            receiver: Receiver::new(opened.receiver),
            sender,
        })
    }

    /// The MTU for hosts at the switch, according to the routes to the remotes when it was opened.
    #[must_use]
    pub const fn inner_mtu(&self) -> u32 {
        self.inner_mtu
    }
}

/// The frame of a datagram, and the index of the remote that sent it.
fn frame_of<'a>(datagram: &Datagram<'a>, vni: u32, remotes: &Remotes) -> Result<(&'a [u8], u16), Reason> {
    let remote = remotes.place_of(datagram.from).ok_or(Reason::SourceNotAllowed)?;
    let packet = Packet::parse(datagram.payload).map_err(|error| match error {
        ParseError::VxlanFlags => Reason::VxlanFlags,
        _ => Reason::Truncated,
    })?;
    if packet.vni() != vni {
        return Err(Reason::VxlanNetwork);
    }
    Ok((packet.frame(), remote))
}

impl WaitSource for VxlanPort {
    /// The fd is level-triggered, so a sleeping worker does not miss anything in the socket.
    #[inline]
    fn look(&self) -> bool {
        self.receiver.has_more()
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.socket().as_fd())
    }
}

impl PortQueue for VxlanPort {
    fn info(&self) -> &QueueInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { frame_len_max: FRAME_LEN_MAX as u32, chains: true, ..Capabilities::default() }
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        let Self { info, vni, inner_mtu, remotes, receiver, .. } = self;
        if !receiver.has_more() {
            match receiver.receive() {
                Ok(0) => {}
                Ok(lost) => info.counters.ring_full.add(lost.into()),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => return info.counters.errors.add(1),
            }
        }
        let mut received = Received::new(now, info.id);
        let mut chunks = 0;
        while burst.room() > 0 && chunks < CHUNKS_PER_TURN {
            let Some(datagram) = receiver.peek() else { break };
            let (made, bytes) = match frame_of(&datagram, *vni, remotes) {
                Ok((frame, remote)) => {
                    remotes.learn(frame, remote, now);
                    inner::received(&datagram, frame, pool, *inner_mtu)
                }
                Err(reason) => (Err(reason), datagram.payload.len()),
            };
            receiver.take(bytes);
            match made {
                Ok(frame) => {
                    chunks += frame.chain().count();
                    let len = frame.chain_len();
                    info.counters.count_super_frame_in(&frame);
                    received.push(frame, len, pool, burst);
                }
                Err(reason) => info.counters.drops.add(reason, 1),
            }
        }
        received.count(&info.counters);
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        self.sender.send(burst.frames(), &self.remotes, &self.info.counters);
        burst.release(usize::MAX, pool);
    }

    /// Nothing to do: the kernel has copied all frames.
    fn flush(&mut self, _pool: &mut Pool) {}

    fn on_error(&mut self) {
        // Reading SO_ERROR clears it. An ICMP message concerns only one remote, whose state may change.
        let _ = rustix::net::sockopt::socket_error(self.receiver.socket());
        self.info.counters.errors.add(1);
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
