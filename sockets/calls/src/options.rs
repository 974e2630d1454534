//! What a socket's options ask for. Options that are not known here are the kernel's: a socket with one of them set has
//! no lease.
#![allow(unsafe_code, reason = "the kernel is asked for options by pointers")]

use std::mem::size_of;

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP, SOL_SOCKET, c_int, socklen_t};

use twinpath_leases::WhyKernel;

use crate::kernel::errno;

/// The control data that a socket's options ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted(u32);

/// Options by which a socket asks for what is known of a datagram in the ring.
const KNOWN: [(c_int, c_int); 6] = [
    (IPPROTO_IP, libc::IP_PKTINFO),
    (IPPROTO_IP, libc::IP_RECVTTL),
    (IPPROTO_IP, libc::IP_RECVTOS),
    (IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    (IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
];

// Of linux/in.h, linux/in6.h, asm-generic/socket.h and linux/udp.h.
const IP_PASSSEC: c_int = 18;
const IP_CHECKSUM: c_int = 23;
const IP_RECVFRAGSIZE: c_int = 25;
const IP_LOCAL_PORT_RANGE: c_int = 51;
const IPV6_2292PKTINFO: c_int = 2;
const IPV6_2292HOPOPTS: c_int = 3;
const IPV6_2292DSTOPTS: c_int = 4;
const IPV6_2292RTHDR: c_int = 5;
const IPV6_2292HOPLIMIT: c_int = 8;
const IPV6_FLOWINFO: c_int = 11;
const IPV6_RECVHOPOPTS: c_int = 53;
const IPV6_RECVRTHDR: c_int = 56;
const IPV6_RECVDSTOPTS: c_int = 58;
const IPV6_RECVPATHMTU: c_int = 60;
const IPV6_ORIGDSTADDR: c_int = 74;
const IPV6_TRANSPARENT: c_int = 75;
const IPV6_RECVFRAGSIZE: c_int = 77;
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;
const SO_TIMESTAMPING_NEW: c_int = 65;
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;
const SO_BUF_LOCK: c_int = 72;
const SO_RESERVE_MEM: c_int = 73;
const SO_TXREHASH: c_int = 74;
const SO_RCVMARK: c_int = 75;
const SO_RCVPRIORITY: c_int = 82;
const UDP_ENCAP: c_int = 100;
const UDP_NO_CHECK6_TX: c_int = 101;
const UDP_NO_CHECK6_RX: c_int = 102;

/// Options that ask for what only the kernel does, if their value is not the initial one.
const UNKNOWN: [(c_int, c_int, &str); 37] = [
    (SOL_SOCKET, libc::SO_TIMESTAMP, "stamps of time (SO_TIMESTAMP)"),
    (SOL_SOCKET, libc::SO_TIMESTAMPNS, "stamps of time (SO_TIMESTAMPNS)"),
    (SOL_SOCKET, libc::SO_TIMESTAMPING, "stamps of time (SO_TIMESTAMPING)"),
    (SOL_SOCKET, SO_TIMESTAMP_NEW, "stamps of time (SO_TIMESTAMP)"),
    (SOL_SOCKET, SO_TIMESTAMPNS_NEW, "stamps of time (SO_TIMESTAMPNS)"),
    (SOL_SOCKET, SO_TIMESTAMPING_NEW, "stamps of time (SO_TIMESTAMPING)"),
    (SOL_SOCKET, libc::SO_RXQ_OVFL, "counts of what was dropped (SO_RXQ_OVFL)"),
    (SOL_SOCKET, libc::SO_PEEK_OFF, "peeking from an offset on (SO_PEEK_OFF)"),
    (SOL_SOCKET, libc::SO_GET_FILTER, "a filter (SO_ATTACH_FILTER)"),
    (SOL_SOCKET, libc::SO_RCVBUF, "a receive buffer that holds less than a ring (SO_RCVBUF)"),
    (SOL_SOCKET, libc::SO_PASSCRED, "credentials (SO_PASSCRED)"),
    (SOL_SOCKET, libc::SO_PASSSEC, "labels (SO_PASSSEC)"),
    (SOL_SOCKET, libc::SO_WIFI_STATUS, "the state of radio frames (SO_WIFI_STATUS)"),
    (SOL_SOCKET, SO_RCVMARK, "marks (SO_RCVMARK)"),
    (SOL_SOCKET, SO_RCVPRIORITY, "priorities (SO_RCVPRIORITY)"),
    (IPPROTO_IP, libc::IP_RECVOPTS, "IP options (IP_RECVOPTS)"),
    (IPPROTO_IP, libc::IP_RETOPTS, "IP options (IP_RETOPTS)"),
    (IPPROTO_IP, libc::IP_RECVORIGDSTADDR, "original destinations (IP_RECVORIGDSTADDR)"),
    (IPPROTO_IP, libc::IP_TRANSPARENT, "datagrams for any address (IP_TRANSPARENT)"),
    (IPPROTO_IP, IP_PASSSEC, "labels (IP_PASSSEC)"),
    (IPPROTO_IP, IP_CHECKSUM, "checksums (IP_CHECKSUM)"),
    (IPPROTO_IP, IP_RECVFRAGSIZE, "sizes of fragments (IP_RECVFRAGSIZE)"),
    (IPPROTO_IPV6, IPV6_2292PKTINFO, "addresses (IPV6_2292PKTINFO)"),
    (IPPROTO_IPV6, IPV6_2292HOPOPTS, "headers (IPV6_2292HOPOPTS)"),
    (IPPROTO_IPV6, IPV6_2292DSTOPTS, "headers (IPV6_2292DSTOPTS)"),
    (IPPROTO_IPV6, IPV6_2292RTHDR, "headers (IPV6_2292RTHDR)"),
    (IPPROTO_IPV6, IPV6_2292HOPLIMIT, "hop limits (IPV6_2292HOPLIMIT)"),
    (IPPROTO_IPV6, IPV6_FLOWINFO, "labels of flows (IPV6_FLOWINFO)"),
    (IPPROTO_IPV6, IPV6_RECVHOPOPTS, "headers (IPV6_RECVHOPOPTS)"),
    (IPPROTO_IPV6, IPV6_RECVRTHDR, "headers (IPV6_RECVRTHDR)"),
    (IPPROTO_IPV6, IPV6_RECVDSTOPTS, "headers (IPV6_RECVDSTOPTS)"),
    (IPPROTO_IPV6, IPV6_RECVPATHMTU, "sizes of paths (IPV6_RECVPATHMTU)"),
    (IPPROTO_IPV6, IPV6_ORIGDSTADDR, "original destinations (IPV6_RECVORIGDSTADDR)"),
    (IPPROTO_IPV6, IPV6_TRANSPARENT, "datagrams for any address (IPV6_TRANSPARENT)"),
    (IPPROTO_IPV6, IPV6_RECVFRAGSIZE, "sizes of fragments (IPV6_RECVFRAGSIZE)"),
    (IPPROTO_UDP, libc::UDP_GRO, "super-frames (UDP_GRO)"),
    (IPPROTO_UDP, UDP_ENCAP, "encapsulated traffic (UDP_ENCAP)"),
];

/// The same, where the kernel's program knows nothing of it either.
const WITHOUT_CHECKSUM: (c_int, c_int, &str) =
    (IPPROTO_UDP, UDP_NO_CHECK6_RX, "datagrams without a checksum (UDP_NO_CHECK6_RX)");

/// Options of sockets that change nothing in what is received, or only what the kernel's look-up of sockets heeds by
/// itself.
const HARMLESS_OF_SOCKETS: [c_int; 35] = [
    libc::SO_DEBUG,
    libc::SO_REUSEADDR,
    libc::SO_DONTROUTE,
    libc::SO_BROADCAST,
    libc::SO_SNDBUF,
    libc::SO_KEEPALIVE,
    libc::SO_OOBINLINE,
    libc::SO_NO_CHECK,
    libc::SO_PRIORITY,
    libc::SO_LINGER,
    libc::SO_REUSEPORT,
    libc::SO_RCVLOWAT,
    libc::SO_RCVTIMEO,
    libc::SO_SNDTIMEO,
    libc::SO_BINDTODEVICE,
    libc::SO_DETACH_FILTER,
    libc::SO_SNDBUFFORCE,
    libc::SO_MARK,
    libc::SO_LOCK_FILTER,
    libc::SO_SELECT_ERR_QUEUE,
    libc::SO_BUSY_POLL,
    libc::SO_MAX_PACING_RATE,
    libc::SO_INCOMING_CPU,
    libc::SO_ATTACH_REUSEPORT_CBPF,
    libc::SO_ATTACH_REUSEPORT_EBPF,
    libc::SO_ZEROCOPY,
    libc::SO_TXTIME,
    libc::SO_BINDTOIFINDEX,
    SO_RCVTIMEO_NEW,
    SO_SNDTIMEO_NEW,
    libc::SO_DETACH_REUSEPORT_BPF,
    libc::SO_PREFER_BUSY_POLL,
    libc::SO_BUSY_POLL_BUDGET,
    SO_RESERVE_MEM,
    SO_TXREHASH,
];

/// The same of IPv4. From `IP_MULTICAST_IF` on they are of multicast, which is the kernel's.
const HARMLESS_OF_V4: [c_int; 10] = [
    libc::IP_TOS,
    libc::IP_TTL,
    libc::IP_OPTIONS,
    libc::IP_MTU_DISCOVER,
    libc::IP_RECVERR,
    libc::IP_FREEBIND,
    libc::IP_BIND_ADDRESS_NO_PORT,
    26, // IP_RECVERR_RFC4884
    libc::IP_UNICAST_IF,
    IP_LOCAL_PORT_RANGE,
];
const MULTICAST_OF_V4: std::ops::RangeInclusive<c_int> = libc::IP_MULTICAST_IF..=libc::IP_MULTICAST_ALL;

/// The same of IPv6: first those from `IPV6_UNICAST_HOPS` to `IPV6_FLOWINFO_SEND`, which are of sending, of errors and of multicast, and
/// those of multicast of both families.
const SENDING_OF_V6: std::ops::RangeInclusive<c_int> = libc::IPV6_UNICAST_HOPS..=33;
const MULTICAST_OF_V6: std::ops::RangeInclusive<c_int> = libc::MCAST_JOIN_GROUP..=libc::MCAST_MSFILTER;
const HARMLESS_OF_V6: [c_int; 7] = [
    libc::IPV6_PKTINFO,
    libc::IPV6_TCLASS,
    libc::IPV6_DONTFRAG,
    libc::IPV6_AUTOFLOWLABEL,
    libc::IPV6_ADDR_PREFERENCES,
    76, // IPV6_UNICAST_IF
    78, // IPV6_FREEBIND
];

const HARMLESS_OF_UDP: [c_int; 3] = [libc::UDP_CORK, libc::UDP_SEGMENT, UDP_NO_CHECK6_TX];

/// A ring has room for more than that. The kernel says twice what a program has set.
const RING_HOLDS: c_int = 2 * 64 * 1024;
/// A program has set the size of the receive buffer (SO_BUF_LOCK).
const IS_SIZE_SET: c_int = 2;

impl Wanted {
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn has(self, option: usize) -> bool {
        self.0 & 1 << option != 0
    }

    /// What the socket asks for by its options, or why its datagrams cannot come by a ring.
    pub(crate) fn of(descriptor: c_int) -> Result<Self, WhyKernel> {
        let unknown = UNKNOWN.iter().chain([&WITHOUT_CHECKSUM]);
        for (level, name, what) in unknown {
            if is_set(descriptor, *level, *name) {
                return Err(WhyKernel::AsksFor(what));
            }
        }
        let mut bits = 0;
        for (option, (level, name)) in KNOWN.iter().enumerate() {
            bits |= u32::from(is_set(descriptor, *level, *name)) << option;
        }
        Ok(Self(bits))
    }
}

/// What setting an option means for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    Nothing,
    /// The options are to be looked at.
    Look,
    /// It is the kernel's.
    Kernel,
}

pub(crate) fn means(level: c_int, name: c_int) -> Means {
    let is_harmless = match level {
        SOL_SOCKET => HARMLESS_OF_SOCKETS.contains(&name) || name == SO_BUF_LOCK,
        IPPROTO_IP => HARMLESS_OF_V4.contains(&name) || MULTICAST_OF_V4.contains(&name),
        IPPROTO_IPV6 => {
            HARMLESS_OF_V6.contains(&name) || SENDING_OF_V6.contains(&name) || MULTICAST_OF_V6.contains(&name)
        }
        IPPROTO_UDP => HARMLESS_OF_UDP.contains(&name),
        _ => false,
    };
    let is_it = |of: (c_int, c_int)| of == (level, name);
    let can_be_asked_for = KNOWN.into_iter().any(is_it)
        || UNKNOWN.iter().chain([&WITHOUT_CHECKSUM]).any(|(level, name, _)| is_it((*level, *name)))
        || is_it((SOL_SOCKET, libc::SO_RCVBUFFORCE));
    match (is_harmless, can_be_asked_for) {
        (true, _) => Means::Nothing,
        (false, true) => Means::Look,
        (false, false) => Means::Kernel,
    }
}

/// Options after which the kernel's socket may refuse what it has accepted before.
const NARROWING: [(c_int, c_int); 7] = [
    (SOL_SOCKET, libc::SO_BINDTODEVICE),
    (SOL_SOCKET, libc::SO_BINDTOIFINDEX),
    (SOL_SOCKET, libc::SO_ATTACH_FILTER),
    (SOL_SOCKET, libc::SO_ATTACH_BPF),
    (SOL_SOCKET, libc::SO_RCVBUF),
    (SOL_SOCKET, libc::SO_RCVBUFFORCE),
    (IPPROTO_UDP, UDP_ENCAP),
];

pub(crate) fn is_narrowing(level: c_int, name: c_int) -> bool {
    NARROWING.contains(&(level, name))
}

fn get(descriptor: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: `value` has room for `len` bytes.
    let got = unsafe { libc::getsockopt(descriptor, level, name, (&raw mut value).cast(), &raw mut len) };
    (got == 0).then_some(value)
}

fn is_set(descriptor: c_int, level: c_int, name: c_int) -> bool {
    match (level, name) {
        (SOL_SOCKET, libc::SO_GET_FILTER) => has_filter(descriptor),
        // Of one that was never set to a value that counts: offsets of peeking are -1.
        (SOL_SOCKET, libc::SO_PEEK_OFF) => get(descriptor, level, name).is_some_and(|offset| offset != -1),
        (SOL_SOCKET, libc::SO_RCVBUF) => {
            // Before Linux 5.14 it is not known who has set it.
            let is_theirs = get(descriptor, level, SO_BUF_LOCK).is_none_or(|locks| locks & IS_SIZE_SET != 0);
            is_theirs && get(descriptor, level, name).is_some_and(|size| size < RING_HOLDS)
        }
        _ => get(descriptor, level, name).is_some_and(|value| value != 0),
    }
}

fn has_filter(descriptor: c_int) -> bool {
    // Its length is returned if there is no room for it.
    let mut len: socklen_t = 0;
    // SAFETY: there is no room for anything, as `len` says.
    let got = unsafe {
        let nothing = std::ptr::null_mut();
        libc::getsockopt(descriptor, SOL_SOCKET, libc::SO_GET_FILTER, nothing, &raw mut len)
    };
    // A filter that was attached as a BPF program (SO_ATTACH_BPF) is not shown: the kernel refuses with EACCES.
    if got == 0 { len > 0 } else { errno() != libc::ENOPROTOOPT }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn set(socket: &UdpSocket, level: c_int, name: c_int, value: c_int) -> bool {
        let len = size_of::<c_int>() as socklen_t;
        // SAFETY: the value is there.
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) == 0 }
    }

    #[test]
    fn every_option_that_a_socket_can_set_is_harmless_or_found_again_or_the_kernels() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let plain = UdpSocket::bind(address).expect("a socket");
            assert_eq!(Wanted::of(plain.as_raw_fd()).map(Wanted::bits).ok(), Some(0));
            for (level, name, what) in UNKNOWN {
                let socket = UdpSocket::bind(address).expect("a socket");
                let is_there = !matches!(name, libc::SO_GET_FILTER | libc::SO_PASSCRED | libc::SO_PASSSEC)
                    || level != SOL_SOCKET;
                assert_eq!(means(level, name), Means::Look, "{what}");
                if is_there && set(&socket, level, name, 1) {
                    assert!(Wanted::of(socket.as_raw_fd()).is_err(), "{what}");
                }
            }
            for (option, (level, name)) in KNOWN.into_iter().enumerate() {
                let socket = UdpSocket::bind(address).expect("a socket");
                assert_eq!(means(level, name), Means::Look);
                if set(&socket, level, name, 1) {
                    assert!(Wanted::of(socket.as_raw_fd()).expect("known").has(option));
                }
            }
        }
        assert_eq!(means(SOL_SOCKET, libc::SO_REUSEADDR), Means::Nothing);
        // IPV6_ADDRFORM, and what does not exist yet.
        for (level, name) in [(IPPROTO_IPV6, 1), (SOL_SOCKET, 9_999), (IPPROTO_IP, 9_999), (9_999, 1)] {
            assert_eq!(means(level, name), Means::Kernel);
        }
    }

    #[test]
    fn a_buffer_counts_that_the_program_has_made_smaller_than_a_ring() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(set(&socket, SOL_SOCKET, libc::SO_RCVBUF, 80 * 1024));
        assert!(Wanted::of(socket.as_raw_fd()).is_ok());
        assert!(set(&socket, SOL_SOCKET, libc::SO_RCVBUF, 16 * 1024));
        assert!(matches!(Wanted::of(socket.as_raw_fd()), Err(WhyKernel::AsksFor(_))));
    }
}
