//! Frames for ports that another worker has: they are handed over and come back, within bounds, and wake a worker that
//! sleeps.
#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant as Clock};

use rustix::io::Errno;
use twinpath_frame::{Burst, Pool};
use twinpath_inspect::Reason;
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{Capabilities, GsoKinds, PortId, PortQueue};
use twinpath_time::Instant;
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::mailbox::{Receiver, Sender, mailbox};
use twinpath_worker::peers::{LENT_MAX, mesh};
use twinpath_worker::{Command, Engine, Event, Io, Worker, WorkerConfig, WorkerCounters};

const FRAMES: u32 = 4 * LENT_MAX;

/// Maximum time to wait for an event.
const PATIENCE: Duration = Duration::from_secs(20);

/// Passes every frame on through the port whose number is its first byte, and a twin of it through port 1 if the second
/// byte says so.
struct Passes;

impl Engine for Passes {
    type Command = ();
    type Event = ();

    fn start(&mut self, _: Instant, _: &mut Io<'_, ()>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, _: Instant, _: PortId, frames: &mut Burst, io: &mut Io<'_, ()>) {
        for mut frame in frames.drain(usize::MAX) {
            if frame.bytes()[1] == 1
                && let Some(twin) = io.share(&mut frame)
            {
                io.forward_to(1, Some(twin));
            }
            io.forward_to(frame.bytes()[0].into(), Some(frame));
        }
    }

    fn ready(&mut self, _: Instant, _: u32, _: bool, _: &mut Io<'_, ()>) -> bool {
        false
    }

    fn run(&mut self, _: Instant, _: &mut Io<'_, ()>) -> bool {
        false
    }

    fn next_deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn command(&mut self, _: Instant, (): (), _: &mut Io<'_, ()>) {}
}

/// One of the workers, with the port of its number, and that port's far end.
struct One {
    worker: Worker<Passes>,
    wire: LoopbackPort,
    commands: Sender<Command<()>>,
    events: Receiver<Event<()>>,
    counters: Arc<WorkerCounters>,
}

/// This many workers, each with one port; all know the ports of the others.
fn workers(count: u16, takes: Capabilities) -> Vec<One> {
    let id = |port: u16| PortId { port, queue: 0 };
    let mut all: Vec<One> = mesh(count)
        .unwrap()
        .into_iter()
        .zip(0..count)
        .map(|(peers, number)| {
            let (commands, inbox) = mailbox(16).unwrap();
            let (outbox, events) = mailbox(64).unwrap();
            let counters = Arc::new(WorkerCounters::default());
            let config = WorkerConfig { idle: IdleConfig { mode: Mode::Interrupt, ..IdleConfig::default() } };
            let pool = Pool::new(FRAMES).unwrap();
            let worker = Worker::new(&config, Passes, pool, inbox, outbox, Arc::clone(&counters)).unwrap();
            let mut worker = worker.with_peers(peers).unwrap();
            let (inner, wire) = pair(id(number), id(90)).unwrap();
            worker.attach(Box::new(inner.with_capabilities(takes)));
            One { worker, wire, commands, events, counters }
        })
        .collect();
    for (number, one) in all.iter_mut().enumerate() {
        for port in (0..count).filter(|port| usize::from(*port) != number) {
            assert!(one.commands.send(Command::PortElsewhere { port, worker: Some(port) }).is_ok());
        }
        one.worker.turn(Instant::from_nanos(1));
    }
    all
}

const PLAIN: Capabilities = Capabilities {
    frame_len_max: 1_514,
    super_frame_len_max: 0,
    checksum: true,
    partial_checksums: false,
    segmentation: GsoKinds { tcp: false, udp: false },
    chains: false,
    tags: true,
};

/// Sends frames of 60 bytes that begin with these into a wire.
fn send(wire: &mut LoopbackPort, outside: &mut Pool, first: [u8; 2], last: impl Iterator<Item = u8>) {
    let mut burst = Burst::new();
    for last in last {
        let (mut frame, mut bytes) = (outside.take().unwrap(), [last; 60]);
        bytes[..2].copy_from_slice(&first);
        frame.copy_from(&bytes).unwrap();
        assert!(burst.push(frame).is_ok());
    }
    wire.transmit(outside, &mut burst);
    wire.flush(outside);
}

/// The last bytes of the frames that have arrived at a wire.
fn came(wire: &mut LoopbackPort, outside: &mut Pool) -> Vec<u8> {
    let (mut burst, mut came) = (Burst::new(), Vec::new());
    loop {
        wire.receive(Instant::ZERO, outside, &mut burst);
        if burst.is_empty() {
            return came;
        }
        came.extend(burst.frames().iter().map(|frame| frame.bytes()[59]));
        burst.release(usize::MAX, outside);
    }
}

/// One turn of each, the last one first: what an earlier one hands over is found by the next call.
fn turn(all: &mut [One], now: u64) {
    for one in all.iter_mut().rev() {
        let _ = one.worker.turn(Instant::from_nanos(now));
    }
}

/// The free frames of a worker's pool, and all.
fn free(one: One) -> (u32, u32) {
    let remains = one.worker.into_remains();
    (remains.pool.free(), remains.pool.frames())
}

#[test]
fn frames_cross_in_order_and_return_to_their_pool() {
    let mut outside = Pool::new(256).unwrap();
    let mut all = workers(3, PLAIN);
    let mut now = 1;
    for round in 0..200u8 {
        // From worker 0 to 1 and 2, and from 2 to 0; the frames for 2 are mirrored to 1.
        send(&mut all[0].wire, &mut outside, [1, 0], [round, 1].into_iter());
        send(&mut all[0].wire, &mut outside, [2, 1], [round, 2].into_iter());
        send(&mut all[2].wire, &mut outside, [0, 0], [round, 3].into_iter());
        now += 1;
        all.iter_mut().for_each(|one| assert!(one.worker.turn(Instant::from_nanos(now))));
        now += 1;
        turn(&mut all, now);
        let seen: Vec<_> = all.iter_mut().map(|one| came(&mut one.wire, &mut outside)).collect();
        assert_eq!(seen, [vec![round, 3], vec![round, 1, round, 2], vec![round, 2]]);
    }
    for _ in 0..2 {
        now += 1;
        turn(&mut all, now);
    }
    for one in all {
        assert_eq!(one.counters.drops.happened().collect::<Vec<_>>(), []);
        let (free, frames) = free(one);
        assert_eq!(free, frames);
    }
}

#[test]
fn a_worker_that_does_not_turn_gets_no_more_than_its_bound() {
    let mut outside = Pool::new(256).unwrap();
    let mut all = workers(2, PLAIN);
    let batch = 32_u64;
    for now in 0..u64::from(LENT_MAX) / batch + 3 {
        send(&mut all[0].wire, &mut outside, [1, 0], 0..batch as u8);
        all[0].worker.turn(Instant::from_nanos(10 + now));
    }
    assert_eq!(all[0].counters.drops.get(Reason::HandoffFull), 3 * batch);
    // When it turns again, all that it got leaves, and there is room again.
    for now in 0..2 * u64::from(LENT_MAX) / batch {
        turn(&mut all, 1_000 + now);
    }
    assert_eq!(came(&mut all[1].wire, &mut outside).len() as u32, LENT_MAX);
    send(&mut all[0].wire, &mut outside, [1, 0], 0..5);
    for now in 0..3 {
        turn(&mut all, 5_000 + now);
    }
    assert_eq!(came(&mut all[1].wire, &mut outside), [0, 1, 2, 3, 4]);
    assert_eq!(all[0].counters.drops.get(Reason::HandoffFull), 3 * batch);
    // A port that has moved away, and one that no worker has.
    assert!(all[0].commands.send(Command::PortElsewhere { port: 1, worker: None }).is_ok());
    all[0].worker.turn(Instant::from_nanos(6_000));
    send(&mut all[0].wire, &mut outside, [1, 0], 0..5);
    send(&mut all[0].wire, &mut outside, [77, 0], 0..5);
    all[0].worker.turn(Instant::from_nanos(6_001));
    assert_eq!(all[0].counters.drops.get(Reason::PortDown), 10);
    for one in all {
        let (free, frames) = free(one);
        assert_eq!(free, frames);
    }
}

/// Waits until `is_so`; fails after [`PATIENCE`].
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Clock::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} did not happen");
        thread::yield_now();
    }
}

