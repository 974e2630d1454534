//! The workers of an exception port: one per pair of queues.

use twinpath_frame::BURST_MAX;
use twinpath_host::{KnownQueue, StartError, WorkerPlan};
use twinpath_inspect::Counter;
use twinpath_observe::report;
use twinpath_port::PortCounters;
use twinpath_sys::clock;
use twinpath_time::Instant;
use twinpath_vnet::QUEUE_FRAMES;
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::place::Placement;

use crate::engine::{BridgeEngine, Side};

/// Messages between control and one worker, in each direction. The only ones are attachments of two queues
/// at a time.
const MAILBOX_LEN: u32 = 64;

/// Frames of one worker's pool: the number that the queues of both sides can hold, and a burst of packets of a
/// super-frame that one side does not take whole.
///
/// (2 x (33 + 66 + 33) + 64) x 2 KiB = 0.6 MiB.
const POOL_FRAMES: u32 = 2 * QUEUE_FRAMES + BURST_MAX as u32;

/// A worker that is stuck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    /// The time since which a frame has been waiting for it.
    pub(super) since: Instant,
    /// Frames that it had dropped for this reason before.
    pub(super) dropped_before: u64,
}

/// Control's handle of one worker.
pub(super) struct WorkerHandle {
    pub(super) host: twinpath_host::WorkerHandle<BridgeEngine>,
    /// Set while it is stuck.
    pub(super) stuck: Option<Stuck>,
    pub(super) times_seen_stuck: u64,
}

impl WorkerHandle {
    pub(super) fn start(number: usize, placement: Placement, idle: IdleConfig) -> Result<Self, StartError> {
        let plan = WorkerPlan { number, placement, idle, pool_frames: POOL_FRAMES, mailbox_len: MAILBOX_LEN };
        let host = twinpath_host::WorkerHandle::start(plan, BridgeEngine::default())?;
        Ok(Self { host, stuck: None, times_seen_stuck: 0 })
    }

    /// Ends it, waits for it, and closes its descriptors. It does not wait for a stuck worker, which ends with the
    /// process: its name is returned.
    pub(super) fn stop(self) -> Option<String> {
        if self.stuck.is_some() {
            tracing::error!("{} is stuck: it is left behind", self.host.name());
            return Some(self.host.name());
        }
        self.host.stop();
        None
    }

    /// Its line of `show workers`.
    pub(super) fn report(&self, request: report::LatencyRequest) -> report::Worker {
        // The larger of control's count and its queues' counts.
        let found = self.host.queues().iter().map(|queue| queue.counters.times_stuck.get()).max();
        report::Worker {
            stuck_ms: self.stuck.map(|stuck| clock::now().since(stuck.since).as_millis() as u64),
            times_stuck: self.times_seen_stuck.max(found.unwrap_or(0)),
            ..self.host.report(request)
        }
    }

    /// Its queue of one side in `show interfaces`. `lost`: frames for which its socket had no room.
    pub(super) fn report_queue(&self, side: Side, lost: u64) -> Option<report::Queue> {
        let is = |queue: &&KnownQueue| Side::of(queue.id) == side;
        let queue = self.host.queues().iter().find(is)?;
        Some(queue.report(self.host.number(), super::PATH, self.host.mode(), lost))
    }

    /// The sum of a counter over its queues.
    pub(super) fn of_queues(&self, count: fn(&PortCounters) -> &Counter) -> u64 {
        self.host.queues().iter().map(|queue| count(&queue.counters).get()).sum()
    }

    /// All drops of the worker and its queues.
    pub(super) fn drops(&self, name_of: impl Fn(Side) -> String) -> Vec<report::Drop> {
        let mut drops = self.host.drops();
        drops.extend(self.host.drops_of_queues(|id| name_of(Side::of(id))));
        drops
    }
}
