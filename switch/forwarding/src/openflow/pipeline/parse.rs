//! Reads a frame's fields into a [`Key`], and where its headers are into a [`Layout`].
//!
//! Every length is checked; a header that is cut off or contradicts itself is not there, nor what would be behind it. A
//! frame without even an Ethernet header has no key.

use twinpath_openflow_wire::number::VLAN_PRESENT;
use twinpath_wire::{EtherType, eth};

use crate::openflow::pipeline::key::{self, Key, Layers};

/// Maximum number of VLAN tags that are skipped, including one beside the bytes. With more, the EtherType is that of a
/// tag.
const TAGS_MAX: usize = 8;

/// Maximum number of IPv6 extension headers that are skipped. With more, nothing behind them is read.
const EXTENSIONS_MAX: usize = 16;

/// EtherTypes that [`EtherType`] does not name.
pub(crate) const MPLS: u16 = 0x8847;
pub(crate) const MPLS_MULTICAST: u16 = 0x8848;
pub(crate) const PBB: u16 = 0x88e7;

/// The lowest EtherType: less is the length of a frame of IEEE 802.3.
const ETHERTYPE_MIN: u16 = 0x600;

/// What stands for the type of a frame of IEEE 802.3 that has none (OpenFlow 1.0.0, 5.2.3: OFP_DL_TYPE_NOT_ETH_TYPE).
const NO_ETHERTYPE: u16 = 0x05ff;

/// The headers of LLC and SNAP in front of an EtherType (IEEE 802, 9.2.3; RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];

/// Bytes of an entry of a stack of MPLS labels (RFC 3032, 2.1).
pub(crate) const MPLS_LEN: usize = 4;
/// Bytes of an ARP packet for IPv4 over Ethernet (RFC 826).
const ARP_LEN: usize = 28;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const ICMPV4: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;
const SCTP_LEN: usize = 12;
const ICMP_LEN: usize = 4;
/// A neighbour solicitation or advertisement up to its options (RFC 4861, 4.3 and 4.4).
const ND_LEN: usize = 24;
const ND_SOLICITATION: u8 = 135;
const ND_ADVERTISEMENT: u8 = 136;

/// What the switch says of a frame, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ingress {
    /// The port that the frame came in by, by its OpenFlow number.
    pub in_port: u32,
    /// The physical port; the same, unless the frame came out of a tunnel.
    pub in_phy_port: u32,
    /// The key of the tunnel that it came out of; 0 if none.
    pub tunnel_id: u64,
}

/// Where a frame's headers are, bytes from its start; 0 for those that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The EtherType behind all VLAN tags, that of SNAP included; the length of a frame that has none.
    pub(crate) type_at: u16,
    /// What that type says: an IP, ARP, MPLS or PBB header.
    pub(crate) l3_at: u16,
    /// The transport header.
    pub(crate) l4_at: u16,
    /// The byte that says which transport header it is.
    pub(crate) proto_at: u16,
    /// Where the packet ends by its IP header.
    pub(crate) ip_end: u32,
    /// A link-layer address among the options of neighbour discovery.
    pub(crate) nd_link_layer_at: u16,
    /// The layers, as in the key.
    pub(crate) layers: Layers,
    /// A fragment, the first one included.
    pub(crate) is_fragment: bool,
    /// It has a part of its packet: not so an IPv6 packet whose fragment header says that it is whole.
    pub(crate) is_in_parts: bool,
    /// The destination of the IPv6 header is not the last one: another is in a routing header, and in the checksums
    /// (RFC 8200, 8.1).
    pub(crate) is_source_routed: bool,
}

impl Layout {
    #[inline]
    pub(crate) const fn has(&self, layer: Layers) -> bool {
        self.layers.has(layer)
    }

    #[inline]
    const fn add(&mut self, layer: Layers) {
        self.layers = self.layers.with(layer);
    }
}

#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn be48(bytes: &[u8], at: usize) -> Option<u64> {
    let [a, b, c, d, e, f] = *bytes.get(at..)?.first_chunk()?;
    Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// Reads the head of a frame: all headers, or all of the frame. `beside` is the tag control information of a tag that
