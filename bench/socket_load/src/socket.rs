//! Opens the sockets and sets their options.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use twinpath_sys::clock;
use twinpath_sys::udp_socket::enlarge_buffers;
use twinpath_time::Duration;

use crate::SocketError;

/// Reserved ports that clients use: those of bindresvport(3).
const RESERVED: RangeInclusive<u16> = 600..=1023;

/// The port that a client sends from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Any that is free.
    #[default]
    Any,
    /// One below 1024, which takes CAP_NET_BIND_SERVICE: some servers answer no other.
    Reserved,
}

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
pub(crate) fn connect_udp(target: SocketAddr, source: Source) -> Result<Arc<OwnedFd>, SocketError> {
    let socket = udp_from(target, source)?;
    enlarge_buffers(&socket);
    Ok(Arc::new(socket.into()))
}

/// The same, with buffers as they are.
pub fn udp_from(target: SocketAddr, source: Source) -> Result<UdpSocket, SocketError> {
    let socket = match source {
        Source::Any => {
            let address = any(target, 0);
            UdpSocket::bind(address).map_err(|source| SocketError::Bind { address, source })?
        }
        Source::Reserved => reserved(target, SocketType::DGRAM)?.into(),
    };
    socket.connect(target).map_err(|source| SocketError::Connect { target, source })?;
    Ok(socket)
}

/// A TCP connection.
pub fn tcp_from(target: SocketAddr, source: Source) -> Result<TcpStream, SocketError> {
    let connected = match source {
        Source::Any => TcpStream::connect_timeout(&target, CONNECT_TIMEOUT),
        Source::Reserved => {
            let socket = reserved(target, SocketType::STREAM)?;
            // socket(7): it bounds connect(2), too.
            set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_TIMEOUT))
                .and_then(|()| rustix::net::connect(&socket, &target))
                .and_then(|()| set_socket_timeout(&socket, Timeout::Send, None))
                .map(|()| socket.into())
                .map_err(|error| match error {
                    Errno::INPROGRESS => io::ErrorKind::TimedOut.into(),
                    error => error.into(),
                })
        }
    };
    connected.map_err(|source| match source.kind() {
        io::ErrorKind::ConnectionRefused => SocketError::Refused(target),
        _ => SocketError::Connect { target, source },
    })
}

/// The wildcard address of the target's family.
fn any(target: SocketAddr, port: u16) -> SocketAddr {
    if target.is_ipv4() { ([0, 0, 0, 0], port).into() } else { ([0_u16; 8], port).into() }
}

/// A socket bound to a free reserved port. The search begins at another one each time, as a closed connection keeps its
/// port for a minute.
fn reserved(target: SocketAddr, kind: SocketType) -> Result<OwnedFd, SocketError> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let failed = |address| move |error: Errno| SocketError::Bind { address, source: error.into() };
    let first = any(target, *RESERVED.start());
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(failed(first))?;
    let count = RESERVED.len();
    let from = clock::now().as_nanos() as usize / 1000 % count;
    for port in RESERVED.cycle().skip(from).take(count) {
        let address = any(target, port);
        match rustix::net::bind(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(failed(address)(error)),
        }
    }
    Err(failed(first)(Errno::ADDRINUSE))
}

/// A listening TCP socket.
pub fn listen_tcp(address: SocketAddr) -> Result<(Arc<OwnedFd>, SocketAddr), SocketError> {
    let bound = |source| SocketError::Bind { address, source };
    let socket = TcpListener::bind(address).map_err(bound)?;
    let local = socket.local_addr().map_err(bound)?;
    Ok((Arc::new(socket.into()), local))
}

/// A TCP connection; without `nagle` it sends every request immediately.
pub fn connect_tcp(target: SocketAddr, source: Source, nagle: bool) -> Result<Arc<OwnedFd>, SocketError> {
    let stream = tcp_from(target, source)?;
    stream.set_nodelay(!nagle).map_err(|source| SocketError::Option { option: "TCP_NODELAY", source })?;
    Ok(Arc::new(stream.into()))
}

/// Limits how long a blocking receive may take.
pub fn set_receive_timeout(socket: impl AsFd, timeout: Duration) -> Result<(), SocketError> {
    set_socket_timeout(socket, Timeout::Recv, Some(timeout))
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
