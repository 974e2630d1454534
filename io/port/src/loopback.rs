//! Two ports joined back to back, in memory: each receives what the other sends.
//!
//! Bytes are copied, as on a wire: a frame never changes pools. Each end has an eventfd, so a worker can sleep on it,
//! and all of its states can be tested.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use twinpath_frame::{Burst, CHUNK_SIZE, Checksum, Frame, HEADROOM, Pool};
use twinpath_inspect::Reason;
use twinpath_time::Instant;

use crate::{Capabilities, PortId, PortQueue, QueueInfo, Received, WaitSource};

/// Most frames in transit in one direction; a further one is dropped, as by a full ring.
pub const WIRE_FRAMES_MAX: usize = 1024;

/// A frame in transit: its bytes and the state of its checksum.
type OnWire = (Vec<u8>, Checksum);

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
}

/// One end of the pair.
#[derive(Debug)]
pub struct LoopbackPort {
    info: QueueInfo,
    incoming: Arc<Wire>,
    outgoing: Arc<Wire>,
}

/// Makes both ends.
///
/// # Errors
/// What `eventfd(2)` returns.
pub fn pair(first: PortId, second: PortId) -> std::io::Result<(LoopbackPort, LoopbackPort)> {
    let (there, back) = (Wire::new()?, Wire::new()?);
    let end = |id, incoming: &Arc<Wire>, outgoing: &Arc<Wire>| LoopbackPort {
        info: QueueInfo::new(id, 0),
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
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
}

impl WaitSource for LoopbackPort {
    fn look(&self) -> bool {
        !self.incoming.frames().is_empty()
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {
        // Level-triggered: the eventfd stays readable only while frames are waiting.
        let frames = self.incoming.frames();
        if frames.is_empty() {
            let _ = rustix::io::read(&self.incoming.ready, &mut [0u8; 8]);
        }
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
        Capabilities { frame_len_max: CHUNK_SIZE - HEADROOM, ..Capabilities::default() }
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        let counters = &self.info.counters;
        let mut received = Received::new(now, self.info.id);
        let mut frames = self.incoming.frames();
        while burst.room() > 0
            && let Some((bytes, checksum)) = frames.pop_front()
        {
            let Some(mut frame) = pool.take() else {
                counters.drops.add(Reason::PoolEmpty, 1);
                continue;
            };
            if frame.copy_from(&bytes).is_err() {
                counters.drops.add(Reason::FrameTooLarge, 1);
                pool.release(frame);
                continue;
            }
            frame.meta_mut().checksum = checksum;
            received.push(frame, bytes.len(), pool, burst);
        }
        received.count(counters);
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        for frame in burst.drain(usize::MAX) {
            let mut frames = self.outgoing.frames();
            if frames.len() < WIRE_FRAMES_MAX {
                // A wire does not transport the fact that the checksum was verified.
                let checksum = match frame.meta().checksum {
                    Checksum::Partial => Checksum::Partial,
                    Checksum::Verified | Checksum::Unverified => Checksum::Unverified,
                };
                frames.push_back((frame.bytes().to_vec(), checksum));
                self.info.counters.frames_out.add(1);
                self.info.counters.bytes_out.add(frame.len() as u64);
            } else {
                self.info.counters.drops.add(Reason::PortFull, 1);
            }
            drop(frames);
            pool.release(frame);
        }
    }

    fn flush(&mut self, _pool: &mut Pool) {
        if !self.outgoing.frames().is_empty() {
            let _ = rustix::io::write(&self.outgoing.ready, &1u64.to_ne_bytes());
        }
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
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
