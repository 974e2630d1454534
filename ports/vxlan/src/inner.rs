//! Extracts the frames inside datagrams, as few and as large as possible.
//!
//! TCP segments of a flow that arrived as one train of datagrams are joined to a super-frame, as a kernel joins
//! packets. They cross the switch, and the stack of the receiving host, as one frame.
//!
//! A sender on the same machine may leave offloads on a frame, which can be detected from the frame itself. A
//! kernel's VXLAN interface above a virtual device leaves segmentation and checksums of inner packets to a device
//! that never comes, so the datagram is received unsegmented, with up to 64 KiB. This does not happen over a wire.

use twinpath_frame::{Checksum, Frame, Gso, GsoKind, Pool};
use twinpath_inspect::Reason;
use twinpath_wire::coalesce::Coalesced;
use twinpath_wire::offload::Headers;
use twinpath_wire::vxlan::{self, Packet};

use crate::receive::Datagram;

/// The frame that begins with the bytes inside the datagram, and how many bytes of the train it took.
#[inline]
pub(crate) fn received(
    datagram: &Datagram<'_>,
    bytes: &[u8],
    pool: &mut Pool,
    inner_mtu: u32,
) -> (Result<Frame, Reason>, usize) {
    let Datagram { payload, rest, .. } = *datagram;
    if payload.len() < rest.len() {
        if let Some((frame, taken)) = joined(datagram, bytes, pool) {
            return (frame.ok_or(Reason::PoolEmpty), taken);
        }
        let whole = rest.get(vxlan::HEADER_LEN..).unwrap_or_default();
        if is_one_datagram(whole) {
            let size = u16::try_from(payload.len()).unwrap_or(0);
            return (copied(whole, size, pool, inner_mtu), rest.len());
        }
    }
    (copied(bytes, 0, pool, inner_mtu), payload.len())
}

/// A super-frame of the segments at the start of the train, if there are several of one flow, and the number of
/// their bytes. Without a frame if there is no room for it.
#[inline]
fn joined(datagram: &Datagram<'_>, first: &[u8], pool: &mut Pool) -> Option<(Option<Frame>, usize)> {
    let Datagram { payload, rest, .. } = *datagram;
    let mut coalesced = Coalesced::begin(first)?;
    let network = Packet::parse(payload).ok()?.vni();
    let (mut count, mut taken) = (1, payload.len());
    for next in rest.chunks(payload.len()).skip(1) {
        let inside = Packet::parse(next).ok().filter(|packet| packet.vni() == network);
        let Some(frame) = inside.map(|packet| packet.frame()) else { break };
        if coalesced.join(first, frame).is_none() {
            break;
        }
        (count, taken) = (count + 1, taken + next.len());
    }
    if count == 1 {
        return None;
    }
    let headers = *coalesced.headers();
    let payload_at = vxlan::HEADER_LEN + headers.payload_at;
    let others = rest.chunks(payload.len()).take(count).skip(1).map(|next| &next[payload_at..]);
    let Some(mut frame) = pool.copy_of(std::iter::once(first).chain(others)) else {
        return Some((None, taken));
    };
    coalesced.write_headers(frame.bytes_mut());
    let kind = if headers.is_ipv6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 };
    leave_to_be_done(&mut frame, &headers, Some((kind, coalesced.size())));
    Some((Some(frame), taken))
}

/// Whether a train is one UDP super-frame, left whole by a sender on this machine: the kernel reports its segment
/// size as if it were the datagram size.
fn is_one_datagram(frame: &[u8]) -> bool {
    Headers::find(frame).is_some_and(|headers| !headers.is_tcp && headers.end(frame) == Some(frame.len()))
}

/// A frame with these bytes. `size` is the payload of segments, if it is known. Otherwise TCP is segmented for the
/// inner MTU, because receivers do not see the original boundaries.
#[inline]
fn copied(bytes: &[u8], size: u16, pool: &mut Pool, inner_mtu: u32) -> Result<Frame, Reason> {
    let mut frame = pool.copy_of([bytes]).ok_or(Reason::PoolEmpty)?;
    let headers = Headers::find(bytes).filter(|headers| headers.has_partial_checksum(bytes));
    let Some(headers) = headers else { return Ok(frame) };
    let inner_mtu = inner_mtu as usize;
    let is_whole = headers.end(bytes) == Some(bytes.len());
    let room = inner_mtu.saturating_sub(headers.payload_at - headers.ip_at);
    let segments = match (headers.is_tcp, headers.is_ipv6) {
        (true, false) => (GsoKind::TcpV4, room),
        (true, true) => (GsoKind::TcpV6, room),
        (false, _) => (GsoKind::UdpSegments, usize::from(size)),
    };
    let is_long = is_whole && bytes.len() - headers.ip_at > inner_mtu;
    leave_to_be_done(&mut frame, &headers, is_long.then_some(segments));
    Ok(frame)
}

/// Records in a frame's metadata that its checksum must be completed, and into which segments it must be split.
#[inline]
fn leave_to_be_done(frame: &mut Frame, headers: &Headers, segments: Option<(GsoKind, usize)>) {
    let meta = frame.meta_mut();
    meta.checksum = Checksum::Partial;
    meta.checksum_start = headers.transport_at as u16;
    meta.checksum_offset = (headers.checksum_at() - headers.transport_at) as u16;
    let Some((kind, size)) = segments else { return };
    if let Ok(size @ 1..) = u16::try_from(size) {
        meta.gso = Gso { kind, ecn: false, size };
        meta.headers_len = headers.payload_at as u16;
    }
}
