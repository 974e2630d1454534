//! Work that a sender left to the device, done in software: segmentation and transport checksums.
//!
//! A super-frame ([`Segmentation`]) is one TCP segment or UDP datagram that is longer than the path allows. The
//! headers of each packet that it becomes are written here, as the kernel writes them (`tcp_gso_segment`,
//! net/ipv4/tcp_offload.c; `__udp_gso_segment`, net/ipv4/udp_offload.c). The caller copies the payload, because
//! only it knows where the bytes are.

mod outer;

use core::net::Ipv4Addr;
use core::net::Ipv6Addr;
use core::ops::Range;

use self::outer::Outer;
use crate::checksum::{PiecewiseSum, Sum};
use crate::{EtherType, Protocol, be16, eth, ipv4, ipv6, tcp, udp};

/// Maximum number of tags that are skipped to find the headers.
const TAGS_MAX: usize = 2;

/// Maximum number of header bytes in front of IP that are skipped to segment a packet; a frame has room for no more
/// (`HEADROOM` of frames).
const PUSHED_MAX: usize = 64;
/// An MPLS label, and a PBB service tag with the addresses and the EtherType of the inner frame.
const MPLS_LEN: usize = 4;
const PBB_LEN: usize = 18;

/// The longest IP header, including extension headers, that is searched for in front of a transport header in a
/// tunnel.
const IP_LEN_MAX: usize = 104;

/// Maximum number of extension headers of an IPv6 packet that are skipped.
const EXTENSIONS_MAX: usize = 8;

/// Offset of the checksum in an IPv4 header (RFC 791 section 3.1).
const IPV4_CHECKSUM_AT: usize = 10;
/// Offset of the checksum in a TCP header (RFC 9293 section 3.1).
pub const TCP_CHECKSUM_AT: usize = 16;
/// Offset of the checksum in a UDP header (RFC 768).
pub const UDP_CHECKSUM_AT: usize = 6;

/// Maximum number of packets that one super-frame may become: 64 KiB at the smallest segment size that the kernel
/// sends (`TCP_MIN_SND_MSS`, 48 bytes). This bounds the work that a hostile sender can cause per frame.
pub const SEGMENTS_MAX: usize = 65_535 / 48;

/// Where the headers of a TCP segment or UDP datagram begin and end, bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The IP header.
    pub ip_at: usize,
    /// It is IPv6.
    pub is_ipv6: bool,
    /// The transport header.
    pub transport_at: usize,
    /// It is TCP; else UDP.
    pub is_tcp: bool,
    /// The payload: the end of all headers.
    pub payload_at: usize,
}

impl Headers {
    /// Finds the headers of a frame, which must begin with all of them; its payload may be elsewhere. `None` if it is
    /// not TCP or UDP over IP, or is a fragment, or ends within the headers.
    #[must_use]
    pub fn find(frame: &[u8]) -> Option<Self> {
        let (mut ethertype, mut ip_at) = (field(frame, 12)?, eth::HEADER_LEN);
        for _ in 0..TAGS_MAX {
            if EtherType(ethertype).is_tag() {
                ethertype = field(frame, ip_at + 2)?;
                ip_at += eth::TAG_LEN;
            }
        }
        Self::at(frame, ethertype, ip_at)
    }

    /// The same, also after headers that a switch has pushed.
    #[must_use]
    fn find_behind_pushed(frame: &[u8]) -> Option<Self> {
        let (ethertype, at) = behind_pushed(frame)?;
        Self::at(frame, ethertype, at)
    }

    /// The headers of a packet of this type that begins at `ip_at`.
    fn at(frame: &[u8], ethertype: u16, ip_at: usize) -> Option<Self> {
        let (is_ipv6, transport_at, number) = self::ip_at(frame, ethertype, ip_at)?;
        let is_tcp = number == Protocol::Tcp.number();
        if !is_tcp && number != Protocol::Udp.number() {
            return None;
        }
        Self { ip_at, is_ipv6, transport_at, is_tcp, payload_at: 0 }.with_payload(frame)
    }

