//! The worker and its turn.

mod limits;
mod queues;

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::{Burst, Pool};
use twinpath_idle::{Arrival, Contention};
use twinpath_inspect::Reason;
use twinpath_port::{PORTS_MAX, PortQueue};
use twinpath_sys::{RunDelay, allocations, clock};
use twinpath_time::{Duration, Instant};

use crate::thread::guard::Guard;
use crate::thread::mailbox::{Receiver, Sender};
use crate::thread::priority::Priority;
use crate::thread::request::Request;
use crate::thread::sleep::{Ready, Sleeper};
use crate::thread::spin_limit::{Allowed, SpinLimit};
use queues::{Leaves, port_token};

use crate::counters::WorkerCounters;
use crate::engine::{Engine, Io, PEERS};
use crate::fds::{Came, ENGINE_TOKENS, Fds};
use crate::idle::{Decision, Idle, IdleConfig, Mode};
use crate::message::{Command, Event};
use crate::peers::Peers;
use crate::ports::{Here, Ports, Queue};
use crate::tap::{Tap, Taps};

/// How many events of an engine that must arrive may be unread: a few for each part of an engine with the maximum
/// number of parts.
pub const ENGINE_RESERVE: u32 = 256;

/// Room that a mailbox from a worker to control reserves for events that must arrive. Control attaches a port again
/// only after it has read that the former one came back, so at most one [`Event::Attached`] and one
/// [`Event::Detached`] of each port are unread.
pub const EVENTS_RESERVE: u32 = 2 * PORTS_MAX as u32 + ENGINE_RESERVE;

/// The token of the mailbox.
pub(crate) const MAILBOX: u64 = 0;

/// How often a worker that does not sleep looks at its fds, in one system call. So a kernel socket waits at most this long
/// behind a busy or spinning fast path. After a look that found work, and while there are no ports, the worker looks
/// every turn.
const LOOK_INTERVAL: Duration = Duration::from_micros(20);

/// How often a spinning worker looks at its ports between two empty turns.
const SPIN_LOOKS: u32 = 32;

/// After this many busy turns without a sleep, the worker no longer waits on its ports: it removes their fds from the epoll,
/// and tells them that it polls. It undoes both before it sleeps, so a worker that sleeps more often does neither.
const BUSY_STREAK: u32 = 16;

/// Turns between two updates of the counters that are too expensive to update every turn.
const PUBLISH_TURNS: u64 = 1024;

/// The configuration of a worker.
pub struct WorkerConfig {
    /// How it idles.
    pub idle: IdleConfig,
}

/// The parts of a worker that has ended; control closes them.
pub struct Remains<E> {
    /// Its queues.
    pub ports: Vec<Box<dyn PortQueue>>,
    /// Its memory.
    pub pool: Pool,
    /// Its engine.
    pub engine: E,
    /// The rings to and from other workers, with what is still in them.
    pub peers: Option<Peers>,
}

impl<E> Remains<E> {
    /// Returns the frames of other workers that are still in the rings, and takes back its own that they have
    /// returned. To be called for each worker once all have ended. Frames that a worker received and did not
    /// release are lost with it.
    pub fn settle(&mut self) {
        if let Some(peers) = &mut self.peers {
            peers.settle(&mut self.pool);
        }
    }
}

/// One worker: ports, engine, pool, mailboxes, idle policy. Owned by one thread.
pub struct Worker<E: Engine> {
    engine: E,
    pool: Pool,
    pub(crate) ports: Ports,
    /// The other workers, if frames may be handed over to them.
    pub(super) peers: Option<Peers>,
    burst: Burst,
    taps: Taps,
    commands: Receiver<Command<E::Command>>,
    events: Sender<Event<E::Event>>,
    pub(crate) sleeper: Sleeper,
    pub(crate) came: Came,
    pub(crate) idle: Idle,
    pub(crate) request: Request,
    spin_limit: SpinLimit,
    /// The present turn has found packets, or data on an fd of the engine.
    pub(crate) found_packets: bool,
    /// When the last turn began. The frames that the next one finds have come since.
    pub(crate) looked: Instant,
    /// Limits its share of a CPU if the scheduler would give it everything; `None` if no limit is needed.
    guard: Option<Guard>,
    /// Whether others want its CPU. To find out: the kernel's record of how long it waited for the CPU, and the
    /// value of that record shortly before the last sleep.
    contention: Contention,
    run_delay: Option<RunDelay>,
    waited_before: Option<(Instant, Duration)>,
    /// Its higher and lower priority, if it steps down from one to the other.
    priorities: Option<[Priority; 2]>,
    /// The system has refused a latency request; the worker makes no further ones.
    request_refused: bool,
    look_due: Instant,
    look_often_until: Instant,
    /// Whether the fds of the ports are in the epoll.
    watching_ports: bool,
    /// Queues that leave once the engine does not keep its ports.
    leaving: Vec<Leaves>,
    /// Busy turns since the last sleep.
    busy_streak: u32,
    /// When the last sleep began; `None` once the first packets after it have been taken.
    pub(crate) slept_since: Option<Instant>,
    /// Whether the fd of a port ended that sleep.
    pub(crate) woken_by_port: bool,
    /// When the replies of the last turn had left; zero if other work was done since.
    fresh: Instant,
    allocations_at_start: u64,
    heap_bytes_at_start: i64,
    turns: u64,
    /// Whether the CPU time of each turn is measured.
    times_turns: bool,
    stopping: bool,
    pub(crate) counters: Arc<WorkerCounters>,
}

