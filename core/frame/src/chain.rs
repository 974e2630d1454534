//! Packets that span several frames: reading them piece by piece, copying them, and shortening them.

use std::ops::Range;

use crate::frame::{Frame, Meta};
use crate::pool::Pool;

impl Frame {
    /// This frame and all that follow in its chain.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |frame| frame.meta().next.as_ref())
    }

    /// Length of the whole packet: this frame and all that follow in its chain, bytes.
    #[must_use]
    #[inline]
    pub fn chain_len(&self) -> usize {
        match self.meta().next {
            None => self.len(),
            Some(_) => self.chain().map(Self::len).sum(),
        }
    }

    /// The bytes of the whole packet: where they are, or in `whole` if the packet spans several frames.
    #[inline]
    pub fn gather<'a>(&'a self, whole: &'a mut Vec<u8>) -> &'a [u8] {
        if self.meta().next.is_none() {
            return self.bytes();
        }
        whole.clear();
        self.chain().for_each(|frame| whole.extend_from_slice(frame.bytes()));
        whole
    }

    /// The bytes `range` of the whole packet, in order, as the chain divides them. Fewer if the packet ends before.
    pub fn pieces(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let mut before = 0;
        self.chain().filter_map(move |frame| {
            let [from, to] =
                [range.start, range.end].map(|place| place.saturating_sub(before).min(frame.len()));
            before += frame.len();
            (from < to).then(|| &frame.bytes()[from..to])
        })
    }

    /// The byte at `place` of the whole packet; `None` beyond its end.
    pub fn byte_mut(&mut self, mut place: usize) -> Option<&mut u8> {
        let mut frame = self;
        while place >= frame.len() {
            place -= frame.len();
            frame = frame.meta_mut().next.as_mut()?;
        }
        frame.bytes_mut().get_mut(place)
    }
}

impl Meta {
    /// The same metadata, for a frame that nothing follows.
    #[must_use]
    pub const fn without_next(&self) -> Self {
        Self {
            arrival: self.arrival,
            port: self.port,
            queue: self.queue,
            checksum: self.checksum,
            checksum_start: self.checksum_start,
            checksum_offset: self.checksum_offset,
            headers_len: self.headers_len,
            vlan: self.vlan,
            gso: self.gso,
            next: None,
        }
    }
}

impl Pool {
    /// A packet with a copy of these bytes and no metadata: one frame, or a chain if they do not fit into one. The
    /// first frame keeps its headroom. `None` if too few frames are free; none is taken then.
    pub fn copy_of<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Frame> {
        let mut packet = self.take()?;
        let mut last = &mut packet;
        for mut piece in pieces {
            while !piece.is_empty() {
                let len = last.len();
                let (copied, rest) = piece.split_at(piece.len().min(last.capacity() - len));
                if copied.is_empty() {
                    let Some(mut frame) = self.take() else {
                        self.release(packet);
                        return None;
                    };
                    // Headers are put in front of the first frame only. An empty range always fits.
                    let _ = frame.place(0, 0);
                    last = last.meta_mut().next.insert(frame);
                    continue;
                }
                let fits = last.set_len(len + copied.len());
                debug_assert!(fits.is_ok(), "no more is copied than the frame has room for");
                last.bytes_mut()[len..].copy_from_slice(copied);
                piece = rest;
            }
        }
        Some(packet)
    }

    /// A copy of a whole packet with all its metadata; `None` if too few frames are free.
    pub fn duplicate(&mut self, packet: &Frame) -> Option<Frame> {
        let mut copy = self.copy_of(packet.chain().map(Frame::bytes))?;
        let next = copy.meta_mut().next.take();
        *copy.meta_mut() = Meta { next, ..packet.meta().without_next() };
        Some(copy)
    }

