//! A port that injects faults from a seed: it loses, duplicates, reorders, corrupts and truncates packets. A fault
//! applies to all frames of a packet.

use std::os::fd::BorrowedFd;

use twinpath_frame::{Burst, Frame, Pool};
use twinpath_port::{Capabilities, Carrier, LinkState, PortQueue, QueueInfo, WaitSource};
use twinpath_time::Instant;

/// How often each fault happens, in thousandths of received frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
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
pub(super) struct FaultPort {
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
    pub(super) fn new(inner: Box<dyn PortQueue>, faults: Faults, seed: u64) -> Self {
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

    fn damage(&mut self, frame: &mut Frame, pool: &mut Pool) {
        let len = frame.chain_len();
        if len == 0 {
            return;
        }
        if self.happens(self.faults.flip) {
            let bit = self.random.usize(0..len * 8);
            if let Some(byte) = frame.byte_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        if self.happens(self.faults.cut) {
            pool.truncate(frame, self.random.usize(0..len));
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

    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        self.inner.carrier()
    }

    fn changed(&mut self, link: LinkState) {
        self.inner.changed(link);
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
            self.damage(&mut frame, pool);
            let twin = if self.happens(self.faults.double) { pool.duplicate(&frame) } else { None };
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

    fn is_flushed(&self) -> bool {
        self.inner.is_flushed()
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
    use twinpath_frame::{Checksum, GsoKind};
    use twinpath_port::loopback::pair;
    use twinpath_port::{GsoKinds, PortId};

    use super::*;

    const ALL: Capabilities = Capabilities {
        frame_len_max: 70_000,
        super_frame_len_max: 0,
        checksum: true,
        partial_checksums: false,
        segmentation: GsoKinds::ALL,
        chains: true,
        tags: true,
    };

    /// A packet as it came: its bytes, and the metadata that say what is still to be done.
    type Seen = (Vec<u8>, String);

    fn seen(frame: &Frame) -> Seen {
        let meta = frame.meta().without_next();
        (frame.pieces(0..usize::MAX).collect::<Vec<_>>().concat(), format!("{meta:?}"))
    }

    /// 200 packets of `len` bytes, each of one value.
    fn run(seed: u64, faults: Faults, len: usize) -> Vec<Seen> {
        let mut pool = Pool::new(256).expect("pool");
        let (near, far) = pair(PortId::default(), PortId::default()).expect("eventfds");
        let mut near = near.with_capabilities(ALL);
        let mut far = FaultPort::new(Box::new(far), faults, seed);
        let mut came = Vec::new();
        let mut burst = Burst::new();
        for byte in 0..200u8 {
            let mut frame = pool.copy_of([&*vec![byte; len]]).expect("enough frames");
            let meta = frame.meta_mut();
            (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 34, 16);
            (meta.gso.kind, meta.gso.size, meta.vlan) = (GsoKind::TcpV4, 1448, Some(u16::from(byte)));
            burst.push(frame).expect("room");
            near.transmit(&mut pool, &mut burst);
            if byte % 7 == 6 {
                far.receive(Instant::ZERO, &mut pool, &mut burst);
                came.extend(burst.frames().iter().map(seen));
                burst.release(usize::MAX, &mut pool);
            }
        }
        assert_eq!(pool.free(), pool.frames(), "faults lose frames, not memory");
        came
    }

    #[test]
    fn a_seed_repeats_exactly_and_faults_happen() {
        let faults = Faults { lose: 200, double: 200, swap: 200, flip: 200, cut: 200 };
        for len in [8, 6_000] {
            let first = run(7, faults, len);
            assert_eq!(first, run(7, faults, len));
            assert_ne!(first, run(8, faults, len));
            assert!(first.iter().any(|(bytes, _)| bytes.len() < len), "some are truncated");
            assert!(first.len() < 230 && first.len() > 130, "lost and duplicated: {}", first.len());
        }
    }

    #[test]
    fn a_packet_of_several_frames_is_lost_duplicated_and_swapped_as_a_whole() {
        let faults = Faults { lose: 200, double: 200, swap: 200, flip: 0, cut: 0 };
        let came = run(7, faults, 6_000);
        for (bytes, meta) in &came {
            assert_eq!(*bytes, vec![bytes[0]; 6_000]);
            assert!(meta.contains(&format!("vlan: Some({})", bytes[0])), "its own metadata: {meta}");
            assert!(meta.contains("TcpV4") && meta.contains("1448") && meta.contains("checksum_start: 34"));
        }
        let first: Vec<u8> = came.iter().map(|(bytes, _)| bytes[0]).collect();
        assert!(first.windows(2).any(|pair| pair[0] == pair[1]), "some come twice");
        assert!(first.windows(2).any(|pair| pair[0] > pair[1]), "some are swapped");
        assert!((0..196).any(|byte| !first.contains(&byte)), "some are lost");
    }
}
