//! Pushing and popping VLAN tags, MPLS entries and PBB service tags.
//!
//! What is pushed is the outermost (OpenFlow 1.3.5, 5.12): directly behind the Ethernet header, before other tags. Its
//! fields are those of the header of its kind that was outermost before; those that no header had are zero (table 7 there).

use twinpath_wire::{EtherType, eth};

use crate::openflow::pipeline::key::Layers;
use crate::openflow::pipeline::packet::Packet;
use crate::openflow::pipeline::parse::{MPLS_LEN, be16};
use crate::openflow::pipeline::rewrite::CannotRewrite;
use crate::openflow::pipeline::rewrite::ttl;

/// Where the EtherType of a frame is, or the type of its outer tag.
const TYPE_AT: usize = 12;

/// Bytes that a PBB service tag puts in front of a frame: addresses, EtherType, and its own four (IEEE 802.1Q, 9.7).
const PBB_LEN: usize = 18;

/// Puts `bytes` in, so that they begin at `at`.
fn insert(packet: &mut Packet, at: usize, bytes: &[u8]) -> Result<(), CannotRewrite> {
    let count = bytes.len();
    packet.frame.retreat(count).map_err(|_| CannotRewrite::NoRoom)?;
    let all = packet.frame.bytes_mut();
    all.copy_within(count..count + at, 0);
    all[at..at + count].copy_from_slice(bytes);
    move_offsets(packet, count as i16);
    Ok(())
}

/// Takes `count` bytes out that begin at `at`. The frame has them.
fn remove(packet: &mut Packet, at: usize, count: usize) {
    packet.frame.bytes_mut().copy_within(..at, count);
    // It has more bytes than that.
    let _ = packet.frame.advance(count);
    move_offsets(packet, -(count as i16));
}

/// What the metadata say of places among the bytes.
fn move_offsets(packet: &mut Packet, by: i16) {
    let meta = packet.frame.meta_mut();
    for offset in [&mut meta.checksum_start, &mut meta.headers_len] {
        if *offset != 0 {
            *offset = offset.saturating_add_signed(by);
        }
    }
    packet.headers_changed();
}

/// The control information of the outer tag.
fn outer_tag(packet: &mut Packet) -> Option<u16> {
    let is_tagged = packet.layout().has(Layers::TAG);
    let beside = packet.frame.meta().vlan;
    beside.or_else(|| be16(packet.frame.bytes(), TYPE_AT + 2).filter(|_| is_tagged))
}

/// Puts the tag that is beside the bytes among them.
fn take_in_tag(packet: &mut Packet) -> Result<(), CannotRewrite> {
    let Some(control) = packet.frame.meta().vlan else { return Ok(()) };
    insert_tag(packet, EtherType::VLAN.0, control)?;
    packet.frame.meta_mut().vlan = None;
    Ok(())
}

fn insert_tag(packet: &mut Packet, ethertype: u16, control: u16) -> Result<(), CannotRewrite> {
    let ([a, b], [c, d]) = (ethertype.to_be_bytes(), control.to_be_bytes());
    insert(packet, TYPE_AT, &[a, b, c, d])
}

pub(super) fn push_vlan(packet: &mut Packet, ethertype: u16) -> Result<(), CannotRewrite> {
    let control = outer_tag(packet).unwrap_or(0);
    take_in_tag(packet)?;
    if EtherType(ethertype) == EtherType::VLAN {
        packet.frame.meta_mut().vlan = Some(control);
        packet.headers_changed();
        return Ok(());
    }
    insert_tag(packet, ethertype, control)
}

pub(super) fn pop_vlan(packet: &mut Packet) {
    if packet.frame.meta_mut().vlan.take().is_some() {
        packet.headers_changed();
    } else if packet.layout().has(Layers::TAG) {
        remove(packet, TYPE_AT, eth::TAG_LEN);
    }
}

pub(super) fn push_mpls(packet: &mut Packet, ethertype: u16) -> Result<(), CannotRewrite> {
    const BOTTOM: u32 = 1 << 8;
    take_in_tag(packet)?;
    let layout = packet.layout();
    let outer = packet.frame.bytes().get(usize::from(layout.l3_at)..).and_then(<[u8]>::first_chunk);
    let entry = match outer {
        Some(outer) if layout.has(Layers::MPLS) => {
            // It is not the bottom if an entry is directly behind it.
            let is_bottom = usize::from(layout.type_at) != TYPE_AT;
            u32::from_be_bytes(*outer) & !BOTTOM | if is_bottom { BOTTOM } else { 0 }
        }
        _ => BOTTOM | u32::from(ttl::of_ip(packet).unwrap_or(0)),
    };
    insert(packet, eth::HEADER_LEN, &entry.to_be_bytes())?;
    packet.frame.bytes_mut()[TYPE_AT..eth::HEADER_LEN].copy_from_slice(&ethertype.to_be_bytes());
    Ok(())
}

pub(super) fn pop_mpls(packet: &mut Packet, ethertype: u16) {
    let layout = packet.layout();
    if layout.has(Layers::MPLS) {
        let type_at = usize::from(layout.type_at);
        packet.frame.bytes_mut()[type_at..type_at + 2].copy_from_slice(&ethertype.to_be_bytes());
        remove(packet, usize::from(layout.l3_at), MPLS_LEN);
    }
}

pub(super) fn push_pbb(packet: &mut Packet, ethertype: u16) -> Result<(), CannotRewrite> {
    let priority = outer_tag(packet).map_or(0, |control| control >> 13);
    take_in_tag(packet)?;
    let layout = packet.layout();
    let outer = packet.frame.bytes().get(usize::from(layout.l3_at)..).and_then(<[u8]>::first_chunk);
    let service = match outer {
        Some(outer) if layout.has(Layers::PBB) => u32::from_be_bytes(*outer) & 0xff_ffff,
        _ => 0,
    };
    let mut header = [0; PBB_LEN];
    header[..TYPE_AT].copy_from_slice(&packet.frame.bytes()[..TYPE_AT]);
    header[TYPE_AT..eth::HEADER_LEN].copy_from_slice(&ethertype.to_be_bytes());
    header[eth::HEADER_LEN..].copy_from_slice(&(u32::from(priority) << 29 | service).to_be_bytes());
    insert(packet, 0, &header)
}

/// The backbone's own VLAN tag, in front of the service tag, stays.
pub(super) fn pop_pbb(packet: &mut Packet) {
    let layout = packet.layout();
    let customer_at = usize::from(layout.l3_at) + 4;
    let type_at = usize::from(layout.type_at);
    let tags_len = type_at - TYPE_AT;
    if !layout.has(Layers::PBB) || packet.frame.bytes().len() < customer_at + eth::HEADER_LEN {
        return;
    }
    let bytes = packet.frame.bytes_mut();
    let mut addresses = [0; TYPE_AT];
    addresses.copy_from_slice(&bytes[customer_at..customer_at + TYPE_AT]);
    let start = customer_at - tags_len;
    bytes.copy_within(TYPE_AT..type_at, start + TYPE_AT);
    bytes[start..start + TYPE_AT].copy_from_slice(&addresses);
    // The start is within the frame.
    let _ = packet.frame.advance(start);
    move_offsets(packet, -(start as i16));
}
