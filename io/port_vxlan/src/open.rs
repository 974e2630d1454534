//! Opens the sockets of a port.
#![allow(unsafe_code, reason = "the MTU of a route is read by an option without a safe wrapper")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use twinpath_port::PortId;
use twinpath_sys::last_errno;
use twinpath_sys::udp_socket::{bind_address, enlarge_buffers, set_option};
use twinpath_time::Duration;
use twinpath_wire::{eth, udp, vxlan};

use crate::shared::{Member, NETWORKS_MAX, UdpPorts};

/// Most remotes of a port: a frame for all of them is sent as often.
pub const REMOTES_MAX: usize = 64;

/// Sockets that a port sends by, each from a source port of its own.
pub(crate) const SOURCES: usize = 16;

/// The inner MTU where no remote can be reached yet: that of Ethernet's 1,500 bytes and IPv4.
const INNER_MTU_USUAL: u32 = 1450;

/// Receives whole trains of datagrams (UDP_GRO, udp(7)).
const UDP_GRO: i32 = 104;
/// Accepts datagrams without a checksum over IPv6, as RFC 6935 allows for tunnels (linux/udp.h).
const UDP_NO_CHECK6_RX: i32 = 102;

/// What a port is to be.
#[derive(Clone, Debug)]
pub struct VxlanConfig {
    /// Its number.
    pub id: PortId,
    /// The network identifier, of 24 bits.
    pub vni: u32,
    /// The addresses of the remotes, at most [`REMOTES_MAX`].
    pub remotes: Vec<IpAddr>,
    /// The address of this host; `None`: all of them, and the one that the route chooses to send from.
    pub local: Option<IpAddr>,
    /// The UDP port of this host and of the remotes.
    pub udp_port: u16,
    /// How long it is known behind which remote an address is, after its last frame.
    pub ageing: Duration,
    /// What others cannot guess, for the table of addresses.
    pub seed: [u64; 2],
}

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The UDP port is taken.
    #[error(
        "UDP port {port} is in use: by a VXLAN interface of the kernel, another switch, or a port of this one with another address; give \
         them different addresses (local) or ports (udp_port)"
    )]
    InUse {
        /// The port.
        port: u16,
    },
    /// Another port has the network, at the same address and UDP port.
    #[error(
        "network {vni} at UDP port {port} is another port's of this switch: give them different networks (vni), addresses (local) or ports \
         (udp_port)"
    )]
    NetworkInUse {
        /// The network.
        vni: u32,
        /// The UDP port.
        port: u16,
    },
    /// Too many networks.
    #[error(
        "UDP port {port} has {NETWORKS_MAX} networks, which is the most: give further ones another port (udp_port)"
    )]
    Networks {
        /// The UDP port.
        port: u16,
    },
    /// A remote is this host.
    #[error("the remote {0} is an address of this host: name the addresses of the other hosts only")]
    OwnAddress(IpAddr),
    /// There are none, or too many.
    #[error("{0} remotes: a port has 1 to {REMOTES_MAX}")]
    Remotes(usize),
    /// A socket.
    #[error("cannot open a UDP socket ({step}: {source})")]
    Socket {
        /// The system call.
        step: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// What is open.
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

/// A socket that receives. In a group it shares the UDP port with others that are.
pub(crate) fn receiver(local: Option<IpAddr>, port: u16, in_group: bool) -> Result<OwnedFd, OpenError> {
    let receiver = socket(local, port, in_group).map_err(|error| match error {
        OpenError::Socket { step: "bind", source } if source.kind() == std::io::ErrorKind::AddrInUse => {
            OpenError::InUse { port }
        }
        error => error,
    })?;
    enlarge_buffers(&receiver);
    // Old kernels hand over each datagram by itself.
    let _ = set_option(&receiver, libc::SOL_UDP, UDP_GRO, 1);
    set_option(&receiver, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1).map_err(failed("UDP_NO_CHECK6_RX"))?;
    set_option(&receiver, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).map_err(failed("SO_RXQ_OVFL"))?;
    Ok(receiver)
}

/// Bytes in front of a frame's IP packet.
const fn overhead(remote: IpAddr) -> u32 {
    let ip = if remote.is_ipv4() { 20 } else { 40 };
    ip + (udp::HEADER_LEN + vxlan::HEADER_LEN + eth::HEADER_LEN) as u32
}

/// A socket that sends, from a port that the kernel chooses.
fn source(local: Option<IpAddr>) -> Result<OwnedFd, OpenError> {
    let socket = socket(local, 0, false)?;
    enlarge_buffers(&socket);
    // Nobody has a reason to send there: what comes is not read, and as little as possible is kept of it.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, 0);
    // Tunnels do not fragment (RFC 7348 section 4.3): what is too long for the route is refused.
    set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
        .map_err(failed("IP_MTU_DISCOVER"))?;
    set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
        .map_err(failed("IPV6_MTU_DISCOVER"))?;
    Ok(socket)
}

fn socket(local: Option<IpAddr>, port: u16, in_group: bool) -> Result<OwnedFd, OpenError> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket =
        socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None).map_err(failed("socket"))?;
    sockopt::set_ipv6_v6only(&socket, false).map_err(failed("IPV6_V6ONLY"))?;
    if in_group {
        sockopt::set_socket_reuseport(&socket, true).map_err(failed("SO_REUSEPORT"))?;
    }
    let address = bind_address(&socket, local, port)
        .map_err(|source| OpenError::Socket { step: "IPV6_FREEBIND", source })?;
    bind(&socket, &address).map_err(failed("bind"))?;
    Ok(socket)
}

pub(crate) fn failed(step: &'static str) -> impl FnOnce(Errno) -> OpenError {
    move |error| OpenError::Socket { step, source: error.into() }
}

/// The address from which a remote is reached, and the MTU of the way there; `None` if there is none at present.
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
