//! Clients on the fast path, with twinpath's own transport.
//!
//! Each thread is a worker whose engine is the load; turn, idle policy, ports and stack are those of a
//! server. A round trip is measured from the turn that sends to the turn that finds the reply, so it
//! includes a whole turn.

use rustix::io::Errno;
use twinpath_attach::ClientPath;
use twinpath_config::PathAsked;
use twinpath_frame::Burst;
use twinpath_inspect::Reason;
use twinpath_load::{Codec, Load, Reply};
use twinpath_port::PortId;
use twinpath_socket_load::{Progress, Stop};
use twinpath_sys::{affinity, clock};
use twinpath_time::Instant;
use twinpath_udp::udp;
use twinpath_worker::{Engine, Io};

use crate::connection;
use crate::error::RunError;
use crate::flow::{
    Accounts, ClientInterface, Driven, HEED_INTERVAL, Link, Outcome, RING_FRAMES_MIN, drive, on_threads,
};
use crate::measured::{Measured, ThreadMeasured};
use crate::plan::{RunPlan, Transport};

/// Runs the plan once to its end, or until `stop` is requested. `progress` has one entry per thread. `codec` makes the
/// codec of a thread, by its number.
pub(super) fn run(
    plan: &RunPlan,
    stop: &Stop,
    progress: &[Progress],
    codec: impl Fn(u32) -> Result<Box<dyn Codec>, RunError>,
) -> Result<Measured, RunError> {
    let path = match (plan.transport, plan.path) {
        // The only one that leaves connections to workers.
        (Transport::Tcp, PathAsked::Auto) => PathAsked::Packet,
        (_, asked) => asked,
    };
    let found = ClientInterface::find(plan.interface.as_deref(), path, plan.target)?;
    let codecs = (0..plan.threads).map(codec).collect::<Result<Vec<_>, RunError>>()?;
    let request_len = codecs.iter().map(|codec| codec.request_len_max()).max().unwrap_or(0);
    // Twice the window fits, so that the ring loses no frames.
    let ring_frames = (2 * plan.load.inflight).next_power_of_two().max(RING_FRAMES_MIN);
    let flows = match plan.transport {
        Transport::Udp => found.open(plan.threads, request_len, ring_frames)?,
        Transport::Tcp => found.open_connections(plan.threads, ring_frames)?,
    };
    let parts = flows.into_iter().zip(codecs).zip(progress);
    let outcomes = on_threads(parts, |index, ((flow, codec), progress)| {
        if let Some(cpu) = plan.thread_cpu(index) {
            affinity::pin_current_thread(cpu)?;
        }
        match plan.transport {
            Transport::Udp => run_flow(plan, index, flow, codec, stop, progress),
            Transport::Tcp => connection::run(plan, index, flow, codec, stop, progress),
        }
    })?;
    let packets: u64 = outcomes.iter().map(|outcome| outcome.packets()).sum();
    let allocations: u64 = outcomes.iter().map(|outcome| outcome.allocations).sum();
    let mut notes = vec![found.note()];
    notes.extend(outcomes.iter().flat_map(|outcome| outcome.dropped.iter().cloned()));
    let of_thread = |Outcome { summary, cpu_time, complaint, broken, .. }| ThreadMeasured {
        summary,
        cpu_time,
        transfers: None,
        complaint,
        broken,
    };
    Ok(Measured {
        threads: outcomes.into_iter().map(of_thread).collect(),
        allocations_per_packet: (packets > 0).then(|| allocations as f64 / packets as f64),
        path: found.path_name(),
        notes,
    })
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
    let load = Load::new(plan.thread_load(index), codec, clock::now())?;
    let Driven { engine, dropped } = drive(flow, plan.mode, |link| LoadEngine {
        load,
        link,
        stop,
        progress,
        at_start: None,
        at_end: None,
        heed_at: Instant::ZERO,
        done: false,
    })?;
    let (start, end) = engine.at_start.zip(engine.at_end).ok_or(RunError::EndedEarly)?;
    Ok(Outcome {
        complaint: engine.load.complaint(),
        summary: engine.load.summary(),
        cpu_time: end.cpu_time.saturating_sub(start.cpu_time),
        allocations: end.allocations - start.allocations,
        dropped,
        broken: None,
    })
}

/// A load as a worker's engine.
struct LoadEngine<'a> {
    load: Load,
    link: Link,
    stop: &'a Stop,
    progress: &'a Progress,
    /// The counters when measuring began, and when it ended.
    at_start: Option<Accounts>,
    at_end: Option<Accounts>,
    /// The latest time to check `stop` again.
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
                // It counts as lost when its time-out expires.
                io.drops().add(Reason::PoolEmpty, 1);
                continue;
            };
            let len = self.load.codec().request_len(id);
            let load = &self.load;
            let write = |payload: &mut [u8]| load.write(id, payload);
            match self.link.write(&mut frame, len, write) {
                Ok(()) => io.send(self.link.port, frame),
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
        // Sent immediately, so that the next requests leave with this turn's first flush.
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
            // This counts as work. Otherwise the worker would sleep before it checks whether it is done,
            // and might never wake.
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
