//! Bursts: the unit in which frames are received, handled and sent.

use crate::frame::Frame;
use crate::pool::Pool;

/// Maximum number of frames in a burst. Large enough to amortise a system call or a cache miss, small enough that
/// the first frame does not wait long for the last: the headers of 64 frames touch 8 KiB of cache.
pub const BURST_MAX: usize = 64;

/// Up to [`BURST_MAX`] frames in order. Its memory is allocated once; pushing never allocates.
#[derive(Debug)]
pub struct Burst {
    frames: Vec<Frame>,
    limit: usize,
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

impl Burst {
    /// An empty burst with memory for all its frames.
    #[must_use]
    pub fn new() -> Self {
        Self { frames: Vec::with_capacity(BURST_MAX), limit: BURST_MAX }
    }

    /// Limits it to `limit` frames from now on, or to [`BURST_MAX`] if that is less. Frames that it already holds
    /// stay.
    #[inline]
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(BURST_MAX);
    }

    /// How many more frames fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.frames.len())
    }

    /// How many frames it holds.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether it is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds a frame at the end.
    ///
    /// # Errors
    /// Gives the frame back when the burst is full.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.room() == 0 {
            return Err(frame);
        }
        self.frames.push(frame);
        Ok(())
    }

    /// Adds frames in order, as many as fit; the others stay where they are.
    #[inline]
    pub fn fill(&mut self, frames: &mut impl Iterator<Item = Frame>) {
        // Memory for this many is already allocated.
        self.frames.extend(frames.take(self.room()));
    }

    /// Adds all frames of another burst that fit; the others stay there. If this one is empty, the two are swapped,
    /// which takes the same time for any number of frames.
    #[inline]
    pub fn append(&mut self, from: &mut Self) {
        if self.is_empty() && from.len() <= self.limit {
            std::mem::swap(&mut self.frames, &mut from.frames);
        } else {
            self.fill(&mut from.drain(self.room()));
        }
    }

    /// Takes the first `count` frames (or all, if there are fewer), in order; the rest move up.
    #[inline]
    pub fn drain(&mut self, count: usize) -> impl Iterator<Item = Frame> + '_ {
        self.frames.drain(..count.min(self.frames.len()))
    }

    /// The frames, in order.
    #[inline]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The frames, in order, mutable.
    pub fn frames_mut(&mut self) -> &mut [Frame] {
        &mut self.frames
    }

    /// Gives the first `count` frames back to their pool.
    pub fn release(&mut self, count: usize, pool: &mut Pool) {
        for frame in self.drain(count) {
            pool.release(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_burst_gives_the_frame_back() {
        let mut pool = Pool::new(BURST_MAX as u32 + 1).expect("pool");
        let mut burst = Burst::new();
        for _ in 0..BURST_MAX {
            burst.push(pool.take().expect("free")).expect("room");
        }
        let refused = burst.push(pool.take().expect("free")).expect_err("full");
        pool.release(refused);
        burst.release(10, &mut pool);
        assert_eq!((burst.len(), burst.room()), (BURST_MAX - 10, 10));
        assert_eq!(burst.frames()[0].index(), 10, "order is kept");
        burst.set_limit(20);
        assert_eq!((burst.len(), burst.room()), (BURST_MAX - 10, 0), "it has more than it takes now");
        burst.set_limit(usize::MAX);
        assert_eq!(burst.room(), 10);
        let mut other = Burst::new();
        other.set_limit(40);
        other.append(&mut burst);
        assert_eq!((other.len(), burst.len()), (40, BURST_MAX - 50), "as many as it takes");
        assert_eq!((other.frames()[0].index(), burst.frames()[0].index()), (10, 50), "order is kept");
        burst.append(&mut other);
        assert_eq!((other.len(), burst.len()), (0, BURST_MAX - 10));
        other.append(&mut burst);
        assert_eq!((other.len(), burst.len()), (40, 14), "a limit holds also for a burst that is empty");
        burst.append(&mut other);
        assert_eq!((other.len(), burst.len()), (0, BURST_MAX - 10));
        burst.release(usize::MAX, &mut pool);
        assert_eq!(pool.free(), pool.frames());
    }
}
