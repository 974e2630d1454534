//! Parses and writes Ethernet, IP and TCP headers in one pass, for the packet path.

use core::net::{IpAddr, SocketAddr};

use crate::checksum::Sum;
use crate::offload::{Headers, TCP_CHECKSUM_AT};
use crate::{
    ChecksumFound, ChecksumTrust, EmitError, EtherType, Mac, ParseError, Protocol, eth, ipv4, ipv6, tcp,
};

/// Maximum number of bytes in front of a payload: Ethernet, IPv6, TCP with its options.
pub const HEADER_LEN_MAX: usize = eth::HEADER_LEN + ipv6::HEADER_LEN + tcp::HEADER_LEN + tcp::OPTIONS_LEN_MAX;

/// The two low bits of the traffic class (RFC 3168 section 5).
const ECN: u8 = 0b11;
const CONGESTION_EXPERIENCED: u8 = 0b11;
const ECT_0: u8 = 0b10;

/// A TCP segment in a received frame.
#[derive(Clone, Copy, Debug)]
pub struct TcpFrame<'a> {
    /// Source address and port of the segment.
    pub source: SocketAddr,
    /// Destination address and port of the segment.
    pub destination: SocketAddr,
    /// Whether the IP header says "congestion experienced" (RFC 3168).
    pub congestion: bool,
    /// The segment.
    pub segment: tcp::Segment<'a>,
    /// The result of checking the TCP checksum.
    pub checksum: ChecksumFound,
}

/// Parses a frame without a tag that should hold a whole TCP segment.
///
/// # Errors
/// The first check that failed, from the outside in.
#[inline]
pub fn parse(frame: &[u8], trust: ChecksumTrust) -> Result<TcpFrame<'_>, ParseError> {
    let eth = eth::Frame::parse(frame)?;
    if eth.tag().is_some() {
        return Err(ParseError::EthTag);
    }
    match eth.ethertype() {
        EtherType::IPV4 => parse_ipv4(eth.payload(), trust),
        EtherType::IPV6 => parse_ipv6(eth.payload(), trust),
        _ => Err(ParseError::EtherType),
    }
}

/// The source and the destination of a segment, if its headers are those of TCP over IP without a tag. Nothing else is
/// checked, and the frame may end behind them.
#[must_use]
pub fn ends(frame: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let headers =
        Headers::find(frame).filter(|headers| headers.is_tcp && headers.ip_at == eth::HEADER_LEN)?;
    let address = |at: usize| -> Option<IpAddr> {
        let rest = frame.get(headers.ip_at + at..)?;
        Some(match headers.is_ipv6 {
            true => IpAddr::from(*rest.first_chunk::<16>()?),
            false => IpAddr::from(*rest.first_chunk::<4>()?),
        })
    };
    let port = |at: usize| Some(u16::from_be_bytes(*frame.get(headers.transport_at + at..)?.first_chunk()?));
    let (source, destination) = if headers.is_ipv6 { (8, 24) } else { (12, 16) };
    Some((SocketAddr::new(address(source)?, port(0)?), SocketAddr::new(address(destination)?, port(2)?)))
}

#[inline]
fn parse_ipv4(packet: &[u8], trust: ChecksumTrust) -> Result<TcpFrame<'_>, ParseError> {
    let ip = ipv4::Packet::parse(packet)?;
    if ip.is_fragment() {
        return Err(ParseError::IpFragment);
    }
    if ip.protocol() != Protocol::Tcp.number() {
        return Err(ParseError::IpProtocol);
    }
    let segment = tcp::Segment::parse(ip.payload())?;
    // An IPv4 packet has at most 65,535 bytes.
    let checksum = segment.verify(ip.pseudo(ip.payload().len() as u16), trust)?;
    Ok(TcpFrame {
        source: SocketAddr::new(IpAddr::V4(ip.source()), segment.source_port()),
        destination: SocketAddr::new(IpAddr::V4(ip.destination()), segment.destination_port()),
        congestion: ip.traffic_class() & ECN == CONGESTION_EXPERIENCED,
        segment,
        checksum,
    })
}

#[inline]
fn parse_ipv6(packet: &[u8], trust: ChecksumTrust) -> Result<TcpFrame<'_>, ParseError> {
    let ip = ipv6::Packet::parse(packet)?;
    match ip.next_header() {
        number if number == Protocol::Tcp.number() => {}
        ipv6::FRAGMENT => return Err(ParseError::IpFragment),
        number if ipv6::EXTENSIONS.contains(&number) => return Err(ParseError::Ipv6Extension),
        _ => return Err(ParseError::IpProtocol),
    }
    let segment = tcp::Segment::parse(ip.payload())?;
    let checksum = segment.verify(ip.pseudo(ip.payload().len() as u16), trust)?;
    Ok(TcpFrame {
        source: SocketAddr::new(IpAddr::V6(ip.source()), segment.source_port()),
        destination: SocketAddr::new(IpAddr::V6(ip.destination()), segment.destination_port()),
        congestion: ip.traffic_class() & ECN == CONGESTION_EXPERIENCED,
        segment,
        checksum,
    })
}

/// What the frame of a segment has besides the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFrameRepr {
    /// The sender's MAC address.
    pub source_mac: Mac,
    /// The receiver's MAC address.
    pub destination_mac: Mac,
    /// The sender's address.
    pub source: IpAddr,
    /// The receiver's address; of the same family.
    pub destination: IpAddr,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// Whether the IP header says ECT(0) (RFC 3168).
    pub ecn_capable: bool,
    /// The identification of an IPv4 packet that routers may cut; `None`: it says "don't fragment".
    pub id: Option<u16>,
}

