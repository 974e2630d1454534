//! A datagram as `recvmsg(2)` gives it: in pieces of the caller's memory, with its sender and with control data.
#![allow(unsafe_code, reason = "messages are the caller's memory, described by pointers")]

use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{c_int, msghdr, sockaddr_storage, socklen_t};
use twinpath_socket::Received;

use crate::kernel::errno;

/// The control data that a socket's options ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted(u32);

/// Options by which a socket asks for what is known of a datagram in the ring.
const KNOWN: [(c_int, c_int); 6] = [
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
];

/// Options by which it asks for what only the kernel does.
const UNKNOWN: [(c_int, c_int, &str); 12] = [
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP, "stamps of time (SO_TIMESTAMP)"),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, "stamps of time (SO_TIMESTAMPNS)"),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, "stamps of time (SO_TIMESTAMPING)"),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, "counts of what was dropped (SO_RXQ_OVFL)"),
    (libc::SOL_SOCKET, libc::SO_PEEK_OFF, "peeking from an offset on (SO_PEEK_OFF)"),
    (libc::IPPROTO_IP, libc::IP_RECVOPTS, "IP options (IP_RECVOPTS)"),
    (libc::IPPROTO_IP, libc::IP_RETOPTS, "IP options (IP_RETOPTS)"),
    (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR, "original destinations (IP_RECVORIGDSTADDR)"),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT, "datagrams for any address (IP_TRANSPARENT)"),
    (libc::IPPROTO_UDP, libc::UDP_GRO, "super-frames (UDP_GRO)"),
    (libc::IPPROTO_UDP, UDP_ENCAP, "encapsulated traffic (UDP_ENCAP)"),
    (libc::SOL_SOCKET, libc::SO_GET_FILTER, "a filter (SO_ATTACH_FILTER)"),
];

/// `UDP_ENCAP` of linux/udp.h.
const UDP_ENCAP: c_int = 100;

impl Wanted {
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    const fn has(self, option: usize) -> bool {
        self.0 & 1 << option != 0
    }
}

/// What the socket asks for by its options, or why its datagrams cannot come by a ring.
pub(crate) fn wanted(descriptor: c_int) -> Result<Wanted, String> {
    if let Some((_, _, what)) = UNKNOWN.iter().find(|(level, name, _)| is_set(descriptor, *level, *name)) {
        return Err(format!("it asks for {what}"));
    }
    let mut bits = 0;
    for (option, (level, name)) in KNOWN.iter().enumerate() {
        bits |= u32::from(is_set(descriptor, *level, *name)) << option;
    }
    Ok(Wanted(bits))
}

fn is_set(descriptor: c_int, level: c_int, name: c_int) -> bool {
    // A number, except for the filter: its length is returned if there is no room for it.
    let mut value: [c_int; 2] = [0; 2];
    let is_filter = (level, name) == (libc::SOL_SOCKET, libc::SO_GET_FILTER);
    let mut len = if is_filter { 0 } else { size_of::<c_int>() as socklen_t };
    // SAFETY: `value` has room for `len` bytes.
    let got = unsafe { libc::getsockopt(descriptor, level, name, value.as_mut_ptr().cast(), &raw mut len) };
    // Of one that was never set to a value that counts: offsets of peeking are -1.
    let unset = if name == libc::SO_PEEK_OFF && level == libc::SOL_SOCKET { -1 } else { 0 };
    if is_filter {
        // A filter that was attached as a BPF program (SO_ATTACH_BPF) is not shown: the kernel refuses with EACCES.
        return if got == 0 { len > 0 } else { errno() != libc::ENOPROTOOPT };
    }
    got == 0 && value[0] != unset
}

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
pub(crate) unsafe fn room(message: *const msghdr) -> usize {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(message) };
    pieces.iter().fold(0, |room: usize, piece| room.saturating_add(piece.iov_len))
}

/// # Safety
/// As [`room`].
unsafe fn pieces<'a>(message: *const msghdr) -> &'a [libc::iovec] {
    // SAFETY: the caller's promise.
    let message = unsafe { &*message };
    if message.msg_iov.is_null() || message.msg_iovlen == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) }
}

