//! A kernel socket in the place of a connection that another implementation of TCP has (TCP_REPAIR,
//! include/uapi/linux/tcp.h). It takes CAP_NET_ADMIN.
#![allow(unsafe_code, reason = "TCP_REPAIR has no safe wrapper")]

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use crate::socket_filter;

/// `TCP_REPAIR_ON` of linux/tcp.h.
const REPAIR_ON: c_int = 1;

const ANY_V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const ANY_V6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Takes a free local port for a connection to `remote`, and the address that the kernel would choose. Returns the socket
/// that holds them, and both as the connection's local end.
///
/// For the kernel the socket is connected, and nobody else gets its port. Nothing is sent, now or when
/// the socket is closed, however that happens. What arrives at it is dropped without an answer. Once it is closed, the
/// kernel answers what still arrives by a reset.
///
/// # Errors
/// What the kernel returns: `PermissionDenied` without CAP_NET_ADMIN in the network namespace's user namespace,
/// `NetworkUnreachable` without a route, `AddrNotAvailable` without a free port.
pub fn hold(remote: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = if remote.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    socket_filter::drop_all(&socket)?;
    // Unlike a port that is chosen while connecting, this one is not shared with connections to other peers.
    bind(&socket, &SocketAddr::new(if remote.is_ipv4() { ANY_V4 } else { ANY_V6 }, 0))?;
    repair(&socket)?;
    // TCP_REPAIR has permitted others to bind the same port (`SK_FORCE_REUSE`, net/ipv4/tcp.c).
    sockopt::set_socket_reuseaddr(&socket, false)?;
    connect(&socket, &remote)?;
    let stream = TcpStream::from(socket);
    let local = stream.local_addr()?;
    Ok((stream.into(), local))
}

fn repair(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: the descriptor is open for the call, and the option's value is an int of the length given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            std::ptr::from_ref(&REPAIR_ON).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_ends_are_held_and_the_peer_hears_nothing() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            listener.set_nonblocking(true).unwrap();
            let remote = listener.local_addr().unwrap();
            let (held, local) = match hold(remote) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    eprintln!("SKIPPED: it takes CAP_NET_ADMIN");
                    return;
                }
                held => held.unwrap(),
            };
            assert!(local.ip() == remote.ip() && local.port() != 0);
            assert_eq!(TcpListener::bind(local).unwrap_err().kind(), ErrorKind::AddrInUse);
            let (_other, other) = hold(remote).unwrap();
            assert_ne!(local, other);
            drop(held);
            assert!(TcpListener::bind(local).is_ok(), "no TIME_WAIT is left");
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }
}
