use twinpath_port::{LinkState, PortId, loopback};
use twinpath_sys::EventFd;

use super::*;
use crate::thread::mailbox::mailbox;

#[derive(Default)]
struct Does {
    /// It always has something to do, and found it on an fd of its own.
    busy: bool,
    found: bool,
    /// It could not prepare everything for sleep: there is something to do immediately.
    restless: bool,
    rested: bool,
    /// Its deadline, at which there is nothing to do.
    due: Option<Instant>,
    /// An fd of its own that is always readable, and has nothing.
    readable: Option<EventFd>,
    /// Something came there, at this time by the kernel's stamp.
    came: Option<u64>,
    /// Times that it was asked for the stamp.
    asked: u32,
    /// Runs for which it keeps its ports.
    keeps_ports: u32,
}

impl Engine for Does {
    type Command = ();
    type Event = ();

    fn start(&mut self, _: Instant, io: &mut Io<'_, ()>) -> Result<(), Errno> {
        self.readable.as_ref().map_or(Ok(()), |fd| io.fds.watch(fd, 0, false))
    }

    fn receive(&mut self, _: Instant, _: PortId, _: &mut Burst, _: &mut Io<'_, ()>) {}

    fn ready(&mut self, _: Instant, _: u32, _: bool, io: &mut Io<'_, ()>) -> bool {
        self.asked += u32::from(io.fds.wants_stamp());
        if let Some(came) = self.came {
            io.fds.stamped(came);
        }
        self.came.is_some()
    }

    fn run(&mut self, _: Instant, _: &mut Io<'_, ()>) -> bool {
        self.keeps_ports = self.keeps_ports.saturating_sub(1);
        self.busy
    }

    fn keeps_ports(&self) -> bool {
        self.keeps_ports > 0
    }

    fn spins(&self) -> bool {
        true
    }

    fn found(&self) -> bool {
        self.found
    }

    fn next_deadline(&self) -> Instant {
        let rest = if self.restless && self.rested { Instant::ZERO } else { Instant::NEVER };
        self.due.map_or(rest, |due| rest.min(due))
    }

    fn rest(&mut self, _: &mut Io<'_, ()>) {
        self.rested = true;
    }

    fn command(&mut self, _: Instant, (): (), _: &mut Io<'_, ()>) {}
}

fn worker(engine: Does) -> (Worker<Does>, Sender<Command<()>>) {
    let (commands, inbox) = mailbox(4).expect("eventfd");
    let (outbox, _events) = mailbox(4).expect("eventfd");
    let config = WorkerConfig { idle: IdleConfig::default() };
    let (pool, counters) = (Pool::new(64).expect("memory"), Arc::new(WorkerCounters::default()));
    (Worker::new(&config, engine, pool, inbox, outbox, counters).expect("descriptors"), commands)
}

#[test]
fn frames_are_made_to_fit_the_present_mtu() {
    let (mut worker, _commands) = worker(Does::default());
    let (port, _peer) = loopback::pair(PortId::default(), PortId { port: 1, queue: 0 }).expect("eventfd");
    worker.attach(Box::new(port));
    worker.link_changed(0, LinkState { mtu: 1300, takes_super_frames: false });
    assert_eq!(worker.ports.attached()[0].capabilities().frame_len_max, 1314);
}

#[test]
fn a_queue_that_the_engine_keeps_is_detached_as_soon_as_it_does_not() {
    let id = PortId { port: 0, queue: 0 };
    for command in [Command::Detach { ifindex: 0 }, Command::DetachQueue(id)] {
        let (mut worker, mut commands) = worker(Does { keeps_ports: 3, ..Does::default() });
        let (near, _far) = loopback::pair(id, PortId { port: 1, queue: 0 }).expect("eventfds");
        worker.attach(Box::new(near));
        assert!(commands.send(command).is_ok());
        for left in [1, 1, 0] {
            worker.turn(Instant::ZERO);
            assert_eq!(worker.ports.queues().len(), left);
        }
    }
}

#[test]
fn a_worker_whose_engine_keeps_its_ports_ends_after_that() {
    let (worker, commands) = worker(Does { keeps_ports: 3, busy: true, ..Does::default() });
    drop(commands);
    assert_eq!(worker.run().engine.keeps_ports, 0);
}

#[test]
fn the_cpu_time_of_turns_is_measured_while_asked_for() {
    let (mut worker, mut commands) = worker(Does { busy: true, found: true, ..Does::default() });
    let mut counted_after = |on: Option<bool>| {
        on.into_iter().for_each(|on| assert!(commands.send(Command::TimeTurns(on)).is_ok()));
        (0..3).for_each(|_| worker.go_on());
        worker.counters.turn_cpu.read().count()
    };
    assert_eq!(counted_after(None), 0);
    // The turn that reads the command is not measured itself.
    assert_eq!((counted_after(Some(true)), counted_after(None)), (2, 5));
    assert_eq!((counted_after(Some(false)), counted_after(None)), (6, 6));
}

#[test]
fn a_signal_that_comes_after_its_message_was_taken_ends_one_sleep_and_no_more() {
    let (mut worker, mut commands) = worker(Does::default());
    assert!(commands.send(Command::TimeTurns(false)).is_ok());
    assert!(worker.commands.take().is_some());
    worker.sleep(clock::now(), Instant::NEVER);
    assert!(worker.sleeper.look().is_empty(), "the next sleep lasts");
}

#[test]
fn only_what_came_is_an_arrival_to_the_idle_policy() {
    for (busy, found, arrivals) in [(true, true, 10), (true, false, 0), (false, false, 0)] {
        let (mut worker, _commands) = worker(Does { busy, found, ..Does::default() });
        for turn in 1..=10 {
            assert_eq!(worker.turn(Instant::from_nanos(turn * 1_000_000)), busy);
        }
        assert_eq!(worker.idle.summary().1.packets, arrivals);
    }
}

#[test]
fn a_sleep_that_an_fd_has_ended_tells_the_idle_policy_when_that_came() {
    let now_ns = || {
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since_1970.expect("after 1970").as_nanos() as u64
    };
    // A stamp from before the sleep means that the clock was set.
    for (mode, seconds_ago, lessons) in [
        (Mode::Adaptive, Some(0), 1),
        (Mode::Adaptive, Some(1), 0),
        (Mode::Adaptive, None, 0),
        (Mode::Interrupt, Some(0), 0),
    ] {
        let readable = EventFd::new().expect("eventfd");
        let (mut worker, _commands) = worker(Does { readable: Some(readable), ..Does::default() });
        worker.start().expect("descriptors");
        worker.idle.set_mode(mode);
        let slept = clock::now();
        worker.engine.came = seconds_ago.map(|seconds| now_ns() - seconds * 1_000_000_000);
        worker.engine.readable.iter().for_each(EventFd::signal);
        worker.sleep(slept, Instant::NEVER);
        assert_eq!(worker.engine.asked, u32::from(mode == Mode::Adaptive));
        assert_eq!(worker.counters.wake_latency.read().count(), lessons, "{mode}, {seconds_ago:?}");
        assert_eq!(worker.counters.woken_by_packet.get(), u64::from(seconds_ago.is_some()));
        // No stamp is wanted for data that come while it is awake.
        worker.look_at_fds(clock::now());
        assert_eq!(worker.engine.asked, u32::from(mode == Mode::Adaptive));
    }
}

#[test]
fn what_cannot_be_put_to_rest_is_not_slept_over() {
    let (mut worker, _commands) = worker(Does { restless: true, ..Does::default() });
    worker.sleep(clock::now(), Instant::NEVER);
    assert_eq!((worker.counters.sleeps.get(), worker.counters.woken_by_packet.get()), (1, 0));
}

/// Asserts that a worker is awake for less than a tenth of a second in which nothing comes and its limit strikes. A hypervisor that
/// takes the CPU in the middle makes it look busy, so one such second of five is enough.
fn costs_no_core(made: impl Fn() -> (Worker<Does>, Sender<Command<()>>)) {
    let awake: Vec<_> = (0..5)
        .map(|_| {
            let (worker, _commands) = made();
            awake_in_a_second(worker)
        })
        .take_while(|it| *it >= TENTH)
        .collect();
    assert!(awake.len() < 5, "{awake:?}");
}

const TENTH: Duration = Duration::from_millis(100);

/// How long a worker is awake, of a second in which nothing comes and its limit strikes.
fn awake_in_a_second(mut worker: Worker<Does>) -> Duration {
    worker.start().expect("descriptors");
    let (began, cpu) = (clock::now(), clock::thread_cpu_time());
    let end = began + Duration::from_secs(1);
    worker.engine.due.get_or_insert(end);
    while clock::now() < end {
        worker.go_on();
    }
    assert!(worker.counters.spin_limit_sleeps.get() > 0, "nothing was to be limited");
    clock::thread_cpu_time() - cpu
}

#[test]
fn a_policy_that_always_says_spin_is_overruled() {
    costs_no_core(|| {
        let (mut worker, commands) = worker(Does::default());
        let spin = Some(Duration::from_secs(3600));
        worker.idle = Idle::new(IdleConfig { spin, ..IdleConfig::default() });
        let now = clock::now();
        worker.idle.arrived(now, Arrival { first: now, last: now, count: 1 });
        assert_eq!(worker.idle.decide(now, Instant::NEVER), Decision::Turn);
        (worker, commands)
    });
}

#[test]
fn a_deadline_that_is_always_due_costs_no_core() {
    costs_no_core(|| worker(Does { due: Some(Instant::ZERO), ..Does::default() }));
}

#[test]
fn an_fd_that_is_readable_and_has_nothing_costs_no_core() {
    costs_no_core(|| {
        let readable = EventFd::new().expect("eventfd");
        readable.signal();
        worker(Does { readable: Some(readable), ..Does::default() })
    });
}
