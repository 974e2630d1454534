//! A datagram as `recvmsg(2)` gives it: in pieces of the caller's memory, with its sender and with control data.
#![allow(unsafe_code, reason = "messages are the caller's memory, described by pointers")]

use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{c_int, msghdr, socklen_t};
use twinpath_leases::sockets::Received;

use crate::kernel::set_errno;
use crate::options::Wanted;
use crate::pointers::{self, Theirs};

/// Room for the address of a sender of UDP: that of IPv6 is the longest, and there is one for each message of a call, on its stack.
pub(crate) type Name = libc::sockaddr_in6;

/// How long a receiving call waits (`SO_RCVTIMEO`), ns; `None` is for ever.
pub(crate) fn timeout_ns(descriptor: c_int) -> Option<u64> {
    let mut value = MaybeUninit::<libc::timeval>::zeroed();
    let mut len = size_of::<libc::timeval>() as socklen_t;
    // SAFETY: `value` has room for `len` bytes, and all zeros are a valid value of it.
    let (got, value) = unsafe {
        let got = libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            value.as_mut_ptr().cast(),
            &raw mut len,
        );
        (got, value.assume_init())
    };
    let ns = (value.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(value.tv_usec as u64 * 1_000);
    (got == 0 && ns > 0).then_some(ns)
}

/// Bytes that the caller has room for.
///
/// # Safety
/// `message` describes the caller's memory, as `recvmsg(2)` says.
pub(crate) unsafe fn room(message: &msghdr) -> usize {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(message) };
    pieces.fold(0, |room: usize, piece| room.saturating_add(piece.iov_len))
}

/// # Safety
/// As [`room`].
unsafe fn pieces(message: &msghdr) -> impl Iterator<Item = libc::iovec> + use<> {
    let count = if message.msg_iov.is_null() { 0 } else { message.msg_iovlen };
    // SAFETY: the caller's promise.
    unsafe { pointers::values(message.msg_iov, count) }
}

/// Fills a message from a datagram in the ring. Returns what a receiving call returns: bytes, or an error of the caller's pointers.
///
/// # Safety
/// As [`room`]; the message can be read, and may lie anywhere.
pub(crate) unsafe fn fill(
    (into, theirs): (*mut msghdr, Theirs),
    flags: c_int,
    wanted: Wanted,
    received: &Received<'_>,
) -> isize {
    let mut rest = received.payload;
    // SAFETY: the caller's promise.
    let mut message = unsafe { into.read_unaligned() };
    // SAFETY: as above.
    for piece in unsafe { pieces(&message) } {
        let len = rest.len().min(piece.iov_len);
        if !pointers::can_write(piece.iov_base.cast(), len) {
            return set_errno(libc::EFAULT) as isize;
        }
        // SAFETY: the piece has room for as many bytes, and is none of the ring.
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), piece.iov_base.cast::<u8>(), len) };
        rest = &rest[len..];
    }
    let (address, address_len) = to_c(received.source);
    if !theirs.can_change(into) || !can_put_name(&message, address_len) {
        return set_errno(libc::EFAULT) as isize;
    }
    // As the kernel does (net/socket.c, ____sys_recvmsg).
    message.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
    if !rest.is_empty() {
        message.msg_flags |= libc::MSG_TRUNC;
    }
    if !message.msg_name.is_null() {
        // SAFETY: the caller's room for the name is `msg_namelen` bytes.
        unsafe { put_name(&address, address_len, message.msg_name.cast(), message.msg_namelen) };
        message.msg_namelen = address_len;
    }
    // SAFETY: the caller's room for control data is `msg_controllen` bytes.
    unsafe { put_control(&mut message, wanted, received) };
    // SAFETY: the caller's promise, and it can be written.
    unsafe { into.write_unaligned(message) };
    let whole = received.payload.len() as isize;
    if flags & libc::MSG_TRUNC != 0 { whole } else { whole - rest.len() as isize }
}

/// Whether any name can be written where the message says, if it does. What is there stays as it is.
pub(crate) fn has_name_room(message: &msghdr) -> bool {
    let len = (message.msg_namelen as usize).min(size_of::<Name>());
    message.msg_name.is_null()
        || message.msg_namelen <= c_int::MAX as u32
            && pointers::can_change_of(message.msg_name.cast::<u8>(), len)
}

/// The same of a name that is so long, and is written then.
pub(crate) fn can_put_name(message: &msghdr, name_len: socklen_t) -> bool {
    let len = message.msg_namelen.min(name_len) as usize;
    message.msg_name.is_null() || pointers::can_write(message.msg_name.cast(), len)
}

/// Copies as much of an address as there is room for.
///
/// # Safety
/// `into` has room for `room` bytes.
pub(crate) unsafe fn put_name(address: &Name, len: socklen_t, into: *mut u8, room: socklen_t) {
    let bytes = len.min(room) as usize;
    // SAFETY: the caller's promise; an address is not longer than its type.
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(address).cast::<u8>(), into, bytes) };
}

/// Control data are put one after the other, as `put_cmsg` of the kernel does it: what does not fit is cut.
struct Control {
    at: usize,
    all: usize,
}

