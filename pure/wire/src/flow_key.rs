//! The key of a flow: its 5-tuple.

use core::net::{IpAddr, SocketAddr};

/// A transport protocol that has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// TCP (RFC 9293).
    Tcp = 6,
    /// UDP (RFC 768).
    Udp = 17,
}

impl Protocol {
    /// The IANA protocol number.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The protocol of a number, if it is one of these.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }

    /// The name in lower case: `tcp` or `udp`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl core::fmt::Display for Protocol {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// The exact 5-tuple of an arriving frame: `source` is the peer, `destination` is the local end.
///
/// [`FlowKey::new`] drops IPv6 flow information and scope, which do not identify a flow on one interface, so that
/// equal flows compare equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The transport.
    pub protocol: Protocol,
    /// The peer.
    pub source: SocketAddr,
    /// The local end.
    pub destination: SocketAddr,
}

impl FlowKey {
    /// A key whose addresses are reduced to IP address and port.
    #[inline]
    #[must_use]
    pub fn new(protocol: Protocol, source: SocketAddr, destination: SocketAddr) -> Self {
        Self {
            protocol,
            source: SocketAddr::new(source.ip(), source.port()),
            destination: SocketAddr::new(destination.ip(), destination.port()),
        }
    }

    /// The same flow seen from the other end.
    #[inline]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { protocol: self.protocol, source: self.destination, destination: self.source }
    }

    /// Whether both ends have the same IP family.
    #[inline]
    #[must_use]
    pub const fn is_consistent(&self) -> bool {
        matches!(
            (self.source, self.destination),
            (SocketAddr::V4(_), SocketAddr::V4(_)) | (SocketAddr::V6(_), SocketAddr::V6(_))
        )
    }
}

impl core::fmt::Display for FlowKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} {} > {}", self.protocol, self.source, self.destination)
    }
}

/// The four bytes of an IPv4 address, padded with zeros, or the sixteen of an IPv6 one: a key of one size for both.
#[inline]
#[must_use]
pub fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}
