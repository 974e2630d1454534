//! Streams of datagrams on the fast path: each thread is a worker whose engine is the stream.

use rustix::io::Errno;
use twinpath_attach::ClientPath;
use twinpath_frame::{BURST_MAX, Burst};
use twinpath_load::{DATAGRAM_MIN, Datagrams};
use twinpath_port::PortId;
use twinpath_socket_load::{Progress, Stop};
use twinpath_sys::affinity;
use twinpath_time::Instant;
use twinpath_udp::udp;
use twinpath_worker::{Engine, Io};

use super::{FlowMeasured, Moved, StreamMeasured, StreamPlan};
use crate::error::RunError;
use crate::flow::{
    Accounts, ClientInterface, Driven, HEED_INTERVAL, Link, RING_FRAMES_MIN, drive, on_threads,
};

pub(super) fn run(plan: &StreamPlan, stop: &Stop, progress: &[Progress]) -> Result<StreamMeasured, RunError> {
    let found = ClientInterface::find(plan.interface.as_deref(), plan.path, plan.target)?;
    let size = plan.size.unwrap_or_else(|| found.payload_max());
    let config = plan.datagrams(0, size);
    config.validate()?;
    let longest = Datagrams::new(config)?.question_len().max(DATAGRAM_MIN);
    let flows = found.open(plan.threads, longest, RING_FRAMES_MIN)?;
    let outcomes = on_threads(flows.into_iter().zip(progress), |index, (flow, progress)| {
        run_flow(plan, index, size, flow, stop, progress)
    })?;
    let packets: u64 = outcomes.iter().map(|outcome| outcome.packets).sum();
    let allocations: u64 = outcomes.iter().map(|outcome| outcome.allocations).sum();
    let mut notes = vec![found.note()];
    notes.extend(outcomes.iter().flat_map(|outcome| outcome.dropped.iter().cloned()));
    Ok(StreamMeasured {
        flows: outcomes.into_iter().map(|outcome| outcome.measured).collect(),
        path: found.path_name(),
        size,
        allocations_per_packet: (packets > 0).then(|| allocations as f64 / packets as f64),
        notes,
    })
}

/// The result of one flow.
struct Outcome {
    measured: FlowMeasured,
    packets: u64,
    allocations: u64,
    dropped: Vec<String>,
}

/// One thread: a worker with the flow's queues, run to the end of the stream.
fn run_flow(
    plan: &StreamPlan,
    index: u32,
    size: usize,
    flow: ClientPath,
    stop: &Stop,
    progress: &Progress,
) -> Result<Outcome, RunError> {
    if let Some(cpu) = plan.thread_cpu(index) {
        affinity::pin_current_thread(cpu)?;
    }
    let stream = Datagrams::new(plan.datagrams(index, size))?;
    let Driven { engine, dropped } = drive(flow, plan.mode, |link| StreamEngine {
        stream,
        link,
        stop,
        progress,
        before: None,
        questions: 0,
        lost: 0,
        last: 0,
        burst: BURST_MAX as u64,
        at_start: None,
        at_end: None,
        heed_at: Instant::ZERO,
    })?;
    let end = engine.at_end.unwrap_or_else(Accounts::now);
    let start = engine.at_start.unwrap_or(end);
    Ok(Outcome {
        packets: engine.stream.written(),
        allocations: end.allocations - start.allocations,
        dropped,
        measured: FlowMeasured {
            moved: Moved::Datagrams(engine.stream.summary()),
            cpu_time: end.cpu_time.saturating_sub(start.cpu_time),
            transfers: None,
            broken: None,
        },
    })
}