    /// Adds the start of the payload, if all headers are there.
    fn with_payload(self, frame: &[u8]) -> Option<Self> {
        let Self { transport_at, is_tcp, .. } = self;
        let header_len =
            if is_tcp { usize::from(*frame.get(transport_at + 12)? >> 4) * 4 } else { udp::HEADER_LEN };
        let payload_at = transport_at + header_len;
        let is_whole = payload_at <= frame.len() && (!is_tcp || header_len >= tcp::HEADER_LEN);
        is_whole.then_some(Self { payload_at, ..self })
    }

    /// The headers of the packet whose transport header begins at this offset, with its checksum at that one. They
    /// include the IP header that ends there, if it says that the packet ends with the frame of `frame_len` bytes.
    fn of_transport(frame: &[u8], frame_len: usize, transport_at: usize, checksum_at: usize) -> Option<Self> {
        let (is_tcp, number) = match checksum_at.checked_sub(transport_at)? {
            TCP_CHECKSUM_AT => (true, Protocol::Tcp.number()),
            UDP_CHECKSUM_AT => (false, Protocol::Udp.number()),
            _ => return None,
        };
        let ip_lens = (ipv4::HEADER_LEN..=IP_LEN_MAX).step_by(4);
        let mut found = ip_lens.filter_map(|ip_len| {
            let ip_at = transport_at.checked_sub(ip_len)?;
            let is_ipv6 = *frame.get(ip_at)? >> 4 == 6;
            let ethertype = if is_ipv6 { EtherType::IPV6 } else { EtherType::IPV4 }.0;
            let this = Self { ip_at, is_ipv6, transport_at, is_tcp, payload_at: 0 };
            let is_it = self::ip_at(frame, ethertype, ip_at) == Some((is_ipv6, transport_at, number))
                && this.end(frame) == Some(frame_len);
            if is_it { this.with_payload(frame) } else { None }
        });
        found.next()
    }

    /// Where the transport's checksum is.
    #[must_use]
    pub const fn checksum_at(&self) -> usize {
        self.transport_at + if self.is_tcp { TCP_CHECKSUM_AT } else { UDP_CHECKSUM_AT }
    }

    /// The end of the packet according to its IP header; in a short frame, padding follows.
    #[must_use]
    pub fn end(&self, frame: &[u8]) -> Option<usize> {
        let len = if self.is_ipv6 {
            ipv6::HEADER_LEN + usize::from(field(frame, self.ip_at + 4)?)
        } else {
            usize::from(field(frame, self.ip_at + 2)?)
        };
        Some(self.ip_at + len)
    }

    /// The sum of the pseudo-header of a packet that ends at `end`. Wrong for packets with a routing header, whose
    /// final destination is another one (RFC 8200 section 8.1).
    pub(crate) fn pseudo(&self, frame: &[u8], end: usize) -> Option<Sum> {
        let len = end.checked_sub(self.transport_at)?;
        let protocol = if self.is_tcp { Protocol::Tcp } else { Protocol::Udp }.number();
        if self.is_ipv6 {
            let address = |at: usize| -> Option<Ipv6Addr> {
                let octets: &[u8; 16] = frame.get(self.ip_at + at..)?.first_chunk()?;
                Some((*octets).into())
            };
            Some(Sum::ZERO.pseudo_ipv6(address(8)?, address(24)?, protocol, len as u32))
        } else {
            let address = |at: usize| -> Option<Ipv4Addr> {
                let octets: &[u8; 4] = frame.get(self.ip_at + at..)?.first_chunk()?;
                Some((*octets).into())
            };
            Some(Sum::ZERO.pseudo_ipv4(address(12)?, address(16)?, protocol, u16::try_from(len).ok()?))
        }
    }

