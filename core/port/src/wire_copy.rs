//! Copies of frames as they appear on a wire, for captures: a chain becomes one piece, a tag beside the frame is
//! inserted, and a checksum that the sender left to hardware is completed. A super-frame stays one packet.

use twinpath_frame::{Checksum, Frame};
use twinpath_wire::offload::completed;

use crate::fit::{Checksummed, checksummed};

/// Bytes of the two addresses, which a tag follows.
const ADDRESSES_LEN: usize = 12;

/// Properties of all frames of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// A tag beside a frame belongs to it. False where the port does not send such tags.
    pub has_tags: bool,
    /// Any frame may have a partial checksum: the port does not know which.
    pub may_be_partial: bool,
}

/// A copy of a packet.
#[derive(Clone, Copy, Debug)]
pub struct WireCopy<'a> {
    /// Its bytes, truncated to the room there was.
    pub bytes: &'a [u8],
    /// Length of the whole packet, bytes.
    pub packet_len: usize,
    /// The sender left the checksum to hardware, and it could not be completed: its place is not known.
    pub checksum_not_ready: bool,
}

impl Seen {
    /// A copy of `frame`, truncated to the length of `scratch`, where it is put together if need be.
    pub fn copy<'a>(self, frame: &'a Frame, scratch: &'a mut [u8]) -> WireCopy<'a> {
        let meta = frame.meta();
        let may_be_partial = match meta.checksum {
            Checksum::Partial => true,
            Checksum::Unverified => self.may_be_partial,
            Checksum::Verified => false,
        };
        let partial = if may_be_partial { checksummed(frame) } else { None };
        let checksum_not_ready = meta.checksum == Checksum::Partial && partial.is_none();
        let tag = meta.vlan.filter(|_| self.has_tags).map(|control| {
            let [high, low] = control.to_be_bytes();
            [0x81, 0x00, high, low]
        });
        if tag.is_none() && partial.is_none() && meta.next.is_none() {
            let (bytes, packet_len) = (frame.bytes(), frame.len());
            return WireCopy {
                bytes: &bytes[..packet_len.min(scratch.len())],
                packet_len,
                checksum_not_ready,
            };
        }
        let tag = tag.as_ref().map_or(&[][..], |tag| &tag[..]);
        let tag_at = if tag.is_empty() { 0 } else { ADDRESSES_LEN };
        let pieces = frame.pieces(0..tag_at).chain([tag]).chain(frame.pieces(tag_at..usize::MAX));
        let mut len = 0;
        for piece in pieces {
            let copied = piece.len().min(scratch.len() - len);
            scratch[len..len + copied].copy_from_slice(&piece[..copied]);
            len += copied;
        }
        if let Some(Checksummed { covered, field }) = partial {
            let field = field + tag.len();
            if let Some(field) = scratch[..len].get_mut(field..field + 2) {
                field.copy_from_slice(&completed(frame.pieces(covered)).to_be_bytes());
            }
        }
        let packet_len = frame.chain_len() + tag.len();
        WireCopy { bytes: &scratch[..len], packet_len, checksum_not_ready }
    }
}
