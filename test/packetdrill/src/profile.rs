//! What differs between the systems that the suites were written for, and is neither the engine's matter nor a setting.

use twinpath_tcp::Acks;

use crate::errno::Errno;
use crate::packet::Quoted;

/// A system whose sockets the world imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// google/packetdrill's scripts.
    Linux,
    /// freebsd-net/tcp-testsuite.
    FreeBsd,
}

impl Profile {
    /// What an ICMP error that ends a handshake is called.
    pub(crate) fn refused(self, quoted: &Quoted) -> Errno {
        match (self, quoted.is_ipv4, quoted.kind, quoted.code) {
            (_, true, 11, _) | (_, false, 3, _) => Errno::EHOSTUNREACH,
            // Linux's `icmp_err_convert` and `icmpv6_err_convert`.
            (Self::Linux, true, 3, 2) => Errno::ENOPROTOOPT,
            (Self::Linux, true, 3, 9) => Errno::ENETUNREACH,
            (Self::Linux, true, 3, 10 | 13) => Errno::EHOSTUNREACH,
            (Self::Linux, false, 1, 1) => Errno::EACCES,
            (Self::Linux, false, 4, 1) => Errno::EPROTO,
            _ => Errno::ECONNREFUSED,
        }
    }

    /// Whether closing a socket with unread bytes resets the connection at once, or a segment that comes later does.
    pub(crate) fn aborts_with_unread(self) -> bool {
        self == Self::Linux
    }

    /// What sending on a socket without a connection gives.
    pub(crate) fn not_connected(self) -> Errno {
        match self {
            Self::Linux => Errno::EPIPE,
            Self::FreeBsd => Errno::ENOTCONN,
        }
    }

    /// What `SO_SNDBUF` and `SO_RCVBUF` give for a value that was set: Linux doubles it for its own overhead
    /// (`socket(7)`).
    pub(crate) fn buffer(self, asked: i32) -> i32 {
        match self {
            Self::Linux => asked.saturating_mul(2).max(2304),
            Self::FreeBsd => asked,
        }
    }

    /// Whether an acknowledgement of something new has FIN again until that is acknowledged (FreeBSD's `tcp_output`);
    /// RFC 9293 section 3.10.7.4 sends one without.
    pub(crate) fn repeats_fin(self) -> bool {
        self == Self::FreeBsd
    }

    pub(crate) fn acks(self) -> Acks {
        match self {
            Self::Linux => Acks::Adaptive,
            Self::FreeBsd => Acks::EverySecond,
        }
    }

    /// Whether a connection's receive buffer is a multiple of its largest segment.
    pub(crate) fn rounds_buffers(self) -> bool {
        self == Self::FreeBsd
    }
}
