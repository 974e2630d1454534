//! A port that discards what is sent and never receives.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use twinpath_frame::{Burst, CHUNK_SIZE, Frame, Pool};
use twinpath_time::Instant;

use crate::{Capabilities, PortCounters, PortId, PortQueue, WaitSource};

/// Discards and counts the frames sent.
#[derive(Debug, Default)]
pub struct NullPort {
    id: PortId,
    counters: Arc<PortCounters>,
}

impl NullPort {
    /// A null port with this number.
    #[must_use]
    pub fn new(id: PortId) -> Self {
        Self { id, counters: Arc::default() }
    }
}

impl WaitSource for NullPort {
    fn look(&self) -> bool {
        false
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl PortQueue for NullPort {
    fn id(&self) -> PortId {
        self.id
    }

    fn ifindex(&self) -> u32 {
        0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { frame_len_max: CHUNK_SIZE, ..Capabilities::default() }
    }

    fn receive(&mut self, _now: Instant, _pool: &mut Pool, _burst: &mut Burst) {}

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        self.counters.frames_out.add(burst.len() as u64);
        burst.release(usize::MAX, pool);
    }

    fn flush(&mut self, _pool: &mut Pool) {}

    fn counters(&self) -> &Arc<PortCounters> {
        &self.counters
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        Vec::new()
    }
}
