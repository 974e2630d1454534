//! One socket.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use crate::engine::{Connection, Listener};
use crate::errno::Errno;
use crate::packet::Marks;

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Neither connected nor listening, or not any more.
    New,
    Listening(Listener),
    Connecting(Connection),
    Connected(Connection),
}

/// A socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) family: i32,
    pub(crate) phase: Phase,
    pub(crate) is_nonblocking: bool,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    /// What `SO_ERROR` gives, once.
    pub(crate) error: Option<Errno>,
    /// The program has shut this direction down.
    pub(crate) has_shut_reading: bool,
    pub(crate) has_shut_writing: bool,
    /// The connection has ended; what has arrived can still be read.
    pub(crate) is_over: bool,
    /// `connect` has not yet said that the connection is there.
    pub(crate) is_unreported: bool,
    /// Values of options, by level and name.
    pub(crate) values: BTreeMap<(i32, i32), i32>,
    /// `SO_LINGER`: whether, and for how many seconds.
    pub(crate) linger: (i32, i32),
}

impl Socket {
    pub(crate) fn new(family: i32) -> Self {
        Self {
            family,
            phase: Phase::New,
            is_nonblocking: false,
            local: None,
            remote: None,
            error: None,
            has_shut_reading: false,
            has_shut_writing: false,
            is_over: false,
            is_unreported: false,
            values: BTreeMap::new(),
            linger: (0, 0),
        }
    }

    /// The socket of a connection that a listener has accepted.
    pub(crate) fn accepted(&self, connection: Connection, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            phase: Phase::Connected(connection),
            local: Some(local),
            remote: Some(remote),
            values: self.values.clone(),
            linger: self.linger,
            ..Self::new(self.family)
        }
    }

    pub(crate) fn connection(&self) -> Option<Connection> {
        match self.phase {
            Phase::Connecting(connection) | Phase::Connected(connection) => Some(connection),
            Phase::New | Phase::Listening(_) => None,
        }
    }

    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.phase, Phase::Listening(_))
    }

    pub(crate) fn value(&self, level: i32, name: i32) -> Option<i32> {
        self.values.get(&(level, name)).copied()
    }

    /// FreeBSD's `TCP_NOOPT`: its segments have no options, and those of its peer's are not read.
    pub(crate) fn has_no_options(&self) -> bool {
        self.value(libc::SOL_TCP, super::options::TCP_NOOPT).is_some_and(|value| value != 0)
    }

    /// What the IP header of its packets says.
    pub(crate) fn marks(&self) -> Marks {
        let of = |v4, v6| {
            let value = self.value(libc::IPPROTO_IP, v4).or_else(|| self.value(libc::IPPROTO_IPV6, v6));
            value.and_then(|value| u8::try_from(value).ok())
        };
        Marks {
            class: of(libc::IP_TOS, libc::IPV6_TCLASS).unwrap_or(0) & !3,
            hops: of(libc::IP_TTL, libc::IPV6_UNICAST_HOPS).unwrap_or(64),
        }
    }
}
