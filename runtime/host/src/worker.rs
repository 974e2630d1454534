//! Control's end of one worker, whichever engine it runs.

use std::sync::Arc;
use std::thread::JoinHandle;

use twinpath_frame::{Pool, PoolError, Region};
use twinpath_idle::Goal;
use twinpath_inspect::Counter;
use twinpath_machine::Scheduling;
use twinpath_port::{PortCounters, PortId, PortQueue};
use twinpath_report as report;
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::mailbox::{Receiver, mailbox, mailbox_with_reserve};
use twinpath_worker::place::{PlaceError, Placed, Placement};
use twinpath_worker::{Command, EVENTS_RESERVE, Event, Remains, Worker, WorkerConfig, WorkerCounters};

use crate::engines::Hosted;
use crate::outbox::Outbox;

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

/// What a worker is to be, beside its engine.
#[derive(Debug)]
pub struct WorkerPlan {
    /// Its number, from 0.
    pub number: usize,
    /// Where and how it runs.
    pub placement: Placement,
    /// How it idles.
    pub idle: IdleConfig,
    /// Frames of its pool.
    pub pool_frames: u32,
    /// Messages between control and it, each way.
    pub mailbox_len: u32,
}

/// A queue as control knows it, while its worker serves it.
#[derive(Debug)]
pub struct KnownQueue {
    /// Its name.
    pub id: PortId,
    /// Kernel index of its interface.
    pub ifindex: u32,
    /// Its counters.
    pub counters: Arc<PortCounters>,
}

impl KnownQueue {
    /// What `show interfaces` says of it, as a queue of that worker; `lost` is what the kernel had no room for beside what it counts.
    #[must_use]
    pub fn report(&self, worker: usize, path: &str, mode: Mode, lost: u64) -> report::Queue {
        let counters = &*self.counters;
        report::Queue {
            queue: u32::from(self.id.queue),
            worker: worker as u32,
            path: path.to_owned(),
            mode: mode.name().to_owned(),
            frames_in: counters.frames_in.get(),
            frames_out: counters.frames_out.get(),
            bytes_in: counters.bytes_in.get(),
            bytes_out: counters.bytes_out.get(),
            frames_direct: counters.frames_direct.get(),
            direct_opened: counters.direct_opened.get(),
            packets_in: counters.packets_in(),
            packets_out: counters.packets_out(),
            frames_joined: counters.frames_joined.get(),
            super_frames_refused: counters.super_frames_refused.get(),
            kicks: counters.kicks.get(),
            ring_full: counters.ring_full.get() + lost,
        }
    }
}

/// Control's end of one worker.
pub struct WorkerHandle<E: Hosted> {
    number: usize,
    cpu: Option<usize>,
    scheduling: Scheduling,
    goal: Goal,
    outbox: Outbox<E::Command>,
    /// What it says; readable when it has said something.
    pub events: Receiver<Event<E::Event>>,
    thread: JoinHandle<Remains<E>>,
    /// The memory of its frames.
    pub region: Arc<Region>,
    pool_frames: u32,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    queues: Vec<KnownQueue>,
    /// Queues that it was told to give back, and has not yet.
    leaving: Vec<PortId>,
}

