//! A load over a TCP connection on the fast path: the worker's engine is the load over twinpath's TCP engine.
//!
//! A connection is opened, used and ended by one worker. Replies are checked where their segments lie, and requests that
//! are due then leave with the acknowledgement.

use std::hash::{BuildHasher as _, RandomState};

use rustix::io::Errno;
use twinpath_attach::ClientPath;
use twinpath_frame::{Burst, Frame, GsoKind};
use twinpath_inspect::Reason;
use twinpath_load::{Codec, Cut, Load, LoadConfig, Reply};
use twinpath_port::PortId;
use twinpath_socket_load::{Progress, SocketError, Stop};
use twinpath_sys::clock;
use twinpath_tcp::{
    Config, ConnectionId, Ended, Events, Host, Options, Outgoing, Segment, Sink, Stream, Tcp, Tuple, Unknown,
    Verdict,
};
use twinpath_time::{Duration, Instant};
use twinpath_udp::udp;
use twinpath_wire::tcp_frame;
use twinpath_worker::{Engine, Io};

use crate::error::RunError;
use crate::flow::{Accounts, Driven, HEED_INTERVAL, Link, Outcome, drive};
use crate::measure::in_words;
use crate::plan::RunPlan;

/// Maximum wait for the connection: that of clients on kernel sockets.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the other end may take to end the connection, too. Then it is reset.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Timers that are served in one turn.
const TIMERS_PER_TURN: u32 = 16;

/// Bytes of the longest packet, from the Ethernet header.
const PACKET_LEN_MAX: usize = (64 << 10) + 64;

/// One thread: a worker with the flow's queues, run to the end of the load and of the connection.
pub(crate) fn run(
    plan: &RunPlan,
    index: u32,
    flow: ClientPath,
    codec: Box<dyn Codec>,
    stop: &Stop,
    progress: &Progress,
) -> Result<Outcome, RunError> {
    let config = plan.thread_load(index);
    config.validate()?;
    let options = Options { no_delay: !plan.nagle, ..Options::default() };
    let driven =
        drive(flow, plan.mode, |link| ConnectionEngine::open(link, options, (config, codec), stop, progress));
    // If one thread fails, the others need not finish.
    driven.and_then(outcome).inspect_err(|_| stop.request())
}

fn outcome(driven: Driven<ConnectionEngine<'_>>) -> Result<Outcome, RunError> {
    let Driven { engine, dropped } = driven;
    let ConnectionEngine { load, unbegun, failed, stop, at_start, at_end, .. } = engine;
    let load = match (load, unbegun, failed.is_some()) {
        (Some(load), ..) => Some(load),
        // Stopped before it was connected.
        (None, Some((config, codec)), false) => Some(Load::new(config, codec, clock::now())?),
        (None, ..) => None,
    };
    let summary = load.as_ref().map(Load::summary);
    let received = summary.as_ref().map_or(0, |summary| summary.received);
    let broken = SocketError::after_replies(failed.map_or(Ok(()), Err), received, stop)?;
    let end = at_end.unwrap_or_else(Accounts::now);
    let start = at_start.unwrap_or(end);
    Ok(Outcome {
        summary: summary.ok_or(RunError::EndedEarly)?,
        complaint: load.and_then(|load| load.complaint()),
        cpu_time: end.cpu_time.saturating_sub(start.cpu_time),
        allocations: end.allocations - start.allocations,
        dropped,
        broken: broken.map(|error| in_words(&error)),
    })
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The handshake, until then.
    Connecting(Instant),
    /// The load.
    Loading,
    /// Our end is over. The other one may take until then.
    Closing(Instant),
    /// Nothing.
    Done,
}

/// A load over a connection, as a worker's engine.
struct ConnectionEngine<'a> {
    tcp: Tcp,
    id: Option<ConnectionId>,
    link: Link,
    tuple: Tuple,
    phase: Phase,
    /// The load, once there is a connection; and what it is made of until then.
    load: Option<Load>,
    unbegun: Option<(LoadConfig, Box<dyn Codec>)>,
    failed: Option<SocketError>,
    /// Requests that are due wait for room to be written.
    is_full: bool,
    /// The bytes of a packet that came in several frames.
    whole: Vec<u8>,
    stop: &'a Stop,
    progress: &'a Progress,
    /// The counters when measuring began, and when it ended.
    at_start: Option<Accounts>,
    at_end: Option<Accounts>,
    /// The latest time to check `stop` again.
    heed_at: Instant,
}

