//! TCP listeners: a single socket, or a group among which the kernel distributes new connections.
#![allow(unsafe_code, reason = "TCP_REPAIR has no safe wrapper")]

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

use crate::udp_socket::bind_address;

/// Backlog per socket: connections that wait to be accepted; the host may allow fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// How many times at most the kernel is asked for a port: another program can take the chosen one before the group
/// has it.
const CHOICES: usize = 8;

/// `TCP_REPAIR_OFF` and `TCP_REPAIR_ON` of linux/tcp.h.
const REPAIR_OFF: c_int = 0;
const REPAIR_ON: c_int = 1;

/// Sockets that listen at one address and port.
#[derive(Debug)]
pub struct Group {
    /// One for each thread that accepts.
    pub listeners: Vec<OwnedFd>,
    /// Keeps programs of the same user from joining the group. `None` for a single socket, which nobody can join,
    /// or if the guard was refused (it needs CAP_NET_ADMIN).
    pub guard: Option<OwnedFd>,
}

impl Group {
    /// The port, host order, also if 0 was asked for; `None` if there is no listener.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        let local = getsockname(self.listeners.first()?).ok()?;
        SocketAddr::try_from(local).ok().map(|local| local.port())
    }
}

/// Listens on all addresses of both families, or on one, which need not exist yet. No other socket can share the
/// port. `vrf`: the index of the VRF to be in; `None`: no VRF.
///
/// # Errors
/// What the kernel returns; `AddrInUse` if another socket listens there.
pub fn listen(address: Option<IpAddr>, port: u16, vrf: Option<u32>) -> io::Result<OwnedFd> {
    let fd = open()?;
    bind(&fd, &bind_address(&fd, address, port, vrf)?)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// As [`listen`], with `count` sockets: each new connection goes to one of them, by its addresses and ports (`SO_REUSEPORT`,
/// socket(7)).
///
/// # Errors
/// As [`listen`].
pub fn listen_group(address: Option<IpAddr>, port: u16, count: usize, vrf: Option<u32>) -> io::Result<Group> {
    for _ in 1..CHOICES {
        match listen_group_once(address, port, count, vrf) {
            Err(error) if port == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            done => return done,
        }
    }
    listen_group_once(address, port, count, vrf)
}

fn listen_group_once(
    address: Option<IpAddr>,
    port: u16,
    count: usize,
    vrf: Option<u32>,
) -> io::Result<Group> {
    let alone = listen(address, port, vrf)?;
    if count <= 1 {
        return Ok(Group { listeners: vec![alone], guard: None });
    }
    // If another socket held the port, that call has failed. From now on only a group can have it.
    let port = SocketAddr::try_from(getsockname(&alone)?).map_or(port, |local| local.port());
    drop(alone);
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let fd = open()?;
        sockopt::set_socket_reuseport(&fd, true)?;
        bind(&fd, &bind_address(&fd, address, port, vrf)?)?;
        rustix::net::listen(&fd, BACKLOG)?;
        listeners.push(fd);
    }
    Ok(Group { listeners, guard: guard(address, port, vrf).ok() })
}

/// A listener for both families that nobody is to connect to: at the loopback address, if the network namespace has it, and a
/// port of the kernel's choice. Its filter drops all that arrives.
///
/// # Errors
/// What the kernel returns.
pub fn out_of_reach() -> io::Result<OwnedFd> {
    let fd = open()?;
    crate::socket_filter::drop_all(&fd)?;
    match bind(&fd, &SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 0))) {
        // It is bound to all addresses as it begins to listen.
        Ok(()) | Err(Errno::ADDRNOTAVAIL) => {}
        Err(error) => return Err(error.into()),
    }
    rustix::net::listen(&fd, 0)?;
    Ok(fd)
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
    sockopt::set_ipv6_v6only(&fd, false)?;
    // A restart need not wait for the former instance's connections to leave TIME_WAIT.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    // The worker writes each reply in one call, so the kernel need not wait for more data. Connections inherit the
    // option.
    sockopt::set_tcp_nodelay(&fd, true)?;
    Ok(fd)
}

/// A socket that is bound to the group's address and does not share it. The kernel lets a socket join only if every
/// socket bound there shares the address. To be bound there itself, this socket is briefly put into TCP repair
/// mode, which bypasses the check (tcp_repair_on() in net/ipv4/tcp.c, `inet_csk_get_port`).
fn guard(address: Option<IpAddr>, port: u16, vrf: Option<u32>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
    sockopt::set_ipv6_v6only(&fd, false)?;
    set_repair(&fd, REPAIR_ON)?;
    let bound = bind(&fd, &bind_address(&fd, address, port, vrf)?);
    set_repair(&fd, REPAIR_OFF)?;
    bound?;
    Ok(fd)
}

fn set_repair(fd: impl AsFd, value: c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open for the call, and the option's value is an int of the length given.
    let done = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::net::{SocketFlags, accept_with};
    use twinpath_test_rig::root_or_skip;

    use super::*;

    fn port_of(fd: &OwnedFd) -> u16 {
        SocketAddr::try_from(getsockname(fd).expect("bound")).expect("an IP address").port()
    }

    /// Whether another program of the same user can join.
    fn joins(port: u16) -> bool {
        let fd = open().expect("a socket");
        sockopt::set_socket_reuseport(&fd, true).expect("set");
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        bind(&fd, &address).is_ok() && rustix::net::listen(&fd, 1).is_ok()
    }

    #[test]
    fn a_group_distributes_connections_and_nobody_else_can_join() {
        if !root_or_skip() {
            return;
        }
        let group = listen_group(None, 0, 3, None).expect("a group");
        let port = port_of(&group.listeners[0]);
        assert!(group.guard.is_some());
        assert!(!joins(port), "the guard keeps it off");
        assert!(listen(None, port, None).is_err() && listen_group(None, port, 2, None).is_err());
        let peers: Vec<_> =
            (0..200).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("connected")).collect();
        // The last segment of a handshake may still be on its way when connect() returns.
        let (mut accepted, began) = ([0; 3], Instant::now());
        while accepted.iter().sum::<usize>() < peers.len() && began.elapsed() < Duration::from_secs(20) {
            for (count, listener) in accepted.iter_mut().zip(&group.listeners) {
                *count += std::iter::from_fn(|| accept_with(listener, SocketFlags::CLOEXEC).ok()).count();
            }
        }
        assert_eq!(accepted.iter().sum::<usize>(), peers.len());
        assert!(accepted.iter().all(|count| *count > 20), "{accepted:?}");
    }

    #[test]
    fn a_single_listener_is_joined_by_nobody() {
        let group = listen_group(None, 0, 1, None).expect("a listener");
        assert!(!joins(port_of(&group.listeners[0])));
    }
}
