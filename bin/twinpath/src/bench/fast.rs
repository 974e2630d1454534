//! The load over the fast path: twinpath's own transport as the client.
//!
//! A thread is a worker whose engine is the load: the same turn, idle policy, ports and stack that serve. A round trip
//! counts from the turn that sends to the turn that finds the reply, so the whole of a turn is in it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow, ensure};
use rustix::io::Errno;
use twinpath_control::instance::{Client, ClientPath};
use twinpath_frame::Burst;
use twinpath_inspect::Reason;
use twinpath_load::{Load, Reply, Summary};
use twinpath_plain::{Progress, Stop};
use twinpath_stack::egress::Egress;
use twinpath_stack::udp;
use twinpath_sys::{affinity, allocations, clock};
use twinpath_time::{Duration, Instant};
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::{Engine, Io, Worker, WorkerConfig, WorkerCounters};

use super::Measured;
use super::plan::Plan;

/// Entries per ring, at least: as a server has by default.
const RING_FRAMES_MIN: u32 = 512;

/// Runs the plan to its end, or until `stop` is requested. `progress` has one entry per thread.
pub(crate) fn run(plan: &Plan, stop: &Stop, progress: &[Progress]) -> anyhow::Result<Measured> {
    let interface = plan.interface.as_deref().context("the fast path needs an interface: add --on IFACE")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(Client::find(interface, plan.path, plan.target))?;
    let path = client.choice().path;
    ensure!(
        plan.load.payload_len <= client.payload_max(),
        "a request of {} bytes does not leave {interface} in one frame (at most {}): choose a smaller --size, or \
         leave out --on, as kernel sockets fragment",
        plan.load.payload_len,
        client.payload_max()
    );
    ensure!(
        plan.threads == 1 || !path.is_xdp(),
        "{} threads can't share the queues of {interface} on the path {path}: choose --threads 1 or --path packet",
        plan.threads
    );
    // The window fits twice, so that what is lost is not lost here.
    let ring_frames = (2 * plan.load.inflight).next_power_of_two().max(RING_FRAMES_MIN);
    let flows = (0..plan.threads)
        .map(|_| runtime.block_on(client.open(ring_frames)))
        .collect::<Result<Vec<_>, _>>()?;
    let outcomes: Vec<anyhow::Result<Outcome>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .zip(flows)
            .zip(progress)
            .map(|((index, flow), progress)| scope.spawn(move || run_flow(plan, index, flow, stop, progress)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut whole =
        Outcome { summary: Summary::empty(), cpu_time: Duration::ZERO, allocations: 0, dropped: Vec::new() };
    for outcome in outcomes {
        whole.add(&outcome?);
    }
    let packets = whole.summary.sent + whole.summary.received;
    let mut notes = vec![format!("path {path}: {}", client.choice().why)];
    notes.extend(whole.dropped);
    Ok(Measured {
        allocations_per_packet: (packets > 0).then(|| whole.allocations as f64 / packets as f64),
        summary: whole.summary,
        cpu_time: whole.cpu_time,
        path: if path.is_xdp() { "xdp".to_owned() } else { path.name().to_owned() },
        notes,
    })
}

/// What one flow measured.
struct Outcome {
    summary: Summary,
    cpu_time: Duration,
    allocations: u64,
    dropped: Vec<String>,
}

impl Outcome {
    fn add(&mut self, other: &Self) {
        self.summary.merge(&other.summary);
        self.cpu_time += other.cpu_time;
        self.allocations += other.allocations;
        self.dropped.extend_from_slice(&other.dropped);
    }
}

/// One thread: a worker with the flow's queues, run to the end of the load.
fn run_flow(
    plan: &Plan,
    index: u32,
    flow: ClientPath,
    stop: &Stop,
    progress: &Progress,
) -> anyhow::Result<Outcome> {
    if let Some(cpu) = plan.thread_cpu(index) {
        affinity::pin_current_thread(cpu)?;
    }
    // Nothing is told and nothing is said; dropping an end would end the worker.
    let (_commands, inbox) = mailbox(1)?;
    let (outbox, _events) = mailbox(256)?;
    let counters = Arc::new(WorkerCounters::default());
    let ClientPath { mut attachment, queues, pool, local, target, egress, socket } = flow;
    let load = Load::new(plan.thread_load(index), clock::now())?;
    let engine =
        LoadEngine { load, local, target, egress, stop, progress, at_start: None, at_end: None, done: false };
    let idle = IdleConfig { mode: plan.mode, request: false, ..IdleConfig::default() };
    let mut worker = Worker::new(&WorkerConfig { idle }, engine, pool, inbox, outbox, Arc::clone(&counters))?;
    for placed in queues {
        let id = placed.queue.id();
        worker.attach(placed.queue);
        attachment.serving(id)?;
    }
    worker.start()?;
    let remains = worker.run();
    // The programs first: from here on the kernel takes late replies, on the socket that holds the port.
    drop(attachment);
    drop(socket);
    let mut pool = remains.pool;
    let mut dropped = Vec::new();
    let mut note =
        |reason: Reason, count: u64| dropped.push(format!("{count} frames dropped: {}", reason.name()));
    counters.drops.happened().for_each(|(reason, count)| note(reason, count));
    for port in remains.ports {
        let counters = Arc::clone(port.counters());
        counters.drops.happened().for_each(|(reason, count)| note(reason, count));
        port.close().into_iter().for_each(|frame| pool.release(frame));
    }
    let engine = remains.engine;
    let (start, end) =
        engine.at_start.zip(engine.at_end).ok_or_else(|| anyhow!("stopped before measuring began"))?;
    Ok(Outcome {
        summary: engine.load.summary(),
        cpu_time: end.cpu_time.saturating_sub(start.cpu_time),
        allocations: end.allocations - start.allocations,
        dropped,
    })
}

/// The thread's accounts at one moment.
#[derive(Clone, Copy)]
struct Accounts {
    cpu_time: Duration,
    allocations: u64,
}

impl Accounts {
    fn now() -> Self {
        Self { cpu_time: clock::thread_cpu_time(), allocations: allocations::of_this_thread() }
    }
}

/// A load as a worker's engine.
struct LoadEngine<'a> {
    load: Load,
    local: SocketAddr,
    target: SocketAddr,
    egress: Egress,
    stop: &'a Stop,
    progress: &'a Progress,
    /// When measuring began, and when it ended.
    at_start: Option<Accounts>,
    at_end: Option<Accounts>,
    done: bool,
}

impl LoadEngine<'_> {
    fn send_due(&mut self, now: Instant, io: &mut Io<'_, ()>) -> bool {
        let mut busy = false;
        while let Some(id) = self.load.due(now) {
            busy = true;
            self.load.sent(id, now);
            let Some(mut frame) = io.take() else {
                // Counts as lost when its time is up.
                io.drops().add(Reason::PoolEmpty, 1);
                continue;
            };
            let len = self.load.config().payload_len;
            let load = &self.load;
            let write = |payload: &mut [u8]| load.write(id, payload);
            match udp::send(&mut frame, len, self.local, self.target, &self.egress, write) {
                Ok(()) => io.send(0, frame),
                Err(reason) => {
                    io.drops().add(reason, 1);
                    io.release(frame);
                }
            }
        }
        busy
    }
}