impl Control {
    /// # Safety
    /// `msg_control` has room for `all` bytes.
    unsafe fn put(&mut self, message: &mut msghdr, level: c_int, kind: c_int, data: &[u8]) {
        // SAFETY: these only compute.
        let (head, whole, space) = unsafe {
            let len = data.len() as u32;
            (libc::CMSG_LEN(0) as usize, libc::CMSG_LEN(len) as usize, libc::CMSG_SPACE(len) as usize)
        };
        let room = self.all - self.at;
        if room < whole {
            message.msg_flags |= libc::MSG_CTRUNC;
        }
        if room < size_of::<libc::cmsghdr>() {
            return;
        }
        let len = whole.min(room);
        // What cannot be written is left out.
        if !pointers::can_write(message.msg_control.cast::<u8>().wrapping_add(self.at), len) {
            return;
        }
        let header = libc::cmsghdr { cmsg_len: len, cmsg_level: level, cmsg_type: kind };
        // SAFETY: there is room for `len` bytes from `at` on, which are not less than a header, and the data begins behind that.
        unsafe {
            let place = message.msg_control.cast::<u8>().add(self.at);
            place.cast::<libc::cmsghdr>().write_unaligned(header);
            std::ptr::copy_nonoverlapping(data.as_ptr(), place.add(head), len - head);
        }
        self.at += space.min(room);
    }
}

/// # Safety
/// `msg_control` has room for `msg_controllen` bytes.
unsafe fn put_control(message: &mut msghdr, wanted: Wanted, received: &Received<'_>) {
    let is_there = pointers::can_be(message.msg_control.cast(), message.msg_controllen);
    let all = if is_there { message.msg_controllen } else { 0 };
    let mut control = Control { at: 0, all };
    let is_v4 = received.destination.is_ipv4();
    if wanted.has(3) {
        let mut info = [0; 20];
        let to = match received.destination {
            IpAddr::V4(to) => to.to_ipv6_mapped(),
            IpAddr::V6(to) => to,
        };
        info[..16].copy_from_slice(&to.octets());
        info[16..].copy_from_slice(&received.ifindex.to_ne_bytes());
        // SAFETY: the caller's promise.
        unsafe { control.put(message, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info) };
    }
    // Of an IPv4 datagram an IPv6 socket is told its mapped address by the options of IPv6, and nothing else.
    let hops = c_int::from(received.hop_limit).to_ne_bytes();
    let class = c_int::from(received.traffic_class).to_ne_bytes();
    if let IpAddr::V4(to) = received.destination {
        let (index, to) = (received.ifindex.to_ne_bytes(), to.octets());
        let info = [index, to, to].concat_array();
        let class = [received.traffic_class];
        let parts: [(usize, c_int, &[u8]); 3] =
            [(0, libc::IP_PKTINFO, &info), (1, libc::IP_TTL, &hops), (2, libc::IP_TOS, &class)];
        for (_, kind, data) in parts.into_iter().filter(|(option, _, _)| wanted.has(*option)) {
            // SAFETY: the caller's promise.
            unsafe { control.put(message, libc::IPPROTO_IP, kind, data) };
        }
    }
    let parts: [(usize, c_int, &[u8]); 2] = [(4, libc::IPV6_HOPLIMIT, &hops), (5, libc::IPV6_TCLASS, &class)];
    for (_, kind, data) in parts.into_iter().filter(|(option, _, _)| wanted.has(*option) && !is_v4) {
        // SAFETY: the caller's promise.
        unsafe { control.put(message, libc::IPPROTO_IPV6, kind, data) };
    }
    message.msg_controllen = control.at;
}

/// Three words, one after the other: `struct in_pktinfo`.
trait Concat {
    fn concat_array(self) -> [u8; 12];
}

impl Concat for [[u8; 4]; 3] {
    fn concat_array(self) -> [u8; 12] {
        let mut all = [0; 12];
        for (part, into) in self.iter().zip(all.chunks_exact_mut(4)) {
            into.copy_from_slice(part);
        }
        all
    }
}

/// The address in C's form, and its length.
pub(crate) fn to_c(address: SocketAddr) -> (Name, socklen_t) {
    // SAFETY: all zeros are a valid value of it.
    let mut storage: Name = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    let len = match address {
        SocketAddr::V4(v4) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: there is room for either kind of address, and its alignment.
            unsafe { place.cast::<libc::sockaddr_in>().write(value) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(value) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as socklen_t)
}

/// The IP address of an address that the kernel has written.
pub(crate) fn ip_of(storage: &Name) -> Option<IpAddr> {
    let place = std::ptr::from_ref(storage);
    match c_int::from(storage.sin6_family) {
        libc::AF_INET => {
            // SAFETY: the family says so, and both kinds are aligned alike.
            let address = unsafe { &*place.cast::<libc::sockaddr_in>() };
            Some(IpAddr::V4(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes())))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { &*place.cast::<libc::sockaddr_in6>() };
            Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

/// Whether calls on the descriptor return at once.
pub(crate) fn is_nonblocking(descriptor: c_int) -> bool {
    // SAFETY: it takes numbers only.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}
