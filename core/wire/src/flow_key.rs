//! The key of a flow: its 5-tuple.

use core::net::{IpAddr, SocketAddr};

/// A transport protocol that has ports. Tables by protocol have one entry for each, at [`Protocol::index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// TCP (RFC 9293).
    Tcp = 6,
    /// UDP (RFC 768).
    Udp = 17,
}

impl Protocol {
    /// Every protocol, in the order of [`Protocol::index`].
    pub const ALL: [Self; 2] = [Self::Udp, Self::Tcp];

    /// The number of protocols: the length of a table by protocol.
    pub const COUNT: usize = Self::ALL.len();

    /// Its index in a table by protocol, below [`Protocol::COUNT`].
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Udp => 0,
            Self::Tcp => 1,
        }
    }

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
        let mut index = 0;
        while index < Self::COUNT {
            if Self::ALL[index].number() == number {
                return Some(Self::ALL[index]);
            }
            index += 1;
        }
        None
    }

    /// The protocol of a name in lower case, if it is one of these.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
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

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

    use super::*;

    #[test]
    fn protocols_have_their_iana_numbers_and_no_other_number_is_one() {
        for (protocol, number, name) in [(Protocol::Tcp, 6, "tcp"), (Protocol::Udp, 17, "udp")] {
            assert_eq!((protocol.number(), protocol.name()), (number, name));
            assert_eq!(protocol.to_string(), name);
        }
        let known: Vec<_> = (0..=u8::MAX).filter_map(Protocol::from_number).collect();
        assert_eq!(known, [Protocol::Tcp, Protocol::Udp]);
    }

    #[test]
    fn flow_information_and_scope_do_not_make_another_flow() {
        let address = Ipv6Addr::LOCALHOST;
        let plain = SocketAddr::new(address.into(), 7);
        let scoped = SocketAddr::V6(SocketAddrV6::new(address, 7, 1, 2));
        assert_ne!(plain, scoped);
        let key = FlowKey::new(Protocol::Udp, plain, plain);
        assert_eq!(FlowKey::new(Protocol::Udp, scoped, scoped), key);
    }

    #[test]
    fn a_flow_is_the_same_from_its_other_end_and_of_one_family() {
        let (peer, local) = (SocketAddr::from(([192, 0, 2, 1], 4000)), SocketAddr::from(([192, 0, 2, 2], 7)));
        let v6 = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 7);
        let key = FlowKey::new(Protocol::Tcp, peer, local);
        assert_eq!(key.to_string(), "tcp 192.0.2.1:4000 > 192.0.2.2:7");
        assert_eq!(key.reversed(), FlowKey::new(Protocol::Tcp, local, peer));
        assert_eq!(key.reversed().reversed(), key);
        for (source, destination, consistent) in
            [(peer, local, true), (v6, v6, true), (peer, v6, false), (v6, local, false)]
        {
            assert_eq!(FlowKey::new(Protocol::Tcp, source, destination).is_consistent(), consistent);
        }
    }

    #[test]
    fn an_address_has_its_own_bytes_and_zeros_after_those_of_ipv4() {
        let v4 = address_bytes(Ipv4Addr::new(192, 0, 2, 1).into());
        assert_eq!(v4, [192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let octets = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        assert_eq!(address_bytes(Ipv6Addr::from(octets).into()), octets);
    }

    #[test]
    fn each_protocol_has_its_own_index_number_and_name() {
        for (index, protocol) in Protocol::ALL.into_iter().enumerate() {
            assert_eq!(protocol.index(), index);
            assert_eq!(Protocol::from_number(protocol.number()), Some(protocol));
            assert_eq!(Protocol::from_name(protocol.name()), Some(protocol));
        }
        assert_eq!((Protocol::from_number(0), Protocol::from_name("icmp")), (None, None));
    }
}
