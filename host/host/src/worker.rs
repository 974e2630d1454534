//! Control's handle of one worker, with any engine.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use twinpath_frame::{Pool, PoolError, Region};
use twinpath_idle::Goal;
use twinpath_inspect::{ControlReason, Reason};
use twinpath_observe::report;
use twinpath_port::{CarriedPort, PortCounters, PortCounts, PortId, PortQueue};
use twinpath_sys::clock;
use twinpath_time::Instant;
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::mailbox::{Receiver, mailbox, mailbox_with_reserve};
use twinpath_worker::peers::Peers;
use twinpath_worker::place::{PlaceError, Placed, Placement};
use twinpath_worker::{
    Command, EVENTS_RESERVE, Engine, Event, Hosted, Remains, Worker, WorkerConfig, WorkerCounters,
};

use crate::machine::Scheduling;
use crate::outbox::Outbox;
use crate::stuck::{StuckChange, StuckState};

/// Maximum interval between checks whether a worker that was told to end has ended.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);

/// Why a worker could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no memory for its frames.
    #[error("worker {worker}: {source}")]
    Pool {
        /// The number of the worker.
        worker: usize,
        /// The error.
        source: PoolError,
    },
    /// There is no descriptor left.
    #[error(
        "worker {worker}: cannot make its event descriptors: {source}; raise the limit of open files (ulimit -n)"
    )]
    Descriptors {
        /// The number of the worker.
        worker: usize,
        /// The error.
        source: Errno,
    },
    /// Its thread could not be started or placed.
    #[error("{0}")]
    Place(#[from] PlaceError),
}

/// The properties of a worker, beside its engine.
#[derive(Debug)]
pub struct WorkerPlan {
    /// Its number, from 0.
    pub number: usize,
    /// The CPU and priority of its thread.
    pub placement: Placement,
    /// How it idles.
    pub idle: IdleConfig,
    /// Frames of its pool.
    pub pool_frames: u32,
    /// Messages that each direction of its mailbox holds.
    pub mailbox_len: u32,
}

/// Control's record of a queue that a worker serves.
#[derive(Debug)]
pub struct KnownQueue {
    /// Its identity in the worker.
    pub id: PortId,
    /// The kernel's index of its interface.
    pub ifindex: u32,
    /// Its counters.
    pub counters: Arc<PortCounters>,
}

impl KnownQueue {
    /// Its row in `show interfaces`, as a queue of worker `worker`. `lost` are frames that the kernel had
    /// no room for, in addition to those that its counters have.
    #[must_use]
    pub fn report(&self, worker: usize, path: &str, mode: Mode, lost: u64) -> report::Queue {
        let counts = self.counters.counts();
        report::Queue {
            queue: u32::from(self.id.queue),
            worker: worker as u32,
            path: path.to_owned(),
            mode: mode.name().to_owned(),
            counts: PortCounts { ring_full: counts.ring_full + lost, ..counts },
        }
    }
}

/// Control's handle of one worker.
pub struct WorkerHandle<E: Hosted> {
    number: usize,
    cpu: Option<usize>,
    scheduling: Scheduling,
    goal: Goal,
    outbox: Outbox<E::Command>,
    /// The worker's events; the descriptor is readable when there are some.
    pub events: Receiver<Event<E::Event>>,
    thread: JoinHandle<Remains<E>>,
    /// The memory of its frames.
    pub region: Arc<Region>,
    pool_frames: u32,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    queues: Vec<KnownQueue>,
    /// Queues that it was told to return, and has not returned yet.
    leaving: Vec<PortId>,
    stuck: StuckState,
}

/// A worker as the control loop needs it, whatever its engine.
pub trait Supervised {
    /// Readable when it has sent something.
    fn events(&self) -> BorrowedFd<'_>;
    /// Its counters.
    fn counters(&self) -> &WorkerCounters;
    /// [`WorkerHandle::wake`]
    fn wake(&mut self);
    /// [`WorkerHandle::flush`]
    fn flush(&mut self) -> bool;
}

impl<E: Hosted> Supervised for WorkerHandle<E> {
    fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn counters(&self) -> &WorkerCounters {
        &self.counters
    }

    fn wake(&mut self) {
        Self::wake(self);
    }

    fn flush(&mut self) -> bool {
        Self::flush(self)
    }
}

impl<E: Hosted> WorkerHandle<E> {
    /// Starts a worker with that engine.
    ///
    /// # Errors
    ///
    /// [`StartError`]; no thread is left then.
    pub fn start(plan: WorkerPlan, engine: E) -> Result<Self, StartError> {
        Self::start_among(plan, engine, None)
    }

