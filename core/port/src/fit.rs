//! Makes a frame that one port received into frames that another port can send.
//!
//! Frames keep the offloads of their sender (segmentation and checksums to be done, a tag beside the bytes) for as
//! long as possible. If a port does not support one of them, it is done here in software, for every kind of port.

use std::ops::Range;

use twinpath_frame::{Checksum, Frame, Gso, GsoKind, Meta, Pool};
use twinpath_inspect::Reason;
use twinpath_wire::checksum::PiecewiseSum;
use twinpath_wire::eth::{self, EtherType, TAG_LEN};
use twinpath_wire::offload::{Headers, Segmentation, completed};

use crate::super_frame::segmentation_of;
use crate::{Capabilities, PortCounters};

/// Bytes of the two addresses, which a tag follows.
const ADDRESSES_LEN: usize = 12;

impl Capabilities {
    /// Whether the port can send this frame as it is, regardless of a tag beside the frame.
    #[inline]
    #[must_use]
    pub fn takes(&self, frame: &Frame) -> bool {
        let meta = frame.meta();
        self.takes_whole(frame)
            && (self.checksum || meta.checksum != Checksum::Partial)
            && (self.chains || meta.next.is_none())
            && frame.chain_len() <= self.len_max(meta.gso.kind)
    }

    /// Whether the port can send a super-frame of `len` bytes with this metadata as it is, which has no header but Ethernet in
    /// front of IP.
    #[inline]
    #[must_use]
    pub fn takes_parts(&self, meta: &Meta, len: usize) -> bool {
        self.segmentation.takes(meta.gso.kind)
            && (self.checksum || meta.checksum != Checksum::Partial)
            && meta.vlan.is_none()
            && len <= self.len_max(meta.gso.kind)
    }

    /// Largest frame of this kind that the port sends, bytes.
    #[inline]
    fn len_max(&self, kind: GsoKind) -> usize {
        let longest = match kind {
            GsoKind::None => self.frame_len_max,
            _ => self.frame_len_max.max(self.super_frame_len_max),
        };
        longest as usize
    }

    /// Whether the port may be given this super-frame whole. If it has a header other than a tag in front of IP, or
    /// its packet is in a tunnel, its headers cannot be described to any port. Hardware would cut it wrongly, and
    /// the kernel drops it.
    #[inline]
    fn takes_whole(&self, frame: &Frame) -> bool {
        let kind = frame.meta().gso.kind;
        self.segmentation.takes(kind)
            && (kind == GsoKind::None || !(has_pushed_headers(frame.bytes()) || is_in_tunnel(frame)))
    }
}

/// Whether the packet of a super-frame is in a tunnel.
fn is_in_tunnel(frame: &Frame) -> bool {
    segmentation_of(frame).is_some_and(|segmentation| segmentation.is_in_tunnel())
}

/// Whether there are MPLS labels or a PBB service tag in front of IP.
fn has_pushed_headers(bytes: &[u8]) -> bool {
    let ethertype = |at: usize| -> Option<EtherType> {
        let [high, low] = *bytes.get(at..)?.first_chunk()?;
        Some(EtherType(u16::from_be_bytes([high, low])))
    };
    let mut at = ADDRESSES_LEN;
    while ethertype(at).is_some_and(EtherType::is_tag) {
        at += TAG_LEN;
    }
    matches!(ethertype(at), Some(EtherType::MPLS | EtherType::MPLS_MULTICAST | EtherType::PBB))
}

/// Whether nothing is left to be done on a frame. Every port takes such a frame, if it is not too long.
#[inline]
#[must_use]
pub fn is_plain(frame: &Frame) -> bool {
    let meta = frame.meta();
    meta.gso.kind == GsoKind::None && meta.checksum != Checksum::Partial && meta.next.is_none()
}

