//! The frames that the kernel holds. They are moved in when they are lent, and out when their address comes back.

use twinpath_frame::{CHUNK_SIZE, Frame};

/// One slot per chunk of the region.
#[derive(Debug)]
pub(crate) struct Lent(Box<[Option<Frame>]>);

impl Lent {
    pub(crate) fn new(frames: u32) -> Self {
        Self((0..frames).map(|_| None).collect())
    }

    /// Keeps `frame` while the kernel has it.
    pub(crate) fn lend(&mut self, frame: Frame) {
        let place = &mut self.0[frame.index() as usize];
        debug_assert!(place.is_none(), "a frame has one owner, so it cannot be lent twice");
        *place = Some(frame);
    }

    /// Removes and returns the frame whose chunk contains `addr`, and the offset of `addr` in it; `None` if the
    /// kernel does not hold it.
    pub(crate) fn back(&mut self, addr: u64) -> Option<(Frame, u32)> {
        let chunk = usize::try_from(addr / u64::from(CHUNK_SIZE)).ok()?;
        let frame = self.0.get_mut(chunk)?.take()?;
        Some((frame, (addr % u64::from(CHUNK_SIZE)) as u32))
    }

    pub(crate) fn into_frames(self) -> Vec<Frame> {
        self.0.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use twinpath_frame::Pool;

    use super::*;

    #[test]
    fn only_lent_frames_come_back_and_only_once() {
        let mut pool = Pool::new(4).expect("pool");
        let mut lent = Lent::new(pool.frames());
        let frame = pool.take().expect("free");
        let addr = u64::from(frame.index()) * u64::from(CHUNK_SIZE) + 300;
        lent.lend(frame);
        assert!(lent.back(u64::MAX).is_none());
        assert!(lent.back(addr + u64::from(CHUNK_SIZE)).is_none());
        let (frame, offset) = lent.back(addr).expect("lent");
        assert_eq!(offset, 300);
        assert!(lent.back(addr).is_none());
        lent.lend(frame);
        for frame in lent.into_frames() {
            pool.release(frame);
        }
        assert_eq!(pool.free(), pool.frames());
    }
}