/// Fills a message from a datagram in the ring. Returns the bytes that a receiving call returns.
///
/// # Safety
/// As [`room`].
pub(crate) unsafe fn fill(
    message: *mut msghdr,
    flags: c_int,
    wanted: Wanted,
    received: &Received<'_>,
) -> isize {
    let mut rest = received.payload;
    // SAFETY: the caller's promise.
    for piece in unsafe { pieces(message) } {
        let len = rest.len().min(piece.iov_len);
        // SAFETY: the piece has room for as many bytes, and is none of the ring.
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), piece.iov_base.cast::<u8>(), len) };
        rest = &rest[len..];
    }
    // SAFETY: the caller's promise.
    let message = unsafe { &mut *message };
    message.msg_flags = if rest.is_empty() { 0 } else { libc::MSG_TRUNC };
    if !message.msg_name.is_null() {
        let (address, len) = to_c(received.source);
        // SAFETY: the caller's room for the name is `msg_namelen` bytes.
        unsafe { put_name(&address, len, message.msg_name.cast(), message.msg_namelen) };
        message.msg_namelen = len;
    }
    // SAFETY: the caller's room for control data is `msg_controllen` bytes.
    unsafe { put_control(message, wanted, received) };
    let whole = received.payload.len() as isize;
    if flags & libc::MSG_TRUNC != 0 { whole } else { whole - rest.len() as isize }
}

/// Copies as much of an address as there is room for.
///
/// # Safety
/// `into` has room for `room` bytes.
pub(crate) unsafe fn put_name(address: &sockaddr_storage, len: socklen_t, into: *mut u8, room: socklen_t) {
    let bytes = len.min(room) as usize;
    // SAFETY: the caller's promise; an address is not longer than its type.
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(address).cast::<u8>(), into, bytes) };
}

/// # Safety
/// `msg_control` has room for `msg_controllen` bytes.
unsafe fn put_control(message: &mut msghdr, wanted: Wanted, received: &Received<'_>) {
    let mut at = 0;
    let all = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
    let mut put = |message: &mut msghdr, level: c_int, kind: c_int, data: &[u8]| {
        // SAFETY: both only compute.
        let (len, space) =
            unsafe { (libc::CMSG_LEN(data.len() as u32), libc::CMSG_SPACE(data.len() as u32)) };
        if all - at < len as usize {
            message.msg_flags |= libc::MSG_CTRUNC;
            return;
        }
        let header = libc::cmsghdr { cmsg_len: len as usize, cmsg_level: level, cmsg_type: kind };
        // SAFETY: there is room for `len` bytes from `at` on, and the data begins after the header, which CMSG_LEN(0) is the length of.
        unsafe {
            let place = message.msg_control.cast::<u8>().add(at);
            place.cast::<libc::cmsghdr>().write_unaligned(header);
            let data_at = place.add(libc::CMSG_LEN(0) as usize);
            std::ptr::copy_nonoverlapping(data.as_ptr(), data_at, data.len());
        }
        at += (space as usize).min(all - at);
    };
    if let (IpAddr::V4(to), true) = (received.destination, wanted.bits() & 0b111 != 0) {
        let (index, to, ttl) = (received.ifindex.to_ne_bytes(), to.octets(), received.hop_limit);
        let info = [index, to, to].concat_array();
        let ttl = c_int::from(ttl).to_ne_bytes();
        let parts: [(usize, c_int, &[u8]); 3] = [
            (0, libc::IP_PKTINFO, &info),
            (1, libc::IP_TTL, &ttl),
            (2, libc::IP_TOS, &[received.traffic_class]),
        ];
        for (_, kind, data) in parts.into_iter().filter(|(option, _, _)| wanted.has(*option)) {
            put(message, libc::IPPROTO_IP, kind, data);
        }
    }
    let to = match received.destination {
        IpAddr::V4(to) => to.to_ipv6_mapped(),
        IpAddr::V6(to) => to,
    };
    let mut info = [0; 20];
    info[..16].copy_from_slice(&to.octets());
    info[16..].copy_from_slice(&received.ifindex.to_ne_bytes());
    let hops = c_int::from(received.hop_limit).to_ne_bytes();
    let class = c_int::from(received.traffic_class).to_ne_bytes();
    let parts: [(usize, c_int, &[u8]); 3] =
        [(3, libc::IPV6_PKTINFO, &info), (4, libc::IPV6_HOPLIMIT, &hops), (5, libc::IPV6_TCLASS, &class)];
    // Of an IPv4 datagram an IPv6 socket is told its mapped address, and nothing else by these options.
    let is_v4 = received.destination.is_ipv4();
    for (_, kind, data) in
        parts.into_iter().filter(|(option, _, _)| wanted.has(*option) && !(is_v4 && *option > 3))
    {
        put(message, libc::IPPROTO_IPV6, kind, data);
    }
    message.msg_controllen = at;
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
pub(crate) fn to_c(address: SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: all zeros are a valid value of it.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    let len = match address {
        SocketAddr::V4(v4) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage has room for every kind of address, and its alignment.
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
pub(crate) fn ip_of(storage: &sockaddr_storage) -> Option<IpAddr> {
    let place = std::ptr::from_ref(storage);
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says so, and the storage has the alignment of every kind of address.
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
