//! The headers of a tunnel in front of a packet that is segmented: each packet gets them, with its own lengths and checksums.
//!
//! Tunnels over UDP (VXLAN, Geneve), GRE, and IP in IP, over IPv4 or IPv6. The bytes between these headers and the
//! inner packet (VXLAN's own header, an Ethernet header) are the same in each packet. The kernel does the same:
//! `skb_udp_tunnel_segment` (net/ipv4/udp_offload.c), `gre_gso_segment` (net/ipv4/gre_offload.c).

use super::{Headers, IPV4_CHECKSUM_AT, UDP_CHECKSUM_AT, behind_pushed, field, ip_at, put};
use crate::checksum::Sum;
use crate::{Protocol, be16, eth, ipv6, udp};

const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;

/// Bits of a GRE header (RFC 2784, 2; RFC 2890, 2).
const GRE_CHECKSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQUENCE: u16 = 0x1000;
/// Maximum number of VLAN tags in front of the inner packet.
const TAGS_MAX: usize = 2;
const GRE_CHECKSUM_AT: usize = 4;

/// The outer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outer {
    /// The IP header, and whether it is IPv6.
    ip_at: usize,
    is_ipv6: bool,
    /// The header that the IP header carries.
    carrier_at: usize,
    carrier: Carrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Udp { has_checksum: bool },
    Gre { has_checksum: bool },
    Ip,
}

impl Carrier {
    /// Whether the inner packet begins `len` bytes after the start of the carrier, and not inside a further tunnel,
    /// whose lengths would become wrong. `flags`: those of GRE.
    fn ends_at(self, len: usize, flags: u16) -> bool {
        match self {
            // VXLAN (RFC 7348, 5), or Geneve with its options (RFC 8926, 3.4), and an Ethernet header, perhaps with tags.
            Self::Udp { .. } => {
                let more = len.checked_sub(udp::HEADER_LEN + 8 + eth::HEADER_LEN);
                more.is_some_and(|len| len <= 252 + TAGS_MAX * eth::TAG_LEN && len.is_multiple_of(4))
            }
            Self::Gre { has_checksum } => {
                let has_key = flags & GRE_KEY != 0;
                let gre_len = 4 + if has_checksum { 4 } else { 0 } + if has_key { 4 } else { 0 };
                let tags = len.checked_sub(gre_len + eth::HEADER_LEN);
                len == gre_len
                    || tags.is_some_and(|len| len <= TAGS_MAX * eth::TAG_LEN && len.is_multiple_of(4))
            }
            Self::Ip => len == 0,
        }
    }
}

impl Outer {
    /// Finds them in front of the inner packet, which ends with the frame of `frame_len` bytes. `None` if there are
    /// none, or if they have fields that depend on the packet other than lengths and checksums.
    pub(super) fn find(frame: &[u8], frame_len: usize, inner: &Headers) -> Option<Self> {
        let (ethertype, at) = behind_pushed(frame)?;
        let (is_ipv6, carrier_at, number) = ip_at(frame, ethertype, at)?;
        let mut flags = 0;
        let carrier = match number {
            number if number == Protocol::Udp.number() => {
                (field(frame, carrier_at + 4).map(usize::from) == frame_len.checked_sub(carrier_at))
                    .then_some(())?;
                Carrier::Udp { has_checksum: field(frame, carrier_at + UDP_CHECKSUM_AT)? != 0 }
            }
            GRE => {
                flags = field(frame, carrier_at)?;
                (flags & GRE_SEQUENCE == 0).then_some(())?;
                Carrier::Gre { has_checksum: flags & GRE_CHECKSUM != 0 }
            }
            IP_IN_IP | IPV6_IN_IP => Carrier::Ip,
            _ => return None,
        };
        let this = Self { ip_at: at, is_ipv6, carrier_at, carrier };
        // Sums must begin at even offsets.
        let is_in_front = carrier.ends_at(inner.ip_at.checked_sub(carrier_at)?, flags)
            && (inner.payload_at - carrier_at).is_multiple_of(2);
        (is_in_front && this.end(frame)? == frame_len).then_some(this)
    }

    /// The end of the packet according to the IP header.
    fn end(&self, frame: &[u8]) -> Option<usize> {
        self.as_udp().end(frame)
    }

    const fn as_udp(&self) -> Headers {
        let Self { ip_at, is_ipv6, carrier_at, .. } = *self;
        let payload_at = carrier_at + udp::HEADER_LEN;
        Headers { ip_at, is_ipv6, transport_at: carrier_at, is_tcp: false, payload_at }
    }

    /// Writes them for packet `number` of `len` bytes. `headers` are all its headers; the inner ones are already
    /// complete.
    pub(super) fn write(&self, number: usize, headers: &mut [u8], len: usize, payload_sum: Sum) {
        let Self { ip_at, is_ipv6, carrier_at, carrier } = *self;
        let ip_len = len - ip_at;
        let ip = &mut headers[ip_at..carrier_at];
        if is_ipv6 {
            put(ip, 4, (ip_len - ipv6::HEADER_LEN) as u16);
        } else {
            put(ip, 2, ip_len as u16);
            put(ip, 4, be16(ip[4], ip[5]).wrapping_add(number as u16));
            put(ip, IPV4_CHECKSUM_AT, 0);
            put(ip, IPV4_CHECKSUM_AT, Sum::ZERO.bytes(ip).checksum());
        }
        match carrier {
            Carrier::Udp { has_checksum } => {
                put(headers, carrier_at + 4, (len - carrier_at) as u16);
                let at = carrier_at + UDP_CHECKSUM_AT;
                put(headers, at, 0);
                if has_checksum && let Some(pseudo) = self.as_udp().pseudo(headers, len) {
                    let sum = payload_sum.and(pseudo).bytes(&headers[carrier_at..]).checksum();
                    put(headers, at, if sum == 0 { 0xffff } else { sum });
                }
            }
            Carrier::Gre { has_checksum: true } => {
                let at = carrier_at + GRE_CHECKSUM_AT;
                put(headers, at, 0);
                put(headers, at, payload_sum.bytes(&headers[carrier_at..]).checksum());
            }
            Carrier::Gre { has_checksum: false } | Carrier::Ip => {}
        }
    }
}