/// is not among the bytes; it is then the outer tag. `key` and `layout` must be empty. `None`: shorter than an Ethernet
/// header.
#[inline]
pub(crate) fn parse(
    head: &[u8],
    beside: Option<u16>,
    ingress: &Ingress,
    key: &mut Key,
    layout: &mut Layout,
) -> Option<()> {
    let ethernet: &[u8; eth::HEADER_LEN] = head.first_chunk()?;
    // Whole words are written where that is possible, which takes less than a bit after the other.
    let mut first = u64::from(key::short_port(ingress.in_port)) << key::IN_PORT.shift;
    key.0[key::IN_PHY_PORT.word] = u64::from(key::short_port(ingress.in_phy_port)) << key::IN_PHY_PORT.shift;
    key.0[key::TUNNEL_ID] = ingress.tunnel_id;
    let [a, b, c, d, e, f, g, h, i, j, k, l, type_high, type_low] = *ethernet;
    key.0[key::ETH_DST.word] = u64::from_be_bytes([a, b, c, d, e, f, 0, 0]);
    key.0[key::ETH_SRC.word] = u64::from_be_bytes([g, h, i, j, k, l, 0, 0]);

    layout.type_at = 12;
    let mut ethertype = u16::from_be_bytes([type_high, type_low]);
    let mut tag = beside;
    for _ in usize::from(beside.is_some())..TAGS_MAX {
        if !EtherType(ethertype).is_tag() {
            break;
        }
        let at = usize::from(layout.type_at);
        let (Some(control), Some(inner)) = (be16(head, at + 2), be16(head, at + eth::TAG_LEN)) else { break };
        tag = tag.or(Some(control));
        layout.type_at += eth::TAG_LEN as u16;
        ethertype = inner;
    }
    if let Some(control) = tag {
        layout.add(Layers::TAG);
        first |= u64::from(control & 0xfff | VLAN_PRESENT) << key::VLAN_VID.shift;
        first |= u64::from(control >> 13) << key::VLAN_PCP.shift;
    }
    let mut carried = ethertype;
    if ethertype < ETHERTYPE_MIN {
        ethertype = type_of_llc(head, layout);
        // Neither is carried in LLC.
        carried = if matches!(ethertype, MPLS | MPLS_MULTICAST | PBB) { NO_ETHERTYPE } else { ethertype };
    }
    let l3_at = usize::from(layout.type_at) + 2;
    // What a layer lacks is not in the key; what was read of it before that stays without its bit, so it counts for nothing.
    let _ = match carried {
        0x0800 => ipv4(head, l3_at, key, layout),
        0x86dd => ipv6(head, l3_at, key, layout),
        0x0806 => arp(head, l3_at, key, layout),
        MPLS | MPLS_MULTICAST => mpls(head, l3_at, key, layout),
        PBB => pbb(head, l3_at, key, layout),
        _ => None,
    };
    key.0[0] = first | u64::from(ethertype) << key::ETH_TYPE.shift | u64::from(layout.layers.0);
    Some(())
}

/// The type of a frame that has a length in its place, as all of IEEE 802.3 do: SNAP's, if it is an EtherType.
#[cold]
fn type_of_llc(head: &[u8], layout: &mut Layout) -> u16 {
    let snap_at = usize::from(layout.type_at) + 2;
    let type_at = snap_at + SNAP.len();
    match be16(head, type_at) {
        Some(ethertype) if ethertype >= ETHERTYPE_MIN && head[snap_at..type_at] == SNAP => {
            layout.type_at = type_at as u16;
            ethertype
        }
        _ => NO_ETHERTYPE,
    }
}

#[inline]
fn ipv4(head: &[u8], at: usize, key: &mut Key, layout: &mut Layout) -> Option<()> {
    let ip: &[u8; IPV4_LEN] = head.get(at..)?.first_chunk()?;
    let header_len = usize::from(ip[0] & 0xf) * 4;
    let total_len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    if ip[0] >> 4 != 4 || header_len < IPV4_LEN || head.len() < at + header_len {
        return None;
    }
    layout.add(Layers::IPV4);
    layout.l3_at = at as u16;
    layout.proto_at = at as u16 + 9;
    layout.ip_end = (at + total_len.max(header_len)) as u32;
    key.0[key::IP_PROTO.word] |= u64::from(u16::from_be_bytes([ip[9], ip[1]]));
    let [.., a, b, c, d, e, f, g, h] = *ip;
    key.0[key::IPV4_SRC.word] = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let fragment = u16::from_be_bytes([ip[6], ip[7]]);
    layout.is_fragment = fragment & 0x3fff != 0;
    layout.is_in_parts = layout.is_fragment;
    // Only the first fragment has a transport header.
    if fragment & 0x1fff != 0 { None } else { transport(head, at + header_len, ip[9], key, layout) }
}