impl<E: Engine> Worker<E> {
    /// Makes a worker; nothing runs yet.
    ///
    /// # Errors
    /// The errors of making its epoll and timer.
    pub fn new(
        config: &WorkerConfig,
        engine: E,
        pool: Pool,
        commands: Receiver<Command<E::Command>>,
        events: Sender<Event<E::Event>>,
        counters: Arc<WorkerCounters>,
    ) -> Result<Self, Errno> {
        let sleeper = Sleeper::new()?;
        sleeper.add(&commands, MAILBOX, false)?;
        counters.mode.set(config.idle.mode as u64);
        Ok(Self {
            engine,
            pool,
            ports: Ports::new(),
            peers: None,
            burst: Burst::new(),
            taps: Taps::new(),
            commands,
            events,
            sleeper,
            came: Came::default(),
            idle: Idle::new(config.idle),
            request: Request::machine(0),
            spin_limit: SpinLimit::new(config.idle.machine.wake_us, config.idle.spin),
            found_packets: false,
            looked: Instant::ZERO,
            guard: None,
            contention: Contention::default(),
            run_delay: None,
            waited_before: None,
            priorities: None,
            request_refused: false,
            look_due: Instant::ZERO,
            look_often_until: Instant::ZERO,
            watching_ports: true,
            leaving: Vec::new(),
            busy_streak: 0,
            slept_since: None,
            woken_by_port: false,
            fresh: Instant::ZERO,
            allocations_at_start: 0,
            heap_bytes_at_start: 0,
            turns: 0,
            times_turns: false,
            stopping: false,
            counters,
        })
    }

    /// Sets how it makes latency requests; the default is for all CPUs and the shallowest idle state.
    #[must_use]
    pub fn with_request(mut self, request: Request) -> Self {
        self.request = request;
        self
    }

    /// Enables the hand-over of frames to and from the other workers of its instance.
    ///
    /// # Errors
    /// What adding the fd of `peers` to its epoll returns.
    pub fn with_peers(mut self, peers: Peers) -> Result<Self, Errno> {
        self.sleeper.add(&peers, PEERS, false)?;
        self.pool.expect_foreign(peers.foreign_max());
        self.peers = Some(peers);
        Ok(self)
    }

    /// Limits its share of a CPU: by yielding, or by stepping down from the first of two priorities to the second.
    #[must_use]
    pub fn with_guard(mut self, guard: Option<Guard>, priorities: Option<[Priority; 2]>) -> Self {
        self.idle.set_spin_share(guard.as_ref().and_then(Guard::spin_share));
        (self.guard, self.priorities) = (guard, priorities);
        self
    }

