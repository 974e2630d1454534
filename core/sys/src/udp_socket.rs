//! A kernel UDP socket for a service: it reports the local address to which a datagram was sent, and sends replies
//! from it.
#![allow(unsafe_code, reason = "recvmsg(2) and sendmsg(2) with packet information have no safe wrapper")]

use std::ffi::{c_int, c_void};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::errno::last_errno;

/// Room for one `in6_pktinfo` and its header, aligned as the kernel requires.
#[repr(align(8))]
struct Control([u8; 64]);

/// Size of each socket buffer, as the kernel charges it. A datagram of 64 KiB in 45 fragments is charged up to 200
/// KiB, so the kernel's default of 208 KiB holds one. 1024 requests of 64 bytes are charged about 800 KiB.
const BUFFER_BYTES: usize = 4 << 20;

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its length; more than the buffer's if it was truncated.
    pub len: usize,
    /// Its source.
    pub peer: SocketAddr,
    /// Its destination, a local address.
    pub local: IpAddr,
    /// The interface on which it arrived.
    pub ifindex: u32,
}

/// A UDP socket on all addresses of both families, or on one address; non-blocking.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    address: Option<IpAddr>,
    port: u16,
}

impl UdpSocket {
    /// Binds `[::]:port` for both families; no other socket can share it.
    ///
    /// # Errors
    /// What the kernel returns; `AddrInUse` if another socket holds the port.
    pub fn bind(port: u16) -> io::Result<Self> {
        Self::bind_at(None, port, None)
    }

    /// Binds the port at one address, or as [`UdpSocket::bind`]. The address need not exist yet, and may come and go.
    /// `vrf`: the index of the VRF to be in; `None`: no VRF.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub fn bind_at(address: Option<IpAddr>, port: u16, vrf: Option<u32>) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None)?;
        sockopt::set_ipv6_v6only(&fd, false)?;
        set_option(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        enlarge_buffers(&fd);
        bind(&fd, &bind_address(&fd, address, port, vrf)?)?;
        let bound = rustix::net::getsockname(&fd)?;
        let port = SocketAddr::try_from(bound).map_or(port, |address| address.port());
        Ok(Self { fd, address, port })
    }

    /// A socket that another process has bound as [`UdpSocket::bind_at`] does.
    #[must_use]
    pub const fn inherited(fd: OwnedFd, address: Option<IpAddr>, port: u16) -> Self {
        Self { fd, address, port }
    }

    /// The one address it is bound to; `None`: all.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Whether a reply from that address and port can leave through this socket.
    #[inline]
    #[must_use]
    pub fn is_at(&self, local: SocketAddr) -> bool {
        self.port == local.port() && self.address.is_none_or(|address| address == local.ip())
    }

    /// The port, also if 0 was requested.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Receives one datagram into `buffer`.
    ///
    /// # Errors
    /// `AGAIN` if there is none; what `recvmsg(2)` returns otherwise.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        // SAFETY: an all-zero sockaddr_in6 is a valid value of a struct of plain integers.
        let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        let mut control = Control([0; 64]);
        let mut vector =
            libc::iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: buffer.len() };
        // SAFETY: an all-zero msghdr is a valid value: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut name).cast::<c_void>();
        message.msg_namelen = size_of_val(&name) as libc::socklen_t;
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast::<c_void>();
        message.msg_controllen = control.0.len();
        // MSG_TRUNC: the length of the datagram rather than of the copied part.
        // SAFETY: every pointer in `message` leads to a local that lives across the call, with its length.
        let len = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        if len < 0 {
            return Err(last_errno());
        }
        let peer_ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
        let peer = match peer_ip.to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(IpAddr::V4(v4), u16::from_be(name.sin6_port)),
            None => SocketAddr::V6(SocketAddrV6::new(
                peer_ip,
                u16::from_be(name.sin6_port),
                name.sin6_flowinfo,
                name.sin6_scope_id,
            )),
        };
        let (local, ifindex) = packet_information(&message).ok_or(Errno::NOMSG)?;
        Ok(Received { len: len as usize, peer, local, ifindex })
    }

    /// Sends `payload` to `peer` from the local address `local`; the kernel chooses the route.
    ///
    /// # Errors
    /// `AGAIN` if the socket is full; what `sendmsg(2)` returns otherwise.
    pub fn send(&self, payload: &[u8], peer: SocketAddr, local: IpAddr) -> Result<(), Errno> {
        let (peer_ip, scope) = match peer {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        // SAFETY: an all-zero sockaddr_in6 is a valid value of a struct of plain integers.
        let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        name.sin6_family = libc::AF_INET6 as u16;
        name.sin6_port = peer.port().to_be();
        name.sin6_addr.s6_addr = peer_ip.octets();
        name.sin6_scope_id = scope;
        let mut control = Control([0; 64]);
        let mut vector =
            libc::iovec { iov_base: payload.as_ptr().cast_mut().cast::<c_void>(), iov_len: payload.len() };
        // SAFETY: an all-zero msghdr is a valid value: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut name).cast::<c_void>();
        message.msg_namelen = size_of_val(&name) as libc::socklen_t;
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast::<c_void>();
        message.msg_controllen = put_source(&mut control, local);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: every pointer in `message` leads to a local that lives across the call, with its length; the kernel only
        // reads through them.
        let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const message, flags) };
        if sent < 0 { Err(last_errno()) } else { Ok(()) }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Writes the control message with the source address to use; returns its length.
