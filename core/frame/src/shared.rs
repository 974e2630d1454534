//! Packets whose bytes several frames share, for flooding and mirroring.
//!
//! To share a packet, the pool keeps its frames as sources, which nobody can write to any more, and gives out
//! frames that read the sources' chunks. Each source counts its readers. Only the pool changes this count, when it
//! gives out a reader or takes one back, so it needs no atomics wherever the frames are meanwhile. A frame that is
//! written to copies the bytes into its own chunk, which every frame has.
//!
//! A short packet is copied immediately, which costs less.

use crate::frame::Frame;
use crate::pool::Pool;

/// A packet of one frame that is not longer is copied. Including the cost of sending it, copying costs a sixth less
/// than sharing for two output ports, and 3 to 6 % more for eight. Beyond this length it depends on the number of
/// ports: for two, a copy is cheaper up to about 1,200 bytes; for eight, it costs 12 % more at 512 bytes
/// (`benches/flood.rs`).
const COPIED_MAX: usize = 256;

impl Pool {
    /// Another packet with the same bytes and metadata. No byte is copied until one of the two is written to,
    /// except that a packet of one frame of up to 256 bytes is copied immediately. Returns `None`, with nothing
    /// changed, if too few frames are free or the packet is of another pool.
    ///
    /// Takes one frame for each frame of the packet, and one more for each when the packet is shared for the first
    /// time.
    pub fn share(&mut self, packet: &mut Frame) -> Option<Frame> {
        let is_own = packet.chain().all(|frame| self.is_own(frame));
        if is_own && packet.len() <= COPIED_MAX && packet.meta().next.is_none() && !packet.is_shared() {
            return self.duplicate(packet);
        }
        let needed: usize = packet.chain().map(|frame| if frame.is_shared() { 1 } else { 2 }).sum();
        if !is_own || (self.free() as usize) < needed {
            return None;
        }
        let mut frame = packet;
        let mut twin = self.share_one(frame)?;
        let mut last = &mut twin;
        while let Some(next) = frame.meta_mut().next.as_mut() {
            frame = next;
            last = last.meta_mut().next.insert(self.share_one(frame)?);
        }
        Some(twin)
    }

    /// A frame that reads the bytes of `frame`, without the rest of its chain.
    fn share_one(&mut self, frame: &mut Frame) -> Option<Frame> {
        if !frame.is_shared() {
            self.make_source(frame)?;
        }
        let source = frame.header().sharing.source()?;
        let mut twin = self.take()?;
        twin.header_mut().share(frame.header(), source);
        *twin.meta_mut() = frame.meta().without_next();
        self.count_sharing(source);
        Some(twin)
    }

    /// Keeps a frame as a source, and puts one that reads it in its place.
    fn make_source(&mut self, frame: &mut Frame) -> Option<()> {
        let mut reader = self.take()?;
        // It may have its own copy of bytes that it shared before.
        self.end_sharing(frame);
        let index = frame.index();
        reader.header_mut().share(frame.header(), index);
        let meta = std::mem::take(frame.meta_mut());
        *reader.meta_mut() = meta;
        let source = std::mem::replace(frame, reader);
        // Nobody holds it from here on: the pool finds it by its index when the last of its readers is released.
        let _ = source.into_header();
        self.count_sharing(index);
        Some(())
    }

    /// Whether a frame is this pool's.
    #[must_use]
    pub fn is_own(&self, frame: &Frame) -> bool {
        frame.header().pool == self.id()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{CHUNK_SIZE, HEADROOM, leaked};

    fn bytes(packet: &Frame) -> Vec<u8> {
        packet.chain().flat_map(Frame::bytes).copied().collect()
    }

    /// What is done with one of the packets that are out.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take(usize),
        Share(usize),
        Write(usize, usize, u8),
        Advance(usize, usize),
        Truncate(usize, usize),
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let which = 0usize..64;
        prop_oneof![
            2 => (0usize..6_000).prop_map(Step::Take),
            6 => which.clone().prop_map(Step::Share),
            4 => (which.clone(), 0usize..6_000, any::<u8>()).prop_map(|(which, at, byte)| Step::Write(which, at, byte)),
            2 => (which.clone(), 0usize..300).prop_map(|(which, count)| Step::Advance(which, count)),
            1 => (which.clone(), 0usize..6_000).prop_map(|(which, len)| Step::Truncate(which, len)),
            4 => which.prop_map(Step::Release),
        ]
    }