    /// Whether the transport's checksum is complete and right. The frame must contain the whole packet.
    #[must_use]
    pub fn has_right_checksum(&self, frame: &[u8]) -> bool {
        let sum = self
            .end(frame)
            .and_then(|end| Some(self.pseudo(frame, end)?.bytes(frame.get(self.transport_at..end)?)));
        sum.is_some_and(|sum| sum.fold() == 0xffff)
    }

    /// Whether the sender left the checksum of this packet to hardware: the field holds the pseudo-header's sum alone.
    #[must_use]
    pub fn has_partial_checksum(&self, frame: &[u8]) -> bool {
        let pseudo = self.end(frame).and_then(|end| self.pseudo(frame, end));
        pseudo.is_some_and(|pseudo| field(frame, self.checksum_at()) == Some(pseudo.fold()))
    }
}

/// The EtherType of a frame and the start of its payload, after headers that a switch has pushed: tags, MPLS labels
/// (RFC 3032) and PBB service tags (IEEE 802.1Q, 9.7).
fn behind_pushed(frame: &[u8]) -> Option<(u16, usize)> {
    let (mut ethertype, mut at) = (field(frame, 12)?, eth::HEADER_LEN);
    for _ in 0..PUSHED_MAX {
        match EtherType(ethertype) {
            tag if tag.is_tag() => {
                ethertype = field(frame, at + 2)?;
                at += eth::TAG_LEN;
            }
            EtherType::MPLS | EtherType::MPLS_MULTICAST => {
                let is_bottom = frame.get(at + 2)? & 1 == 1;
                at += MPLS_LEN;
                // After the last label, the IP version shows what follows.
                if is_bottom {
                    let is_ipv4 = frame.get(at)? >> 4 == 4;
                    ethertype = if is_ipv4 { EtherType::IPV4 } else { EtherType::IPV6 }.0;
                }
            }
            EtherType::PBB => {
                ethertype = field(frame, at + PBB_LEN - 2)?;
                at += PBB_LEN;
            }
            _ => break,
        }
    }
    Some((ethertype, at))
}

/// An IP header of this type at this offset: whether it is IPv6, where its payload begins, and the payload's
/// protocol number. `None` if there is none, or if it belongs to a fragment.
fn ip_at(frame: &[u8], ethertype: u16, at: usize) -> Option<(bool, usize, u8)> {
    match EtherType(ethertype) {
        EtherType::IPV4 => {
            let ip = frame.get(at..at + ipv4::HEADER_LEN)?;
            let header_len = usize::from(ip[0] & 0xf) * 4;
            let is_whole =
                ip[0] >> 4 == 4 && header_len >= ipv4::HEADER_LEN && be16(ip[6], ip[7]) & 0x3fff == 0;
            is_whole.then_some((false, at + header_len, ip[9]))
        }
        EtherType::IPV6 => {
            let ip = frame.get(at..at + ipv6::HEADER_LEN)?;
            let (carried_at, number) = behind_extensions(frame, at + ipv6::HEADER_LEN, ip[6])?;
            (ip[0] >> 4 == 6).then_some((true, carried_at, number))
        }
        _ => None,
    }
}

fn field(frame: &[u8], at: usize) -> Option<u16> {
    let [high, low] = *frame.get(at..)?.first_chunk()?;
    Some(be16(high, low))
}

/// The start of the transport header of an IPv6 packet, and its protocol. Headers that change the meaning of what
/// follows (fragments, encryption) end the search.
fn behind_extensions(frame: &[u8], mut at: usize, mut next: u8) -> Option<(usize, u8)> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION: u8 = 60;
    for _ in 0..EXTENSIONS_MAX {
        if !matches!(next, HOP_BY_HOP | ROUTING | DESTINATION) {
            return Some((at, next));
        }
        let header: &[u8; 2] = frame.get(at..)?.first_chunk()?;
        next = header[0];
        at += (usize::from(header[1]) + 1) * 8;
    }
    None
}

