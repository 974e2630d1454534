//! The workers of an exception port: one per pair of queues.

use twinpath_frame::BURST_MAX;
use twinpath_host::{KnownQueue, StartError, WorkerPlan};
use twinpath_inspect::Counter;
use twinpath_observe::report;
use twinpath_port::PortCounters;
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

/// Control's handle of one worker.
pub(super) type WorkerHandle = twinpath_host::WorkerHandle<BridgeEngine>;

/// Starts a worker.
pub(super) fn start(
    number: usize,
    placement: Placement,
    idle: IdleConfig,
) -> Result<WorkerHandle, StartError> {
    let plan = WorkerPlan { number, placement, idle, pool_frames: POOL_FRAMES, mailbox_len: MAILBOX_LEN };
    WorkerHandle::start(plan, BridgeEngine::default())
}

/// A worker's queue of one side in `show interfaces`. `lost`: frames for which its socket had no room.
pub(super) fn report_queue(worker: &WorkerHandle, side: Side, lost: u64) -> Option<report::Queue> {
    let is = |queue: &&KnownQueue| Side::of(queue.id) == side;
    let queue = worker.queues().iter().find(is)?;
    Some(queue.report(worker.number(), super::PATH, worker.mode(), lost))
}

/// The sum of a counter over a worker's queues.
pub(super) fn of_queues(worker: &WorkerHandle, count: fn(&PortCounters) -> &Counter) -> u64 {
    worker.queues().iter().map(|queue| count(&queue.counters).get()).sum()
}

/// All drops of a worker and its queues.
pub(super) fn drops(worker: &WorkerHandle, name_of: impl Fn(Side) -> String) -> Vec<report::Drop> {
    let mut drops = worker.drops();
    drops.extend(worker.drops_of_queues(|id| name_of(Side::of(id))));
    drops
}
