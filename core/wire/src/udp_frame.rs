//! Parses and writes Ethernet, IP and UDP headers in one pass, for the packet path.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use crate::checksum::Sum;
use crate::{
    ChecksumFound, ChecksumTrust, EmitError, EtherType, Mac, ParseError, Protocol, Tag, eth, ipv4, ipv6, udp,
};

/// Maximum number of bytes that [`write_headers`] puts in front of a payload: Ethernet with a tag, IPv6, UDP. A
/// caller must leave this much headroom.
pub const HEADER_LEN_MAX: usize = eth::HEADER_LEN + eth::TAG_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN;

/// A UDP datagram in a received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpFrame {
    /// The sender's MAC address.
    pub source_mac: Mac,
    /// The receiver's MAC address.
    pub destination_mac: Mac,
    /// The tag in the frame.
    pub tag: Option<Tag>,
    /// Source address and port of the datagram.
    pub source: SocketAddr,
    /// Destination address and port of the datagram.
    pub destination: SocketAddr,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// DSCP (6 bits) and ECN (2).
    pub traffic_class: u8,
    /// Where the payload is in the frame; within its bounds by construction.
    pub payload: Range<usize>,
    /// The result of checking the UDP checksum.
    pub checksum: ChecksumFound,
}

/// Parses a frame that should hold a whole UDP datagram.
///
/// # Errors
/// The first check that failed, from the outside in.
#[inline]
pub fn parse(frame: &[u8], trust: ChecksumTrust) -> Result<UdpFrame, ParseError> {
    let eth = eth::Frame::parse(frame)?;
    let ip_at = eth.header_len();
    match eth.ethertype() {
        EtherType::IPV4 => parse_ipv4(&eth, ip_at, trust),
        EtherType::IPV6 => parse_ipv6(&eth, ip_at, trust),
        _ => Err(ParseError::EtherType),
    }
}

#[inline]
fn parse_ipv4(eth: &eth::Frame<'_>, ip_at: usize, trust: ChecksumTrust) -> Result<UdpFrame, ParseError> {
    let ip = ipv4::Packet::parse(eth.payload())?;
    if ip.is_fragment() {
        return Err(ParseError::IpFragment);
    }
    if ip.protocol() != Protocol::Udp.number() {
        return Err(ParseError::IpProtocol);
    }
    let udp = udp::Datagram::parse(ip.payload())?;
    let checksum = udp.verify_ipv4(ip.pseudo(udp.len()), trust)?;
    let payload_at = ip_at + ip.header_len() + udp::HEADER_LEN;
    Ok(UdpFrame {
        source_mac: eth.source(),
        destination_mac: eth.destination(),
        tag: eth.tag(),
        source: SocketAddr::new(IpAddr::V4(ip.source()), udp.source_port()),
        destination: SocketAddr::new(IpAddr::V4(ip.destination()), udp.destination_port()),
        hop_limit: ip.hop_limit(),
        traffic_class: ip.traffic_class(),
        payload: payload_at..payload_at + udp.payload().len(),
        checksum,
    })
}

#[inline]
fn parse_ipv6(eth: &eth::Frame<'_>, ip_at: usize, trust: ChecksumTrust) -> Result<UdpFrame, ParseError> {
    let ip = ipv6::Packet::parse(eth.payload())?;
    match ip.next_header() {
        number if number == Protocol::Udp.number() => {}
        ipv6::FRAGMENT => return Err(ParseError::IpFragment),
        number if ipv6::EXTENSIONS.contains(&number) => return Err(ParseError::Ipv6Extension),
        _ => return Err(ParseError::IpProtocol),
    }
    let udp = udp::Datagram::parse(ip.payload())?;
    let checksum = udp.verify_ipv6(ip.pseudo(udp.len()), trust)?;
    let payload_at = ip_at + ipv6::HEADER_LEN + udp::HEADER_LEN;
    Ok(UdpFrame {
        source_mac: eth.source(),
        destination_mac: eth.destination(),
        tag: eth.tag(),
        source: SocketAddr::new(IpAddr::V6(ip.source()), udp.source_port()),
        destination: SocketAddr::new(IpAddr::V6(ip.destination()), udp.destination_port()),
        hop_limit: ip.hop_limit(),
        traffic_class: ip.traffic_class(),
        payload: payload_at..payload_at + udp.payload().len(),
        checksum,
    })
}

/// The headers of a UDP datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpFrameRepr {
    /// The sender's MAC address.
    pub source_mac: Mac,
    /// The receiver's MAC address.
    pub destination_mac: Mac,
    /// The tag to put in.
    pub tag: Option<Tag>,
    /// Source address and port of the datagram.
    pub source: SocketAddr,
    /// Destination address and port; of the same family.
    pub destination: SocketAddr,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv4 identification; IPv6 has none.
    pub identification: u16,
}

impl UdpFrameRepr {
    /// Bytes that [`write_headers`] puts in front of the payload.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        let eth = if self.tag.is_some() { eth::HEADER_LEN + eth::TAG_LEN } else { eth::HEADER_LEN };
        let ip = if self.destination.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        eth + ip + udp::HEADER_LEN
    }
}

/// Writes complete headers, checksums included, at the start of `buffer`, and returns their length. The payload must
/// already be in the buffer, [`UdpFrameRepr::header_len`] bytes from its start.
///
/// # Errors
/// [`EmitError`]; the buffer's contents are then undefined.
#[inline]
pub fn write_headers(buffer: &mut [u8], repr: &UdpFrameRepr, payload_len: usize) -> Result<usize, EmitError> {
    let udp_len = payload_len + udp::HEADER_LEN;
    let udp_len_field = u16::try_from(udp_len).map_err(|_| EmitError::PayloadTooLong)?;
    let protocol = Protocol::Udp.number();
    let (ethertype, pseudo) = match (repr.source.ip(), repr.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            (EtherType::IPV4, Sum::ZERO.pseudo_ipv4(source, destination, protocol, udp_len_field))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            (EtherType::IPV6, Sum::ZERO.pseudo_ipv6(source, destination, protocol, u32::from(udp_len_field)))
        }
        _ => return Err(EmitError::MixedFamilies),
    };
    let eth =
        eth::Repr { destination: repr.destination_mac, source: repr.source_mac, tag: repr.tag, ethertype };
    let ip_at = eth.emit(buffer)?;
    let (_, ip_buffer) = buffer.split_at_mut(ip_at);
    let ip_len = match (repr.source.ip(), repr.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => ipv4::Repr {
            source,
            destination,
            protocol,
            hop_limit: repr.hop_limit,
            identification: repr.identification,
            payload_len: udp_len,
        }
        .emit(ip_buffer)?,
        (IpAddr::V6(source), IpAddr::V6(destination)) => ipv6::Repr {
            source,
            destination,
            next_header: protocol,
            hop_limit: repr.hop_limit,
            payload_len: udp_len,
        }
        .emit(ip_buffer)?,
        _ => return Err(EmitError::MixedFamilies),
    };
    let (_, udp_buffer) = ip_buffer.split_at_mut(ip_len);
    let udp =
        udp::Repr { source_port: repr.source.port(), destination_port: repr.destination.port(), payload_len };
    let udp_header_len = udp.emit(udp_buffer, pseudo)?;
    Ok(ip_at + ip_len + udp_header_len)
}

#[cfg(test)]
mod tests;
