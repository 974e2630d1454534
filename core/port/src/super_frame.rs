//! Super-frames counted as the packets that they become on a wire.

use twinpath_frame::{Frame, Gso, GsoKind};
use twinpath_wire::offload::Segmentation;

/// The segmentation that a super-frame asks for, if its headers are those of its kind. The start of the checksum
/// that was left to hardware shows whether the packet is in a tunnel.
pub(crate) fn segmentation_of(frame: &Frame) -> Option<Segmentation> {
    let meta = frame.meta();
    let Gso { kind, size, .. } = meta.gso;
    let (bytes, len, start) = (frame.bytes(), frame.chain_len(), usize::from(meta.checksum_start));
    let is_whole = |found: &Segmentation| start == 0 || found.headers().transport_at == start;
    let segmentation = match Segmentation::of(bytes, len, size).ok().filter(is_whole) {
        Some(segmentation) => segmentation,
        None => Segmentation::in_tunnel(bytes, len, size, start, start + usize::from(meta.checksum_offset))
            .ok()?,
    };
    let headers = segmentation.headers();
    let found = match (headers.is_tcp, headers.is_ipv6) {
        (true, false) => GsoKind::TcpV4,
        (true, true) => GsoKind::TcpV6,
        (false, _) => GsoKind::UdpSegments,
    };
    (found == kind).then_some(segmentation)
}

/// The number of packets that a frame becomes on a wire: one, or several for a super-frame. A super-frame whose
/// headers cannot be read counts as one.
#[inline]
#[must_use]
pub fn packets_of(frame: &Frame) -> u64 {
    match frame.meta().gso.kind {
        GsoKind::None => 1,
        _ => segmentation_of(frame).map_or(1, |segmentation| segmentation.count() as u64),
    }
}