#[inline]
fn ipv6(head: &[u8], at: usize, key: &mut Key, layout: &mut Layout) -> Option<()> {
    let ip: &[u8; IPV6_LEN] = head.get(at..)?.first_chunk()?;
    if ip[0] >> 4 != 6 {
        return None;
    }
    layout.add(Layers::IPV6);
    layout.l3_at = at as u16;
    layout.proto_at = at as u16 + 6;
    layout.ip_end = (at + IPV6_LEN + usize::from(u16::from_be_bytes([ip[4], ip[5]]))) as u32;
    let first = u32::from_be_bytes([ip[0], ip[1], ip[2], ip[3]]);
    key.set(key::IP_ECN, u64::from(first >> 20 & 0xff));
    key.set(key::IPV6_FLABEL, u64::from(first & 0xf_ffff));
    let (addresses, _) = ip[8..].as_chunks::<8>();
    for (word, part) in addresses.iter().enumerate() {
        key.0[key::IPV6_SRC + word] = u64::from_be_bytes(*part);
    }
    let is_extension = |number: u8| matches!(number, 0 | 43 | 44 | 50 | 51 | 59 | 60);
    let (l4_at, number) = if is_extension(ip[6]) {
        let end = extensions(head, at + IPV6_LEN, ip[6], layout);
        key.set(key::IPV6_EXTHDR, u64::from(end.flags));
        (end.transport_at, end.number)
    } else {
        (Some(at + IPV6_LEN), ip[6])
    };
    key.set(key::IP_PROTO, u64::from(number));
    transport(head, l4_at?, number, key, layout)
}

/// Where the extension headers of a packet end.
struct Extensions {
    /// `None`: there is no transport header, or it cannot be read.
    transport_at: Option<usize>,
    /// The number of what is behind them.
    number: u8,
    /// `ofp_ipv6exthdr_flags`.
    flags: u16,
}

/// Bits of OFPXMT_OFB_IPV6_EXTHDR (OpenFlow 1.3.5, 7.2.3.7).
pub(crate) mod exthdr {
    pub(crate) const NO_NEXT: u16 = 1;
    pub(crate) const ESP: u16 = 1 << 1;
    pub(crate) const AUTH: u16 = 1 << 2;
    pub(crate) const DESTINATION: u16 = 1 << 3;
    pub(crate) const FRAGMENT: u16 = 1 << 4;
    pub(crate) const ROUTER: u16 = 1 << 5;
    pub(crate) const HOP: u16 = 1 << 6;
    /// A header was there more often than it should be.
    pub(crate) const REPEATED: u16 = 1 << 7;
    /// The order is not that of RFC 8200, 4.1.
    pub(crate) const DISORDER: u16 = 1 << 8;
}

