//! Asks the kernel for the properties of a descriptor from another process. None of these calls waits, whatever the
//! descriptor is.
#![allow(unsafe_code, reason = "getsockopt(2) of an option that has no safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};

/// Whether it is a UDP socket (neither UDP-Lite, nor an ICMP or UNIX socket with datagrams).
#[must_use]
pub fn is_udp(socket: BorrowedFd<'_>) -> bool {
    let is_datagram = sockopt::socket_type(socket) == Ok(SocketType::DGRAM);
    let domain = sockopt::socket_domain(socket);
    is_datagram
        && (domain == Ok(AddressFamily::INET) || domain == Ok(AddressFamily::INET6))
        && sockopt::socket_protocol(socket) == Ok(Some(ipproto::UDP))
}

/// A number that identifies the network namespace of a socket for as long as the machine runs (SO_NETNS_COOKIE, Linux 5.14).
///
/// # Errors
/// What `getsockopt(2)` returns.
pub fn network_namespace(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut len = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: there is room for a value of that length, and both live across the call.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if asked == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// The process at the other end of a UNIX socket and its user, at the time when it connected (SO_PEERCRED); process
/// 0 if it is not in this PID namespace.
///
/// # Errors
/// What `getsockopt(2)` returns.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<(i32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: there is room for a value of that length, and both live across the call.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if asked == 0 { Ok((peer.pid, peer.uid)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::EventFd;

    #[test]
    fn udp_sockets_are_known_among_others() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            assert!(is_udp(UdpSocket::bind(address).expect("bound").as_fd()));
        }
        assert!(!is_udp(TcpListener::bind("127.0.0.1:0").expect("bound").as_fd()));
        assert!(!is_udp(UnixDatagram::unbound().expect("made").as_fd()));
        assert!(!is_udp(EventFd::new().expect("made").as_fd()));
    }

    #[test]
    fn sockets_of_two_namespaces_have_two_numbers() {
        let number = || {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            network_namespace(socket.as_fd())
        };
        let here = number().expect("Linux has it since 5.14");
        assert_eq!(number().expect("again"), here);
        if !twinpath_test_skip::root_or_skip() {
            return;
        }
        let elsewhere = crate::Namespace::new().expect("a namespace");
        let there = elsewhere.run(|| {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
            network_namespace(socket.as_fd())
        });
        assert_ne!(there.expect("entered").expect("asked"), here);
    }
}