/// Passes `frame` to `send` as one or more frames that a port of these capabilities takes, in order. A frame that
/// cannot be made to fit is released, and counted in `counters`, the port's counters.
#[inline]
pub fn fit(
    frame: Frame,
    port: &Capabilities,
    counters: &PortCounters,
    pool: &mut Pool,
    mut send: impl FnMut(Frame, &mut Pool),
) {
    if is_plain(&frame) && frame.meta().vlan.is_none() && frame.len() <= port.frame_len_max as usize {
        return send(frame, pool);
    }
    fit_with_offloads(frame, port, counters, pool, &mut send);
}

/// As [`fit`], for a frame that may need work.
#[inline(never)]
fn fit_with_offloads(
    mut frame: Frame,
    port: &Capabilities,
    counters: &PortCounters,
    pool: &mut Pool,
    send: &mut impl FnMut(Frame, &mut Pool),
) {
    let has_tag = frame.meta().vlan.is_some() && !port.tags;
    if !has_tag && port.takes(&frame) {
        return send(frame, pool);
    }
    let fits = if has_tag { take_tag_in(&mut frame) } else { Ok(()) };
    let fits = fits.and_then(|()| {
        if port.takes_whole(&frame) {
            complete(&mut frame, port, counters)
        } else {
            let segmentation = segmentation_for(&frame, port)?;
            counters.super_frames_segmented.add(1);
            segment(&frame, &segmentation, counters, pool, send);
            // Its bytes have already left in other frames.
            Err(None)
        }
    });
    match fits {
        Ok(()) => return send(frame, pool),
        Err(Some(reason)) => counters.drops.add(reason, 1),
        Err(None) => {}
    }
    pool.release(frame);
}

/// Completes the checksum of a frame if the port does not; checks the length.
fn complete(frame: &mut Frame, port: &Capabilities, counters: &PortCounters) -> Result<(), Option<Reason>> {
    let len = frame.chain_len();
    if len > port.len_max(frame.meta().gso.kind) || (frame.meta().next.is_some() && !port.chains) {
        return Err(Some(Reason::FrameTooLarge));
    }
    if frame.meta().checksum == Checksum::Partial && !port.checksum {
        let refused = Some(Reason::OffloadRefused);
        let Checksummed { covered, field } = checksummed(frame).ok_or(refused)?;
        let checksum = completed(frame.pieces(covered));
        let field = frame.bytes_mut().get_mut(field..field + 2).ok_or(refused)?;
        field.copy_from_slice(&checksum.to_be_bytes());
        let meta = frame.meta_mut();
        (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Unverified, 0, 0);
        counters.checksums_completed.add(1);
    }
    Ok(())
}

/// The bytes that a checksum left to hardware covers, and its position, from the start of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksummed {
    /// The bytes that it covers, including its field, which holds the pseudo-header's sum.
    pub covered: Range<usize>,
    /// The checksum's field.
    pub field: usize,
}

/// Finds the place of a partial checksum: from the frame's metadata or, if the port knows only that it is partial,
/// from its headers. `None` if the frame has no such place, or does not hold the pseudo-header's sum there.
#[must_use]
pub fn checksummed(frame: &Frame) -> Option<Checksummed> {
    let (meta, bytes, len) = (frame.meta(), frame.bytes(), frame.chain_len());
    let found = if meta.checksum_start == 0 {
        let headers = Headers::find(bytes)?;
        headers.has_partial_checksum(bytes).then_some(())?;
        let end = headers.end(bytes).filter(|end| *end <= len)?;
        Checksummed { covered: headers.transport_at..end, field: headers.checksum_at() }
    } else {
        let start = usize::from(meta.checksum_start);
        Checksummed { covered: start..len, field: start + usize::from(meta.checksum_offset) }
    };
    (found.field + 2 <= bytes.len()).then_some(found)
}