fn put_source(control: &mut Control, local: IpAddr) -> usize {
    let local = match local {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let information =
        libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: local.octets() }, ipi6_ifindex: 0 };
    // SAFETY: these only compute sizes.
    let (len, space) = unsafe {
        let size = size_of::<libc::in6_pktinfo>() as u32;
        (libc::CMSG_LEN(size) as usize, libc::CMSG_SPACE(size) as usize)
    };
    let header =
        libc::cmsghdr { cmsg_len: len, cmsg_level: libc::IPPROTO_IPV6, cmsg_type: libc::IPV6_PKTINFO };
    let base = control.0.as_mut_ptr();
    // SAFETY: `Control` is aligned for a cmsghdr and larger than `space`, which covers the header and the data behind it.
    unsafe {
        base.cast::<libc::cmsghdr>().write(header);
        libc::CMSG_DATA(base.cast::<libc::cmsghdr>())
            .cast::<libc::in6_pktinfo>()
            .write_unaligned(information);
    }
    space
}

/// Finds the local address that a datagram was sent to, and the interface on which it arrived.
fn packet_information(message: &libc::msghdr) -> Option<(IpAddr, u32)> {
    // SAFETY: `message` was filled in by recvmsg(2): its control buffer lives, and its length is what was written.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers within the control buffer, or null.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) {
            // SAFETY: the kernel puts an in6_pktinfo behind a header of this kind (RFC 3542, 6.1).
            let information = unsafe { libc::CMSG_DATA(header).cast::<libc::in6_pktinfo>().read_unaligned() };
            let address = Ipv6Addr::from(information.ipi6_addr.s6_addr);
            let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
            return Some((address, information.ipi6_ifindex as u32));
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// Whether the kernel lets a program bind this address without further rights: it is one of this host's, by an
/// interface or a local route, or the host allows others (`ip_nonlocal_bind`). A broadcast address does not count.
/// Also true if that cannot be determined.
#[must_use]
pub fn can_serve_at(address: IpAddr) -> bool {
    let bound = match std::net::UdpSocket::bind((address, 0)) {
        Ok(bound) => bound,
        Err(error) => return error.kind() != io::ErrorKind::AddrNotAvailable,
    };
    // The kernel refuses broadcasts from a socket that has not enabled them (connect(2)); nothing is sent.
    let refused = bound.connect((address, DISCARD)).err();
    refused.is_none_or(|error| error.kind() != io::ErrorKind::PermissionDenied)
}

/// The discard port, as an arbitrary one.
const DISCARD: u16 = 9;

/// The address to bind an IPv6 socket for both families to; one that does not exist yet is allowed. `vrf`: the index of the
/// VRF that the socket is put into.
///
/// # Errors
/// What `setsockopt(2)` returns.
pub fn bind_address(
    socket: impl AsFd,
    address: Option<IpAddr>,
    port: u16,
    vrf: Option<u32>,
) -> io::Result<SocketAddrV6> {
    if let Some(vrf) = vrf {
        // Otherwise it gets nothing from there (Documentation/networking/vrf.rst).
        set_option(&socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, vrf as c_int)?;
    }
    let ip = match address {
        None => Ipv6Addr::UNSPECIFIED,
        Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped(),
        Some(IpAddr::V6(v6)) => v6,
    };
    if address.is_some() {
        sockopt::set_ipv6_freebind(socket, true)?;
    }
    Ok(SocketAddrV6::new(ip, port, 0, 0))
}

/// Enlarges the buffers up to the host's limits `net.core.rmem_max` and `wmem_max`, or beyond them with
/// CAP_NET_ADMIN.
pub fn enlarge_buffers(socket: impl AsFd) {
    let socket = socket.as_fd();
    if sockopt::set_socket_recv_buffer_size_force(socket, BUFFER_BYTES).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, BUFFER_BYTES);
    }
    if sockopt::set_socket_send_buffer_size_force(socket, BUFFER_BYTES).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(socket, BUFFER_BYTES);
    }
}

