//! Opens the sockets of a port.
#![allow(unsafe_code, reason = "the MTU of a route is read by an option without a safe wrapper")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use twinpath_port::PortId;
use twinpath_sys::last_errno;
use twinpath_time::Duration;
use twinpath_wire::{eth, udp, vxlan};

use crate::shared::{Member, UdpPorts};
use crate::sockets::{OpenError, REMOTES_MAX, source};

/// Number of sockets that a port sends through, each with its own source port.
pub(crate) const SOURCES: usize = 16;

/// The inner MTU if no remote can be reached yet: for Ethernet's 1,500 bytes and IPv4.
const INNER_MTU_USUAL: u32 = 1450;

/// The configuration of a port.
#[derive(Clone, Debug)]
pub struct VxlanConfig {
    /// Its number.
    pub id: PortId,
    /// The network identifier, of 24 bits.
    pub vni: u32,
    /// The addresses of the remotes, at most [`REMOTES_MAX`].
    pub remotes: Vec<IpAddr>,
    /// The address of this host; `None`: all of them, and the route's choice for sending.
    pub local: Option<IpAddr>,
    /// The UDP port of this host and of the remotes.
    pub udp_port: u16,
    /// How long a learnt address is kept after its last frame.
    pub ageing: Duration,
    /// A secret for the table of addresses.
    pub seed: [u64; 2],
}

/// The opened sockets.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) receiver: Member,
    pub(crate) sources: Vec<OwnedFd>,
    pub(crate) inner_mtu: u32,
}

/// Opens them, in the network namespace of the calling thread.
pub(crate) fn open(config: &VxlanConfig, udp_ports: &mut UdpPorts) -> Result<Opened, OpenError> {
    if config.remotes.is_empty() || config.remotes.len() > REMOTES_MAX {
        return Err(OpenError::Remotes(config.remotes.len()));
    }
    let mut inner_mtu = None;
    for remote in &config.remotes {
        let (own, mtu) = route(config.local, *remote, config.udp_port);
        if own == Some(*remote) {
            return Err(OpenError::OwnAddress(*remote));
        }
        let inner = mtu.map(|mtu| mtu.saturating_sub(overhead(*remote)));
        inner_mtu = inner.into_iter().chain(inner_mtu).min();
    }
    let receiver = udp_ports.join(config.local, config.udp_port, config.vni)?;
    let sources = (0..SOURCES).map(|_| source(config.local)).collect::<Result<_, _>>()?;
    Ok(Opened { receiver, sources, inner_mtu: inner_mtu.unwrap_or(INNER_MTU_USUAL) })
}

/// Bytes in front of a frame's IP packet.
const fn overhead(remote: IpAddr) -> u32 {
    let ip = if remote.is_ipv4() { 20 } else { 40 };
    ip + (udp::HEADER_LEN + vxlan::HEADER_LEN + eth::HEADER_LEN) as u32
}

/// The source address for a remote, and the path MTU; `None` if there is no route at present.
fn route(local: Option<IpAddr>, remote: IpAddr, port: u16) -> (Option<IpAddr>, Option<u32>) {
    let any = if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let Ok(socket) = StdSocket::bind((local.unwrap_or(any), 0)) else { return (None, None) };
    if socket.connect(SocketAddr::new(remote, port)).is_err() {
        return (None, None);
    }
    let (level, option) = if remote.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    };
    (socket.local_addr().ok().map(|address| address.ip()), read_option(&socket, level, option).ok())
}

fn read_option(socket: &StdSocket, level: i32, option: i32) -> Result<u32, Errno> {
    let (mut value, mut len) = (0_u32, size_of::<u32>() as libc::socklen_t);
    // SAFETY: pointer and length describe `value`, which lives across the call.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len) };
    if result == 0 { Ok(value) } else { Err(last_errno()) }
}
