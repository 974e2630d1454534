//! Opens the sockets and sets their options.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_sys::udp_socket::enlarge_buffers;
use twinpath_time::Duration;

use crate::SocketError;

/// Maximum wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A UDP socket bound to `address`; port 0 takes any free port.
pub fn bind_udp(address: SocketAddr) -> Result<(Arc<OwnedFd>, SocketAddr), SocketError> {
    let bound = |source| SocketError::Bind { address, source };
    let socket = UdpSocket::bind(address).map_err(bound)?;
    let local = socket.local_addr().map_err(bound)?;
    enlarge_buffers(&socket);
    Ok((Arc::new(socket.into()), local))
}

/// A connected UDP socket: it needs no route look-up per packet, and the kernel reports ICMP errors to it.
pub(crate) fn connect_udp(target: SocketAddr) -> Result<Arc<OwnedFd>, SocketError> {
    let any: SocketAddr = if target.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).map_err(|source| SocketError::Bind { address: any, source })?;
    socket.connect(target).map_err(|source| SocketError::Connect { target, source })?;
    enlarge_buffers(&socket);
    Ok(Arc::new(socket.into()))
}

/// A listening TCP socket.
pub fn listen_tcp(address: SocketAddr) -> Result<(Arc<OwnedFd>, SocketAddr), SocketError> {
    let bound = |source| SocketError::Bind { address, source };
    let socket = TcpListener::bind(address).map_err(bound)?;
    let local = socket.local_addr().map_err(bound)?;
    Ok((Arc::new(socket.into()), local))
}

/// A TCP connection; without `nagle` it sends every request immediately.
pub fn connect_tcp(target: SocketAddr, nagle: bool) -> Result<Arc<OwnedFd>, SocketError> {
    let stream = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT).map_err(|source| {
        if source.kind() == io::ErrorKind::ConnectionRefused {
            SocketError::Refused(target)
        } else {
            SocketError::Connect { target, source }
        }
    })?;
    stream.set_nodelay(!nagle).map_err(|source| SocketError::Option { option: "TCP_NODELAY", source })?;
    Ok(Arc::new(stream.into()))
}

/// Limits how long a blocking receive may take.
pub fn set_receive_timeout(socket: impl AsFd, timeout: Duration) -> Result<(), SocketError> {
    rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, Some(timeout))
        .map_err(|source| SocketError::Option { option: "SO_RCVTIMEO", source: source.into() })
}

/// Whether this error of a receive is temporary.
#[inline]
pub fn is_transient(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM)
}

/// Whether this error of a UDP socket is an ICMP error about a datagram sent earlier (udp(7), ip(7)).
pub fn is_icmp(error: Errno) -> bool {
    matches!(error, Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH)
}

/// Whether this error concerns the connection to be accepted, and not the listener (accept(2)).
pub fn may_pass(error: Errno) -> bool {
    is_transient(error)
        || matches!(error, Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN | Errno::HOSTUNREACH)
}
