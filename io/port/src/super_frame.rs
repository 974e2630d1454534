//! What a super-frame is on a wire: several packets.

use twinpath_frame::{Frame, Gso, GsoKind};
use twinpath_wire::offload::Segmentation;

/// The segmentation that a super-frame asks for, if its headers are those of its kind.
pub(crate) fn segmentation_of(frame: &Frame) -> Option<Segmentation> {
    let Gso { kind, size, .. } = frame.meta().gso;
    let segmentation = Segmentation::of(frame.bytes(), frame.chain_len(), size).ok()?;
    let headers = segmentation.headers();
    let found = match (headers.is_tcp, headers.is_ipv6) {
        (true, false) => GsoKind::TcpV4,
        (true, true) => GsoKind::TcpV6,
        (false, _) => GsoKind::UdpSegments,
    };
    (found == kind).then_some(segmentation)
}

/// How many packets a frame is on a wire: one, or those that a super-frame becomes. A super-frame whose headers cannot
/// be read counts as one.
#[inline]
#[must_use]
pub fn packets_of(frame: &Frame) -> u64 {
    match frame.meta().gso.kind {
        GsoKind::None => 1,
        _ => segmentation_of(frame).map_or(1, |segmentation| segmentation.count() as u64),
    }
}