    /// Starts a worker that may hand frames over to the other workers of its instance, for ports that those
    /// have ([`Command::PortElsewhere`] tells which). `peers`: its part of a
    /// [`mesh`](twinpath_worker::peers::mesh).
    ///
    /// # Errors
    ///
    /// [`StartError`]; no thread is left then.
    pub fn start_among(plan: WorkerPlan, engine: E, peers: Option<Peers>) -> Result<Self, StartError> {
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
        let worker = match peers {
            Some(peers) => worker.with_peers(peers).map_err(descriptors)?,
            None => worker,
        };
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
            stuck: StuckState::default(),
        })
    }

    /// Its number, from 0.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }

    /// Its name in reports, such as `worker 0`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("worker {}", self.number)
    }

    /// Sends a command, now or as soon as the mailbox has room.
    pub fn tell(&mut self, command: Command<E::Command>) {
        self.outbox.tell(command);
    }

    /// Commands that had to wait because its mailbox was full.
    #[must_use]
    pub fn delayed(&self) -> u64 {
        self.outbox.delayed.get()
    }

    /// Wakes the worker by an empty message: unless it is stuck, it turns.
    pub fn wake(&mut self) {
        self.tell(Command::Frames(Vec::new()));
    }

    /// Sends the waiting commands while its mailbox has room. Returns whether none waits any more.
    pub fn flush(&mut self) -> bool {
        self.outbox.flush()
    }

    /// The queues that it serves.
    #[must_use]
    pub fn queues(&self) -> &[KnownQueue] {
        &self.queues
    }

    /// Gives it a queue to serve, with the ports that the queue already carries.
    pub fn attach(&mut self, mut queue: Box<dyn PortQueue>) {
        let (id, counters) = (queue.id(), Arc::clone(queue.counters()));
        self.queues.push(KnownQueue { id, ifindex: queue.ifindex(), counters });
        if let Some(carrier) = queue.carrier() {
            let carried = carrier.ports().all().iter().map(|port| {
                let counters = Arc::clone(&port.counters);
                KnownQueue { id: port.id(id.queue), ifindex: port.ifindex, counters }
            });
            self.queues.extend(carried);
        }
        self.tell(Command::Attach(queue));
    }

    /// Lets one of its queues carry a further port.
    pub fn add_port(&mut self, carrier: PortId, port: CarriedPort) {
        let counters = Arc::clone(&port.counters);
        self.queues.push(KnownQueue { id: port.id(carrier.queue), ifindex: port.ifindex, counters });
        self.tell(Command::AddPort { carrier, port: Box::new(port) });
    }

    /// Removes a port from the queue that carries it; the port is returned by an event.
    pub fn remove_port(&mut self, port: u16) {
        self.tell(Command::RemovePort(port));
    }

    /// A port is no longer carried by its queue.
    pub fn port_removed(&mut self, id: PortId) {
        self.queues.retain(|known| known.id != id);
    }

    /// Tells it to return every queue of an interface. Each is returned by an event, and must then be
    /// closed.
    pub fn detach(&mut self, ifindex: u32) {
        let leave = self.queues.extract_if(.., |queue| queue.ifindex == ifindex);
        self.leaving.extend(leave.map(|queue| queue.id));
        self.tell(Command::Detach { ifindex });
    }

    /// Takes back one queue, which is returned by an event, and must then be closed.
    pub fn detach_queue(&mut self, id: PortId) {
        let leave = self.queues.extract_if(.., |queue| queue.id == id);
        self.leaving.extend(leave.map(|queue| queue.id));
        self.tell(Command::DetachQueue(id));
    }

    /// Closes a queue that it has returned, and releases the queue's frames to its pool.
    pub fn close(&mut self, queue: Box<dyn PortQueue>) {
        let id = queue.id();
        self.leaving.retain(|leaving| *leaving != id);
        self.queues.retain(|known| known.id != id);
        let frames = queue.close();
        if !frames.is_empty() {
            self.tell(Command::Frames(frames));
        }
    }

    /// The number of queues that it was told to return, and has not returned yet.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Lets it measure the CPU time of each turn from now on, or stops that.
    pub fn time_turns(&mut self, on: bool) {
        self.tell(Command::TimeTurns(on));
    }

    /// Changes its mode and goal.
    pub fn set(&mut self, mode: Option<Mode>, goal: Option<Goal>) {
        if let Some(mode) = mode {
            self.tell(Command::SetMode(mode));
        }
        if let Some(goal) = goal {
            self.tell(Command::SetGoal(goal));
            self.goal = goal;
        }
    }

    /// Whether control has found it stuck, and it has not moved on yet.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.stuck.since().is_some()
    }

    /// Since when something has waited for it, if it is stuck.
    #[must_use]
    pub fn stuck_since(&self) -> Option<Instant> {
        self.stuck.since()
    }

    /// Notes whether it is stuck: something has waited for it since `since`, or nothing has for too long. `dropped`: frames
    /// that it has dropped so far for this reason, beside those of its queues. Returns what has changed.
    pub fn look_at_stuck(
        &mut self,
        since: Option<Instant>,
        dropped: u64,
        now: Instant,
    ) -> Option<StuckChange> {
        let by_queues = self.queues.iter().map(|queue| queue.counters.drops.get(Reason::WorkerStuck));
        let dropped = dropped + by_queues.sum::<u64>();
        self.stuck.look(since, dropped, now)
    }

    /// How often it was found stuck: by control or, if that is more, by its queues.
    fn times_stuck(&self) -> u64 {
        let found = self.queues.iter().map(|queue| queue.counters.times_stuck.get()).max();
        self.stuck.times().max(found.unwrap_or(0))
    }

    /// Ends the worker, and closes the queues that it leaves. Waits only this long. Returns whether the worker has ended. If not, it is
    /// left behind, and ends by itself once it turns.
    #[must_use]
    pub fn stop_within(self, patience: std::time::Duration) -> bool {
        let Self { outbox, thread, events, .. } = self;
        drop(outbox);
        let deadline = std::time::Instant::now() + patience;
        while !thread.is_finished() {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            // An ending worker closes its mailbox, which is noticed there; its thread ends a little later.
            let pause = left.min(LOOK_INTERVAL);
            let pause = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
            let looked = poll(&mut [PollFd::new(&events, PollFlags::IN)], Some(&pause));
            if left.is_zero() || looked.is_err_and(|error| error != Errno::INTR) {
                return false;
            }
            events.drain();
        }
        settle(vec![(thread, events)]);
        true
    }

    /// Its present mode.
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

    /// Its row in `show workers`; the caller adds the counts of its engine.
    #[must_use]
    pub fn report(&self, request: report::LatencyRequest) -> report::Worker {
        let counters = &*self.counters;
        let queues = PortCounts::sum(self.queues.iter().map(|queue| &*queue.counters));
        report::Worker {
            worker: self.number as u32,
            cpu: self.cpu.map(|cpu| cpu as u32),
            priority: self.scheduling.priority(counters).to_string(),
            priority_why: self.scheduling.why(counters, self.mode()),
            guard: self.scheduling.guard(counters),
            frames_in: queues.frames_in,
            frames_out: queues.frames_out,
            pool_mib: self.pool_bytes() as f64 / f64::from(1 << 20),
            pool_frames: self.pool_frames,
            stuck_ms: self.stuck.since().map(|since| clock::now().since(since).as_millis() as u64),
            times_stuck: self.times_stuck(),
            ..report::Worker::of(counters, self.mode(), self.goal, request)
        }
    }

    /// Frames that it dropped itself, and commands that had to wait for its mailbox.
    #[must_use]
    pub fn drops(&self) -> Vec<report::Drop> {
        let place = self.name();
        let happened = self.counters.drops.happened().map(|(reason, count)| (reason.name(), count));
        rows(&place, happened.chain([(ControlReason::ControlMailboxFull.name(), self.delayed())])).collect()
    }

    /// Frames that its queues dropped; `interface` returns the name of a queue's interface.
    #[must_use]
    pub fn drops_of_queues(&self, interface: impl Fn(PortId) -> String) -> Vec<report::Drop> {
        let of = |queue: &KnownQueue| {
            let place = format!("{} queue {}", interface(queue.id), queue.id.queue);
            let happened = queue.counters.drops.happened().map(|(reason, count)| (reason.name(), count));
            let kernel = [
                (ControlReason::RingFull.name(), queue.counters.ring_full.get()),
                (ControlReason::DeviceErrors.name(), queue.counters.errors.get()),
            ];
            rows(&place, happened.chain(kernel)).collect::<Vec<_>>()
        };
        self.queues.iter().flat_map(of).collect()
    }
}