/// The value for a checksum field that the sender left to hardware, as `skb_checksum_help` computes it
/// (net/core/dev.c): over the packet from where the checksum starts, with the pseudo-header's sum in the field.
///
/// A sum of zero is written as 0xffff, which UDP requires (RFC 768) and TCP allows: both are the same number.
#[must_use]
pub fn completed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u16 {
    let mut sum = PiecewiseSum::default();
    pieces.into_iter().for_each(|piece| sum.add(piece));
    match sum.sum().checksum() {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// A frame cannot be segmented: its headers are not those of its kind, contradict its length, or ask for more than
/// [`SEGMENTS_MAX`] packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotSegment;

/// How a super-frame is segmented.
#[derive(Clone, Copy, Debug)]
pub struct Segmentation {
    headers: Headers,
    /// Headers of a tunnel in front of them.
    outer: Option<Outer>,
    frame_len: usize,
    size: usize,
    count: usize,
}

impl Segmentation {
    /// For a frame of `frame_len` bytes that begins with `first`, which contains all headers; `size` is the payload
    /// of each packet but the last. Its transport checksum must have been left to hardware, as it always is with
    /// segmentation (virtio 1.2, section 5.1.6.2).
    ///
    /// # Errors
    /// [`CannotSegment`].
    pub fn of(first: &[u8], frame_len: usize, size: u16) -> Result<Self, CannotSegment> {
        let headers = Headers::find_behind_pushed(first).ok_or(CannotSegment)?;
        Self::new(first, frame_len, size, headers, None)
    }

    /// The same for a frame whose packet is in a tunnel (UDP, GRE, IP in IP). The checksum left to hardware belongs
    /// to the inner packet; it covers the bytes from `transport_at` and is stored at `checksum_at`.
    ///
    /// # Errors
    /// [`CannotSegment`], also if there is no tunnel.
    pub fn in_tunnel(
        first: &[u8],
        frame_len: usize,
        size: u16,
        transport_at: usize,
        checksum_at: usize,
    ) -> Result<Self, CannotSegment> {
        let inner =
            Headers::of_transport(first, frame_len, transport_at, checksum_at).ok_or(CannotSegment)?;
        let outer = Outer::find(first, frame_len, &inner).ok_or(CannotSegment)?;
        Self::new(first, frame_len, size, inner, Some(outer))
    }

    fn new(
        first: &[u8],
        frame_len: usize,
        size: u16,
        headers: Headers,
        outer: Option<Outer>,
    ) -> Result<Self, CannotSegment> {
        let size = usize::from(size);
        let udp_len = field(first, headers.transport_at + 4).map(usize::from);
        let lengths_agree = headers.end(first) == Some(frame_len)
            && (headers.is_tcp || udp_len == Some(frame_len - headers.transport_at));
        if size == 0 || headers.payload_at > frame_len || !lengths_agree {
            return Err(CannotSegment);
        }
        let count = (frame_len - headers.payload_at).div_ceil(size).max(1);
        if count > SEGMENTS_MAX {
            return Err(CannotSegment);
        }
        Ok(Self { headers, outer, frame_len, size, count })
    }

    /// Whether the packet is in a tunnel.
    #[must_use]
    pub const fn is_in_tunnel(&self) -> bool {
        self.outer.is_some()
    }

    /// Its headers.
    #[must_use]
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// How many packets it becomes; at least one.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Length of the longest of them, bytes.
    #[must_use]
    pub fn packet_len_max(&self) -> usize {
        self.frame_len.min(self.headers.payload_at + self.size)
    }

    /// The range of the super-frame that is the payload of packet `number`, counted from 0.
    #[must_use]
    pub fn payload(&self, number: usize) -> Range<usize> {
        let from = self.headers.payload_at + number * self.size;
        from..self.frame_len.min(from + self.size)
    }

    /// Turns `packet`, which begins with a copy of the super-frame's headers, into packet `number`, whose payload
    /// has the sum `payload_sum`. Writes only the headers; the checksums are complete.
    ///
    /// # Panics
    /// If `packet` is shorter than the headers, or there is no such number.
    pub fn write_headers(&self, number: usize, packet: &mut [u8], payload_sum: Sum) {
        let Headers { ip_at, is_ipv6, transport_at, is_tcp, payload_at } = self.headers;
        let payload = self.payload(number);
        let transport_len = payload_at - transport_at + payload.len();
        let ip_len = transport_at - ip_at + transport_len;
        let (ip, transport) = packet[ip_at..payload_at].split_at_mut(transport_at - ip_at);
        write_ip(number, ip, is_ipv6, ip_len);
        let checksum_at = self.headers.checksum_at() - transport_at;
        // The field holds the pseudo-header's sum with the length of the whole, which is replaced by this packet's.
        let pseudo = Sum::ZERO
            .field(be16(transport[checksum_at], transport[checksum_at + 1]))
            .field(!((self.frame_len - transport_at) as u16))
            .field(transport_len as u16);
        put(transport, checksum_at, 0);
        if is_tcp {
            self.write_tcp(number, transport);
        } else {
            put(transport, 4, transport_len as u16);
        }
        let checksum = payload_sum.and(pseudo).bytes(transport).checksum();
        // A UDP checksum of zero would mean that there is none (RFC 768).
        let is_none = !is_tcp && checksum == 0;
        put(transport, checksum_at, if is_none { 0xffff } else { checksum });
        if let Some(outer) = &self.outer {
            outer.write(number, &mut packet[..payload_at], payload_at + payload.len(), payload_sum);
        }
    }

    /// As [`Self::write_headers`], for a super-frame of datagrams that is not in a tunnel. The transport checksum stays left to
    /// hardware: its field holds the pseudo-header's sum. So the payload need not be read.
    ///
    /// # Panics
    /// If `packet` is shorter than the headers, or there is no such number.
    pub fn write_datagram_headers(&self, number: usize, packet: &mut [u8]) {
        debug_assert!(!self.headers.is_tcp && self.outer.is_none(), "a datagram with its own headers only");
        let Headers { ip_at, is_ipv6, transport_at, payload_at, .. } = self.headers;
        let transport_len = payload_at - transport_at + self.payload(number).len();
        write_ip(number, &mut packet[ip_at..transport_at], is_ipv6, transport_at - ip_at + transport_len);
        put(packet, transport_at + 4, transport_len as u16);
        let pseudo = self.headers.pseudo(packet, transport_at + transport_len);
        put(packet, self.headers.checksum_at(), pseudo.unwrap_or(Sum::ZERO).fold());
    }

    /// The fields of a TCP header that differ from packet to packet.
    fn write_tcp(&self, number: usize, header: &mut [u8]) {
        let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let sequence = sequence.wrapping_add((number * self.size) as u32);
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        if number + 1 < self.count {
            header[13] &= !(tcp::Flags::FIN | tcp::Flags::PSH);
        }
        if number > 0 {
            // The sender reports only once that it has reduced its window (RFC 3168 section 6.1.2).
            header[13] &= !tcp::Flags::CWR;
        }
    }
}

/// Writes the fields of an IP header that differ from packet to packet. `len` counts from the IP header on.
fn write_ip(number: usize, ip: &mut [u8], is_ipv6: bool, len: usize) {
    if is_ipv6 {
        return put(ip, 4, (len - ipv6::HEADER_LEN) as u16);
    }
    put(ip, 2, len as u16);
    // One number per packet (`inet_gso_segment`, net/ipv4/af_inet.c).
    put(ip, 4, be16(ip[4], ip[5]).wrapping_add(number as u16));
    put(ip, IPV4_CHECKSUM_AT, 0);
    put(ip, IPV4_CHECKSUM_AT, Sum::ZERO.bytes(ip).checksum());
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
