//! The worker and its turn.

mod limits;
mod queues;

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::{Burst, Pool};
use twinpath_idle::{Arrival, Contention};
use twinpath_inspect::Reason;
use twinpath_port::PortQueue;
use twinpath_sys::{RunDelay, allocations, clock};
use twinpath_time::{Duration, Instant};

use crate::counters::WorkerCounters;
use crate::engine::{Attached, ENGINE_TOKENS, Engine, Fds, Here, Io};
use crate::guard::Guard;
use crate::idle::{Decision, Idle, IdleConfig, Mode};
use crate::mailbox::{Receiver, Sender};
use crate::message::{Command, Event};
use crate::priority::Priority;
use crate::request::Request;
use crate::sleep::{Ready, Sleeper};
use crate::spin_limit::{Allowed, SpinLimit};
use crate::tap::{Tap, Taps};
use queues::port_token;

/// Ports per worker, at most. Control gives a worker no more; one more is handed back at once.
pub const PORTS_MAX: usize = 64;

/// Events of its engine that must arrive and may be unread at a time: a few for each part of an engine that has as many as a server may
/// have.
pub const ENGINE_RESERVE: u32 = 256;

/// Room that a mailbox from a worker to control keeps for events that must arrive. Control attaches again only when it has
/// read that every former port came back, so at most an [`Event::Attached`] and an [`Event::Detached`] of each port are unread.
pub const EVENTS_RESERVE: u32 = 2 * PORTS_MAX as u32 + ENGINE_RESERVE;

/// The mailbox's token; a port's is its number here plus one.
pub(crate) const MAILBOX: u64 = 0;

/// How often a worker that does not sleep looks at its fds (one system call): a kernel socket waits at most this long
/// behind a busy or spinning fast path. A source that had work is looked at every turn for as long again, and so are all
/// while there is no fast path.
const LOOK_INTERVAL: Duration = Duration::from_micros(20);

/// Looks at the ports between two empty turns.
const SPIN_LOOKS: u32 = 32;

/// Busy turns without a sleep after which the worker no longer waits on its ports: their fds are taken out of the epoll,
/// and they are told that it polls them. Both are undone before a sleep, so a worker that sleeps more often does neither.
const BUSY_STREAK: u32 = 16;

/// Turns between two publications of what is too dear to publish every turn.
const PUBLISH_TURNS: u64 = 1024;

/// What a worker is made of.
pub struct WorkerConfig {
    /// How it idles.
    pub idle: IdleConfig,
}

/// What is left when a worker has ended; control closes it.
pub struct Remains<E> {
    /// Its queues.
    pub ports: Vec<Box<dyn PortQueue>>,
    /// Its memory.
    pub pool: Pool,
    /// Its engine.
    pub engine: E,
}

/// One worker: ports, engine, pool, mailboxes, idle policy. Owned by one thread.
pub struct Worker<E: Engine> {
    engine: E,
    pool: Pool,
    pub(crate) ports: Vec<Attached>,
    burst: Burst,
    taps: Taps,
    commands: Receiver<Command<E::Command>>,
    events: Sender<Event<E::Event>>,
    pub(crate) sleeper: Sleeper,
    pub(crate) idle: Idle,
    pub(crate) request: Request,
    spin_limit: SpinLimit,
    /// The turn under way has found packets, or what came to an fd of the engine.
    pub(crate) found_packets: bool,
    /// When the last turn began: what the next one finds has come since.
    pub(crate) looked: Instant,
    /// Set where it shares its CPU and the scheduler would let it have everything.
    guard: Option<Guard>,
    /// Whether others want its CPU; for how long it has waited for that, and had before the last sleep.
    contention: Contention,
    run_delay: Option<RunDelay>,
    waited_before: Option<Duration>,
    /// Its priorities, if it steps down from one to the other.
    priorities: Option<[Priority; 2]>,
    /// Refused once: not asked for again.
    request_refused: bool,
    look_due: Instant,
    look_often_until: Instant,
    /// Whether the ports' fds are in the epoll.
    watching_ports: bool,
    /// Busy turns since the last sleep.
    busy_streak: u32,
    /// When the last sleep began and, if a port's fd ended it, that it did: until the first packets after it.
    pub(crate) slept_since: Option<Instant>,
    pub(crate) woken_by_port: bool,
    /// When the replies of the last turn had left; zero if other work came after.
    fresh: Instant,
    allocations_at_start: u64,
    heap_bytes_at_start: i64,
    turns: u64,
    stopping: bool,
    pub(crate) counters: Arc<WorkerCounters>,
}