    proptest! {
        /// Packets that share bytes behave as copies: a change to one does not affect the others.
        #[test]
        fn shared_packets_behave_as_copies(steps in prop::collection::vec(step(), 1..120)) {
            let mut pool = Pool::new(48).expect("pool");
            let mut out: Vec<(Frame, Vec<u8>)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Take(len) => {
                        let wanted: Vec<u8> = (0..len).map(|at| (at + number) as u8).collect();
                        out.extend(pool.copy_of([&*wanted]).map(|packet| (packet, wanted)));
                    }
                    Step::Share(which) if which < out.len() => {
                        let free = pool.free();
                        let (packet, wanted) = &mut out[which];
                        match pool.share(packet) {
                            Some(twin) => {
                                let wanted = wanted.clone();
                                out.push((twin, wanted));
                            }
                            None => prop_assert_eq!(pool.free(), free),
                        }
                    }
                    Step::Write(which, at, byte) if which < out.len() => {
                        let (packet, wanted) = &mut out[which];
                        prop_assert_eq!(packet.byte_mut(at).is_some(), at < wanted.len());
                        if at < wanted.len() {
                            (*packet.byte_mut(at).expect("within it"), wanted[at]) = (byte, byte);
                        }
                    }
                    Step::Advance(which, count) if which < out.len() => {
                        let (packet, wanted) = &mut out[which];
                        if packet.advance(count).is_ok() {
                            wanted.drain(..count);
                        }
                    }
                    Step::Truncate(which, len) if which < out.len() => {
                        let (packet, wanted) = &mut out[which];
                        pool.truncate(packet, len);
                        wanted.truncate(len);
                    }
                    Step::Release(which) if which < out.len() => pool.release(out.swap_remove(which).0),
                    _ => {}
                }
                for (packet, wanted) in &out {
                    prop_assert_eq!(&bytes(packet), wanted);
                }
            }
            out.into_iter().for_each(|(packet, _)| pool.release(packet));
            prop_assert_eq!(pool.free(), pool.frames());
        }
    }

    #[test]
    fn no_byte_is_copied_until_one_is_written_and_all_frames_come_home() {
        let mut pool = Pool::new(4).expect("pool");
        let long = [b'f'; COPIED_MAX + 1];
        let mut packet = pool.copy_of([&long[..]]).expect("free");
        packet.meta_mut().port = 3;
        let first = pool.share(&mut packet).expect("free");
        let mut second = pool.share(&mut packet).expect("free");
        assert_eq!((pool.free(), second.meta().port), (0, 3));
        assert!(pool.share(&mut packet).is_none(), "no frame is free");
        assert_eq!(first.bytes().as_ptr(), packet.bytes().as_ptr());
        second.bytes_mut()[0] = b'F';
        assert!(!second.is_shared() && first.is_shared());
        assert_eq!((first.bytes(), packet.bytes()), (&long[..], &long[..]));
        assert_eq!((second.bytes()[0], &second.bytes()[1..]), (b'F', &long[1..]));
        let own = u64::from(second.index()) * u64::from(CHUNK_SIZE) + u64::from(HEADROOM);
        assert_eq!(second.region_offset(), own);
        pool.release(packet);
        pool.release(first);
        assert_eq!(pool.free(), 2, "one counts yet, though it has a copy");
        pool.release(second);
        assert_eq!((pool.free(), leaked()), (4, 0));
    }

    #[test]
    fn a_short_packet_of_one_frame_is_copied_and_takes_one_frame() {
        let mut pool = Pool::new(2).expect("pool");
        let mut packet = pool.copy_of([&[7; COPIED_MAX][..]]).expect("free");
        packet.meta_mut().port = 3;
        let twin = pool.share(&mut packet).expect("one frame is enough");
        assert!(!packet.is_shared() && !twin.is_shared());
        assert_eq!((twin.bytes(), twin.meta().port), (packet.bytes(), 3));
        pool.release(packet);
        pool.release(twin);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn a_shared_packet_crosses_to_another_thread_and_back() {
        let mut pool = Pool::new(8).expect("pool");
        let mut packet = pool.copy_of([&[7; 1_000][..]]).expect("free");
        let twins: Vec<_> = (0..3).map(|_| pool.share(&mut packet).expect("free")).collect();
        let thread = std::thread::spawn(move || {
            let mut twins = twins;
            twins[1].bytes_mut().fill(8);
            let seen: Vec<_> = twins.iter().map(|twin| twin.bytes()[999]).collect();
            (twins, seen)
        });
        assert_eq!(packet.bytes(), [7; 1_000]);
        pool.release(packet);
        let (twins, seen) = thread.join().expect("no panic");
        assert_eq!(seen, [7, 8, 7]);
        twins.into_iter().for_each(|twin| pool.release(twin));
        assert_eq!(pool.free(), pool.frames());
    }

    #[test]
    fn a_packet_of_another_pool_is_not_shared() {
        let (mut pool, mut other) = (Pool::new(4).expect("pool"), Pool::new(4).expect("pool"));
        let mut packet = other.take().expect("free");
        assert!(pool.share(&mut packet).is_none());
        other.release(packet);
    }
}