impl<'a> ConnectionEngine<'a> {
    /// Begins the handshake, whose first segment leaves with the first turn.
    fn open(
        link: Link,
        options: Options,
        load: (LoadConfig, Box<dyn Codec>),
        stop: &'a Stop,
        progress: &'a Progress,
    ) -> Self {
        let config = Config {
            mtu: link.mtu(),
            connections: 1,
            // Segments leave in frames of the pool.
            super_segment: 0,
            // No ICMP error comes here.
            black_hole_detection: true,
            ..Config::default()
        };
        let now = clock::now();
        let mut tcp = Tcp::new(config, Unknown::LeaveToKernel, [unforeseeable(), unforeseeable()]);
        let tuple = link.tuple();
        let opened = tcp.connect(now, tuple.local(), tuple.remote(), options);
        Self {
            tcp,
            // A new engine refuses nothing.
            id: opened.ok(),
            link,
            tuple,
            phase: Phase::Connecting(now + CONNECT_TIMEOUT),
            load: None,
            unbegun: Some(load),
            failed: None,
            is_full: false,
            whole: Vec::with_capacity(PACKET_LEN_MAX),
            stop,
            progress,
            at_start: None,
            at_end: None,
            heed_at: Instant::ZERO,
        }
    }

    /// # Errors
    /// Why the segment is dropped.
    fn take(
        &mut self,
        now: Instant,
        partial: bool,
        frame: &Frame,
        io: &mut Io<'_, ()>,
    ) -> Result<(), Reason> {
        let mut program = Program { load: self.load.as_mut(), progress: self.progress, stumbles: None };
        if self.phase != Phase::Loading {
            program.load = None;
        }
        let bytes = frame.gather(&mut self.whole);
        let found = tcp_frame::parse(bytes, udp::trust(frame, partial)).map_err(udp::reason)?;
        let tuple = Tuple::new(found.destination, found.source);
        let unit = if frame.meta().gso.kind == GsoKind::None { 0 } else { frame.meta().gso.size };
        let segment = Segment::new(&found.segment, found.congestion, unit);
        let mut out = Out { link: &self.link, io };
        let verdict = self.tcp.segment(now, &tuple, &segment, &mut program, &mut out);
        match program.stumbles {
            Some(Stumble::Full) => self.is_full = true,
            Some(Stumble::Unintelligible) => self.break_off(now),
            None => {}
        }
        match verdict {
            Verdict::Taken(_) | Verdict::Answered => Ok(()),
            Verdict::LeftToKernel | Verdict::Declined => Err(Reason::NoConnection),
        }
    }

    /// Does what events ask for, and sends what is to be sent.
    fn serve(&mut self, now: Instant, io: &mut Io<'_, ()>) {
        while let Some((_, events)) = self.tcp.next_event() {
            if events.has(Events::CONNECTED) && matches!(self.phase, Phase::Connecting(_)) {
                self.begin(now);
            }
            if events.has(Events::ENDED) {
                self.ended(now);
            } else {
                self.work(now);
            }
        }
        self.tcp.output(now, &mut Out { link: &self.link, io });
    }

    /// The connection is there: the load begins.
    fn begin(&mut self, now: Instant) {
        let load = self.unbegun.take().and_then(|(config, codec)| Load::new(config, codec, now).ok());
        self.phase = if load.is_some() { Phase::Loading } else { Phase::Done };
        self.load = load;
    }

