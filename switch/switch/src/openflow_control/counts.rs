//! What a port has counted, also by queues that it had before.

use std::sync::Arc;

use twinpath_inspect::Reason;
use twinpath_port::PortCounters;

/// Frames and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames received.
    pub frames_in: u64,
    /// Bytes of them.
    pub bytes_in: u64,
    /// Frames sent.
    pub frames_out: u64,
    /// Bytes of them.
    pub bytes_out: u64,
    /// The packets that the frames received are on a wire.
    pub packets_in: u64,
    /// The packets that the frames sent are on a wire.
    pub packets_out: u64,
    /// Frames dropped that came in, by the kernel for want of room as well.
    pub dropped_in: u64,
    /// Frames dropped that were to leave.
    pub dropped_out: u64,
    /// Errors that the kernel has reported.
    pub errors: u64,
}

/// Whether a port drops frames for that reason when they are to leave by it; for the others it does when they come in.
const fn is_of_output(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::PortFull
            | Reason::HandoffFull
            | Reason::PoolEmpty
            | Reason::OffloadRefused
            | Reason::KernelSocketFull
            | Reason::KernelSocketRefused
    )
}

impl Counts {
    /// With those of a queue.
    #[must_use]
    pub fn with(self, counters: &PortCounters) -> Self {
        let dropped = |of_output| {
            let happened = counters.drops.happened().filter(|(reason, _)| is_of_output(*reason) == of_output);
            happened.map(|(_, count)| count).sum::<u64>()
        };
        Self {
            frames_in: self.frames_in + counters.frames_in.get(),
            bytes_in: self.bytes_in + counters.bytes_in.get(),
            frames_out: self.frames_out + counters.frames_out.get(),
            bytes_out: self.bytes_out + counters.bytes_out.get(),
            packets_in: self.packets_in + counters.packets_in(),
            packets_out: self.packets_out + counters.packets_out(),
            dropped_in: self.dropped_in + dropped(false) + counters.ring_full.get(),
            dropped_out: self.dropped_out + dropped(true),
            errors: self.errors + counters.errors.get(),
        }
    }
}

/// Where a port counts.
#[derive(Clone, Debug, Default)]
pub struct PortCounts {
    /// What queues that it had before have counted.
    pub before: Counts,
    /// Its queues now.
    pub queues: Vec<Arc<PortCounters>>,
}
