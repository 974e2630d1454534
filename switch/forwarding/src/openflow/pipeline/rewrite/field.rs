//! Set-field.

use twinpath_openflow_wire::Field;

use crate::openflow::pipeline::key::{self, Layers};
use crate::openflow::pipeline::packet::Packet;
use crate::openflow::pipeline::rewrite::checksum::{self, Part, write};

/// Where an ARP packet has its fields (RFC 826).
const ARP_OP_AT: usize = 6;
const ARP_SHA_AT: usize = 8;
const ARP_SPA_AT: usize = 14;
const ARP_THA_AT: usize = 18;
const ARP_TPA_AT: usize = 24;

/// Sets a field, if the frame has it.
pub(super) fn set(packet: &mut Packet, field: Field, value: u128) {
    let layout = packet.layout();
    let needed = key::layer_of(field);
    if needed != Layers::NONE && !layout.has(needed) {
        return;
    }
    let (l3_at, l4_at) = (usize::from(layout.l3_at), usize::from(layout.l4_at));
    let (octets, narrow) = (value.to_be_bytes(), value as u32);
    let [.., a, b, c, d, e, f] = octets;
    let (mac, four, two) = ([a, b, c, d, e, f], [c, d, e, f], [e, f]);
    let ipv6 = if layout.is_source_routed { Part::Uncovered } else { Part::Ipv6Address };
    match field {
        Field::EthDst => write(packet, 0, &mac, Part::Uncovered),
        Field::EthSrc => write(packet, 6, &mac, Part::Uncovered),
        Field::EthType => {
            write(packet, usize::from(layout.type_at), &two, Part::Uncovered);
            packet.headers_changed();
        }
        Field::VlanVid => set_tag(packet, 0xfff, narrow as u16),
        Field::VlanPcp => set_tag(packet, 0xe000, (narrow << 13) as u16),
        Field::IpDscp => set_dscp(packet, narrow as u8),
        Field::IpEcn => set_traffic_class(packet, 3, narrow as u8),
        Field::IpProto => {
            set_protocol(packet, narrow as u8);
        }
        Field::Ipv4Src => write(packet, l3_at + 12, &four, Part::Ipv4Address),
        Field::Ipv4Dst => write(packet, l3_at + 16, &four, Part::Ipv4Address),
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => write(packet, l4_at, &two, Part::Transport),
        Field::TcpDst | Field::UdpDst | Field::SctpDst => write(packet, l4_at + 2, &two, Part::Transport),
        Field::Icmpv4Type | Field::Icmpv6Type => {
            let code = packet.frame.bytes()[l4_at + 1];
            write(packet, l4_at, &[narrow as u8, code], Part::Transport);
            // Another type may have other fields.
            packet.headers_changed();
        }
        Field::Icmpv4Code | Field::Icmpv6Code => {
            let kind = packet.frame.bytes()[l4_at];
            write(packet, l4_at, &[kind, narrow as u8], Part::Transport);
        }
        Field::ArpOp => write(packet, l3_at + ARP_OP_AT, &two, Part::Uncovered),
        Field::ArpSpa => write(packet, l3_at + ARP_SPA_AT, &four, Part::Uncovered),
        Field::ArpTpa => write(packet, l3_at + ARP_TPA_AT, &four, Part::Uncovered),
        Field::ArpSha => write(packet, l3_at + ARP_SHA_AT, &mac, Part::Uncovered),
        Field::ArpTha => write(packet, l3_at + ARP_THA_AT, &mac, Part::Uncovered),
        Field::Ipv6Src => write(packet, l3_at + 8, &octets, Part::Ipv6Address),
        Field::Ipv6Dst => write(packet, l3_at + 24, &octets, ipv6),
        Field::Ipv6Flabel => set_word(packet, l3_at, 0xf_ffff, narrow),
        Field::Ipv6NdTarget => write(packet, l4_at + 8, &octets, Part::Transport),
        Field::Ipv6NdSll | Field::Ipv6NdTll => {
            write(packet, usize::from(layout.nd_link_layer_at), &mac, Part::Transport);
        }
        Field::MplsLabel => set_word(packet, l3_at, 0xffff_f000, narrow << 12),
        Field::MplsTc => set_word(packet, l3_at, 0xe00, narrow << 9),
        Field::MplsBos => set_word(packet, l3_at, 0x100, narrow << 8),
        Field::PbbIsid => set_word(packet, l3_at, 0xff_ffff, narrow),
        Field::TunnelId => {
            packet.ingress.tunnel_id = value as u64;
            packet.field_changed();
        }
        // What the switch itself says of a frame; no controller may set these (`Field::settable`).
        Field::InPort | Field::InPhyPort | Field::Metadata | Field::Ipv6Exthdr => {}
    }
}

/// Sets bits of a word that no checksum is over.
fn set_word(packet: &mut Packet, at: usize, mask: u32, bits: u32) {
    let Some(own) = packet.frame.bytes().get(at..).and_then(<[u8]>::first_chunk) else { return };
    let word = u32::from_be_bytes(*own) & !mask | bits & mask;
    write(packet, at, &word.to_be_bytes(), Part::Uncovered);
}

/// Sets bits of the outer tag's control information.
fn set_tag(packet: &mut Packet, mask: u16, bits: u16) {
    if let Some(tag) = packet.frame.meta().vlan {
        packet.frame.meta_mut().vlan = Some(tag & !mask | bits & mask);
        packet.field_changed();
    } else if packet.layout().has(Layers::TAG)
        && let Some(own) = crate::openflow::pipeline::parse::be16(packet.frame.bytes(), 14)
    {
        write(packet, 14, &(own & !mask | bits & mask).to_be_bytes(), Part::Uncovered);
    }
}

/// Sets the DSCP of IPv4 or IPv6.
pub(crate) fn set_dscp(packet: &mut Packet, dscp: u8) {
    set_traffic_class(packet, 0xfc, dscp << 2);
}

/// Sets bits of the byte that has DSCP and ECN (RFC 2474, 3; RFC 3168, 5).
fn set_traffic_class(packet: &mut Packet, mask: u8, bits: u8) {
    let layout = packet.layout();
    let at = usize::from(layout.l3_at);
    let Some(&[first, second]) = packet.frame.bytes().get(at..).and_then(|ip| ip.first_chunk::<2>()) else {
        return;
    };
    if layout.has(Layers::IPV4) {
        write(packet, at, &[first, second & !mask | bits & mask], Part::Ipv4);
    } else if layout.has(Layers::IPV6) {
        let class = first << 4 | second >> 4;
        let class = class & !mask | bits & mask;
        write(packet, at, &[first & 0xf0 | class >> 4, second & 0xf | class << 4], Part::Uncovered);
    }
}

/// Sets the number of the protocol in the IP header, or in the last extension header of IPv6. The transport header stays as it
/// is but for its checksum, which is over this number as well (the pseudo-header of RFC 9293, 3.1; RFC 768; RFC 8200, 8.1).
/// From then on, the bytes are read as a header of the new protocol.
fn set_protocol(packet: &mut Packet, number: u8) {
    let layout = packet.layout();
    let at = usize::from(layout.proto_at);
    checksum::protocol_changes(packet, packet.frame.bytes()[at], number);
    if layout.has(Layers::IPV4) {
        let ttl = packet.frame.bytes()[at - 1];
        write(packet, at - 1, &[ttl, number], Part::Ipv4);
    } else {
        // A header begins with it, but for IPv6's own.
        let other = packet.frame.bytes()[at + 1];
        write(packet, at, &[number, other], Part::Uncovered);
    }
    packet.headers_changed();
}
