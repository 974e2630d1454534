//! Two ports joined back to back, in memory: each receives what the other sends.
//!
//! Bytes are copied, as on a wire: a frame never changes pools. Offloads, tags and chains cross as between two
//! virtual devices, if the sending end's capabilities allow it; otherwise the frame is dropped and counted. Each
//! end has an eventfd, so a worker can sleep on it, and all of its states can be tested.

mod carrier;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use twinpath_frame::{Burst, CHUNK_SIZE, Checksum, Frame, HEADROOM, Meta, Pool};
use twinpath_inspect::Reason;
use twinpath_time::Instant;

use crate::{
    Capabilities, GsoKinds, LinkState, PortCounters, PortId, PortQueue, QueueInfo, Received, WaitSource,
};

pub use carrier::LoopbackCarrier;

/// Maximum number of frames in transit in one direction. A further one is dropped, as if a ring were full.
pub const WIRE_FRAMES_MAX: usize = 1024;

/// A packet in transit: the bytes of its whole chain, and the metadata that go with them.
type OnWire = (Vec<u8>, Meta);

/// The default capabilities of an end: frames of one chunk.
const PLAIN: Capabilities = Capabilities {
    frame_len_max: CHUNK_SIZE - HEADROOM,
    super_frame_len_max: 0,
    checksum: true,
    partial_checksums: false,
    segmentation: GsoKinds { tcp: false, udp: false },
    chains: false,
    tags: true,
};

#[derive(Debug)]
struct Wire {
    frames: Mutex<VecDeque<OnWire>>,
    ready: OwnedFd,
}

impl Wire {
    fn new() -> std::io::Result<Arc<Self>> {
        let ready = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { frames: Mutex::default(), ready }))
    }

    fn frames(&self) -> std::sync::MutexGuard<'_, VecDeque<OnWire>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) -> bool {
        !self.frames().is_empty()
    }

    /// Level-triggered: the eventfd stays readable only while frames are waiting.
    fn disarm(&self) {
        let frames = self.frames();
        if frames.is_empty() {
            let _ = rustix::io::read(&self.ready, &mut [0u8; 8]);
        }
    }

    /// Makes the eventfd readable if frames are waiting.
    fn wake(&self) {
        if self.look() {
            let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
        }
    }

    /// Takes the oldest frame off the wire, and returns it with its length in bytes. Frames for which the pool has
    /// no memory are lost.
    fn take(&self, pool: &mut Pool, counters: &PortCounters) -> Option<(Frame, usize)> {
        loop {
            let (bytes, meta) = self.frames().pop_front()?;
            let Some(mut frame) = pool.copy_of([&*bytes]) else {
                counters.drops.add(Reason::PoolEmpty, 1);
                continue;
            };
            let next = frame.meta_mut().next.take();
            *frame.meta_mut() = Meta { next, ..meta };
            return Some((frame, bytes.len()));
        }
    }

    /// Puts a copy of a frame on the wire if the port can send it, and counts it. `enters`: the carrier's port to
    /// which the wire leads, or the frame's own.
    fn put(&self, frame: &Frame, enters: u16, capabilities: &Capabilities, counters: &PortCounters) {
        let len = frame.chain_len();
        if !capabilities.takes(frame) {
            let is_long = len > capabilities.frame_len_max as usize;
            let reason = if is_long { Reason::FrameTooLarge } else { Reason::OffloadRefused };
            return counters.drops.add(reason, 1);
        }
        let mut frames = self.frames();
        if frames.len() >= WIRE_FRAMES_MAX {
            return counters.drops.add(Reason::PortFull, 1);
        }
        let mut meta = Meta { port: enters, ..frame.meta().without_next() };
        if meta.checksum == Checksum::Verified {
            // A wire does not transport the fact that the checksum was verified.
            meta.checksum = Checksum::Unverified;
        }
        counters.frames_out.add(1);
        counters.bytes_out.add(len as u64);
        counters.count_super_frame_out(frame);
        frames.push_back((frame.pieces(0..usize::MAX).collect::<Vec<_>>().concat(), meta));
    }
}

/// One end of the pair.
#[derive(Debug)]
pub struct LoopbackPort {
    info: QueueInfo,
    capabilities: Capabilities,
    incoming: Arc<Wire>,
    outgoing: Arc<Wire>,
    /// The carrier's port to which it leads.
    enters: Option<u16>,
}

/// Makes both ends.
///
/// # Errors
/// What `eventfd(2)` returns.
pub fn pair(first: PortId, second: PortId) -> std::io::Result<(LoopbackPort, LoopbackPort)> {
    let (there, back) = (Wire::new()?, Wire::new()?);
    let end = |id, incoming: &Arc<Wire>, outgoing: &Arc<Wire>| LoopbackPort {
        info: QueueInfo::new(id, 0),
        capabilities: PLAIN,
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        enters: None,
    };
    Ok((end(first, &back, &there), end(second, &there, &back)))
}

impl LoopbackPort {
    /// Makes it report the index of an interface as its own.
    #[must_use]
    pub const fn on_interface(mut self, ifindex: u32) -> Self {
        self.info.ifindex = ifindex;
        self
    }