/// How a super-frame is segmented for a port that does not take it whole.
fn segmentation_for(frame: &Frame, port: &Capabilities) -> Result<Segmentation, Option<Reason>> {
    let meta = frame.meta();
    let segmentation = segmentation_of(frame).filter(|segmentation| {
        let start = usize::from(meta.checksum_start);
        meta.checksum == Checksum::Partial && (start == 0 || start == segmentation.headers().transport_at)
    });
    let segmentation = segmentation.ok_or(Some(Reason::OffloadRefused))?;
    let room = port.frame_len_max as usize;
    let room = if port.chains { room } else { room.min(ONE_FRAME) };
    if segmentation.packet_len_max() > room {
        return Err(Some(Reason::FrameTooLarge));
    }
    Ok(segmentation)
}

/// Longest packet that fits into a new frame.
const ONE_FRAME: usize = (twinpath_frame::CHUNK_SIZE - twinpath_frame::HEADROOM) as usize;

/// Copies the packets of a super-frame into frames of their own.
fn segment(
    frame: &Frame,
    segmentation: &Segmentation,
    counters: &PortCounters,
    pool: &mut Pool,
    send: &mut impl FnMut(Frame, &mut Pool),
) {
    let headers_len = segmentation.headers().payload_at;
    for number in 0..segmentation.count() {
        let payload = segmentation.payload(number);
        let mut sum = PiecewiseSum::default();
        frame.pieces(payload.clone()).for_each(|piece| sum.add(piece));
        let pieces = frame.pieces(0..headers_len).chain(frame.pieces(payload));
        let Some(mut packet) = pool.copy_of(pieces) else {
            return counters.drops.add(Reason::PoolEmpty, (segmentation.count() - number) as u64);
        };
        segmentation.write_headers(number, packet.bytes_mut(), sum.sum());
        let whole = frame.meta().without_next();
        let next = packet.meta_mut().next.take();
        *packet.meta_mut() = Meta {
            checksum: Checksum::Unverified,
            checksum_start: 0,
            checksum_offset: 0,
            headers_len: 0,
            gso: Gso::default(),
            next,
            ..whole
        };
        send(packet, pool);
    }
}

/// Moves a tag that is beside a frame into its bytes.
fn take_tag_in(frame: &mut Frame) -> Result<(), Option<Reason>> {
    let Some(control) = frame.meta_mut().vlan.take() else { return Ok(()) };
    let ([p0, p1], [c0, c1]) = (EtherType::VLAN.0.to_be_bytes(), control.to_be_bytes());
    if insert_tag(frame, [p0, p1, c0, c1]) { Ok(()) } else { Err(Some(Reason::OffloadRefused)) }
}

/// Inserts a tag, as on the wire, after the addresses (IEEE 802.1Q). Returns whether there was room.
pub fn insert_tag(frame: &mut Frame, tag: [u8; TAG_LEN]) -> bool {
    if frame.len() < eth::HEADER_LEN || frame.retreat(TAG_LEN).is_err() {
        return false;
    }
    let bytes = frame.bytes_mut();
    bytes.copy_within(TAG_LEN..TAG_LEN + ADDRESSES_LEN, 0);
    bytes[ADDRESSES_LEN..ADDRESSES_LEN + TAG_LEN].copy_from_slice(&tag);
    let meta = frame.meta_mut();
    if meta.checksum == Checksum::Partial && meta.checksum_start != 0 {
        meta.checksum_start += TAG_LEN as u16;
    }
    if meta.headers_len != 0 {
        meta.headers_len += TAG_LEN as u16;
    }
    true
}

/// Removes the tag that follows the addresses. Returns whether there was room for one; the bytes there are not
/// checked.
pub fn remove_tag(frame: &mut Frame) -> bool {
    if frame.len() < eth::HEADER_LEN + TAG_LEN {
        return false;
    }
    frame.bytes_mut().copy_within(..ADDRESSES_LEN, TAG_LEN);
    let meta = frame.meta_mut();
    if meta.checksum == Checksum::Partial && meta.checksum_start != 0 {
        meta.checksum_start = meta.checksum_start.saturating_sub(TAG_LEN as u16);
    }
    meta.headers_len = meta.headers_len.saturating_sub(TAG_LEN as u16);
    frame.advance(TAG_LEN).is_ok()
}

#[cfg(test)]
mod tests;