impl Engine for LoadEngine<'_> {
    type Command = ();
    type Event = ();

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, ()>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, now: Instant, port: usize, frames: &mut Burst, io: &mut Io<'_, ()>) {
        let partial =
            io.ports().get(port).is_some_and(|attached| attached.queue.capabilities().partial_checksums);
        let mut matched = 0;
        for frame in frames.drain(usize::MAX) {
            match udp::receive(&frame, partial) {
                Ok(reply) => {
                    matched +=
                        u64::from(self.load.reply(&frame.bytes()[reply.payload], now) == Reply::Matched)
                }
                Err(reason) => io.drops().add(reason, 1),
            }
            io.release(frame);
        }
        self.progress.add(matched);
        // At once, so that the next requests leave with this turn's first flush.
        self.send_due(now, io);
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, ()>) {}

    fn run(&mut self, now: Instant, io: &mut Io<'_, ()>) -> bool {
        if self.at_start.is_none() && self.load.is_measuring(now) {
            self.at_start = Some(Accounts::now());
        }
        if now >= self.load.next_deadline() {
            self.load.expire(now);
        }
        if self.load.done(now) || self.stop.is_requested() {
            self.done = true;
            self.at_end = Some(Accounts::now());
            return false;
        }
        self.send_due(now, io)
    }

    fn next_deadline(&self) -> Instant {
        self.load.next_deadline()
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn command(&mut self, _now: Instant, (): (), _io: &mut Io<'_, ()>) {}
}