    /// Shortens a packet to its first `len` bytes, and takes back the frames that hold none of them. A packet that is
    /// not longer stays as it is.
    pub fn truncate(&mut self, packet: &mut Frame, len: usize) {
        let mut left = len;
        let mut frame = packet;
        while frame.len() < left {
            left -= frame.len();
            frame = match frame.meta_mut().next.as_mut() {
                Some(next) => next,
                None => return,
            };
        }
        let shorter = frame.set_len(left);
        debug_assert!(shorter.is_ok(), "a shorter length always fits");
        if let Some(rest) = frame.meta_mut().next.take() {
            self.release(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use twinpath_time::Instant;

    use super::*;
    use crate::{CHUNK_SIZE, Checksum, Gso, GsoKind, HEADROOM};

    fn bytes(packet: &Frame) -> Vec<u8> {
        packet.chain().flat_map(Frame::bytes).copied().collect()
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    proptest! {
        #[test]
        fn a_packet_reads_and_shortens_like_a_slice(
            len in 0usize..9_000, cut in 1usize..3_000, from in 0usize..9_500, more in 0usize..9_500, to in 0usize..9_500,
        ) {
            let mut pool = Pool::new(8).expect("pool");
            let wanted = pattern(len);
            let mut packet = pool.copy_of(wanted.chunks(cut)).expect("enough frames");
            prop_assert_eq!((packet.chain_len(), bytes(&packet)), (len, wanted.clone()));
            prop_assert!(packet.retreat(HEADROOM as usize).is_ok(), "the headroom is kept");
            prop_assert!(packet.advance(HEADROOM as usize).is_ok());
            let range = from.min(len)..(from + more).min(len);
            prop_assert_eq!(packet.pieces(from..from + more).collect::<Vec<_>>().concat(), &wanted[range]);
            prop_assert_eq!(packet.byte_mut(from).copied(), wanted.get(from).copied());
            let mut whole = vec![1; 7];
            prop_assert_eq!(packet.gather(&mut whole), &wanted);
            pool.truncate(&mut packet, to);
            prop_assert_eq!(bytes(&packet), &wanted[..to.min(len)]);
            pool.release(packet);
            prop_assert_eq!(pool.free(), pool.frames());
        }
    }

    #[test]
    fn a_packet_of_one_frame_is_read_where_it_is() {
        let mut pool = Pool::new(1).expect("pool");
        let packet = pool.copy_of([&*pattern(100)]).expect("a frame");
        let mut whole = Vec::new();
        assert_eq!(packet.gather(&mut whole).as_ptr(), packet.bytes().as_ptr());
        assert_eq!(whole.capacity(), 0);
        pool.release(packet);
    }

    #[test]
    fn a_copy_has_the_metadata_of_the_whole_packet() {
        let mut pool = Pool::new(6).expect("pool");
        let mut packet = pool.copy_of([&*pattern(2 * CHUNK_SIZE as usize)]).expect("enough frames");
        let meta = packet.meta_mut();
        (meta.arrival, meta.port, meta.queue) = (Instant::from_nanos(5), 3, 1);
        (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 34, 16);
        (meta.headers_len, meta.vlan) = (54, Some(100));
        meta.gso = Gso { kind: GsoKind::TcpV4, ecn: true, size: 1448 };
        let copy = pool.duplicate(&packet).expect("enough frames");
        assert_eq!(bytes(&copy), bytes(&packet));
        let text = |frame: &Frame| format!("{:?}", frame.meta().without_next());
        assert_eq!(text(&copy), text(&packet));
        assert!(pool.duplicate(&packet).is_none(), "both have three frames");
        assert_eq!(pool.free(), 0);
        pool.release(copy);
        pool.release(packet);
        assert_eq!(pool.free(), pool.frames());
    }

    #[test]
    fn a_packet_that_does_not_fit_into_the_pool_takes_nothing() {
        let mut pool = Pool::new(2).expect("pool");
        assert!(pool.copy_of([&*pattern(2 * CHUNK_SIZE as usize)]).is_none());
        assert_eq!(pool.free(), 2);
    }
}