/// Ends workers, waits for all of them, and closes the queues that they leave. Workers that hand frames
/// over to each other must be ended together, so that every frame is returned to its pool. Those that were
/// found stuck are not waited for, as they end with the process: their names are returned.
pub fn stop_all<E: Hosted>(workers: impl IntoIterator<Item = WorkerHandle<E>>) -> Vec<String> {
    let (left, others): (Vec<_>, Vec<_>) = workers.into_iter().partition(WorkerHandle::is_stuck);
    left.iter().for_each(|worker| tracing::error!("{} is stuck: it is left behind", worker.name()));
    // A closed mailbox tells a worker to stop, even if there is no room for a message.
    let told = others.into_iter().map(|WorkerHandle { outbox, thread, events, .. }| {
        drop(outbox);
        (thread, events)
    });
    settle(told.collect());
    left.iter().map(WorkerHandle::name).collect()
}

type Told<E> = (JoinHandle<Remains<E>>, Receiver<Event<<E as Engine>::Event>>);

/// Waits for workers whose mailboxes are closed, and closes the queues that they leave.
fn settle<E: Hosted>(told: Vec<Told<E>>) {
    // A panic of a worker would have ended the process.
    let ended = told.into_iter().filter_map(|(thread, events)| Some((thread.join().ok()?, events)));
    let mut ended: Vec<_> = ended.collect();
    // The first pass returns the frames of others, the second takes back the returned ones.
    for _ in 0..2 {
        ended.iter_mut().for_each(|(remains, _)| remains.settle());
    }
    for (Remains { ports, mut pool, engine, .. }, mut events) in ended {
        drop(engine);
        for port in ports {
            port.close().into_iter().for_each(|frame| pool.release(frame));
        }
        while let Some(event) = events.take() {
            if let Event::Detached(port) = event {
                port.close().into_iter().for_each(|frame| pool.release(frame));
            }
        }
    }
}

/// The rows of `show drops` for one place. Counts of zero are left out.
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
