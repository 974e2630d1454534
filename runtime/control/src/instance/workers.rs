//! The workers of an instance: started here, told here, asked here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use twinpath_command::Set;
use twinpath_frame::{Pool, PoolError, Region};
use twinpath_idle::Goal;
use twinpath_inspect::{Counter, Reason};
use twinpath_machine::Scheduling;
use twinpath_port::{PortCounters, PortId, PortQueue};
use twinpath_report as report;
use twinpath_serve::{
    Demux, DemuxCommand, Desk, Prototype, Routes, ServeCommand, ServeConfig, ServeCounters, ServeEvent, Slot,
};
use twinpath_service::ServiceCounters;
use twinpath_sys::clock;
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::mailbox::{Receiver, mailbox, mailbox_with_reserve};
use twinpath_worker::place::{self, PlaceError, Placed, Placement};
use twinpath_worker::{Command, EVENTS_RESERVE, Event, Remains, Worker, WorkerConfig, WorkerCounters};

use super::attach;
use super::stand_in::Stuck;
use crate::outbox::Outbox;

/// Messages between control and one worker, each way. Control answers each question of a worker with one update, and a
/// worker asks about at most 4096 peers per ten seconds. What does not fit waits: on control's side in its
/// [`Outbox`], on the worker's in room that only events that must arrive may use.
const MAILBOX_LEN: u32 = 1024;

/// What went wrong when starting workers.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No memory.
    #[error("worker {worker}: {source}")]
    Pool {
        /// Which worker.
        worker: usize,
        /// Why.
        source: PoolError,
    },
    /// No descriptors.
    #[error(
        "worker {worker}: cannot make its event descriptors: {source}; raise the limit of open files (ulimit -n)"
    )]
    Descriptors {
        /// Which worker.
        worker: usize,
        /// Why.
        source: rustix::io::Errno,
    },
    /// No thread, or not where it was asked for.
    #[error("{0}")]
    Place(#[from] PlaceError),
}

/// A queue as control knows it, while its worker serves it.
pub(super) struct KnownQueue {
    pub(super) id: PortId,
    pub(super) ifindex: u32,
    pub(super) counters: Arc<PortCounters>,
}

/// Control's end of one service on one worker.
pub(super) struct ServiceHandle {
    /// What the worker knows it by.
    pub(super) slot: usize,
    /// What people know it by.
    pub(super) name: String,
    pub(super) serve: Arc<ServeCounters>,
    /// What the service counts by itself.
    pub(super) service: Option<Arc<ServiceCounters>>,
    /// How many threads its pool has, if it has one.
    slow: Option<Arc<AtomicU32>>,
}

impl ServiceHandle {
    /// Threads for work that may block.
    pub(super) fn slow_threads(&self) -> u64 {
        self.slow.as_ref().map_or(0, |threads| threads.load(Ordering::Relaxed).into())
    }
}

/// A service for one worker.
pub(super) struct NewService {
    service: Slot,
    handle: ServiceHandle,
}

impl NewService {
    pub(super) fn new(slot: usize, name: &str, prototype: &dyn Prototype, config: ServeConfig) -> Self {
        let slow = config.kernel.desk.as_ref().map(Desk::threads);
        let (service, counted) = prototype.slot(config);
        let serve = Arc::clone(service.counters());
        Self { service, handle: ServiceHandle { slot, name: name.to_owned(), serve, service: counted, slow } }
    }

    /// As its worker has it, and control's end of it.
    pub(super) fn parts(self) -> (Slot, ServiceHandle) {
        (self.service, self.handle)
    }
}

/// The engine of a worker with those services, and control's ends of them.
fn engine_with(routes: Routes, services: Vec<NewService>) -> (Demux, Vec<ServiceHandle>) {
    let mut demux = Demux::new(routes);
    let mut handles = Vec::with_capacity(services.len());
    for new in services {
        let (service, handle) = new.parts();
        demux = demux.with(handle.slot, service);
        handles.push(handle);
    }
    (demux, handles)
}

