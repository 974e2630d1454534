//! Opening the sockets and what is set on them.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_sys::udp_socket::enlarge_buffers;
use twinpath_time::Duration;

use crate::PlainError;

/// Longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A UDP socket bound to `address`; port 0 takes any.
pub(crate) fn bind_udp(address: SocketAddr) -> Result<(Arc<OwnedFd>, SocketAddr), PlainError> {
    let bound = |source| PlainError::Bind { address, source };
    let socket = UdpSocket::bind(address).map_err(bound)?;
    let local = socket.local_addr().map_err(bound)?;
    enlarge_buffers(&socket);
    Ok((Arc::new(socket.into()), local))
}

/// A UDP socket that knows its peer: no route lookup per packet, and errors of the far end are reported to it.
pub(crate) fn connect_udp(target: SocketAddr) -> Result<Arc<OwnedFd>, PlainError> {
    let any: SocketAddr = if target.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).map_err(|source| PlainError::Bind { address: any, source })?;
    socket.connect(target).map_err(|source| PlainError::Connect { target, source })?;
    enlarge_buffers(&socket);
    Ok(Arc::new(socket.into()))
}

/// A listening TCP socket.
pub(crate) fn listen_tcp(address: SocketAddr) -> Result<(Arc<OwnedFd>, SocketAddr), PlainError> {
    let bound = |source| PlainError::Bind { address, source };
    let socket = TcpListener::bind(address).map_err(bound)?;
    let local = socket.local_addr().map_err(bound)?;
    Ok((Arc::new(socket.into()), local))
}

/// A TCP connection, which sends every request at once unless `nagle`.
pub(crate) fn connect_tcp(target: SocketAddr, nagle: bool) -> Result<Arc<OwnedFd>, PlainError> {
    let stream = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT).map_err(|source| {
        if source.kind() == io::ErrorKind::ConnectionRefused {
            PlainError::Refused(target)
        } else {
            PlainError::Connect { target, source }
        }
    })?;
    stream.set_nodelay(!nagle).map_err(|source| PlainError::Option { option: "TCP_NODELAY", source })?;
    Ok(Arc::new(stream.into()))
}

/// A blocking receive returns after this at the latest.
pub(crate) fn set_receive_timeout(socket: impl AsFd, timeout: Duration) -> Result<(), PlainError> {
    rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, Some(timeout))
        .map_err(|source| PlainError::Option { option: "SO_RCVTIMEO", source: source.into() })
}

/// Whether a receive that failed so may simply be tried again.
pub(crate) fn is_transient(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM)
}

/// Whether a UDP socket reports so an ICMP error about a datagram sent earlier (udp(7), ip(7)).
pub(crate) fn is_icmp(error: Errno) -> bool {
    matches!(error, Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH)
}

/// Errors of the connection that was about to be accepted, not of the listener (accept(2)).
pub(crate) fn may_pass(error: Errno) -> bool {
    is_transient(error)
        || matches!(error, Errno::CONNABORTED | Errno::PROTO | Errno::NETDOWN | Errno::HOSTUNREACH)
}