    /// Makes it send only what these capabilities allow.
    #[must_use]
    pub const fn with_capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }
}

impl WaitSource for LoopbackPort {
    fn look(&self) -> bool {
        self.incoming.look()
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {
        self.incoming.disarm();
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.incoming.ready.as_fd())
    }
}

impl PortQueue for LoopbackPort {
    fn info(&self) -> &QueueInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn changed(&mut self, link: LinkState) {
        self.capabilities.frame_len_max = link.frame_len_max();
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        let counters = &self.info.counters;
        let mut received = Received::new(now, self.info.id);
        while burst.room() > 0
            && let Some((frame, bytes)) = self.incoming.take(pool, counters)
        {
            counters.count_super_frame_in(&frame);
            received.push(frame, bytes, pool, burst);
        }
        received.count(counters);
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        for frame in burst.drain(usize::MAX) {
            let enters = self.enters.unwrap_or(frame.meta().port);
            self.outgoing.put(&frame, enters, &self.capabilities, &self.info.counters);
            pool.release(frame);
        }
    }

    fn flush(&mut self, _pool: &mut Pool) {
        self.outgoing.wake();
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use twinpath_frame::GsoKind;

    use super::*;

    #[test]
    fn frames_cross_in_order_and_wake_the_other_end() {
        let mut pool = Pool::new(8).expect("pool");
        let (mut near, mut far) =
            pair(PortId { port: 1, queue: 0 }, PortId { port: 2, queue: 0 }).expect("eventfds");
        let mut burst = Burst::new();
        for byte in 0..3u8 {
            let mut frame = pool.take().expect("free");
            frame.copy_from(&[byte]).expect("fits");
            burst.push(frame).expect("room");
        }
        assert!(far.arm() && !far.look());
        near.transmit(&mut pool, &mut burst);
        near.flush(&mut pool);
        let mut readable = [rustix::event::PollFd::new(&far.incoming.ready, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut readable, Some(&rustix::time::Timespec::default())), Ok(1));
        assert!(far.look());
        far.receive(Instant::from_nanos(5), &mut pool, &mut burst);
        far.disarm();
        let seen: Vec<_> = burst.frames().iter().map(|frame| (frame.bytes()[0], frame.meta().port)).collect();
        assert_eq!(seen, [(0, 2), (1, 2), (2, 2)]);
        burst.release(usize::MAX, &mut pool);
        assert_eq!(pool.free(), pool.frames());
    }

    #[test]
    fn super_frames_cross_whole_from_an_end_that_takes_them_and_from_no_other() {
        let mut pool = Pool::new(8).expect("pool");
        let (near, mut far) = pair(PortId::default(), PortId::default()).expect("eventfds");
        let bytes: Vec<u8> = (0..5_000).map(|at| at as u8).collect();
        let packet = |pool: &mut Pool| {
            let mut packet = pool.copy_of([&*bytes]).expect("enough frames");
            let meta = packet.meta_mut();
            (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 34, 16);
            (meta.gso.kind, meta.gso.size, meta.vlan) = (GsoKind::TcpV4, 1448, Some(100));
            packet
        };
        let send = |near: &mut LoopbackPort, pool: &mut Pool| {
            let mut burst = Burst::new();
            burst.push(packet(pool)).expect("room");
            near.transmit(pool, &mut burst);
        };
        let longer = Capabilities { frame_len_max: 9_000, ..PLAIN };
        let mut near = near.with_capabilities(longer);
        send(&mut near, &mut pool);
        assert_eq!(near.counters().drops.get(Reason::OffloadRefused), 1);
        let all = Capabilities { segmentation: GsoKinds::ALL, chains: true, ..longer };
        let mut near = near.with_capabilities(all);
        send(&mut near, &mut pool);
        let mut burst = Burst::new();
        far.receive(Instant::from_nanos(5), &mut pool, &mut burst);
        assert_eq!((near.counters().bytes_out.get(), far.counters().bytes_in.get()), (5_000, 5_000));
        let came = &burst.frames()[0];
        assert_eq!(came.pieces(0..usize::MAX).collect::<Vec<_>>().concat(), bytes);
        let meta = came.meta();
        assert_eq!((meta.checksum, meta.checksum_start, meta.checksum_offset), (Checksum::Partial, 34, 16));
        assert_eq!((meta.gso.kind, meta.gso.size, meta.vlan), (GsoKind::TcpV4, 1448, Some(100)));
        assert_eq!(meta.arrival, Instant::from_nanos(5));
        burst.release(usize::MAX, &mut pool);
        assert_eq!(pool.free(), pool.frames());
    }

    #[test]
    fn a_full_wire_drops_and_counts() {
        let mut pool = Pool::new(4).expect("pool");
        let (mut near, _far) = pair(PortId::default(), PortId::default()).expect("eventfds");
        let mut burst = Burst::new();
        for _ in 0..WIRE_FRAMES_MAX + 2 {
            burst.push(pool.take().expect("free")).expect("room");
            near.transmit(&mut pool, &mut burst);
        }
        assert_eq!(near.counters().drops.get(Reason::PortFull), 2);
        assert_eq!(pool.free(), pool.frames());
    }
}
