//! The workers of an exception port: one per pair of queues.

use std::sync::Arc;
use std::thread::JoinHandle;

use twinpath_bridge::{BridgeCounters, BridgeEngine, Side};
use twinpath_command::Set;
use twinpath_frame::{Pool, Region};
use twinpath_idle::Goal;
use twinpath_inspect::Counter;
use twinpath_machine::Scheduling;
use twinpath_port::{PortCounters, PortId, PortQueue};
use twinpath_port_vnet::QUEUE_FRAMES;
use twinpath_report as report;
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::mailbox::{Receiver, mailbox, mailbox_with_reserve};
use twinpath_worker::place::{self, Placed, Placement};
use twinpath_worker::{Command, EVENTS_RESERVE, Event, Remains, Worker, WorkerConfig, WorkerCounters};

use crate::instance::StartError;
use crate::outbox::Outbox;

/// Messages between control and one worker, each way: an attachment of two queues at a time is all that is ever said.
const MAILBOX_LEN: u32 = 64;

/// Frames of one worker's pool: what the queues of both sides may have in hand.
///
/// (2 x (33 + 66 + 33)) x 2 KiB = 0.5 MiB.
const POOL_FRAMES: u32 = 2 * QUEUE_FRAMES;

/// A queue as control knows it, while its worker serves it.
pub(super) struct KnownQueue {
    pub(super) id: PortId,
    counters: Arc<PortCounters>,
}

/// Control's end of one worker.
pub(super) struct WorkerHandle {
    number: usize,
    cpu: Option<usize>,
    scheduling: Scheduling,
    goal: Goal,
    pub(super) outbox: Outbox<()>,
    pub(super) events: Receiver<Event<()>>,
    thread: JoinHandle<Remains<BridgeEngine>>,
    region: Arc<Region>,
    pub(super) counters: Arc<WorkerCounters>,
    pub(super) bridge: Arc<BridgeCounters>,
    queues: Vec<KnownQueue>,
}

impl WorkerHandle {
    pub(super) fn start(number: usize, placement: Placement, idle: IdleConfig) -> Result<Self, StartError> {
        let cpu = placement.cpu;
        let descriptors = |source| StartError::Descriptors { worker: number, source };
        let pool = Pool::new(POOL_FRAMES).map_err(|source| StartError::Pool { worker: number, source })?;
        let region = Arc::clone(pool.region());
        let (commands, inbox) = mailbox(MAILBOX_LEN).map_err(descriptors)?;
        let (outbox, events) = mailbox_with_reserve(MAILBOX_LEN, EVENTS_RESERVE).map_err(descriptors)?;
        let (counters, bridge) = (Arc::new(WorkerCounters::default()), Arc::new(BridgeCounters::default()));
        let engine = BridgeEngine::new(Arc::clone(&bridge));
        let worker = Worker::new(&WorkerConfig { idle }, engine, pool, inbox, outbox, Arc::clone(&counters))
            .map_err(descriptors)?;
        let asked = placement.priority;
        let Placed { thread, priority, shares } = place::spawn(worker, number as u32, placement)?;
        let scheduling = Scheduling::told(number, asked, priority, shares);
        Ok(Self {
            number,
            cpu,
            scheduling,
            goal: idle.goal,
            outbox: Outbox::new(commands),
            events,
            thread,
            region,
            counters,
            bridge,
            queues: Vec::new(),
        })
    }

    /// Gives it a queue to serve.
    pub(super) fn attach(&mut self, queue: Box<dyn PortQueue>) {
        self.queues.push(KnownQueue { id: queue.id(), counters: Arc::clone(queue.counters()) });
        self.outbox.tell(Command::Attach(queue));
    }

    /// Takes back the queue of one side, if it still has it; it comes as an event, to be closed.
    pub(super) fn detach(&mut self, side: Side, ifindex: u32) {
        self.queues.retain(|queue| Side::of(queue.id) != side);
        self.outbox.tell(Command::Detach { ifindex });
    }

