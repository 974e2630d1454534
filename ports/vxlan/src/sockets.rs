//! The sockets of a port, and the errors of opening them.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use twinpath_sys::udp_socket::{bind_address, enlarge_buffers, set_option};

/// Maximum number of remotes of a port. A frame for all of them is sent this many times.
pub const REMOTES_MAX: usize = 64;

/// Maximum number of networks of one UDP port. A filter checks them one after the other.
pub(crate) const NETWORKS_MAX: usize = 1024;

/// Receives whole trains of datagrams (UDP_GRO, udp(7)).
const UDP_GRO: i32 = 104;
/// Accepts datagrams without a checksum over IPv6, as RFC 6935 allows for tunnels (linux/udp.h).
const UDP_NO_CHECK6_RX: i32 = 102;

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
    /// The filter of a UDP port with several networks is too long for this host's kernel.
    #[error(
        "the filter of a UDP port with {networks} networks takes more memory than a socket may have: raise net.core.optmem_max \
         (sysctl net.core.optmem_max=131072), or give some networks another port (udp_port)"
    )]
    FilterMemory {
        /// Networks that it was for.
        networks: usize,
    },
    /// A remote is this host.
    #[error("the remote {0} is an address of this host: name the addresses of the other hosts only")]
    OwnAddress(IpAddr),
    /// There are none, or too many.
    #[error("{0} remotes: a port has 1 to {REMOTES_MAX}")]
    Remotes(usize),
    /// A socket could not be opened.
    #[error("cannot open a UDP socket ({step}: {source})")]
    Socket {
        /// The system call.
        step: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// A socket that receives. In a group, it shares the UDP port with other sockets in that group.
pub(crate) fn receiver(local: Option<IpAddr>, port: u16, in_group: bool) -> Result<OwnedFd, OpenError> {
    let receiver = socket(local, port, in_group).map_err(|error| match error {
        OpenError::Socket { step: "bind", source } if source.kind() == std::io::ErrorKind::AddrInUse => {
            OpenError::InUse { port }
        }
        error => error,
    })?;
    enlarge_buffers(&receiver);
    // Old kernels deliver each datagram separately.
    let _ = set_option(&receiver, libc::SOL_UDP, UDP_GRO, 1);
    set_option(&receiver, libc::SOL_UDP, UDP_NO_CHECK6_RX, 1).map_err(failed("UDP_NO_CHECK6_RX"))?;
    set_option(&receiver, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).map_err(failed("SO_RXQ_OVFL"))?;
    Ok(receiver)
}

/// A socket that sends, from a port that the kernel chooses.
pub(crate) fn source(local: Option<IpAddr>) -> Result<OwnedFd, OpenError> {
    let socket = socket(local, 0, false)?;
    enlarge_buffers(&socket);
    // Nobody has a reason to send there: data that arrive are not read, and as little as possible is buffered.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, 0);
    // Tunnels do not fragment (RFC 7348 section 4.3): a datagram that is too long for the route is refused.
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
    let address = bind_address(&socket, local, port, None)
        .map_err(|source| OpenError::Socket { step: "IPV6_FREEBIND", source })?;
    bind(&socket, &address).map_err(failed("bind"))?;
    Ok(socket)
}

/// The error if the kernel has refused the filter of a UDP port with `networks` networks.
pub(crate) fn refused_filter(networks: usize, error: Errno) -> OpenError {
    match error {
        Errno::NOMEM => OpenError::FilterMemory { networks },
        error => failed("SO_ATTACH_REUSEPORT_CBPF")(error),
    }
}

pub(crate) fn failed(step: &'static str) -> impl FnOnce(Errno) -> OpenError {
    move |error| OpenError::Socket { step, source: error.into() }
}
