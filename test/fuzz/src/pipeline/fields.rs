//! The fields of a frame as it is on a wire, each found anew from the frame's first byte. Section numbers are those of OpenFlow
//! 1.3.5.

use twinpath_forwarding::openflow::pipeline::Ingress;
use twinpath_openflow_wire::Field;

pub(super) fn number(bytes: &[u8], at: usize, len: usize) -> Option<u128> {
    let field = bytes.get(at..at + len)?;
    Some(field.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

/// The type or length behind all tags: where it is, and what.
pub(super) fn behind_tags(bytes: &[u8]) -> Option<(usize, u128)> {
    let mut at = 12;
    for _ in 0..8 {
        match number(bytes, at, 2)? {
            0x8100 | 0x88a8 if bytes.len() >= at + 6 => at += 4,
            other => return Some((at, other)),
        }
    }
    Some((at, number(bytes, at, 2)?))
}

/// The EtherType: where it is, or the length that stands in its place, and what.
fn ethertype(bytes: &[u8]) -> Option<(usize, u128)> {
    let (at, kind) = behind_tags(bytes)?;
    if kind >= 0x600 {
        return Some((at, kind));
    }
    let snap = number(bytes, at + 2, 6).filter(|snap| *snap == 0xaaaa_0300_0000);
    let inner = snap.and_then(|_| number(bytes, at + 8, 2)).filter(|inner| *inner >= 0x600);
    Some(inner.map_or((at, 0x5ff), |inner| (at + 8, inner)))
}

/// The IP header: where it is, and its version.
pub(super) fn ip(bytes: &[u8]) -> Option<(usize, u8)> {
    let (at, kind) = ethertype(bytes)?;
    let at = at + 2;
    let first = *bytes.get(at)?;
    match kind {
        0x800 => {
            let len = usize::from(first & 15) * 4;
            (first >> 4 == 4 && len >= 20 && bytes.len() >= at + len).then_some((at, 4))
        }
        0x86dd => (first >> 4 == 6 && bytes.len() >= at + 40).then_some((at, 6)),
        _ => None,
    }
}

/// What is behind the headers of IP.
#[derive(Default)]
pub(super) struct Behind {
    /// The number of the protocol, and where that number is.
    pub(super) protocol: u8,
    pub(super) protocol_at: usize,
    /// Where the transport header is.
    pub(super) at: Option<usize>,
    pub(super) is_fragment: bool,
    /// Extension headers in their order.
    pub(super) extensions: Vec<u8>,
    /// Whether a header 59 was last.
    pub(super) is_empty: bool,
}

pub(super) fn behind(bytes: &[u8]) -> Option<Behind> {
    let (at, version) = ip(bytes)?;
    if version == 4 {
        let fragment = number(bytes, at + 6, 2)?;
        let l4_at = at + usize::from(bytes[at] & 15) * 4;
        return Some(Behind {
            protocol: bytes[at + 9],
            protocol_at: at + 9,
            at: (fragment & 0x1fff == 0).then_some(l4_at),
            is_fragment: fragment & 0x3fff != 0,
            ..Behind::default()
        });
    }
    let mut found =
        Behind { protocol: bytes[at + 6], protocol_at: at + 6, at: Some(at + 40), ..Behind::default() };
    while let Some(header_at) = found.at {
        if found.extensions.len() == 16 {
            found.at = None;
            return Some(found);
        }
        let this = found.protocol;
        match this {
            59 => {
                (found.is_empty, found.at) = (true, None);
                return Some(found);
            }
            0 | 43 | 44 | 50 | 51 | 60 => found.extensions.push(this),
            _ => return Some(found),
        }
        let Some(header) = bytes.get(header_at..header_at + 8).filter(|_| this != 50) else {
            found.at = None;
            return Some(found);
        };
        found.protocol = header[0];
        found.protocol_at = header_at;
        let units = usize::from(header[1]);
        found.at = Some(
            header_at
                + if this == 44 {
                    8
                } else if this == 51 {
                    units * 4 + 8
                } else {
                    units * 8 + 8
                },
        );
        if this == 44 {
            // One whose fragment header says that it is whole is none.
            found.is_fragment |= number(header, 2, 2)? & 0xfff9 != 0;
            if number(header, 2, 2)? & 0xfff8 != 0 {
                found.at = None;
            }
        }
    }
    Some(found)
}

/// `ofp_ipv6exthdr_flags` (7.2.3.7).
fn exthdr(bytes: &[u8]) -> Option<u128> {
    let (_, 6) = ip(bytes)? else { return None };
    let behind = behind(bytes)?;
    let mut flags = u128::from(behind.is_empty);
    let (mut destinations, mut furthest) = (0, 0);
    for header in behind.extensions {
        let (bit, place) = match header {
            0 => (6, 1),
            60 if destinations == 0 && furthest < 3 => (3, 2),
            60 => (3, 7),
            43 => (5, 3),
            44 => (4, 4),
            51 => (2, 5),
            _ => (1, 6),
        };
        destinations += i32::from(header == 60);
        let again = if header == 60 { destinations > 2 } else { flags >> bit & 1 == 1 };
        if again {
            flags |= 1 << 7;
        } else if place < furthest {
            flags |= 1 << 8;
        }
        furthest = furthest.max(place);
        flags |= 1 << bit;
    }
    Some(flags)
}

/// The transport header, if it is of this protocol and has so many bytes.
fn l4(bytes: &[u8], protocol: u8, len: usize) -> Option<usize> {
    let behind = behind(bytes)?;
    let at = behind.at?;
    (behind.protocol == protocol && bytes.len() >= at + len).then_some(at)
}

fn icmp(bytes: &[u8], version: u8) -> Option<usize> {
    (ip(bytes)?.1 == version).then_some(())?;
    l4(bytes, if version == 4 { 1 } else { 58 }, 4)
}

fn arp(bytes: &[u8]) -> Option<usize> {
    let (at, 0x806) = ethertype(bytes)? else { return None };
    let arp = bytes.get(at + 2..at + 30)?;
    (arp[..6] == [0, 1, 8, 0, 6, 4]).then_some(at + 2)
}

pub(super) fn mpls(bytes: &[u8]) -> Option<usize> {
    let (at, 0x8847 | 0x8848) = behind_tags(bytes)? else { return None };
    (bytes.len() >= at + 6).then_some(at + 2)
}

pub(super) fn pbb(bytes: &[u8]) -> Option<usize> {
    let (at, 0x88e7) = behind_tags(bytes)? else { return None };
    (bytes.len() >= at + 6).then_some(at + 2)
}

/// The control information of the outer tag.
pub(super) fn tag(bytes: &[u8]) -> Option<u128> {
    (behind_tags(bytes)?.0 > 12).then(|| number(bytes, 14, 2))?
}

fn nd(bytes: &[u8]) -> Option<usize> {
    let at = icmp(bytes, 6)?;
    (matches!(bytes[at], 135 | 136) && bytes.len() >= at + 24).then_some(at)
}

/// Where the link-layer address of neighbour discovery is.
fn nd_address(bytes: &[u8], kind: u8) -> Option<usize> {
    let at = nd(bytes).filter(|at| bytes[*at] == kind)?;
    let mut at = at + 24;
    loop {
        let (option, len) = (*bytes.get(at)?, *bytes.get(at + 1)?);
        if len == 0 {
            return None;
        }
        if option == kind - 134 && len == 1 {
            return (bytes.len() >= at + 8).then_some(at + 2);
        }
        at += usize::from(len) * 8;
    }
}

/// Where a field is: the byte at which it begins, the number of bytes, and how far it is shifted in them.
pub(super) fn place(bytes: &[u8], field: Field) -> Option<(usize, usize, u32)> {
    let ip_of = |version: u8| ip(bytes).filter(|(_, own)| *own == version).map(|(at, _)| at);
    Some(match field {
        Field::EthDst => (0, 6, 0),
        Field::EthSrc => (6, 6, 0),
        Field::EthType => (ethertype(bytes)?.0, 2, 0),
        Field::VlanVid => tag(bytes).map(|_| (14, 2, 0))?,
        Field::VlanPcp => tag(bytes).map(|_| (14, 2, 13))?,
        Field::IpDscp => ip(bytes).map(|(at, version)| (at, 2, if version == 4 { 2 } else { 6 }))?,
        Field::IpEcn => ip(bytes).map(|(at, version)| (at, 2, if version == 4 { 0 } else { 4 }))?,
        Field::IpProto => (behind(bytes)?.protocol_at, 1, 0),
        Field::Ipv4Src => (ip_of(4)? + 12, 4, 0),
        Field::Ipv4Dst => (ip_of(4)? + 16, 4, 0),
        Field::TcpSrc => (l4(bytes, 6, 20)?, 2, 0),
        Field::TcpDst => (l4(bytes, 6, 20)? + 2, 2, 0),
        Field::UdpSrc => (l4(bytes, 17, 8)?, 2, 0),
        Field::UdpDst => (l4(bytes, 17, 8)? + 2, 2, 0),
        Field::SctpSrc => (l4(bytes, 132, 12)?, 2, 0),
        Field::SctpDst => (l4(bytes, 132, 12)? + 2, 2, 0),
        Field::Icmpv4Type => (icmp(bytes, 4)?, 1, 0),
        Field::Icmpv4Code => (icmp(bytes, 4)? + 1, 1, 0),
        Field::ArpOp => (arp(bytes)? + 6, 2, 0),
        Field::ArpSha => (arp(bytes)? + 8, 6, 0),
        Field::ArpSpa => (arp(bytes)? + 14, 4, 0),
        Field::ArpTha => (arp(bytes)? + 18, 6, 0),
        Field::ArpTpa => (arp(bytes)? + 24, 4, 0),
        Field::Ipv6Src => (ip_of(6)? + 8, 16, 0),
        Field::Ipv6Dst => (ip_of(6)? + 24, 16, 0),
        Field::Ipv6Flabel => (ip_of(6)?, 4, 0),
        Field::Icmpv6Type => (icmp(bytes, 6)?, 1, 0),
        Field::Icmpv6Code => (icmp(bytes, 6)? + 1, 1, 0),
        Field::Ipv6NdTarget => (nd(bytes)? + 8, 16, 0),
        Field::Ipv6NdSll => (nd_address(bytes, 135)?, 6, 0),
        Field::Ipv6NdTll => (nd_address(bytes, 136)?, 6, 0),
        Field::MplsLabel => (mpls(bytes)?, 4, 12),
        Field::MplsTc => (mpls(bytes)?, 4, 9),
        Field::MplsBos => (mpls(bytes)?, 4, 8),
        Field::PbbIsid => (pbb(bytes)?, 4, 0),
        Field::InPort | Field::InPhyPort | Field::Metadata | Field::TunnelId | Field::Ipv6Exthdr => {
            return None;
        }
    })
}

/// Bits of a field that are on the wire.
pub(super) fn wire_mask(field: Field) -> u128 {
    if field == Field::VlanVid { 0xfff } else { field.full_mask() }
}

/// A field of a frame, if it has it.
pub(super) fn get(bytes: &[u8], ingress: &Ingress, metadata: u64, field: Field) -> Option<u128> {
    match field {
        Field::InPort => Some(ingress.in_port.into()),
        Field::InPhyPort => Some(ingress.in_phy_port.into()),
        Field::Metadata => Some(metadata.into()),
        Field::TunnelId => Some(ingress.tunnel_id.into()),
        Field::Ipv6Exthdr => exthdr(bytes),
        Field::EthType => Some(ethertype(bytes)?.1),
        // No tag is the value zero (7.2.3.7).
        Field::VlanVid => Some(tag(bytes).map_or(0, |tag| tag & 0xfff | 0x1000)),
        _ => {
            let (at, len, shift) = place(bytes, field)?;
            Some(number(bytes, at, len)? >> shift & field.full_mask())
        }
    }
}

/// Where the transport header is.
pub(super) fn l4_at(bytes: &[u8]) -> Option<usize> {
    behind(bytes)?.at
}
