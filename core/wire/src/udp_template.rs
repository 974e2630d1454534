//! The headers of a UDP datagram that another sender has sent, as a template for further datagrams of the same
//! flow.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::checksum::Sum;
use crate::{EtherType, Mac, Protocol, be16, eth, ipv4, ipv6, udp};

/// Maximum number of bytes that a template puts in front of a payload: Ethernet, IPv6, UDP.
pub const HEADER_LEN_MAX: usize = eth::HEADER_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN;

/// Only "Don't fragment": the identification of such a packet has no meaning (RFC 6864 section 4.1).
const DONT_FRAGMENT: u16 = 0x4000;

/// Ethernet, IP and UDP headers of one flow, without options, tags and fragments. All fields except lengths and
/// checksums are as they were in the frame: addresses, hop limit, traffic class, flow label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpTemplate {
    headers: [u8; HEADER_LEN_MAX],
    len: usize,
    /// The sum of the IPv4 header without its length.
    ip: Sum,
    /// The sum of pseudo-header and UDP header without the length, which occurs in both.
    udp: Sum,
    payload_len: usize,
    source: SocketAddr,
    destination: SocketAddr,
}

impl UdpTemplate {
    /// Makes it from the start of a frame of `frame_len` bytes: all of it, or at least [`HEADER_LEN_MAX`] bytes.
    /// Checksums are not checked. `None` if it is not a whole UDP datagram to one receiver, or has options, a tag
    /// or a header that may be fragmented.
    #[must_use]
    pub fn parse(head: &[u8], frame_len: usize) -> Option<Self> {
        let eth = eth::Frame::parse(head).ok()?;
        if eth.destination().0[0] & 1 != 0 {
            return None;
        }
        let (ip_len, source, destination): (_, IpAddr, IpAddr) = match eth.ethertype() {
            EtherType::IPV4 => {
                let header: &[u8; ipv4::HEADER_LEN] = eth.payload().first_chunk()?;
                let plain = header[0] == 0x45 && be16(header[6], header[7]) == DONT_FRAGMENT;
                let whole = usize::from(be16(header[2], header[3])) + eth::HEADER_LEN == frame_len;
                let [.., a, b, c, d, e, f, g, h] = *header;
                let is_udp = header[9] == Protocol::Udp.number();
                (plain && whole && is_udp).then_some((
                    ipv4::HEADER_LEN,
                    Ipv4Addr::new(a, b, c, d).into(),
                    Ipv4Addr::new(e, f, g, h).into(),
                ))?
            }
            EtherType::IPV6 => {
                let header: &[u8; ipv6::HEADER_LEN] = eth.payload().first_chunk()?;
                let len = usize::from(be16(header[4], header[5]));
                let whole = len + eth::HEADER_LEN + ipv6::HEADER_LEN == frame_len;
                let (source, destination): (&[u8; 16], &[u8; 16]) =
                    (header[8..].first_chunk()?, header[24..].first_chunk()?);
                let is_udp = header[6] == Protocol::Udp.number();
                (header[0] >> 4 == 6 && whole && is_udp).then_some((
                    ipv6::HEADER_LEN,
                    Ipv6Addr::from(*source).into(),
                    Ipv6Addr::from(*destination).into(),
                ))?
            }
            _ => return None,
        };
        // No tag: with a tag, the lengths do not match.
        let udp_at = eth::HEADER_LEN + ip_len;
        let len = udp_at + udp::HEADER_LEN;
        let udp_header: &[u8; udp::HEADER_LEN] = head.get(udp_at..)?.first_chunk()?;
        if usize::from(be16(udp_header[4], udp_header[5])) + udp_at != frame_len {
            return None;
        }
        let mut headers = [0; HEADER_LEN_MAX];
        headers[..len].copy_from_slice(head.get(..len)?);
        headers[udp_at + 4..len].fill(0);
        let protocol = Protocol::Udp.number();
        let (ip, pseudo) = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                headers[eth::HEADER_LEN + 2..eth::HEADER_LEN + 4].fill(0);
                headers[eth::HEADER_LEN + 10..eth::HEADER_LEN + 12].fill(0);
                let ip = Sum::ZERO.bytes(&headers[eth::HEADER_LEN..udp_at]);
                (ip, Sum::ZERO.pseudo_ipv4(source, destination, protocol, 0))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                headers[eth::HEADER_LEN + 4..eth::HEADER_LEN + 6].fill(0);
                (Sum::ZERO, Sum::ZERO.pseudo_ipv6(source, destination, protocol, 0))
            }
            _ => return None,
        };
        Some(Self {
            headers,
            len,
            ip,
            udp: pseudo.bytes(&headers[udp_at..len]),
            payload_len: frame_len - len,
            source: SocketAddr::new(source, be16(udp_header[0], udp_header[1])),
            destination: SocketAddr::new(destination, be16(udp_header[2], udp_header[3])),
        })
    }

    /// Bytes in front of the payload.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.len
    }

    /// Bytes of the payload of the frame that it was made from.
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// The sender's MAC address.
    #[must_use]
    pub const fn source_mac(&self) -> Mac {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = self.headers;
        Mac([a, b, c, d, e, f])
    }

    /// Address and port that datagrams come from.
    #[must_use]
    pub const fn source(&self) -> SocketAddr {
        self.source
    }

    /// Address and port that they go to.
    #[must_use]
    pub const fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// Writes a frame with this payload into `buffer` and returns its length. `None` if the payload is too long for
    /// the buffer or for a length field.
    #[inline]
    pub fn write(&self, buffer: &mut [u8], payload: &[u8]) -> Option<usize> {
        let frame = buffer.get_mut(..self.len + payload.len())?;
        let (headers, rest) = frame.split_at_mut_checked(self.len)?;
        headers.copy_from_slice(&self.headers[..self.len]);
        rest.copy_from_slice(payload);
        let udp_at = self.len - udp::HEADER_LEN;
        let udp_len = u16::try_from(udp::HEADER_LEN + payload.len()).ok()?;
        if self.destination.is_ipv4() {
            let total_len = udp_len.checked_add(ipv4::HEADER_LEN as u16)?;
            put(headers, eth::HEADER_LEN + 2, total_len);
            put(headers, eth::HEADER_LEN + 10, self.ip.field(total_len).checksum());
        } else {
            put(headers, eth::HEADER_LEN + 4, udp_len);
        }
        put(headers, udp_at + 4, udp_len);
        let sum = self.udp.field(udp_len).field(udp_len).bytes(payload).checksum();
        // Zero on the wire means "none" (RFC 768) and is forbidden over IPv6.
        put(headers, udp_at + 6, if sum == 0 { 0xffff } else { sum });
        Some(frame.len())
    }
}