/// Walks through the extension headers of an IPv6 packet (RFC 8200, 4).
#[cold]
fn extensions(head: &[u8], mut at: usize, mut number: u8, layout: &mut Layout) -> Extensions {
    let mut flags = 0;
    let mut destinations = 0;
    // The rank of the last header in the recommended order: hop-by-hop, destination before routing, routing, fragment,
    // authentication, encryption, destination.
    let mut last_rank = 0;
    for _ in 0..EXTENSIONS_MAX {
        let (flag, rank) = match number {
            0 => (exthdr::HOP, 1),
            43 => (exthdr::ROUTER, 3),
            44 => (exthdr::FRAGMENT, 4),
            51 => (exthdr::AUTH, 5),
            50 => (exthdr::ESP, 6),
            // Destination options come before routing or at the end.
            60 => (exthdr::DESTINATION, if last_rank < 3 && destinations == 0 { 2 } else { 7 }),
            59 => return Extensions { transport_at: None, number, flags: flags | exthdr::NO_NEXT },
            _ => return Extensions { transport_at: Some(at), number, flags },
        };
        destinations += usize::from(number == 60);
        let is_repeated = if number == 60 { destinations > 2 } else { flags & flag != 0 };
        if is_repeated {
            flags |= exthdr::REPEATED;
        } else if rank < last_rank {
            flags |= exthdr::DISORDER;
        }
        last_rank = rank.max(last_rank);
        flags |= flag;
        // Behind encryption nothing can be read; it says itself what is in it.
        let header: &[u8; 8] = match head.get(at..).and_then(<[u8]>::first_chunk) {
            Some(header) if number != 50 => header,
            _ => return Extensions { transport_at: None, number, flags },
        };
        let len = match number {
            44 => 8,
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        layout.proto_at = at as u16;
        layout.is_source_routed |= number == 43 && header[3] != 0;
        if number == 44 {
            layout.is_fragment = true;
            // One that has all of its packet is none (RFC 6946).
            layout.is_in_parts |= u16::from_be_bytes([header[2], header[3]]) & 0xfff9 != 0;
            if u16::from_be_bytes([header[2], header[3]]) & 0xfff8 != 0 {
                return Extensions { transport_at: None, number: header[0], flags };
            }
        }
        number = header[0];
        at += len;
    }
    Extensions { transport_at: None, number, flags }
}

#[inline]
fn transport(head: &[u8], at: usize, number: u8, key: &mut Key, layout: &mut Layout) -> Option<()> {
    let is_ipv6 = layout.has(Layers::IPV6);
    let (layer, len) = match number {
        TCP => (Layers::TCP, TCP_LEN),
        UDP => (Layers::UDP, UDP_LEN),
        SCTP => (Layers::SCTP, SCTP_LEN),
        ICMPV4 if !is_ipv6 => (Layers::ICMPV4, ICMP_LEN),
        ICMPV6 if is_ipv6 => (Layers::ICMPV6, ICMP_LEN),
        _ => return None,
    };
    let header = head.get(at..).filter(|header| header.len() >= len)?;
    layout.add(layer);
    layout.l4_at = at as u16;
    if layer == Layers::ICMPV4 || layer == Layers::ICMPV6 {
        key.set(key::L4_FIRST, u64::from(header[0]));
        key.set(key::L4_SECOND, u64::from(header[1]));
        if layer == Layers::ICMPV6 && matches!(header[0], ND_SOLICITATION | ND_ADVERTISEMENT) {
            neighbour_discovery(head, at, key, layout);
        }
    } else {
        let ports = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        key.set(key::L4_SECOND, u64::from(ports));
    }
    Some(())
}

/// A solicitation or advertisement of a neighbour, and its option with a link-layer address (RFC 4861, 4.3, 4.4, 4.6.1).
#[cold]
fn neighbour_discovery(head: &[u8], at: usize, key: &mut Key, layout: &mut Layout) {
    let Some(target) = head.get(at + 8..).and_then(<[u8]>::first_chunk) else { return };
    layout.add(Layers::ND);
    key.set_wide(key::ND_TARGET, u128::from_be_bytes(*target));
    let (wanted, layer) = if head[at] == ND_SOLICITATION { (1, Layers::ND_SLL) } else { (2, Layers::ND_TLL) };
    let mut option_at = at + ND_LEN;
    // Each option has eight bytes at least, so a frame's end comes soon.
    while let Some(&[kind, len]) = head.get(option_at..).and_then(|rest| rest.first_chunk::<2>()) {
        if len == 0 {
            return;
        }
        if kind == wanted && len == 1 {
            let Some(address) = be48(head, option_at + 2) else { return };
            layout.add(layer);
            layout.nd_link_layer_at = option_at as u16 + 2;
            key.set(key::ND_LINK_LAYER, address);
            return;
        }
        option_at += usize::from(len) * 8;
    }
}

#[inline]
fn arp(head: &[u8], at: usize, key: &mut Key, layout: &mut Layout) -> Option<()> {
    let arp: &[u8; ARP_LEN] = head.get(at..)?.first_chunk()?;
    // Ethernet and IPv4, and the lengths of their addresses (RFC 826).
    if arp[..6] != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    layout.add(Layers::ARP);
    layout.l3_at = at as u16;
    key.set(key::ARP_OP, u64::from(be16(arp, 6)?));
    key.set(key::ARP_SHA, be48(arp, 8)?);
    key.set(key::IPV4_SRC, u64::from(be32(arp, 14)?));
    key.set(key::ARP_THA, be48(arp, 18)?);
    key.set(key::IPV4_DST, u64::from(be32(arp, 24)?));
    Some(())
}

#[inline]
fn mpls(head: &[u8], at: usize, key: &mut Key, layout: &mut Layout) -> Option<()> {
    let entry = be32(head, at)?;
    layout.add(Layers::MPLS);
    layout.l3_at = at as u16;
    key.set(key::MPLS_LABEL, u64::from(entry >> 12));
    key.set(key::MPLS_TC, u64::from(entry >> 9 & 7));
    key.set(key::MPLS_BOS, u64::from(entry >> 8 & 1));
    Some(())
}

#[inline]
fn pbb(head: &[u8], at: usize, key: &mut Key, layout: &mut Layout) -> Option<()> {
    let tag = be32(head, at)?;
    layout.add(Layers::PBB);
    layout.l3_at = at as u16;
    key.set(key::PBB_ISID, u64::from(tag & 0xff_ffff));
    Some(())
}

#[cfg(all(test, not(loom)))]
mod tests;
