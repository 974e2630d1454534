//! What an ICMP message says of a TCP segment that was too long for its path.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::checksum::Sum;
use crate::{Protocol, be16};

/// Bytes of an ICMP header (RFC 792, RFC 4443).
const ICMP_HEADER_LEN: usize = 8;

/// A segment of this host's that a router could not pass on, as its ICMP message quotes it. Anybody can send such a
/// message, so it has to be compared with what is in flight (RFC 5927 section 4.1). What is quoted is longer than the MTU
/// that the message tells: otherwise nothing would have kept it (RFC 5927 section 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Our end: the source of the segment.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// The segment's sequence number.
    pub seq: u32,
    /// The path carries IP packets of at most this many bytes; 0: the router did not say.
    pub mtu: u16,
}

impl TooBig {
    /// Reads "fragmentation needed" (RFC 792, RFC 1191 section 4) about a TCP segment. `packet` is the whole message from
    /// its own IP header on: the checksum of ICMP must be right.
    #[must_use]
    pub fn parse_ipv4(packet: &[u8]) -> Option<Self> {
        let message = fragmentation_needed(packet)?;
        if !is_whole(message) {
            return None;
        }
        let quoted = message.get(ICMP_HEADER_LEN..)?;
        // Only the first fragment has a TCP header; the flag "don't fragment" is no part of the offset.
        let offset = be16(*quoted.get(6)?, *quoted.get(7)?) & 0x1fff;
        if *quoted.get(9)? != Protocol::Tcp.number() || offset != 0 {
            return None;
        }
        let mtu = be16(message[6], message[7]);
        if u32::from(be16(*quoted.get(2)?, *quoted.get(3)?)) <= u32::from(mtu) {
            return None;
        }
        let address = |at: usize| Some(Ipv4Addr::from(*quoted.get(at..)?.first_chunk::<4>()?).into());
        let segment = quoted.get(ipv4_header_len(quoted)?..)?;
        Self::of(address(12)?, address(16)?, segment, mtu)
    }

    /// Whether a message says "fragmentation needed", and its checksum is wrong. Nobody can be told that a segment was too
    /// long then: whoever translates addresses on the way may have forgotten the checksum.
    #[must_use]
    pub fn is_damaged_ipv4(packet: &[u8]) -> bool {
        fragmentation_needed(packet).is_some_and(|message| !is_whole(message))
    }

    /// Reads "packet too big" (RFC 4443 section 3.2) about a TCP segment without extension headers: this host sends
    /// none. `message` begins with the ICMPv6 header, and may be cut off behind the first 8 bytes of the quoted
    /// segment. Its checksum must have been verified.
    #[must_use]
    pub fn parse_ipv6(message: &[u8]) -> Option<Self> {
        const PACKET_TOO_BIG: u8 = 2;
        const IPV6_HEADER_LEN: usize = 40;
        if *message.first()? != PACKET_TOO_BIG {
            return None;
        }
        let quoted = message.get(ICMP_HEADER_LEN..)?;
        if *quoted.get(6)? != Protocol::Tcp.number() {
            return None;
        }
        let address = |at: usize| Some(Ipv6Addr::from(*quoted.get(at..)?.first_chunk::<16>()?).into());
        let mtu = u32::from_be_bytes(*message.get(4..)?.first_chunk()?);
        if u32::from(be16(*quoted.get(4)?, *quoted.get(5)?)) + IPV6_HEADER_LEN as u32 <= mtu {
            return None;
        }
        let segment = quoted.get(IPV6_HEADER_LEN..)?;
        Self::of(address(8)?, address(24)?, segment, u16::try_from(mtu).unwrap_or(u16::MAX))
    }

    fn of(local: IpAddr, remote: IpAddr, segment: &[u8], mtu: u16) -> Option<Self> {
        let [a, b, c, d, seq @ ..] = *segment.first_chunk::<8>()?;
        let (local, remote) = (SocketAddr::new(local, be16(a, b)), SocketAddr::new(remote, be16(c, d)));
        Some(Self { local, remote, seq: u32::from_be_bytes(seq), mtu })
    }
}

/// The ICMP message of a packet, if it says "fragmentation needed".
fn fragmentation_needed(packet: &[u8]) -> Option<&[u8]> {
    const UNREACHABLE: u8 = 3;
    const FRAGMENTATION_NEEDED: u8 = 4;
    let (_, message) = packet.split_at_checked(ipv4_header_len(packet)?)?;
    message.starts_with(&[UNREACHABLE, FRAGMENTATION_NEEDED]).then_some(message)
}

fn is_whole(message: &[u8]) -> bool {
    Sum::ZERO.bytes(message).fold() == 0xffff
}