/// Control's end of one worker.
pub(super) struct WorkerHandle {
    number: usize,
    cpu: Option<usize>,
    scheduling: Scheduling,
    goal: Goal,
    pub(super) outbox: Outbox<DemuxCommand>,
    pub(super) events: Receiver<Event<ServeEvent>>,
    thread: JoinHandle<Remains<Demux>>,
    pub(super) region: Arc<Region>,
    pool_frames: u32,
    pub(super) counters: Arc<WorkerCounters>,
    pub(super) services: Vec<ServiceHandle>,
    pub(super) queues: Vec<KnownQueue>,
    /// Queues that it was told to give back, and has not yet.
    leaving: Vec<PortId>,
    /// It is stuck.
    pub(super) stuck: Option<Stuck>,
    pub(super) times_seen_stuck: u64,
}

impl WorkerHandle {
    /// Starts worker `number` where `placement` says, with those services.
    pub(super) fn start(
        number: usize,
        placement: Placement,
        idle: IdleConfig,
        pool_frames: u32,
        routes: Routes,
        services: Vec<NewService>,
    ) -> Result<Self, StartError> {
        let cpu = placement.cpu;
        let descriptors = |source| StartError::Descriptors { worker: number, source };
        let pool = Pool::new(pool_frames).map_err(|source| StartError::Pool { worker: number, source })?;
        let region = Arc::clone(pool.region());
        let (commands, inbox) = mailbox(MAILBOX_LEN).map_err(descriptors)?;
        let (outbox, events) = mailbox_with_reserve(MAILBOX_LEN, EVENTS_RESERVE).map_err(descriptors)?;
        let counters = Arc::new(WorkerCounters::default());
        let (engine, services) = engine_with(routes, services);
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
            pool_frames,
            counters,
            services,
            queues: Vec::new(),
            leaving: Vec::new(),
            stuck: None,
            times_seen_stuck: 0,
        })
    }

    /// `worker 0`.
    pub(super) fn name(&self) -> String {
        format!("worker {}", self.number)
    }

    /// Tells the worker, now or as soon as its mailbox has room.
    pub(super) fn tell(&mut self, command: Command<DemuxCommand>) {
        self.outbox.tell(command);
    }

    /// Tells all its services.
    pub(super) fn tell_services(&mut self, command: ServeCommand) {
        self.tell(Command::Engine(DemuxCommand::Each(command)));
    }

    /// The service in that slot.
    pub(super) fn service(&self, slot: usize) -> Option<&ServiceHandle> {
        self.services.iter().find(|service| service.slot == slot)
    }

    /// How often something was dropped for a reason, by whichever service.
    pub(super) fn dropped(&self, reason: Reason) -> u64 {
        let own = self.services.iter().map(|service| service.serve.drops.get(reason)).sum::<u64>();
        own + self.counters.drops.get(reason)
    }

    /// Over all its services.
    fn sum(&self, count: fn(&ServeCounters) -> &Counter) -> u64 {
        self.services.iter().map(|service| count(&service.serve).get()).sum()
    }

    /// Gives it a queue to serve.
    pub(super) fn attach(&mut self, placed: attach::Placed) {
        let queue = placed.queue;
        let counters = Arc::clone(queue.counters());
        self.queues.push(KnownQueue { id: queue.id(), ifindex: queue.ifindex(), counters });
        self.tell(Command::Attach(queue));
    }

    /// Takes back every queue of an interface; each comes as an event, to be closed.
    pub(super) fn detach(&mut self, ifindex: u32) {
        let leave = self.queues.extract_if(.., |queue| queue.ifindex == ifindex);
        self.leaving.extend(leave.map(|queue| queue.id));
        self.tell(Command::Detach { ifindex });
    }

    /// Closes a queue that it has given back, whether it was told to or the device went, and sends the frames home.
    pub(super) fn close(&mut self, queue: Box<dyn PortQueue>) {
        let id = queue.id();
        self.leaving.retain(|leaving| *leaving != id);
        self.queues.retain(|known| known.id != id);
        let frames = queue.close();
        if !frames.is_empty() {
            self.tell(Command::Frames(frames));
        }
    }

    /// Queues that it has yet to give back.
    pub(super) fn leaving(&self) -> usize {
        self.leaving.len()
    }

    pub(super) fn set(&mut self, change: Set) {
        if let Some(mode) = change.mode {
            self.tell(Command::SetMode(mode));
        }
        if let Some(goal) = change.goal() {
            self.tell(Command::SetGoal(goal));
            self.goal = goal;
        }
    }

    /// Ends it, waits for it, and closes what it leaves. One that is stuck is not waited for: it ends with the process.
    pub(super) fn stop(mut self) {
        if self.stuck.is_some() {
            tracing::error!("{} is stuck: it is left behind", self.name());
            return;
        }
        // A mailbox without a sender says that the worker is to stop, whether there is room for a message or not.
        drop(self.outbox);
        // A panic there would have ended the process.
        let Ok(Remains { ports, mut pool, engine }) = self.thread.join() else { return };
        drop(engine);
        for port in ports {
            port.close().into_iter().for_each(|frame| pool.release(frame));
        }
        while let Some(event) = self.events.take() {
            if let Event::Detached(port) = event {
                port.close().into_iter().for_each(|frame| pool.release(frame));
            }
        }
    }

    pub(super) fn mode(&self) -> Mode {
        Mode::ALL.get(self.counters.mode.get() as usize).copied().unwrap_or_default()
    }

    /// How often the kernel stopped claiming for it: what we saw or, if more, what one of its queues found when it moved on.
    fn times_stuck(&self) -> u64 {
        let found = self.queues.iter().map(|queue| queue.counters.times_stuck.get()).max();
        self.times_seen_stuck.max(found.unwrap_or(0))
    }

    pub(super) fn pool_bytes(&self) -> u64 {
        self.region.len() as u64
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
            stuck_ms: self.stuck.map(|stuck| clock::now().since(stuck.since).as_millis() as u64),
            times_stuck: self.times_stuck(),
            connections: self.sum(|serve| &serve.connections),
            kernel_requests: self.sum(|serve| &serve.kernel_requests),
            kernel_replies: self.sum(|serve| &serve.kernel_replies),
            pool_mib: self.pool_bytes() as f64 / f64::from(1 << 20),
            pool_frames: self.pool_frames,
            ..report::Worker::of(counters, self.mode(), self.goal, request)
        }
    }

    /// Everything it and its ports dropped, by service where it has several.
    pub(super) fn drops(&self, interface: &str) -> Vec<report::Drop> {
        let mut drops = Vec::new();
        let mut add = |place: &str, reason: &str, count: u64| {
            if count > 0 {
                drops.push(report::Drop { place: place.to_owned(), reason: reason.to_owned(), count });
            }
        };
        let place = self.name();
        for (reason, count) in self.counters.drops.happened() {
            add(&place, reason.name(), count);
        }
        add(&place, "control_mailbox_full", self.outbox.delayed.get());
        for ServiceHandle { name, serve, service, .. } in &self.services {
            let place = match self.services.as_slice() {
                [_] => place.clone(),
                _ => format!("{place} {name}"),
            };
            for (reason, count) in serve.drops.happened() {
                add(&place, reason.name(), count);
            }
            for (reason, count) in service.iter().flat_map(|service| service.refusals()) {
                add(&place, reason.name(), count);
            }
            add(&place, "egress_table_full", serve.peers_overflow.get());
        }
        for queue in &self.queues {
            let place = format!("{interface} queue {}", queue.id.queue);
            for (reason, count) in queue.counters.drops.happened() {
                add(&place, reason.name(), count);
            }
            add(&place, "ring_full", queue.counters.ring_full.get());
            add(&place, "device_errors", queue.counters.errors.get());
        }
        drops
    }
}

#[cfg(test)]
mod tests;
