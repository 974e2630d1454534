//! The part of a capture that the kernel's programs fill: requests that they have answered themselves, and
//! the replies.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use twinpath_bpf::{Shown, TapReader};
use twinpath_rings::slots::Note;
use twinpath_wire::filter::{Filter, outermost_beside};
use twinpath_wire::offload::{Headers, completed};
use twinpath_worker::{TapCounters, tag};

/// The copies that programs make for a capture.
pub struct Replied {
    reader: TapReader,
    filter: Filter,
    counters: Arc<TapCounters>,
    /// Buffer for one frame.
    room: Vec<u8>,
}

impl Replied {
    /// The copied frames that match `filter`; `counters` are written only by the capture's thread.
    #[must_use]
    pub const fn new(reader: TapReader, filter: Filter, counters: Arc<TapCounters>) -> Self {
        Self { reader, filter, counters, room: Vec::new() }
    }

    /// Takes the next request and its reply. Passes those that match the filter to `with`, each with its
    /// bytes, in which a checksum left to hardware has been completed. Returns whether there was a request.
    pub(crate) fn take(&mut self, mut with: impl FnMut(Note, &[u8])) -> bool {
        let Self { reader, filter, counters, room } = self;
        reader.take(|exchange| {
            for (frame, tag) in [(exchange.request, 0), (exchange.reply, tag::SENT)] {
                let (bytes, beside) = outermost_beside(frame.bytes);
                if filter.wants(bytes, beside) {
                    counters.wanted.add(1);
                    let Shown { time_ns, frame_len: original_len, bytes } = frame;
                    room.clear();
                    room.extend_from_slice(bytes);
                    let is_whole = bytes.len() == original_len as usize;
                    let is_ready = !has_partial_checksum(bytes) || (is_whole && complete(room));
                    let tag = if is_ready { tag } else { tag | tag::CHECKSUM_NOT_READY };
                    with(Note { original_len, time_ns, tag }, room);
                }
            }
        })
    }

    /// Frames for which there was no room, whether or not they match the filter, which programs do not
    /// check.
    pub(crate) fn missed(&self) -> u64 {
        self.reader.missed()
    }

    /// Frames that matched the filter.
    pub(crate) fn wanted(&self) -> u64 {
        self.counters.wanted.get()
    }
}

/// It is readable when there is something to take.
impl AsFd for Replied {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

fn has_partial_checksum(frame: &[u8]) -> bool {
    Headers::find(frame).is_some_and(|headers| headers.has_partial_checksum(frame))
}

/// Completes a checksum that consists only of the sum of the pseudo-header. Returns whether it could.
fn complete(frame: &mut [u8]) -> bool {
    let place = Headers::find(frame).and_then(|headers| {
        let covered = frame.get(headers.transport_at..headers.end(frame)?)?;
        Some((headers.checksum_at(), completed([covered])))
    });
    let Some((at, checksum)) = place else { return false };
    let Some(field) = frame.get_mut(at..at + 2) else { return false };
    field.copy_from_slice(&checksum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use twinpath_wire::Mac;
    use twinpath_wire::udp_frame::{UdpFrameRepr, write_headers};

    use super::*;

    #[test]
    fn a_checksum_that_was_left_to_hardware_is_completed_behind_which_padding_may_be() {
        for (source, destination) in [("10.0.0.1:9", "10.0.0.2:7"), ("[fd00::1]:9", "[fd00::2]:7")] {
            let repr = UdpFrameRepr {
                source_mac: Mac([2, 0, 0, 0, 0, 1]),
                destination_mac: Mac([2, 0, 0, 0, 0, 2]),
                tag: None,
                source: source.parse::<SocketAddr>().expect("an address"),
                destination: destination.parse::<SocketAddr>().expect("an address"),
                hop_limit: 64,
                identification: 1,
            };
            let mut whole = [&vec![0; repr.header_len()][..], b"odd"].concat();
            write_headers(&mut whole, &repr, 3).expect("it fits");
            whole.resize(whole.len() + 13, 0xee);
            assert!(!has_partial_checksum(&whole));
            let headers = Headers::find(&whole).expect("a datagram");
            // The sum of the pseudo-header is what completing the checksum of nothing but zeros starts with.
            let mut partial = whole.clone();
            let pseudo = (0..=u16::MAX).find(|sum| {
                partial[headers.checksum_at()..][..2].copy_from_slice(&sum.to_be_bytes());
                headers.has_partial_checksum(&partial)
            });
            assert!(pseudo.is_some() && has_partial_checksum(&partial) && complete(&mut partial));
            assert_eq!(partial, whole);
        }
    }
}
