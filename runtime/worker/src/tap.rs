//! Taps: copies of frames for somebody who looks on. A tap never holds a worker up: what does not fit into its ring is
//! counted and not seen.

use std::sync::Arc;

use twinpath_filter::Filter;
use twinpath_frame::Frame;
use twinpath_inspect::Counter;
use twinpath_port::PortQueue;
use twinpath_rings::slots::{Note, SlotProducer};
use twinpath_sys::{EventFd, clock};
use twinpath_time::Instant;

/// Taps on one worker at a time; control refuses one more.
pub const TAPS_MAX: usize = 4;

/// In [`Note::tag`]: the frame was sent; without it, received. The number of the queue stands in the lower 16 bits.
pub const SENT: u32 = 1 << 16;

/// What a tap counts; written by its worker.
#[derive(Debug, Default)]
pub struct TapCounters {
    /// Frames that the filter wanted.
    pub wanted: Counter,
    /// Wanted frames for which the ring had no room.
    pub missed: Counter,
}

/// One who looks on.
#[derive(Debug)]
pub struct Tap {
    /// Which capture it belongs to.
    pub id: u32,
    /// What it wants to see.
    pub filter: Filter,
    /// Where copies go; what is longer than a slot is cut.
    pub ring: SlotProducer,
    /// Who takes them sleeps on this.
    pub wake: Arc<EventFd>,
    /// What it counts.
    pub counters: Arc<TapCounters>,
}

/// The taps of one worker.
#[derive(Debug)]
#[allow(clippy::vec_box, reason = "a box comes from control and goes back to it: the worker frees nothing")]
pub(crate) struct Taps(Vec<Box<Tap>>);

impl Taps {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(TAPS_MAX))
    }

    /// # Errors
    /// Gives it back when there are as many as there may be.
    pub(crate) fn add(&mut self, tap: Box<Tap>) -> Result<(), Box<Tap>> {
        if self.0.len() == TAPS_MAX {
            return Err(tap);
        }
        self.0.push(tap);
        Ok(())
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Box<Tap>> {
        let at = self.0.iter().position(|tap| tap.id == id)?;
        Some(self.0.remove(at))
    }

    /// Shows what was received on `queue`. One branch while nobody looks on.
    #[inline]
    pub(crate) fn received(&mut self, now: Instant, queue: &dyn PortQueue, frames: &[Frame]) {
        if !self.0.is_empty() {
            self.show(now, u32::from(queue.id().queue), frames);
        }
    }

    /// Shows what is about to be sent by `queue`.
    #[inline]
    pub(crate) fn sent(&mut self, queue: &dyn PortQueue, frames: &[Frame]) {
        if !self.0.is_empty() {
            self.show(clock::now(), u32::from(queue.id().queue) | SENT, frames);
        }
    }

    #[cold]
    fn show(&mut self, now: Instant, tag: u32, frames: &[Frame]) {
        for tap in &mut self.0 {
            let cut = tap.ring.shape().slot_bytes() as usize;
            let mut wanted = 0;
            for bytes in frames.iter().map(Frame::bytes).filter(|bytes| tap.filter.wants(bytes)) {
                wanted += 1;
                let note = Note { original_len: bytes.len() as u32, time_ns: now.as_nanos(), tag };
                if tap.ring.push(note, &bytes[..bytes.len().min(cut)]).is_err() {
                    tap.counters.missed.add(1);
                }
            }
            tap.counters.wanted.add(wanted);
            if wanted > 0 && tap.ring.consumer_waits() {
                tap.wake.signal();
            }
        }
    }
}