#[test]
fn a_worker_that_sleeps_is_woken_once_for_what_is_handed_over() {
    let mut outside = Pool::new(256).unwrap();
    let mut all = workers(2, PLAIN);
    let mut second = all.pop().unwrap();
    let mut first = all.pop().unwrap();
    let (counters, commands) = (Arc::clone(&second.counters), second.commands);
    let mut worker = second.worker;
    let thread = thread::spawn(move || {
        worker.start().unwrap();
        worker.run()
    });
    for round in 1..=20u8 {
        wait_for("its sleep", || counters.sleeps.get() > counters.wakeups.get());
        let signals = first.counters.handoff_signals.get();
        send(&mut first.wire, &mut outside, [1, 0], (0..20).map(|_| round));
        first.worker.turn(Instant::from_nanos(u64::from(round)));
        let mut arrived = Vec::new();
        wait_for("the arrival", || {
            arrived.extend(came(&mut second.wire, &mut outside));
            arrived.len() == 20
        });
        assert!(arrived.iter().all(|last| *last == round));
        let signals = first.counters.handoff_signals.get() - signals;
        assert!(signals <= 1, "{signals} signals for one turn");
    }
    assert!(first.counters.handoff_signals.get() > 0);
    drop(commands);
    let mut remains = thread.join().unwrap();
    drop(second.events);
    // All that it had is back, and the other worker finds that it has ended.
    first.worker.turn(Instant::from_nanos(100));
    send(&mut first.wire, &mut outside, [1, 0], 0..3);
    first.worker.turn(Instant::from_nanos(101));
    assert_eq!(first.counters.drops.get(Reason::PortDown), 3);
    remains.settle();
    assert_eq!(remains.pool.free(), FRAMES);
    let (free, frames) = free(first);
    assert_eq!(free, frames);
}