    /// Lets the engine register its fds. To be called on the thread that will run the turns.
    ///
    /// # Errors
    /// The errors of [`Engine::start`].
    pub fn start(&mut self) -> Result<(), Errno> {
        let now = clock::now();
        self.looked = now;
        self.with_io(|engine, io| engine.start(now, io))?;
        // Opened before the sandbox closes access to such files.
        self.run_delay = RunDelay::of_this_thread();
        self.counters.tid.set(u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()));
        self.allocations_at_start = allocations::of_this_thread();
        self.heap_bytes_at_start = allocations::bytes_of_this_thread();
        Ok(())
    }

    /// Runs turns, and sleeps between them, until control closes the mailbox or the engine is done. An engine that keeps its
    /// ports comes to an end with that.
    #[must_use]
    pub fn run(mut self) -> Remains<E> {
        while (!self.stopping || self.engine.keeps_ports()) && !self.engine.is_done() {
            self.go_on();
        }
        // Others can hand over nothing from here on; frames handed over before still leave.
        self.peers.iter().for_each(Peers::close);
        self.empty_ports(clock::now());
        self.publish();
        self.into_remains()
    }

    /// Runs one turn, and then sleeps if the policy and the limits say so.
    fn go_on(&mut self) {
        let now = self.time();
        let busy = if self.times_turns { self.timed_turn(now) } else { self.turn(now) };
        let no_spin_until = self.guarded(now, busy);
        let allowed = self.allowed(now, busy);
        if busy {
            self.idle.worked(now);
            self.counters.turns_busy.add(1);
            self.busy_streak = self.busy_streak.saturating_add(1);
            if self.busy_streak == BUSY_STREAK {
                self.unwatch_ports();
                self.ports.queues_mut().iter_mut().for_each(|queue| queue.queue.begin_polling(now));
            }
            return;
        }
        self.counters.turns_empty.add(1);
        let deadline = self.engine.next_deadline();
        match (self.idle.decide(now, deadline), no_spin_until) {
            (Decision::Turn, None) if allowed == Allowed::Anything => self.spin(),
            (Decision::Turn, None) => self.overrule(now, deadline, allowed),
            (Decision::Turn, Some(until)) => {
                self.counters.guard_sleeps.add(1);
                self.sleep(now, until.min(deadline));
            }
            (Decision::Sleep { until }, _) if allowed == Allowed::Pause => self.overrule(now, until, allowed),
            (Decision::Sleep { until }, _) => self.sleep(now, until),
        }
    }

    /// Ends a worker that is not running.
    #[must_use]
    pub fn into_remains(self) -> Remains<E> {
        Remains {
            ports: self.ports.into_queues().collect(),
            pool: self.pool,
            engine: self.engine,
            peers: self.peers,
        }
    }

    /// Runs one turn at `now`: does all pending work once, and never sleeps. Returns whether there was any.
    pub fn turn(&mut self, now: Instant) -> bool {
        let taken = self.take_handed() + self.poll_ports(now);
        let mut busy = taken > 0;
        if busy {
            // Replies leave before anything else is done.
            if self.flush() {
                let end = clock::now();
                self.counters.service_time.record(end.nanos_since(now), taken);
                self.fresh = end;
            }
        }
        if busy || self.woken_by_port {
            self.found_packets |= busy;
            self.arrived(now, taken);
        }
        self.looked = now;
        if self.commands.look() {
            busy |= self.read_mailbox(now);
        }
        if self.with_io(|engine, io| engine.run(now, io)) {
            busy = true;
            if self.engine.found() {
                self.found_packets = true;
                self.idle.arrived(now, Arrival { first: now, last: now, count: 1 });
            }
            self.fresh = Instant::ZERO;
        }
        if !self.leaving.is_empty() {
            self.detach_free(now);
        }
        // After the engine, which may poll an fd itself: if it has sent an answer, this look overlaps with the
        // peer's work.
        if now >= self.look_due {
            busy |= self.look_at_fds(now);
        }
        self.flush();
        self.turns += 1;
        if self.turns.is_multiple_of(PUBLISH_TURNS) {
            self.publish();
        }
        if busy {
            self.hold_or_release(now);
        }
        busy
    }

    /// Runs one turn, and counts the CPU time that it took. It costs two system calls, so it is done only when asked for.
    #[cold]
    fn timed_turn(&mut self, now: Instant) -> bool {
        let before = clock::thread_cpu_time();
        let busy = self.turn(now);
        let took = clock::thread_cpu_time().saturating_sub(before);
        self.counters.turn_cpu.record(took.as_nanos() as u64, 1);
        // Time has passed since the replies left.
        self.fresh = Instant::ZERO;
        busy
    }

    /// The time at which the next turn starts. If the last turn handled only packets, it is the time at which its
    /// replies had left. So the time that frames take is known without reading the clock again.
    fn time(&mut self) -> Instant {
        match std::mem::take(&mut self.fresh) {
            Instant::ZERO => clock::now(),
            fresh => fresh,
        }
    }

    /// Takes a burst from each port and passes it to the engine. Returns the number of frames.
    fn poll_ports(&mut self, now: Instant) -> u64 {
        let Self { engine, pool, ports, peers, burst, taps, sleeper, came, events, counters, .. } = self;
        let mut taken = 0;
        burst.set_limit(engine.frames_per_turn());
        for place in 0..ports.queues().len() {
            let Queue { queue, here, .. } = &mut ports.queues_mut()[place];
            queue.receive(now, pool, burst);
            if burst.is_empty() {
                continue;
            }
            taken += burst.len() as u64;
            taps.received(now, &**queue, burst.frames());
            let (port, here) = (queue.id(), *here);
            let mut io = Io {
                pool: &mut *pool,
                ports: &mut *ports,
                peers: &mut *peers,
                worker: counters,
                taps: &mut *taps,
                events,
                here,
                fds: Fds { sleeper, drops: &counters.drops, came, first_token: 0 },
            };
            engine.receive(now, port, burst, &mut io);
            debug_assert!(burst.is_empty(), "an engine takes all it is given");
            burst.release(usize::MAX, pool);
        }
        taken
    }

    /// Asks the epoll which fds are ready, and handles them. Returns whether anything had come to the engine.
    fn look_at_fds(&mut self, now: Instant) -> bool {
        self.fresh = Instant::ZERO;
        self.look_due = now + LOOK_INTERVAL;
        self.sleeper.look();
        let busy = self.dispatch(now);
        if busy {
            self.found_packets = true;
            self.idle.arrived(now, Arrival { first: now, last: now, count: 1 });
            self.look_often_until = now + LOOK_INTERVAL;
        }
        if (now < self.look_often_until || self.ports.queues().is_empty()) && !self.engine.spins() {
            self.look_due = now;
        }
        busy
    }

    /// Tells the engine which of its fds are ready, and clears errors of ports. Returns whether anything had come to the
    /// engine.
    fn dispatch(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for at in 0..self.sleeper.ready().len() {
            let Ready { token, error } = self.sleeper.ready()[at];
            if token >= ENGINE_TOKENS {
                let token = (token - ENGINE_TOKENS) as u32;
                busy |= self.with_io(|engine, io| engine.ready(now, token, error, io));
            } else if token == MAILBOX {
                // A message may have been taken before its signal came. Without this the fd would then stay readable, and
                // no sleep would last. The next turn reads the messages that are still in the mailbox.
                self.commands.drain();
            } else if token == PEERS {
                // What was handed over is found by the next turn.
                self.peers.iter().for_each(Peers::drain);
            } else if error && let Some(place) = self.ports.place_of_queue(|queue| port_token(queue) == token)
            {
                let queue = &mut *self.ports.queues_mut()[place].queue;
                queue.on_error();
                if queue.is_gone() {
                    self.detach_place(place);
                }
            }
        }
        busy
    }

    /// Executes the commands in the mailbox. Returns whether there were any.
    fn read_mailbox(&mut self, now: Instant) -> bool {
        self.fresh = Instant::ZERO;
        self.commands.drain();
        let mut busy = false;
        while let Some(command) = self.commands.take() {
            busy = true;
            match command {
                Command::Attach(queue) => self.attach(queue),
                Command::Detach { ifindex } => self.detach_once_free(now, Leaves::Interface(ifindex)),
                Command::DetachQueue(id) => self.detach_once_free(now, Leaves::Queue(id)),
                Command::AddPort { carrier, port } => self.add_port(carrier, *port),
                Command::RemovePort(port) => self.remove_port(now, port),
                Command::PortElsewhere { port, worker } => {
                    self.peers.iter_mut().for_each(|peers| peers.set_port(port, worker));
                }
                Command::LinkChanged { ifindex, link } => self.link_changed(ifindex, link),
                Command::ServeRings => self.empty_ports(now),
                Command::Frames(frames) => frames.into_iter().for_each(|frame| self.pool.release(frame)),
                Command::SetMode(mode) => {
                    self.idle.set_mode(mode);
                    self.counters.mode.set(mode as u64);
                }
                Command::SetMachine(machine, request) => self.idle.set_machine(machine, request),
                Command::TimeTurns(on) => self.times_turns = on,
                Command::SetGoal(goal) => self.idle.set_goal(goal),
                Command::Tap(tap) => {
                    if let Err(tap) = self.taps.add(tap) {
                        self.give_back(tap);
                    }
                }
                Command::Untap(id) => {
                    if let Some(tap) = self.taps.remove(id) {
                        self.give_back(tap);
                    }
                }
                Command::Engine(command) => self.with_io(|engine, io| engine.command(now, command, io)),
            }
        }
        // Control stops a worker by closing its mailbox.
        self.stopping |= self.commands.is_closed();
        busy
    }

    /// Returns a tap to control, which frees it. It is freed here only if the mailbox is full.
    fn give_back(&mut self, tap: Box<Tap>) {
        if self.events.send(Event::Untapped(tap)).is_err() {
            self.counters.drops.add(Reason::MailboxFull, 1);
        }
    }

    /// Sends the waiting frames. Returns whether there were any.
    fn flush(&mut self) -> bool {
        let sent = self.ports.flush(&mut self.pool, &mut self.taps);
        if let Some(peers) = &mut self.peers {
            let signals = peers.flush(&mut self.pool);
            self.counters.handoff_signals.add(signals);
        }
        sent
    }

    /// Only looks for work, for about a microsecond. So frames are found sooner than by whole turns, and most of the core
    /// is left to its other hardware thread, on which the peer may run.
    fn spin(&self) {
        // Without a port, and for fds that the engine polls, only a system call can tell.
        let looks = if self.ports.queues().is_empty() || self.engine.spins() { 1 } else { SPIN_LOOKS };
        for _ in 0..looks {
            if self.has_work() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Whether a port, another worker or control has something for it.
    #[inline]
    fn has_work(&self) -> bool {
        self.ports.queues().iter().any(|queue| queue.queue.look())
            || self.commands.look()
            || self.peers.as_ref().is_some_and(Peers::look)
    }

    /// Arms every source, looks again, sleeps, and disarms.
    fn sleep(&mut self, now: Instant, until: Instant) {
        self.hold_or_release(now);
        self.publish();
        self.with_io(|engine, io| engine.rest(io));
        // An engine that could not prepare for the sleep has a deadline that is due at once.
        let mut until = until.min(self.engine.next_deadline());
        if let Some(steps_up_at) = self.guard.as_ref().and_then(|guard| guard.steps_up_at(now)) {
            until = until.min(steps_up_at);
        }
        // Even if the worker cannot sleep now, because arming changes how frames arrive.
        self.busy_streak = 0;
        let armed = self.watch_ports() && self.ports.queues_mut().iter_mut().all(|queue| queue.queue.arm());
        self.peers.iter().for_each(Peers::arm);
        if armed && !self.has_work() {
            self.counters.sleeps.add(1);
            self.sleeper.put_off(now, until);
            self.before_sleep(now);
            self.sleeper.sleep(until);
            // The sleep has returned which fds are ready: they are handled now, with the present time.
            let woken = clock::now();
            self.look_due = woken + LOOK_INTERVAL;
            self.ask_when_it_came();
            let for_engine = self.dispatch(woken);
            self.found_packets |= for_engine;
            self.slept(woken, for_engine);
            self.woken_after(woken, Duration::from_nanos(woken.nanos_since(until)));
            self.woke(now, woken, for_engine);
            if for_engine {
                self.idle.worked(woken);
                self.counters.turns_busy.add(1);
                if self.idle.mode() != Mode::Interrupt {
                    // The worker will spin first. In mode `interrupt` the next sleep replaces a look, and saves
                    // one.
                    self.look_due = woken;
                }
            }
        }
        self.peers.iter().for_each(Peers::disarm);
        for queue in self.ports.queues_mut() {
            queue.queue.disarm();
        }
    }

    /// Makes or releases the latency request, as the policy wants.
    fn hold_or_release(&mut self, now: Instant) {
        let wanted = self.idle.wants_request(now) && !self.request_refused;
        if wanted == self.request.is_held() {
            return;
        }
        self.fresh = Instant::ZERO;
        if !wanted {
            self.request.release();
        } else if self.request.hold().is_err() {
            self.request_refused = true;
            self.counters.request_refused.add(1);
        }
        self.counters.request_held.set(u64::from(self.request.is_held()));
    }

    /// Updates the counters that are too expensive to update every turn.
    fn publish(&mut self) {
        self.publish_idle();
        self.counters.pool_free.set(u64::from(self.pool.free()));
        self.counters.allocations.set(allocations::of_this_thread() - self.allocations_at_start);
        let heap_bytes = allocations::bytes_of_this_thread() - self.heap_bytes_at_start;
        self.counters.heap_bytes.set(u64::try_from(heap_bytes).unwrap_or(0));
    }

    fn with_io<R>(&mut self, call: impl FnOnce(&mut E, &mut Io<'_, E::Event>) -> R) -> R {
        let Self { engine, pool, ports, peers, taps, sleeper, came, events, counters, .. } = self;
        let fds = Fds { sleeper, drops: &counters.drops, came, first_token: 0 };
        let here = Here::NOWHERE;
        call(engine, &mut Io { pool, ports, peers, worker: counters, taps, events, here, fds })
    }

    /// The fd for an application's own event loop: readable when a turn has something to do.
    #[must_use]
    pub fn fd(&self) -> impl AsFd + '_ {
        self.sleeper.as_fd()
    }
}

#[cfg(test)]
mod tests;