/// A stream as a worker's engine.
struct StreamEngine<'a> {
    stream: Datagrams,
    link: Link,
    stop: &'a Stop,
    progress: &'a Progress,
    /// Frames that had left by the port before the first one of the stream.
    before: Option<u64>,
    /// Questions among the frames given to the port.
    questions: u64,
    /// Frames for which the port had no room.
    lost: u64,
    /// Datagrams given to the port in the last turn. In this turn it may get as many as it took, plus one.
    last: u64,
    burst: u64,
    /// The counters when sending began, and when it ended.
    at_start: Option<Accounts>,
    at_end: Option<Accounts>,
    /// The latest time to check `stop` again.
    heed_at: Instant,
}

impl StreamEngine<'_> {
    /// Counts frames of earlier turns that the port did not take: all of them have been flushed.
    fn settle(&mut self, io: &Io<'_, ()>) {
        let Some(port) = io.port(self.link.port) else { return };
        let out = port.counters().frames_out.get();
        let before = *self.before.get_or_insert(out);
        let given = self.stream.written() + self.questions;
        let lost = given.saturating_sub(out - before);
        let new = lost.saturating_sub(self.lost);
        if new > 0 {
            // A question without room counts as a datagram: there is only one per second.
            self.stream.lost_here(new);
            self.lost = lost;
            self.burst = self.last.saturating_sub(new).max(1);
        } else {
            self.burst = (self.burst + 1).min(BURST_MAX as u64);
        }
    }

    fn ask(&mut self, now: Instant, io: &mut Io<'_, ()>) {
        let Some(mut frame) = io.take() else { return };
        let (link, stream) = (&self.link, &mut self.stream);
        let len = stream.question_len();
        match link.write(&mut frame, len, |payload| stream.write_question(payload, now)) {
            Ok(()) => {
                self.questions += 1;
                io.send(self.link.port, frame);
            }
            Err(reason) => {
                io.drops().add(reason, 1);
                io.release(frame);
            }
        }
    }

    fn send_due(&mut self, now: Instant, io: &mut Io<'_, ()>) {
        let due = self.stream.due(now).min(self.burst);
        let len = self.stream.config().size;
        self.last = 0;
        while self.last < due {
            // The pool's frames are under way, and will come back.
            let Some(mut frame) = io.take() else { break };
            let (link, stream) = (&self.link, &mut self.stream);
            match link.write(&mut frame, len, |payload| stream.write(payload)) {
                Ok(()) => io.send(self.link.port, frame),
                Err(reason) => {
                    io.drops().add(reason, 1);
                    io.release(frame);
                }
            }
            self.last += 1;
        }
        self.progress.add(self.last * len as u64);
    }
}

impl Engine for StreamEngine<'_> {
    type Command = ();
    type Event = ();

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, ()>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ()>) {
        let partial = io.port(port).is_some_and(|attached| attached.capabilities().partial_checksums);
        for frame in frames.drain(usize::MAX) {
            match udp::receive(&frame, partial) {
                Ok(answer) => self.stream.receive(&frame.bytes()[answer.payload], now),
                Err(reason) => io.drops().add(reason, 1),
            }
            io.release(frame);
        }
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, ()>) -> bool {
        false
    }

    fn run(&mut self, now: Instant, io: &mut Io<'_, ()>) -> bool {
        self.settle(io);
        if self.stop.is_requested() {
            self.stream.end(now);
        }
        let asks = self.stream.asks(now);
        if asks {
            self.ask(now, io);
        }
        self.send_due(now, io);
        if self.at_start.is_none() && self.stream.is_sending() {
            self.at_start = Some(Accounts::now());
        }
        if self.at_start.is_some() && self.at_end.is_none() && !self.stream.is_sending() {
            self.at_end = Some(Accounts::now());
        }
        self.heed_at = now + HEED_INTERVAL;
        // The end counts as work. Otherwise the worker would sleep before it checks whether it is done.
        asks || self.last > 0 || self.stream.is_done()
    }

    fn next_deadline(&self) -> Instant {
        self.stream.next_deadline().min(self.heed_at)
    }

    fn is_done(&self) -> bool {
        self.stream.is_done()
    }

    fn command(&mut self, _now: Instant, (): (), _io: &mut Io<'_, ()>) {}
}