/// Bytes of the IPv4 header that begins here.
fn ipv4_header_len(packet: &[u8]) -> Option<usize> {
    let len = usize::from(packet.first()? & 0xf) * 4;
    (len >= 20).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_ipv4() -> Vec<u8> {
        let mut packet = vec![0; 24 + 8 + 20 + 8];
        packet[0] = 0x46;
        packet[24..32].copy_from_slice(&[3, 4, 0, 0, 0, 0, 0x05, 0x14]);
        (packet[32], packet[34], packet[35]) = (0x45, 0x05, 0xdc);
        // "Don't fragment".
        packet[38] = 0x40;
        packet[41] = 6;
        packet[44..52].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        packet[52..].copy_from_slice(&[0, 7, 0x9c, 0x40, 1, 2, 3, 4]);
        sealed(packet)
    }

    /// With a right checksum of ICMP.
    fn sealed(mut packet: Vec<u8>) -> Vec<u8> {
        packet[26..28].fill(0);
        let checksum = Sum::ZERO.bytes(&packet[24..]).checksum();
        packet[26..28].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    fn in_ipv6() -> Vec<u8> {
        let mut message = vec![0; 8 + 40 + 8];
        message[..8].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0x05, 0x14]);
        (message[12], message[13], message[14]) = (0x05, 0xb4, 6);
        message[31] = 1;
        message[47] = 2;
        message[48..].copy_from_slice(&[0, 7, 0x9c, 0x40, 1, 2, 3, 4]);
        message
    }

    #[test]
    fn the_quoted_segment_is_read_with_the_mtu() {
        let found = TooBig {
            local: "192.0.2.1:7".parse().unwrap(),
            remote: "192.0.2.2:40000".parse().unwrap(),
            seq: 0x0102_0304,
            mtu: 1300,
        };
        assert_eq!(TooBig::parse_ipv4(&in_ipv4()), Some(found));
        let (local, remote) = ("[::1]:7".parse().unwrap(), "[::2]:40000".parse().unwrap());
        assert_eq!(TooBig::parse_ipv6(&in_ipv6()), Some(TooBig { local, remote, ..found }));
    }

    #[test]
    fn what_was_not_longer_than_the_path_carries_was_not_too_long() {
        for (mtu, is_right) in [(0, true), (1499, true), (1500, false), (9000, false)] {
            let told = u16::to_be_bytes(mtu);
            let (mut packet, mut message) = (in_ipv4(), in_ipv6());
            packet[30..32].copy_from_slice(&told);
            message[6..8].copy_from_slice(&told);
            let found = [TooBig::parse_ipv4(&sealed(packet)), TooBig::parse_ipv6(&message)];
            assert_eq!(
                found.map(|found| found.map(|found| found.mtu)),
                [is_right.then_some(mtu); 2],
                "{mtu}"
            );
        }
        let mut jumbo = in_ipv6();
        jumbo[4] = 1;
        assert_eq!(TooBig::parse_ipv6(&jumbo), None);
    }

    #[test]
    fn what_is_cut_off_or_about_something_else_is_refused() {
        let (ipv4, ipv6) = (in_ipv4(), in_ipv6());
        assert!((0..ipv4.len()).all(|len| TooBig::parse_ipv4(&ipv4[..len]).is_none()));
        assert!((0..ipv6.len()).all(|len| TooBig::parse_ipv6(&ipv6[..len]).is_none()));
        // Own header too short, another type, another code, quoted header too short, a later fragment, UDP.
        for (at, byte) in [(0, 0x44), (24, 5), (25, 1), (32, 0x44), (39, 1), (41, 17)] {
            let mut packet = ipv4.clone();
            packet[at] = byte;
            let packet = sealed(packet);
            assert_eq!(
                (TooBig::parse_ipv4(&packet), TooBig::is_damaged_ipv4(&packet)),
                (None, false),
                "byte {at}"
            );
        }
        // A damaged MTU, or number.
        for at in [31, 59] {
            let mut packet = ipv4.clone();
            packet[at] ^= 1;
            assert_eq!(TooBig::parse_ipv4(&packet), None, "byte {at}");
            assert!(TooBig::is_damaged_ipv4(&packet));
            packet[25] = 1;
            assert!(!TooBig::is_damaged_ipv4(&packet), "it says something else");
            packet[25] = 4;
            assert!(TooBig::parse_ipv4(&sealed(packet)).is_some());
        }
        for (at, byte) in [(0, 137), (14, 17)] {
            let mut message = ipv6.clone();
            message[at] = byte;
            assert_eq!(TooBig::parse_ipv6(&message), None, "byte {at}");
        }
    }
}