impl<E: Engine> Worker<E> {
    /// Puts a worker together; nothing runs yet.
    ///
    /// # Errors
    /// What making its epoll and timer returns.
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
            ports: Vec::with_capacity(PORTS_MAX),
            burst: Burst::new(),
            taps: Taps::new(),
            commands,
            events,
            sleeper,
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
            busy_streak: 0,
            slept_since: None,
            woken_by_port: false,
            fresh: Instant::ZERO,
            allocations_at_start: 0,
            heap_bytes_at_start: 0,
            turns: 0,
            stopping: false,
            counters,
        })
    }

    /// Has it make its latency requests like this, instead of for all CPUs and the shallowest state.
    #[must_use]
    pub fn with_request(mut self, request: Request) -> Self {
        self.request = request;
        self
    }

    /// Has it keep to its shares of a CPU: by yielding, or by stepping down from the first of two priorities to the second.
    #[must_use]
    pub fn with_guard(mut self, guard: Option<Guard>, priorities: Option<[Priority; 2]>) -> Self {
        self.idle.set_spin_share(guard.as_ref().and_then(Guard::spin_share));
        (self.guard, self.priorities) = (guard, priorities);
        self
    }

    /// Lets the engine register its fds. Call it on the thread that will turn.
    ///
    /// # Errors
    /// What the engine's start returns.
    pub fn start(&mut self) -> Result<(), Errno> {
        let now = clock::now();
        self.looked = now;
        self.with_io(|engine, io| engine.start(now, io))?;
        // What is open stays readable.
        self.run_delay = RunDelay::of_this_thread();
        self.counters.tid.set(u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()));
        self.allocations_at_start = allocations::of_this_thread();
        self.heap_bytes_at_start = allocations::bytes_of_this_thread();
        Ok(())
    }

    /// Turns and sleeps until told to stop.
    #[must_use]
    pub fn run(mut self) -> Remains<E> {
        while !self.stopping && !self.engine.is_done() {
            self.go_on();
        }
        self.empty_ports(clock::now());
        self.publish();
        self.into_remains()
    }

    /// A turn, and what follows it: another one, or a sleep.
    fn go_on(&mut self) {
        let now = self.time();
        let busy = self.turn(now);
        let no_spin_until = self.guarded(now, busy);
        let allowed = self.allowed(now, busy);
        if busy {
            self.idle.worked(now);
            self.counters.turns_busy.add(1);
            self.busy_streak = self.busy_streak.saturating_add(1);
            if self.busy_streak == BUSY_STREAK {
                self.unwatch_ports();
                self.ports.iter_mut().for_each(|port| port.queue.begin_polling(now));
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

    pub(crate) fn into_remains(self) -> Remains<E> {
        let ports = self.ports.into_iter().map(|attached| attached.queue).collect();
        Remains { ports, pool: self.pool, engine: self.engine }
    }

    /// One turn at `now`: whatever there is to do, once. Says whether there was anything. Never sleeps.
    pub fn turn(&mut self, now: Instant) -> bool {
        let taken = self.poll_ports(now);
        let mut busy = taken > 0;
        if busy {
            // Replies leave before anything else is looked at.
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
        // After what the engine asks itself: if that found something, the peer is busy with its answer meanwhile.
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

    /// The time at which the next turn starts: that at which the last one's replies had left, if nothing but packets was
    /// looked at since. So the time that frames take is known without another reading of the clock.
    fn time(&mut self) -> Instant {
        match std::mem::take(&mut self.fresh) {
            Instant::ZERO => clock::now(),
            fresh => fresh,
        }
    }

    /// Takes a burst per port and has the engine work on it; the number of frames.
    fn poll_ports(&mut self, now: Instant) -> u64 {
        let Self { engine, pool, ports, burst, taps, sleeper, events, counters, .. } = self;
        let mut taken = 0;
        for place in 0..ports.len() {
            ports[place].queue.receive(now, pool, burst);
            if burst.is_empty() {
                continue;
            }
            taken += burst.len() as u64;
            taps.received(now, &*ports[place].queue, burst.frames());
            let port = ports[place].id();
            let mut io = Io {
                pool: &mut *pool,
                ports: &mut *ports,
                taps: &mut *taps,
                events,
                here: Here { port, place: place as u32 },
                fds: Fds { sleeper, drops: &counters.drops, first_token: 0 },
            };
            engine.receive(now, port, burst, &mut io);
            debug_assert!(burst.is_empty(), "an engine takes all it is given");
            burst.release(usize::MAX, pool);
        }
        taken
    }

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
        if (now < self.look_often_until || self.ports.is_empty()) && !self.engine.spins() {
            self.look_due = now;
        }
        busy
    }

    /// Tells the engine which of its fds are ready; clears errors of ports. Says whether anything had come to the engine.
    fn dispatch(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for at in 0..self.sleeper.ready().len() {
            let Ready { token, error } = self.sleeper.ready()[at];
            if token >= ENGINE_TOKENS {
                let token = (token - ENGINE_TOKENS) as u32;
                busy |= self.with_io(|engine, io| engine.ready(now, token, error, io));
            } else if token == MAILBOX {
                // A message may have been taken before its signal came: nothing else would silence the fd then, and no sleep
                // would last. What is still in the mailbox is found by the next turn, which looks into it.
                self.commands.drain();
            } else if error
                && let Some(place) = self.ports.iter().position(|port| port_token(&*port.queue) == token)
            {
                self.ports[place].queue.on_error();
                if self.ports[place].queue.is_gone() {
                    self.detach_place(place);
                }
            }
        }
        busy
    }

    fn read_mailbox(&mut self, now: Instant) -> bool {
        self.fresh = Instant::ZERO;
        self.commands.drain();
        let mut busy = false;
        while let Some(command) = self.commands.take() {
            busy = true;
            match command {
                Command::Attach(queue) => self.attach(queue),
                Command::Detach { ifindex } => self.detach(now, |queue| queue.ifindex() == ifindex),
                Command::DetachQueue(id) => self.detach(now, |queue| queue.id() == id),
                Command::LinkChanged { ifindex, link } => self.link_changed(ifindex, link),
                Command::ServeRings => self.empty_ports(now),
                Command::Frames(frames) => frames.into_iter().for_each(|frame| self.pool.release(frame)),
                Command::SetMode(mode) => {
                    self.idle.set_mode(mode);
                    self.counters.mode.set(mode as u64);
                }
                Command::SetMachine(machine, request) => self.idle.set_machine(machine, request),
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
        // A mailbox without a sender is how control says that the worker is to stop.
        self.stopping |= self.commands.is_closed();
        busy
    }

    /// Control frees it; if its mailbox is full it is freed here, once.
    fn give_back(&mut self, tap: Box<Tap>) {
        if self.events.send(Event::Untapped(tap)).is_err() {
            self.counters.drops.add(Reason::MailboxFull, 1);
        }
    }

    /// Says whether there was anything to send.
    fn flush(&mut self) -> bool {
        let mut sent = false;
        for port in &mut self.ports {
            if !port.outbox.is_empty() {
                sent = true;
                port.transmit(&mut self.pool, &mut self.taps);
            }
            port.queue.flush(&mut self.pool);
        }
        sent
    }

    /// Looks for work, and at nothing else, for about a microsecond: what arrives is found sooner than by turning, and the
    /// other hardware thread of the core, which may be our peer's, is left most of the core.
    fn spin(&self) {
        // Kernel sockets: nothing of theirs can be seen without asking the kernel.
        let looks = if self.ports.is_empty() || self.engine.spins() { 1 } else { SPIN_LOOKS };
        for _ in 0..looks {
            if self.ports.iter().any(|port| port.queue.look()) || self.commands.look() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Arms every source, looks again, sleeps, disarms.
    fn sleep(&mut self, now: Instant, until: Instant) {
        self.hold_or_release(now);
        self.publish();
        self.with_io(|engine, io| engine.rest(io));
        // What it could not put to rest is due at once.
        let mut until = until.min(self.engine.next_deadline());
        if let Some(steps_up_at) = self.guard.as_ref().and_then(|guard| guard.steps_up_at(now)) {
            until = until.min(steps_up_at);
        }
        // Also if it cannot sleep now, as arming has changed how frames come.
        self.busy_streak = 0;
        let armed = self.watch_ports() && self.ports.iter_mut().all(|port| port.queue.arm());
        let work = self.commands.look() || self.ports.iter().any(|port| port.queue.look());
        if armed && !work {
            self.counters.sleeps.add(1);
            self.sleeper.put_off(now, until);
            self.before_sleep(now);
            self.sleeper.sleep(until);
            // The fds were just looked at: what is ready is dispatched now, with a fresh time.
            let woken = clock::now();
            self.look_due = woken + LOOK_INTERVAL;
            let for_engine = self.dispatch(woken);
            self.found_packets |= for_engine;
            self.slept(woken, for_engine);
            self.woken_after(woken, Duration::from_nanos(woken.nanos_since(until)));
            self.woke(now, woken, for_engine);
            if for_engine {
                self.idle.worked(woken);
                self.counters.turns_busy.add(1);
                if self.idle.mode() != Mode::Interrupt {
                    // It will spin first. Else the next sleep is as good a look, and one less.
                    self.look_due = woken;
                }
            }
        }
        for port in &mut self.ports {
            port.queue.disarm();
        }
    }

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

    fn publish(&mut self) {
        self.publish_idle();
        self.counters.pool_free.set(u64::from(self.pool.free()));
        self.counters.allocations.set(allocations::of_this_thread() - self.allocations_at_start);
        let heap_bytes = allocations::bytes_of_this_thread() - self.heap_bytes_at_start;
        self.counters.heap_bytes.set(u64::try_from(heap_bytes).unwrap_or(0));
    }

    fn with_io<R>(&mut self, call: impl FnOnce(&mut E, &mut Io<'_, E::Event>) -> R) -> R {
        let Self { engine, pool, ports, taps, sleeper, events, counters, .. } = self;
        let fds = Fds { sleeper, drops: &counters.drops, first_token: 0 };
        call(engine, &mut Io { pool, ports, taps, events, here: Here::NOWHERE, fds })
    }

    /// The fd for an application's own loop: readable when a turn has something to do.
    #[must_use]
    pub fn fd(&self) -> impl AsFd + '_ {
        self.sleeper.as_fd()
    }
}

#[cfg(test)]
mod tests;
