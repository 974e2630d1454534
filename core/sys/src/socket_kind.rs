//! The kinds of sockets that can have a fast path, and what else the kernel says of a descriptor from another process.
//! None of these calls waits, whatever the descriptor is.
#![allow(unsafe_code, reason = "getsockopt(2) of an option that has no safe wrapper")]

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::{fmt, io};

use libc::c_int;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use rustix::process::Pid;

/// A kind of socket that can have a fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// UDP, by IPv4 or IPv6; neither UDP-Lite, nor an ICMP or UNIX socket with datagrams.
    Udp,
}

impl SocketKind {
    /// The kind of socket that `socket(2)` makes with these arguments; `None`: one that has no fast path.
    #[must_use]
    pub const fn made_by(domain: c_int, kind: c_int, protocol: c_int) -> Option<Self> {
        match (domain, kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK), protocol) {
            (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Some(Self::Udp),
            _ => None,
        }
    }

    /// The kind of a socket; `None`: one that has no fast path. `errno` stays as it is.
    ///
    /// # Errors
    /// `ENOTSOCK`: it is no socket. What else `getsockopt(2)` returns.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let kind = sockopt::socket_type(socket)?;
        let (domain, protocol) = (sockopt::socket_domain(socket)?, sockopt::socket_protocol(socket)?);
        let is_internet = domain == AddressFamily::INET || domain == AddressFamily::INET6;
        let is_udp = is_internet && kind == SocketType::DGRAM && protocol == Some(ipproto::UDP);
        Ok(is_udp.then_some(Self::Udp))
    }
}

impl fmt::Display for SocketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
        })
    }
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

/// The other end of a UNIX socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process; `None` if it is not in this PID namespace.
    pub process: Option<Pid>,
    /// Its user.
    pub user: u32,
}

impl Peer {
    /// The number of the process; `None` if it has none here.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.map(|process| process.as_raw_nonzero().get().unsigned_abs())
    }
}

/// The process at the other end of a UNIX socket and its user, at the time when it connected or called `listen(2)`
/// (SO_PEERCRED, unix(7)). rustix has the same call, but no value for a process of another PID namespace.
///
/// # Errors
/// What `getsockopt(2)` returns.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: there is room for a value of that length, and both live across the call.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { process: Pid::from_raw(peer.pid), user: peer.uid })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::{FromRawFd as _, OwnedFd};
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::EventFd;

    #[test]
    fn the_other_end_is_a_process_and_its_user() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("made");
        let of_it = peer(&one).expect("a UNIX socket");
        assert_eq!(of_it.pid(), Some(std::process::id()));
        assert_eq!(of_it.user, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn udp_sockets_are_known_among_others() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = UdpSocket::bind(address).expect("bound");
            assert_eq!(SocketKind::of(socket.as_fd()), Ok(Some(SocketKind::Udp)));
        }
        let stream = TcpListener::bind("127.0.0.1:0").expect("bound");
        assert_eq!(SocketKind::of(stream.as_fd()), Ok(None));
        assert_eq!(SocketKind::of(UnixDatagram::unbound().expect("made").as_fd()), Ok(None));
        assert_eq!(SocketKind::of(EventFd::new().expect("made").as_fd()), Err(Errno::NOTSOCK));
    }

    #[test]
    fn what_makes_a_socket_says_its_kind_as_the_socket_does() {
        for domain in [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX] {
            for kind in [libc::SOCK_DGRAM, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, libc::SOCK_STREAM] {
                for protocol in [0, libc::IPPROTO_UDP, libc::IPPROTO_TCP, libc::IPPROTO_UDPLITE] {
                    // SAFETY: it takes numbers.
                    let made = unsafe { libc::socket(domain, kind, protocol) };
                    if made < 0 {
                        continue;
                    }
                    // SAFETY: the descriptor is new, and nobody else's.
                    let made = unsafe { OwnedFd::from_raw_fd(made) };
                    let said = SocketKind::made_by(domain, kind, protocol);
                    assert_eq!(SocketKind::of(made.as_fd()), Ok(said), "{domain} {kind} {protocol}");
                }
            }
        }
    }

    #[test]
    fn sockets_of_two_namespaces_have_two_numbers() {
        let number = || {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            network_namespace(socket.as_fd())
        };
        let here = number().expect("Linux has it since 5.14");
        assert_eq!(number().expect("again"), here);
        if !twinpath_test_rig::root_or_skip() {
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