    pub(super) fn set(&mut self, change: Set) {
        if let Some(mode) = change.mode {
            self.outbox.tell(Command::SetMode(mode));
        }
        if let Some(goal) = change.goal() {
            self.outbox.tell(Command::SetGoal(goal));
            self.goal = goal;
        }
    }

    /// A queue has come back: closes it, and sends its frames home.
    pub(super) fn close(&mut self, queue: Box<dyn PortQueue>) {
        let id = queue.id();
        self.queues.retain(|known| known.id != id);
        let frames = queue.close();
        if !frames.is_empty() {
            self.outbox.tell(Command::Frames(frames));
        }
    }

    /// Ends it, waits for it, and closes what it leaves.
    pub(super) fn stop(mut self) {
        // A mailbox without a sender says that the worker is to stop, whether there is room for a message or not.
        drop(self.outbox);
        // A panic there would have ended the process.
        let Ok(Remains { ports, mut pool, .. }) = self.thread.join() else { return };
        for port in ports {
            port.close().into_iter().for_each(|frame| pool.release(frame));
        }
        while let Some(event) = self.events.take() {
            if let Event::Detached(port) = event {
                port.close().into_iter().for_each(|frame| pool.release(frame));
            }
        }
    }

    fn mode(&self) -> Mode {
        Mode::ALL.get(self.counters.mode.get() as usize).copied().unwrap_or_default()
    }

    pub(super) fn pool_bytes(&self) -> u64 {
        self.region.len() as u64
    }

    /// What `show interfaces` says of its queue on one side. `lost` is what its socket had no room for.
    pub(super) fn report_queue(&self, side: Side, lost: u64) -> Option<report::Queue> {
        let queue = self.queues.iter().find(|queue| Side::of(queue.id) == side)?;
        Some(report::Queue {
            queue: u32::from(queue.id.queue),
            worker: self.number as u32,
            path: super::PATH.to_owned(),
            mode: self.mode().name().to_owned(),
            frames_in: queue.counters.frames_in.get(),
            frames_out: queue.counters.frames_out.get(),
            bytes_in: queue.counters.bytes_in.get(),
            bytes_out: queue.counters.bytes_out.get(),
            frames_joined: queue.counters.frames_joined.get(),
            super_frames_refused: queue.counters.super_frames_refused.get(),
            kicks: queue.counters.kicks.get(),
            ring_full: queue.counters.ring_full.get() + lost,
        })
    }

    /// What `show workers` says of it.
    pub(super) fn report(&self, request: report::LatencyRequest) -> report::Worker {
        let counters = &*self.counters;
        let sum = |count: fn(&PortCounters) -> &Counter| {
            self.queues.iter().map(|queue| count(&queue.counters).get()).sum::<u64>()
        };
        report::Worker {
            worker: self.number as u32,
            cpu: self.cpu.map(|cpu| cpu as u32),
            priority: self.scheduling.priority(counters).to_string(),
            priority_why: self.scheduling.why(counters, self.mode()),
            guard: self.scheduling.guard(counters),
            frames_in: sum(|port| &port.frames_in),
            frames_out: sum(|port| &port.frames_out),
            pool_mib: self.pool_bytes() as f64 / f64::from(1 << 20),
            pool_frames: POOL_FRAMES,
            ..report::Worker::of(counters, self.mode(), self.goal, request)
        }
    }

    /// Everything it and its queues dropped.
    pub(super) fn drops(&self, name_of: impl Fn(Side) -> String) -> Vec<report::Drop> {
        let mut drops = Vec::new();
        let mut add = |place: &str, reason: &str, count: u64| {
            if count > 0 {
                drops.push(report::Drop { place: place.to_owned(), reason: reason.to_owned(), count });
            }
        };
        let place = format!("worker {}", self.number);
        for (reason, count) in self.counters.drops.happened() {
            add(&place, reason.name(), count);
        }
        add(&place, "control_mailbox_full", self.outbox.delayed.get());
        for queue in &self.queues {
            let place = format!("{} queue {}", name_of(Side::of(queue.id)), queue.id.queue);
            for (reason, count) in queue.counters.drops.happened() {
                add(&place, reason.name(), count);
            }
            add(&place, "device_errors", queue.counters.errors.get());
        }
        drops
    }
}