/// Makes the kernel segment every send on `socket` into datagrams of `size` bytes, as late as it can (UDP_SEGMENT,
/// udp(7)).
///
/// # Errors
/// What `setsockopt(2)` returns.
pub fn set_segment_size(socket: impl AsFd, size: u16) -> Result<(), Errno> {
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, c_int::from(size))
}

/// Sets an option of a socket that is a number.
///
/// # Errors
/// What `setsockopt(2)` returns.
pub fn set_option(fd: impl AsFd, level: c_int, option: c_int, value: c_int) -> Result<(), Errno> {
    // SAFETY: the pointer and length describe `value`, which lives across the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast::<c_void>(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Whether a socket has a receive filter (SO_ATTACH_FILTER, SO_ATTACH_BPF).
///
/// # Errors
/// What `getsockopt(2)` returns.
pub fn has_filter(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // The number of instructions of a classic filter: the kernel returns it when asked for none of them.
    let mut len: libc::socklen_t = 0;
    // SAFETY: with a length of 0 the kernel writes nothing but the length, which lives across the call.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_GET_FILTER,
            std::ptr::null_mut(),
            &raw mut len,
        )
    };
    match (asked, io::Error::last_os_error()) {
        (0, _) => Ok(len > 0),
        // A BPF program, which the kernel does not disclose (`sk_get_filter`, net/core/filter.c).
        (_, error) if error.raw_os_error() == Some(libc::EACCES) => Ok(true),
        (_, error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as StdSocket;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn wait_readable(socket: &UdpSocket) {
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        let timeout = rustix::time::Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&timeout)), Ok(1), "a datagram comes");
    }

    #[test]
    fn a_filter_is_seen() {
        let socket = StdSocket::bind("127.0.0.1:0").expect("a free port");
        assert!(!has_filter(socket.as_fd()).expect("asked"));
        // Accepts everything: BPF_RET | BPF_K.
        let mut all = libc::sock_filter { code: 6, jt: 0, jf: 0, k: u32::MAX };
        let filter = libc::sock_fprog { len: 1, filter: &raw mut all };
        // SAFETY: the kernel reads one program of that size, and its one instruction, which both live across the call.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        assert!(has_filter(socket.as_fd()).expect("asked"));
    }

    #[test]
    fn the_address_that_was_asked_is_told_and_answers() {
        let server = UdpSocket::bind(0).expect("a free port");
        for ip in ["127.0.0.1", "127.0.0.2", "::1"] {
            let ip: IpAddr = ip.parse().expect("ip");
            let any: IpAddr = if ip.is_ipv4() { "0.0.0.0" } else { "::" }.parse().expect("ip");
            let client = StdSocket::bind((any, 0)).expect("a free port");
            client.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
            client.send_to(b"ping", (ip, server.port())).expect("sent");
            wait_readable(&server);
            let mut buffer = [0; 3];
            let received = server.receive(&mut buffer).expect("a datagram");
            assert_eq!((received.len, received.local), (4, ip), "its whole length, though it was cut");
            assert_eq!(received.peer.port(), client.local_addr().expect("bound").port());
            server.send(b"pong", received.peer, received.local).expect("sent");
            let (len, from) = client.recv_from(&mut buffer).expect("an answer");
            assert_eq!((len, from), (3, SocketAddr::new(ip, server.port())));
        }
        assert_eq!(server.receive(&mut [0; 1]), Err(Errno::AGAIN));
    }

    #[test]
    fn one_serves_at_this_hosts_addresses_and_at_no_others() {
        let can = |address: &str| can_serve_at(address.parse().expect("ip"));
        for own in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert!(can(own), "{own}");
        }
        // Addresses of documentation, and the broadcast address of 127.0.0.0/8.
        for other in ["192.0.2.1", "2001:db8::1", "127.255.255.255"] {
            assert!(!can(other), "{other}");
        }
    }

    #[test]
    fn a_port_is_held_against_either_family() {
        let server = UdpSocket::bind(0).expect("a free port");
        let refused = StdSocket::bind(("127.0.0.1", server.port())).expect_err("held");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        let refused = UdpSocket::bind(server.port()).expect_err("held");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