    /// Takes what has arrived, and writes what is due. Returns whether anything was written.
    fn work(&mut self, now: Instant) -> bool {
        let Some(mut stream) = self.id.and_then(|id| self.tcp.stream(now, id)) else { return false };
        let mut program = Program { load: None, progress: self.progress, stumbles: None };
        if self.phase == Phase::Loading {
            program.load = self.load.as_mut();
        }
        let written = program.work(now, &mut stream);
        let (stumbles, is_at_end) = (program.stumbles, stream.is_at_end());
        self.is_full = stumbles == Some(Stumble::Full);
        if stumbles == Some(Stumble::Unintelligible) {
            self.break_off(now);
        } else if is_at_end && self.phase == Phase::Loading {
            self.failed.get_or_insert(SocketError::Closed(self.tuple.remote()));
            self.finish(now);
        }
        written
    }

    /// What arrives is not understood: the connection is reset.
    #[cold]
    fn break_off(&mut self, now: Instant) {
        self.failed.get_or_insert(SocketError::Unintelligible(self.tuple.remote()));
        self.abort(now);
    }

    /// The connection is over.
    #[cold]
    fn ended(&mut self, now: Instant) {
        let info = self.id.and_then(|id| self.tcp.info(now, id));
        let target = self.tuple.remote();
        let failed = match (self.phase, info.and_then(|info| info.ended)) {
            (Phase::Connecting(_), Some(Ended::Refused | Ended::Reset)) => Some(SocketError::Refused(target)),
            (Phase::Connecting(_), _) => Some(timed_out(target)),
            (Phase::Loading, _) => Some(SocketError::Closed(target)),
            (Phase::Closing(_) | Phase::Done, _) => None,
        };
        if self.failed.is_none() {
            self.failed = failed;
        }
        self.account();
        self.phase = Phase::Done;
    }

    /// Ends our side in order, or gives up a handshake.
    fn finish(&mut self, now: Instant) {
        self.account();
        if self.phase != Phase::Loading {
            self.abort(now);
            return;
        }
        self.phase = Phase::Closing(now + CLOSE_TIMEOUT);
        if let Some(mut stream) = self.id.and_then(|id| self.tcp.stream(now, id)) {
            stream.end();
            // What has arrived behind the load is not read.
            stream.consume(stream.received().len());
        }
    }

    fn abort(&mut self, now: Instant) {
        self.account();
        if let Some(id) = self.id.take() {
            self.tcp.abort(now, id);
        }
        self.phase = Phase::Done;
    }

    /// Measuring is over.
    fn account(&mut self) {
        if self.at_end.is_none() {
            let end = Accounts::now();
            self.at_start.get_or_insert(end);
            self.at_end = Some(end);
        }
    }

    /// Does what is due by time, whatever arrives. Returns whether there was anything.
    fn look(&mut self, now: Instant) -> bool {
        let stops = self.stop.is_requested();
        match self.phase {
            Phase::Connecting(until) if stops || now >= until => {
                if !stops {
                    self.failed.get_or_insert(timed_out(self.tuple.remote()));
                }
                self.abort(now);
                return true;
            }
            Phase::Closing(until) if now >= until => {
                self.abort(now);
                return true;
            }
            Phase::Connecting(_) | Phase::Closing(_) | Phase::Done => return false,
            Phase::Loading => {}
        }
        let Some(load) = &mut self.load else { return false };
        if self.at_start.is_none() && load.is_measuring(now) {
            self.at_start = Some(Accounts::now());
        }
        if now >= load.next_deadline() {
            load.expire(now);
        }
        if load.done(now) || load.is_hopeless(now) || stops {
            self.finish(now);
            return true;
        }
        !self.is_full && load.has_due(now) && self.work(now)
    }
}

