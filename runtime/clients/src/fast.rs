//! Clients on the fast path, with twinpath's own transport.
//!
//! Each thread is a worker whose engine is the load: turn, idle policy, ports and stack are those of a server. A round
//! trip counts from the turn that sends to the turn that finds the reply, so it includes a whole turn.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use rustix::io::Errno;
use twinpath_attach::{Client, ClientPath};
use twinpath_frame::Burst;
use twinpath_inspect::Reason;
use twinpath_load::{Codec, Load, Reply, Summary};
use twinpath_port::PortId;
use twinpath_socket_load::{Progress, Stop};
use twinpath_stack::egress::Egress;
use twinpath_stack::udp;
use twinpath_sys::{affinity, allocations, clock};
use twinpath_time::{Duration, Instant};
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::{Engine, Io, Worker, WorkerConfig, WorkerCounters};

use crate::error::RunError;
use crate::measured::{Measured, ThreadMeasured};
use crate::plan::RunPlan;

/// Fewest entries per ring: the default of a server.
const RING_FRAMES_MIN: u32 = 512;

/// The latest time at which a request to stop is noticed, even without replies.
const HEED_INTERVAL: Duration = Duration::from_millis(100);

/// Runs the plan once to its end, or until `stop` is requested. `progress` has one entry per thread. `codec` makes the
/// codec of a thread, by its number.
pub(super) fn run(
    plan: &RunPlan,
    stop: &Stop,
    progress: &[Progress],
    codec: impl Fn(u32) -> Result<Box<dyn Codec>, RunError>,
) -> Result<Measured, RunError> {
    let interface = plan.interface.as_deref().ok_or(RunError::NoInterface)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(Client::find(interface, plan.path, plan.target))?;
    let path = client.choice().path;
    let codecs = (0..plan.threads).map(codec).collect::<Result<Vec<_>, RunError>>()?;
    let request_len = codecs.iter().map(|codec| codec.request_len()).max().unwrap_or(0);
    let most = client.payload_max();
    if request_len > most {
        return Err(RunError::TooLong { request_len, interface: interface.to_owned(), most });
    }
    if plan.threads > 1 && path.is_xdp() {
        return Err(RunError::SharedQueues { threads: plan.threads, interface: interface.to_owned(), path });
    }
    // The window fits twice, so that the ring loses no frames.
    let ring_frames = (2 * plan.load.inflight).next_power_of_two().max(RING_FRAMES_MIN);
    let flows = (0..plan.threads)
        .map(|_| runtime.block_on(client.open(ring_frames)))
        .collect::<Result<Vec<_>, _>>()?;
    let outcomes: Vec<Result<Outcome, RunError>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .zip(flows)
            .zip(codecs)
            .zip(progress)
            .map(|(((index, flow), codec), progress)| {
                scope.spawn(move || run_flow(plan, index, flow, codec, stop, progress))
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, RunError>>()?;
    let packets: u64 = outcomes.iter().map(|outcome| outcome.packets()).sum();
    let allocations: u64 = outcomes.iter().map(|outcome| outcome.allocations).sum();
    let mut notes = vec![format!("path {path}: {}", client.choice().why)];
    notes.extend(outcomes.iter().flat_map(|outcome| outcome.dropped.iter().cloned()));
    let of_thread = |Outcome { summary, cpu_time, complaint, .. }| ThreadMeasured {
        summary,
        cpu_time,
        transfers: None,
        complaint,
        broken: None,
    };
    Ok(Measured {
        threads: outcomes.into_iter().map(of_thread).collect(),
        allocations_per_packet: (packets > 0).then(|| allocations as f64 / packets as f64),
        path: if path.is_xdp() { "xdp".to_owned() } else { path.name().to_owned() },
        notes,
    })
}

/// The result of one flow.
struct Outcome {
    summary: Summary,
    cpu_time: Duration,
    allocations: u64,
    dropped: Vec<String>,
    complaint: Option<String>,
}

impl Outcome {
    fn packets(&self) -> u64 {
        self.summary.sent + self.summary.received
    }
}

/// One thread: a worker with the flow's queues, run to the end of the load.
fn run_flow(
    plan: &RunPlan,
    index: u32,
    flow: ClientPath,
    codec: Box<dyn Codec>,
    stop: &Stop,
    progress: &Progress,
) -> Result<Outcome, RunError> {
    if let Some(cpu) = plan.thread_cpu(index) {
        affinity::pin_current_thread(cpu)?;
    }
    // No messages are exchanged, but dropping an end would end the worker.
    let (_commands, inbox) = mailbox(1)?;
    let (outbox, _events) = mailbox(256)?;
    let counters = Arc::new(WorkerCounters::default());
    let ClientPath { mut attachment, queues, pool, local, target, egress, socket } = flow;
    let load = Load::new(plan.thread_load(index), codec, clock::now())?;
    let engine = LoadEngine {
        load,
        local,
        target,
        egress,
        port: queues.first().map_or_else(PortId::default, |placed| placed.queue.id()),
        stop,
        progress,
        at_start: None,
        at_end: None,
        heed_at: Instant::ZERO,
        done: false,
    };
    let idle = IdleConfig { mode: plan.mode, request: false, ..IdleConfig::default() };
    let mut worker = Worker::new(&WorkerConfig { idle }, engine, pool, inbox, outbox, Arc::clone(&counters))?;
    for placed in queues {
        let id = placed.queue.id();
        worker.attach(placed.queue);
        attachment.serving(id)?;
    }
    worker.start()?;
    let remains = worker.run();
    // The programs first: from here on late replies go to the kernel's socket that holds the port.
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
    let (start, end) = engine.at_start.zip(engine.at_end).ok_or(RunError::EndedEarly)?;
    Ok(Outcome {
        complaint: engine.load.complaint(),
        summary: engine.load.summary(),
        cpu_time: end.cpu_time.saturating_sub(start.cpu_time),
        allocations: end.allocations - start.allocations,
        dropped,
    })
}

/// The thread's counters at one moment.
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
    /// The port by which requests leave.
    port: PortId,
    stop: &'a Stop,
    progress: &'a Progress,
    /// The counters when measuring began, and when it ended.
    at_start: Option<Accounts>,
    at_end: Option<Accounts>,
    /// When to check `stop` again at the latest.
    heed_at: Instant,
    done: bool,
}

impl LoadEngine<'_> {
    fn send_due(&mut self, now: Instant, io: &mut Io<'_, ()>) -> bool {
        let mut busy = false;
        while let Some(id) = self.load.due(now) {
            busy = true;
            self.load.sent(id, now);
            let Some(mut frame) = io.take() else {
                // It counts as lost when its time is up.
                io.drops().add(Reason::PoolEmpty, 1);
                continue;
            };
            let len = self.load.codec().request_len();
            let load = &self.load;
            let write = |payload: &mut [u8]| load.write(id, payload);
            match udp::send(&mut frame, len, self.local, self.target, &self.egress, write) {
                Ok(()) => io.send(self.port, frame),
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

    fn receive(&mut self, now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ()>) {
        let partial = io.port(port).is_some_and(|attached| attached.capabilities().partial_checksums);
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

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, ()>) -> bool {
        false
    }

    fn run(&mut self, now: Instant, io: &mut Io<'_, ()>) -> bool {
        if self.at_start.is_none() && self.load.is_measuring(now) {
            self.at_start = Some(Accounts::now());
        }
        if now >= self.load.next_deadline() {
            self.load.expire(now);
        }
        if self.load.done(now) || self.load.is_hopeless(now) || self.stop.is_requested() {
            self.done = true;
            let end = Accounts::now();
            self.at_start.get_or_insert(end);
            self.at_end = Some(end);
            // This counts as work, as otherwise the worker would sleep before it checks whether it is done, and might
            // never wake.
            return true;
        }
        self.heed_at = now + HEED_INTERVAL;
        self.send_due(now, io)
    }

    fn next_deadline(&self) -> Instant {
        self.load.next_deadline().min(self.heed_at)
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn command(&mut self, _now: Instant, (): (), _io: &mut Io<'_, ()>) {}
}
