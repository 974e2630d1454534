//! The TTL of IPv4 (RFC 791), MPLS (RFC 3032), and IPv6's hop limit (RFC 8200).

use crate::openflow::pipeline::key::Layers;
use crate::openflow::pipeline::packet::Packet;
use crate::openflow::pipeline::parse::MPLS_LEN;
use crate::openflow::pipeline::rewrite::CannotRewrite;
use crate::openflow::pipeline::rewrite::checksum::{Part, write};

/// Where a TTL is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The entry of a stack of MPLS labels.
    Mpls(usize),
    /// The outer header of IPv4, whose checksum is over it.
    Ipv4(usize),
    Ipv6(usize),
    /// An IPv4 header behind others.
    InnerIpv4(usize),
}

impl Place {
    const fn at(self) -> usize {
        match self {
            Self::Mpls(header_at) => header_at + 3,
            Self::Ipv4(header_at) | Self::InnerIpv4(header_at) => header_at + 8,
            Self::Ipv6(header_at) => header_at + 7,
        }
    }
}

fn get(packet: &Packet, place: Place) -> Option<u8> {
    packet.frame.bytes().get(place.at()).copied()
}

fn set(packet: &mut Packet, place: Place, ttl: u8) {
    let at = place.at();
    let beside = if matches!(place, Place::Mpls(_) | Place::Ipv6(_)) { at.wrapping_sub(1) } else { at + 1 };
    let Some(other) = packet.frame.bytes().get(beside).copied() else { return };
    match place {
        Place::Mpls(_) | Place::Ipv6(_) => write(packet, beside, &[other, ttl], Part::Uncovered),
        Place::Ipv4(_) => write(packet, at, &[ttl, other], Part::Ipv4),
        Place::InnerIpv4(header_at) => set_inner(packet, header_at, ttl),
    }
}

/// Sets the TTL of an IPv4 header that is not the outer one, and its checksum.
fn set_inner(packet: &mut Packet, header_at: usize, ttl: u8) {
    let Some(header) = packet.frame.bytes_mut().get_mut(header_at..header_at + 20) else { return };
    let [from, to] = [header[8], ttl].map(|ttl| u32::from(ttl) << 8);
    let checksum = u32::from(!u16::from_be_bytes([header[10], header[11]]));
    let sum = checksum + (!from & 0xffff) + to;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    header[8] = ttl;
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Where the TTL of the IP header is, if nothing is in front of it.
fn ip(packet: &mut Packet) -> Option<Place> {
    let layout = packet.layout();
    let at = usize::from(layout.l3_at);
    if layout.has(Layers::IPV4) {
        Some(Place::Ipv4(at))
    } else {
        layout.has(Layers::IPV6).then_some(Place::Ipv6(at))
    }
}

fn mpls(packet: &mut Packet) -> Option<Place> {
    let layout = packet.layout();
    layout.has(Layers::MPLS).then_some(Place::Mpls(usize::from(layout.l3_at)))
}

/// The TTL of the IP header.
pub(super) fn of_ip(packet: &mut Packet) -> Option<u8> {
    let place = ip(packet)?;
    get(packet, place)
}

pub(super) fn set_nw(packet: &mut Packet, to: u8) {
    if let Some(place) = ip(packet) {
        set(packet, place, to);
    }
}

pub(super) fn set_mpls(packet: &mut Packet, to: u8) {
    if let Some(place) = mpls(packet) {
        set(packet, place, to);
    }
}

pub(super) fn decrement_nw(packet: &mut Packet) -> Result<(), CannotRewrite> {
    let place = ip(packet);
    decrement(packet, place)
}

pub(super) fn decrement_mpls(packet: &mut Packet) -> Result<(), CannotRewrite> {
    let place = mpls(packet);
    decrement(packet, place)
}

/// A packet that would have a TTL of zero goes no further.
fn decrement(packet: &mut Packet, place: Option<Place>) -> Result<(), CannotRewrite> {
    let Some(place) = place else { return Ok(()) };
    match get(packet, place) {
        None => {}
        Some(0 | 1) => return Err(CannotRewrite::InvalidTtl),
        Some(ttl) => set(packet, place, ttl - 1),
    }
    Ok(())
}

pub(super) fn copy_out(packet: &mut Packet) {
    if let Some((outer, inner)) = outermost(packet)
        && let Some(ttl) = get(packet, inner)
    {
        set(packet, outer, ttl);
    }
}

pub(super) fn copy_in(packet: &mut Packet) {
    if let Some((outer, inner)) = outermost(packet)
        && let Some(ttl) = get(packet, outer)
    {
        set(packet, inner, ttl);
    }
}

/// The two outermost headers that have a TTL: MPLS and MPLS, MPLS and IP, or IP and IP (OpenFlow 1.3.5, 7.2.5).
fn outermost(packet: &mut Packet) -> Option<(Place, Place)> {
    const IN_IPV4: u8 = 4;
    const IN_IPV6: u8 = 41;
    let layout = packet.layout();
    let at = usize::from(layout.l3_at);
    if let Some(outer) = mpls(packet) {
        let bytes = packet.frame.bytes();
        let inner_at = at + MPLS_LEN;
        let is_bottom = bytes.get(at + 2)? & 1 != 0;
        return Some((outer, if is_bottom { by_version(bytes, inner_at)? } else { Place::Mpls(inner_at) }));
    }
    let outer = ip(packet)?;
    let bytes = packet.frame.bytes();
    let number = *bytes.get(usize::from(layout.proto_at))?;
    let inner_at = match outer {
        Place::Ipv4(_) => at + usize::from(bytes.get(at)? & 0xf) * 4,
        // Without extension headers; behind them it is not looked for.
        _ if usize::from(layout.proto_at) == at + 6 => at + 40,
        _ => return None,
    };
    let is_ip = matches!(number, IN_IPV4 | IN_IPV6);
    Some((outer, by_version(bytes, inner_at).filter(|_| is_ip && !layout.is_fragment)?))
}

/// An IP header that nothing names but its own version.
fn by_version(bytes: &[u8], at: usize) -> Option<Place> {
    match bytes.get(at)? >> 4 {
        4 if bytes.len() >= at + 20 => Some(Place::InnerIpv4(at)),
        6 if bytes.len() >= at + 40 => Some(Place::Ipv6(at)),
        _ => None,
    }
}