impl Engine for ConnectionEngine<'_> {
    type Command = ();
    type Event = ();

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, ()>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ()>) {
        let partial = io.port(port).is_some_and(|attached| attached.capabilities().partial_checksums);
        for frame in frames.drain(usize::MAX) {
            if let Err(reason) = self.take(now, partial, &frame, io) {
                io.drops().add(reason, 1);
            }
            io.release(frame);
        }
        self.serve(now, io);
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, ()>) -> bool {
        false
    }

    fn run(&mut self, now: Instant, io: &mut Io<'_, ()>) -> bool {
        let mut busy = self.look(now);
        if self.tcp.next_deadline() <= now {
            self.tcp.advance(now, TIMERS_PER_TURN, &mut Out { link: &self.link, io });
            busy = true;
            self.serve(now, io);
        }
        self.heed_at = now + HEED_INTERVAL;
        // The end counts as work. Otherwise the worker would sleep before it checks whether it is done.
        busy || self.is_done()
    }

    fn next_deadline(&self) -> Instant {
        let own = match self.phase {
            Phase::Connecting(until) | Phase::Closing(until) => until,
            Phase::Loading if !self.is_full => self.load.as_ref().map_or(Instant::NEVER, Load::next_deadline),
            Phase::Loading => Instant::NEVER,
            Phase::Done => Instant::ZERO,
        };
        own.min(self.tcp.next_deadline()).min(self.heed_at)
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    fn command(&mut self, _now: Instant, (): (), _io: &mut Io<'_, ()>) {}
}

/// Why requests that are due are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stumble {
    /// There is no room at present.
    Full,
    /// What arrives can't be divided into replies.
    Unintelligible,
}

/// The load as the program of a connection; without a load it reads and forgets.
struct Program<'a> {
    load: Option<&'a mut Load>,
    progress: &'a Progress,
    stumbles: Option<Stumble>,
}

impl Program<'_> {
    /// Takes replies, and writes requests. Returns whether any was written.
    #[inline]
    fn work(&mut self, now: Instant, stream: &mut Stream<'_>) -> bool {
        let Some(load) = self.load.as_deref_mut() else {
            stream.consume(stream.received().len());
            return false;
        };
        match take_replies(load, now, stream) {
            Some(matched) => self.progress.add(matched),
            None => {
                self.stumbles = Some(Stumble::Unintelligible);
                return false;
            }
        }
        let request_max = load.codec().request_len_max();
        let mut written = false;
        while load.has_due(now) {
            let Some(room) = stream.reserve_exactly(request_max) else {
                self.stumbles = Some(Stumble::Full);
                break;
            };
            let Some(id) = load.due(now) else { break };
            let len = load.codec().request_len(id);
            load.write(id, &mut room[..len]);
            stream.commit_bytes(len);
            load.sent(id, now);
            written = true;
        }
        written
    }
}

impl Host for Program<'_> {
    #[inline]
    fn received(&mut self, now: Instant, _id: ConnectionId, stream: &mut Stream<'_>) {
        self.work(now, stream);
    }
}

/// Takes all replies that are complete. Returns how many were right; `None`: where the next one begins can't be told.
#[inline]
fn take_replies(load: &mut Load, now: Instant, stream: &mut Stream<'_>) -> Option<u64> {
    let mut matched = 0;
    loop {
        let bytes = stream.received();
        if bytes.is_empty() {
            return Some(matched);
        }
        match load.codec().cut(bytes) {
            Cut::Whole(len) => {
                matched += u64::from(load.reply(&bytes[..len], now) == Reply::Matched);
                stream.consume(len);
            }
            Cut::Partial { .. } => return Some(matched),
            Cut::Broken => {
                load.corrupt(now);
                return None;
            }
        }
    }
}

/// Sends segments in frames of the worker, by the one next hop.
struct Out<'a, 'io> {
    link: &'a Link,
    io: &'a mut Io<'io, ()>,
}

impl Sink for Out<'_, '_> {
    #[inline]
    fn send(&mut self, _: &Tuple, segment: &Outgoing<'_>) -> bool {
        let Some(mut frame) = self.io.take() else {
            self.io.drops().add(Reason::PoolEmpty, 1);
            return false;
        };
        match self.link.write_segment(&mut frame, segment) {
            Ok(()) => self.io.send(self.link.port, frame),
            Err(reason) => {
                self.io.drops().add(reason, 1);
                self.io.release(frame);
            }
        }
        true
    }
}

fn timed_out(target: std::net::SocketAddr) -> SocketError {
    SocketError::Connect { target, source: std::io::ErrorKind::TimedOut.into() }
}

/// The library seeds its hash tables with random keys.
fn unforeseeable() -> u64 {
    RandomState::new().hash_one(0_u64)
}