#[inline]
fn put(headers: &mut [u8], at: usize, field: u16) {
    if let Some(place) = headers.get_mut(at..at + 2) {
        place.copy_from_slice(&field.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::udp_frame::{UdpFrameRepr, parse, write_headers};
    use crate::{ChecksumFound, ChecksumTrust, Tag};

    fn repr(v6: bool) -> UdpFrameRepr {
        let (source, destination) =
            if v6 { ("[fd00::1]:4000", "[fd00::2]:7") } else { ("10.0.0.1:4000", "10.0.0.2:7") };
        UdpFrameRepr {
            source_mac: Mac([2, 0, 0, 0, 0, 1]),
            destination_mac: Mac([2, 0, 0, 0, 0, 2]),
            tag: None,
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            hop_limit: 63,
            identification: 0,
        }
    }

    fn build(repr: &UdpFrameRepr, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; repr.header_len()];
        frame.extend_from_slice(payload);
        write_headers(&mut frame, repr, payload.len()).expect("it fits");
        frame
    }

    fn template(frame: &[u8]) -> Option<UdpTemplate> {
        UdpTemplate::parse(&frame[..frame.len().min(64)], frame.len())
    }

    proptest! {
        #[test]
        fn further_datagrams_are_as_if_they_were_built(
            v6: bool,
            first in proptest::collection::vec(any::<u8>(), 0..100),
            next in proptest::collection::vec(any::<u8>(), 0..1500),
        ) {
            let repr = repr(v6);
            let mut sent = build(&repr, &first);
            let at = repr.header_len() - 2;
            // A checksum that is left to hardware is not used at all.
            sent[at] ^= 0x55;
            let template = template(&sent).expect("plain");
            prop_assert_eq!((template.source(), template.destination()), (repr.source, repr.destination));
            prop_assert_eq!(template.source_mac(), repr.source_mac);
            prop_assert_eq!((template.header_len(), template.payload_len()), (repr.header_len(), first.len()));
            let mut buffer = vec![0xee; 1600];
            let len = template.write(&mut buffer, &next).expect("it fits");
            let parsed = parse(&buffer[..len], ChecksumTrust::Verify).expect("right");
            prop_assert_eq!(parsed.checksum, ChecksumFound::Right);
            prop_assert_eq!(&buffer[..len], &build(&repr, &next)[..]);
        }
    }

    #[test]
    fn fields_that_it_does_not_write_stay() {
        let mut sent = build(&repr(true), b"x");
        sent[14..18].copy_from_slice(&[0x6b, 0x91, 0x23, 0x45]);
        let mut buffer = [0; 128];
        let len = template(&sent).expect("plain").write(&mut buffer, b"payload").expect("it fits");
        assert_eq!(buffer[14..18], sent[14..18]);
        let parsed = parse(&buffer[..len], ChecksumTrust::Verify).expect("right");
        assert_eq!((parsed.traffic_class, parsed.hop_limit), (0xb9, 63));
    }

    #[test]
    fn what_is_not_plain_is_refused() {
        let v4 = build(&repr(false), b"abcd");
        assert!(template(&v4).is_some());
        // A multicast receiver, options, a tag, another protocol; a fragment, or what may become some; wrong lengths.
        for (at, value) in [
            (0, 3),
            (14, 0x46),
            (14, 0x65),
            (12, 0x81),
            (23, 6),
            (20, 0),
            (20, 0x60),
            (21, 1),
            (17, 33),
            (39, 13),
        ] {
            let mut frame = v4.clone();
            frame[at] = value;
            assert_eq!(template(&frame), None, "byte {at}");
        }
        let v6 = build(&repr(true), b"abcd");
        for (at, value) in [(14, 0x45), (19, 11), (20, 44), (20, 0), (59, 13)] {
            let mut frame = v6.clone();
            frame[at] = value;
            assert_eq!(template(&frame), None, "byte {at}");
        }
        let tagged = build(&UdpFrameRepr { tag: Some(Tag::customer(5)), ..repr(false) }, b"abcd");
        assert_eq!(template(&tagged), None);
        for frame in [&v4, &v6] {
            let headers = frame.len() - 4;
            for len in 0..headers {
                assert_eq!(UdpTemplate::parse(&frame[..len], frame.len()), None, "{len}");
            }
            assert!(UdpTemplate::parse(&frame[..headers], frame.len()).is_some());
        }
    }

    #[test]
    fn a_datagram_that_does_not_fit_is_refused() {
        let template = template(&build(&repr(false), b"")).expect("plain");
        let mut buffer = vec![0; 70_000];
        assert_eq!(template.write(&mut buffer[..45], b"abcd"), None);
        assert_eq!(template.write(&mut buffer[..46], b"abcd"), Some(46));
        assert_eq!(template.write(&mut buffer, &[0; 65_508]), None);
        assert_eq!(template.write(&mut buffer, &[0; 65_507]), Some(65_549));
    }
}
