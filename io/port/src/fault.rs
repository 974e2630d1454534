//! A port that injects faults: it loses, duplicates, reorders, corrupts and truncates frames, from a seed.

use std::os::fd::BorrowedFd;

use twinpath_frame::{Burst, Frame, Pool};
use twinpath_time::Instant;

use crate::{Capabilities, PortQueue, QueueInfo, WaitSource};

/// How often each fault happens, in thousandths of received frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The frame is lost.
    pub lose: u16,
    /// The frame comes twice.
    pub double: u16,
    /// The frame is swapped with the one before it.
    pub swap: u16,
    /// One bit of the frame is flipped.
    pub flip: u16,
    /// The frame is truncated.
    pub cut: u16,
}

/// Wraps a port; the same seed gives the same faults to the same frames.
pub struct FaultPort {
    inner: Box<dyn PortQueue>,
    faults: Faults,
    random: fastrand::Rng,
    /// A burst kept between turns, so that nothing is allocated.
    arrived: Burst,
    scratch: Burst,
}

impl FaultPort {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn PortQueue>, faults: Faults, seed: u64) -> Self {
        Self {
            inner,
            faults,
            random: fastrand::Rng::with_seed(seed),
            arrived: Burst::new(),
            scratch: Burst::new(),
        }
    }

    fn happens(&mut self, thousandths: u16) -> bool {
        self.random.u16(0..1000) < thousandths
    }

    fn damage(&mut self, frame: &mut Frame) {
        if frame.is_empty() {
            return;
        }
        if self.happens(self.faults.flip) {
            let bit = self.random.usize(0..frame.len() * 8);
            frame.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
        }
        if self.happens(self.faults.cut) {
            let len = self.random.usize(0..frame.len());
            // A shorter length always fits.
            let _ = frame.set_len(len);
        }
    }
}

impl WaitSource for FaultPort {
    fn look(&self) -> bool {
        self.inner.look()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
}

impl PortQueue for FaultPort {
    fn info(&self) -> &QueueInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn prepare(&mut self, pool: &mut Pool) {
        self.inner.prepare(pool);
    }

    fn begin_polling(&mut self, now: Instant) {
        self.inner.begin_polling(now);
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        let mut scratch = std::mem::take(&mut self.scratch);
        // Separate bursts, as losing and duplicating frames changes their number.
        let mut arrived = std::mem::take(&mut self.arrived);
        self.inner.receive(now, pool, &mut arrived);
        for mut frame in arrived.drain(usize::MAX) {
            if self.happens(self.faults.lose) || scratch.room() == 0 {
                pool.release(frame);
                continue;
            }
            self.damage(&mut frame);
            let twin = if self.happens(self.faults.double) { pool.take() } else { None };
            let twin = twin.map(|mut twin| {
                let copied = twin.copy_from(frame.bytes());
                debug_assert!(copied.is_ok(), "a copy of a received frame fits a fresh one");
                twin.meta_mut().checksum = frame.meta().checksum;
                twin
            });
            for frame in [Some(frame), twin].into_iter().flatten() {
                if let Err(frame) = scratch.push(frame) {
                    pool.release(frame);
                }
            }
            if scratch.len() > 1 && self.happens(self.faults.swap) {
                let last = scratch.len() - 1;
                scratch.frames_mut().swap(last, last - 1);
            }
        }
        let room = burst.room();
        for frame in scratch.drain(room) {
            if let Err(frame) = burst.push(frame) {
                pool.release(frame);
            }
        }
        scratch.release(usize::MAX, pool);
        (self.arrived, self.scratch) = (arrived, scratch);
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        self.inner.transmit(pool, burst);
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.inner.flush(pool);
    }

    fn on_error(&mut self) {
        self.inner.on_error();
    }

    fn is_withdrawn(&self) -> bool {
        self.inner.is_withdrawn()
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortId;
    use crate::loopback::pair;

    fn run(seed: u64) -> Vec<Vec<u8>> {
        let mut pool = Pool::new(256).expect("pool");
        let (mut near, far) = pair(PortId::default(), PortId::default()).expect("eventfds");
        let faults = Faults { lose: 200, double: 200, swap: 200, flip: 200, cut: 200 };
        let mut far = FaultPort::new(Box::new(far), faults, seed);
        let mut seen = Vec::new();
        let mut burst = Burst::new();
        for byte in 0..200u8 {
            let mut frame = pool.take().expect("free");
            frame.copy_from(&[byte; 8]).expect("fits");
            burst.push(frame).expect("room");
            near.transmit(&mut pool, &mut burst);
            if byte % 7 == 6 {
                far.receive(Instant::ZERO, &mut pool, &mut burst);
                seen.extend(burst.frames().iter().map(|frame| frame.bytes().to_vec()));
                burst.release(usize::MAX, &mut pool);
            }
        }
        assert_eq!(pool.free(), pool.frames(), "faults lose frames, not memory");
        seen
    }

    #[test]
    fn a_seed_repeats_exactly_and_faults_happen() {
        let first = run(7);
        assert_eq!(first, run(7));
        assert_ne!(first, run(8));
        assert!(first.iter().any(|frame| frame.len() < 8), "some are cut");
        assert!(first.len() < 230 && first.len() > 130, "some are lost, some doubled: {}", first.len());
    }
}
