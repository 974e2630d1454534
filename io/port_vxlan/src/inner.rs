//! What a sender on the same machine leaves to be done on a frame inside a datagram, told from the frame itself.
//!
//! A kernel's VXLAN interface above a virtual device leaves segmentation and checksums of inner packets to a device that
//! never comes: the datagram is received as it is, with up to 64 KiB. Over a wire neither occurs.

use twinpath_frame::{Checksum, Frame, Gso, GsoKind};
use twinpath_wire::offload::Headers;
use twinpath_wire::vxlan;

use crate::receive::Datagram;

/// The datagram's payload, and the payload size of segments if it is one super-frame of UDP. That alone looks like a train
/// of datagrams: the kernel reports the size of the inner segments as if it were that of datagrams.
#[inline]
pub(crate) fn whole<'a>(datagram: &Datagram<'a>) -> (&'a [u8], u16) {
    let Datagram { payload, rest, .. } = *datagram;
    if payload.len() == rest.len() {
        return (payload, 0);
    }
    let frame = rest.get(vxlan::HEADER_LEN..).unwrap_or_default();
    let is_one = Headers::find(frame)
        .is_some_and(|headers| !headers.is_tcp && headers.end(frame) == Some(frame.len()));
    if is_one { (rest, u16::try_from(payload.len()).unwrap_or(0)) } else { (payload, 0) }
}

/// Marks what is left to be done on a frame, whose bytes begin with `bytes`. `size` is the payload of segments, if it is
/// known; else TCP is cut for the inner MTU, as its receivers do not see where segments began.
#[inline]
pub(crate) fn mark(frame: &mut Frame, bytes: &[u8], size: u16, inner_mtu: u32) {
    let Some(headers) = Headers::find(bytes).filter(|headers| headers.has_partial_checksum(bytes)) else {
        return;
    };
    let packet_len = bytes.len() - headers.ip_at;
    let meta = frame.meta_mut();
    meta.checksum = Checksum::Partial;
    meta.checksum_start = headers.transport_at as u16;
    meta.checksum_offset = (headers.checksum_at() - headers.transport_at) as u16;
    let is_whole = headers.end(bytes) == Some(bytes.len());
    if !is_whole || packet_len <= inner_mtu as usize {
        return;
    }
    let room = (inner_mtu as usize).saturating_sub(headers.payload_at - headers.ip_at);
    let (kind, size) = match (headers.is_tcp, headers.is_ipv6) {
        (true, false) => (GsoKind::TcpV4, room),
        (true, true) => (GsoKind::TcpV6, room),
        (false, _) => (GsoKind::UdpSegments, usize::from(size)),
    };
    if let Ok(size @ 1..) = u16::try_from(size) {
        meta.gso = Gso { kind, ecn: false, size };
        meta.headers_len = headers.payload_at as u16;
    }
}
