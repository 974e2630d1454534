//! What a program and the daemon tell each other: one message is one datagram of a UNIX socket, a head and a payload.

use std::net::{IpAddr, Ipv6Addr};

/// Bytes of a head.
pub const HEAD_LEN: usize = 24;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From a program: bind to the address and port; 0: any port.
    Bind,
    /// From a program: the receiver of messages that name none.
    Connect,
    /// From a program: send the payload, which has `value` bytes, to the address and port; port 0 with the unspecified address: where it is connected.
    Send,
    /// From a program: `value` bytes may wait for it, `port` being 0; or be unacknowledged, `port` being 1.
    Limit,
    /// From the daemon: the first message, with the descriptor of the map of congested ports.
    Welcome,
    /// From the daemon: it is bound to the address and port, or `value` is the error.
    Bound,
    /// From the daemon: a message has come from the address and port.
    Message,
}

const KINDS: [(Kind, u8); 7] = [
    (Kind::Bind, 1),
    (Kind::Connect, 2),
    (Kind::Send, 3),
    (Kind::Limit, 4),
    (Kind::Welcome, 16),
    (Kind::Bound, 17),
    (Kind::Message, 18),
];

/// The head of a message: kind 1 byte, nothing 1, port 2, value 4, address 16 (IPv4 mapped into IPv6); little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is for.
    pub kind: Kind,
    /// A port.
    pub port: u16,
    /// A number.
    pub value: u32,
    /// An address.
    pub address: IpAddr,
}

impl Head {
    /// A head without an address.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self { kind, port: 0, value: 0, address: IpAddr::V6(Ipv6Addr::UNSPECIFIED) }
    }

    /// Reads a head; `None`: an unknown kind.
    #[must_use]
    pub fn parse(bytes: &[u8; HEAD_LEN]) -> Option<Self> {
        let (kind, _) = KINDS.into_iter().find(|(_, number)| *number == bytes[0])?;
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[8..]);
        Some(Self {
            kind,
            port: u16::from_le_bytes([bytes[2], bytes[3]]),
            value: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            address: IpAddr::V6(Ipv6Addr::from(address)).to_canonical(),
        })
    }

    /// The bytes of the head.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[0] = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or(0, |(_, number)| *number);
        bytes[2..4].copy_from_slice(&self.port.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.value.to_le_bytes());
        let address = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        bytes[8..].copy_from_slice(&address.octets());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_the_same_when_it_is_read_again() {
        for (kind, _) in KINDS {
            for address in ["10.0.0.1", "fd00::1", "::"] {
                let head = Head { kind, port: 4000, value: 7, address: address.parse().unwrap() };
                assert_eq!(Head::parse(&head.to_bytes()), Some(head));
            }
        }
        assert_eq!(Head::parse(&[9; HEAD_LEN]), None);
    }
}