impl<E: Hosted> WorkerHandle<E> {
    /// Starts a worker with that engine.
    ///
    /// # Errors
    /// [`StartError`]; there is no thread then.
    pub fn start(plan: WorkerPlan, engine: E) -> Result<Self, StartError> {
        let WorkerPlan { number, placement, idle, pool_frames, mailbox_len } = plan;
        let cpu = placement.cpu;
        let descriptors = |source| StartError::Descriptors { worker: number, source };
        let pool = Pool::new(pool_frames).map_err(|source| StartError::Pool { worker: number, source })?;
        let region = Arc::clone(pool.region());
        let (commands, inbox) = mailbox(mailbox_len).map_err(descriptors)?;
        let (outbox, events) = mailbox_with_reserve(mailbox_len, EVENTS_RESERVE).map_err(descriptors)?;
        let counters = Arc::new(WorkerCounters::default());
        let worker = Worker::new(&WorkerConfig { idle }, engine, pool, inbox, outbox, Arc::clone(&counters))
            .map_err(descriptors)?;
        let asked = placement.priority;
        let Placed { thread, priority, shares } = E::spawn(worker, number as u32, placement)?;
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
            queues: Vec::new(),
            leaving: Vec::new(),
        })
    }

    /// Its number, from 0.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }

    /// `worker 0`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("worker {}", self.number)
    }

    /// Tells the worker, now or as soon as its mailbox has room.
    pub fn tell(&mut self, command: Command<E::Command>) {
        self.outbox.tell(command);
    }

    /// Wakes the worker, with a message that asks for nothing: one that is not stuck turns.
    pub fn wake(&mut self) {
        self.tell(Command::Frames(Vec::new()));
    }

    /// Says what waits for room in its mailbox. Says whether nothing waits any more.
    pub fn flush(&mut self) -> bool {
        self.outbox.flush()
    }

    /// Commands that found its mailbox full and had to wait.
    #[must_use]
    pub fn delayed(&self) -> u64 {
        self.outbox.delayed.get()
    }

    /// The queues that it serves.
    #[must_use]
    pub fn queues(&self) -> &[KnownQueue] {
        &self.queues
    }

    /// Gives it a queue to serve.
    pub fn attach(&mut self, queue: Box<dyn PortQueue>) {
        let counters = Arc::clone(queue.counters());
        self.queues.push(KnownQueue { id: queue.id(), ifindex: queue.ifindex(), counters });
        self.tell(Command::Attach(queue));
    }

    /// Takes back every queue of an interface; each comes as an event, to be closed.
    pub fn detach(&mut self, ifindex: u32) {
        let leave = self.queues.extract_if(.., |queue| queue.ifindex == ifindex);
        self.leaving.extend(leave.map(|queue| queue.id));
        self.tell(Command::Detach { ifindex });
    }

    /// Closes a queue that it has given back, whether it was told to or the device went, and sends the frames home.
    pub fn close(&mut self, queue: Box<dyn PortQueue>) {
        let id = queue.id();
        self.leaving.retain(|leaving| *leaving != id);
        self.queues.retain(|known| known.id != id);
        let frames = queue.close();
        if !frames.is_empty() {
            self.tell(Command::Frames(frames));
        }
    }

    /// Queues that it has yet to give back.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Changes how it idles.
    pub fn set(&mut self, mode: Option<Mode>, goal: Option<Goal>) {
        if let Some(mode) = mode {
            self.tell(Command::SetMode(mode));
        }
        if let Some(goal) = goal {
            self.tell(Command::SetGoal(goal));
            self.goal = goal;
        }
    }

    /// Ends it, waits for it, and closes what it leaves.
    pub fn stop(mut self) {
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

    /// How it idles now.
    #[must_use]
    pub fn mode(&self) -> Mode {
        Mode::ALL.get(self.counters.mode.get() as usize).copied().unwrap_or_default()
    }

    /// Its goal in mode `adaptive`.
    #[must_use]
    pub const fn goal(&self) -> Goal {
        self.goal
    }

    /// Bytes of its frames.
    #[must_use]
    pub fn pool_bytes(&self) -> u64 {
        self.region.len() as u64
    }

    /// What `show workers` says of it; what its engine does is for the caller to add.
    #[must_use]
    pub fn report(&self, request: report::LatencyRequest) -> report::Worker {
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
            pool_frames: self.pool_frames,
            ..report::Worker::of(counters, self.mode(), self.goal, request)
        }
    }

    /// What it dropped by itself, and what waited for room in its mailbox.
    #[must_use]
    pub fn drops(&self) -> Vec<report::Drop> {
        let place = self.name();
        let happened = self.counters.drops.happened().map(|(reason, count)| (reason.name(), count));
        rows(&place, happened.chain([("control_mailbox_full", self.delayed())])).collect()
    }

    /// What its queues dropped; `interface` names that of a queue.
    #[must_use]
    pub fn drops_of_queues(&self, interface: impl Fn(PortId) -> String) -> Vec<report::Drop> {
        let of = |queue: &KnownQueue| {
            let place = format!("{} queue {}", interface(queue.id), queue.id.queue);
            let happened = queue.counters.drops.happened().map(|(reason, count)| (reason.name(), count));
            let kernel = [
                ("ring_full", queue.counters.ring_full.get()),
                ("device_errors", queue.counters.errors.get()),
            ];
            rows(&place, happened.chain(kernel)).collect::<Vec<_>>()
        };
        self.queues.iter().flat_map(of).collect()
    }
}

/// What happened at a place, as `show drops` says it; what never did is left out.
pub fn rows<'a>(
    place: &str,
    counts: impl Iterator<Item = (&'a str, u64)>,
) -> impl Iterator<Item = report::Drop> {
    counts.filter(|(_, count)| *count > 0).map(move |(reason, count)| report::Drop {
        place: place.to_owned(),
        reason: reason.to_owned(),
        count,
    })
}