impl TcpFrameRepr {
    /// Bytes of the frame of a segment with so many bytes of options and payload.
    #[inline]
    #[must_use]
    pub const fn frame_len(&self, options_len: usize, payload_len: usize) -> usize {
        let ip = if self.destination.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        eth::HEADER_LEN + ip + tcp::HEADER_LEN + options_len + payload_len
    }

    /// Writes the frame of a segment, checksums included, at the start of `buffer`, and returns its length.
    ///
    /// # Errors
    /// [`EmitError`]; the buffer's contents are then undefined.
    #[inline]
    pub fn write(
        &self,
        buffer: &mut [u8],
        header: &tcp::Header,
        options: &[u8],
        payload: &[u8],
    ) -> Result<usize, EmitError> {
        let (tcp_at, headers_len, pseudo) = self.write_headers(buffer, header, options, payload.len())?;
        let end = headers_len + payload.len();
        let segment = buffer.get_mut(tcp_at..end).ok_or(EmitError::BufferTooShort)?;
        segment[headers_len - tcp_at..].copy_from_slice(payload);
        let checksum = pseudo.bytes(segment).checksum().to_be_bytes();
        segment[TCP_CHECKSUM_AT..TCP_CHECKSUM_AT + 2].copy_from_slice(&checksum);
        Ok(end)
    }

    /// Writes the headers of a segment whose payload follows elsewhere, and returns where TCP's header begins and where
    /// the headers end. The place of the TCP checksum holds the pseudo-header's sum, as for a sender that leaves the rest
    /// to the device.
    ///
    /// # Errors
    /// [`EmitError`]; the buffer's contents are then undefined.
    pub fn write_partial(
        &self,
        buffer: &mut [u8],
        header: &tcp::Header,
        options: &[u8],
        payload_len: usize,
    ) -> Result<(usize, usize), EmitError> {
        let (tcp_at, headers_len, pseudo) = self.write_headers(buffer, header, options, payload_len)?;
        let field = tcp_at + TCP_CHECKSUM_AT;
        buffer[field..field + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        Ok((tcp_at, headers_len))
    }

    /// Writes the headers, without the TCP checksum. Returns where TCP's header begins, where the headers end, and the
    /// pseudo-header's sum.
    #[inline]
    fn write_headers(
        &self,
        buffer: &mut [u8],
        header: &tcp::Header,
        options: &[u8],
        payload_len: usize,
    ) -> Result<(usize, usize, Sum), EmitError> {
        let tcp_len = tcp::HEADER_LEN + options.len() + payload_len;
        let len_field = u16::try_from(tcp_len).map_err(|_| EmitError::PayloadTooLong)?;
        let (protocol, hop_limit) = (Protocol::Tcp.number(), self.hop_limit);
        let ethertype = if self.destination.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let eth =
            eth::Repr { destination: self.destination_mac, source: self.source_mac, tag: None, ethertype };
        let ip_at = eth.emit(buffer)?;
        let (_, ip_buffer) = buffer.split_at_mut(ip_at);
        let (ip_len, pseudo) = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                // While "don't fragment" is set, the identification does not matter (RFC 6864 section 4.1).
                let ip = ipv4::Repr {
                    source,
                    destination,
                    protocol,
                    hop_limit,
                    identification: 0,
                    payload_len: tcp_len,
                };
                let len = ip.emit(ip_buffer)?;
                if self.ecn_capable || self.id.is_some() {
                    self.mark_ipv4(ip_buffer)?;
                }
                (len, Sum::ZERO.pseudo_ipv4(source, destination, protocol, len_field))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let ip = ipv6::Repr {
                    source,
                    destination,
                    next_header: protocol,
                    hop_limit,
                    payload_len: tcp_len,
                };
                let len = ip.emit(ip_buffer)?;
                if self.ecn_capable {
                    // The low bits of the traffic class are the upper ones of the second byte.
                    *ip_buffer.get_mut(1).ok_or(EmitError::BufferTooShort)? |= ECT_0 << 4;
                }
                (len, Sum::ZERO.pseudo_ipv6(source, destination, protocol, u32::from(len_field)))
            }
            _ => return Err(EmitError::MixedFamilies),
        };
        let (_, rest) = ip_buffer.split_at_mut(ip_len);
        let header_len = header.emit(options, rest)?;
        let tcp_at = ip_at + ip_len;
        Ok((tcp_at, tcp_at + header_len, pseudo))
    }

    /// Sets what few packets have in an IPv4 header that was just written, and corrects its checksum.
    #[cold]
    fn mark_ipv4(&self, header: &mut [u8]) -> Result<(), EmitError> {
        let header: &mut [u8; ipv4::HEADER_LEN] =
            header.first_chunk_mut().ok_or(EmitError::BufferTooShort)?;
        if self.ecn_capable {
            header[1] |= ECT_0;
        }
        if let Some(id) = self.id {
            header[4..6].copy_from_slice(&id.to_be_bytes());
            header[6..8].fill(0);
        }
        (header[10], header[11]) = (0, 0);
        let [high, low] = Sum::ZERO.bytes(&*header).checksum().to_be_bytes();
        (header[10], header[11]) = (high, low);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
