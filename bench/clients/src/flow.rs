//! Flows of clients on the fast path: found, claimed, and each driven by a worker on its own thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use twinpath_attach::{Client, ClientPath};
use twinpath_config::PathAsked;
use twinpath_frame::{CHUNK_SIZE, Checksum, Frame, HEADROOM};
use twinpath_inspect::Reason;
use twinpath_load::Summary;
use twinpath_port::PortId;
use twinpath_sys::{allocations, clock};
use twinpath_tcp::{Outgoing, Tuple};
use twinpath_time::Duration;
use twinpath_udp::egress::Egress;
use twinpath_udp::udp;
use twinpath_wire::eth;
use twinpath_wire::tcp_frame::TcpFrameRepr;
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::{Engine, Worker, WorkerConfig, WorkerCounters};

use crate::error::RunError;

/// Minimum number of entries per ring: the default of a server.
pub(crate) const RING_FRAMES_MIN: u32 = 512;

/// The latest time at which a request to stop is noticed, even without replies.
pub(crate) const HEED_INTERVAL: Duration = Duration::from_millis(100);

/// Hop limit of our segments: the kernel's default (net.ipv4.ip_default_ttl).
const HOP_LIMIT: u8 = 64;

/// The longest IP packet that a frame of the pool holds.
const MTU_MAX: u32 = CHUNK_SIZE - HEADROOM - eth::HEADER_LEN as u32;

/// An interface with a fast path to the target.
pub(crate) struct ClientInterface {
    client: Client,
    interface: String,
}

impl ClientInterface {
    pub(crate) fn find(
        interface: Option<&str>,
        path: PathAsked,
        target: SocketAddr,
    ) -> Result<Self, RunError> {
        let interface = interface.ok_or(RunError::NoInterface)?;
        let client = Client::find(interface, path, target)?;
        Ok(Self { client, interface: interface.to_owned() })
    }

    /// Bytes of the largest payload that leaves in one frame.
    pub(crate) fn payload_max(&self) -> usize {
        self.client.payload_max()
    }

    /// Claims a flow for each thread, with payloads of at most `len` bytes.
    pub(crate) fn open(
        &self,
        threads: u32,
        len: usize,
        ring_frames: u32,
    ) -> Result<Vec<ClientPath>, RunError> {
        let (path, most) = (self.client.choice().path, self.payload_max());
        let interface = || self.interface.clone();
        if len > most {
            return Err(RunError::TooLong { request_len: len, interface: interface(), most });
        }
        if threads > 1 && path.is_xdp() {
            return Err(RunError::SharedQueues { threads, interface: interface(), path });
        }
        let open = |_| self.client.open(ring_frames).map_err(RunError::from);
        (0..threads).map(open).collect()
    }

    /// Claims the segments of a connection for each thread.
    pub(crate) fn open_connections(
        &self,
        threads: u32,
        ring_frames: u32,
    ) -> Result<Vec<ClientPath>, RunError> {
        let open = |_| self.client.open_connection(ring_frames).map_err(RunError::from);
        (0..threads).map(open).collect()
    }

    /// The path's name in reports.
    pub(crate) fn path_name(&self) -> String {
        let path = self.client.choice().path;
        if path.is_xdp() { "xdp".to_owned() } else { path.name().to_owned() }
    }

    /// Why this path was chosen.
    pub(crate) fn note(&self) -> String {
        let choice = self.client.choice();
        format!("path {}: {}", choice.path, choice.why)
    }
}

/// Runs each part on its own thread; `work` gets its number, from 0.
pub(crate) fn on_threads<P: Send, T: Send>(
    parts: impl Iterator<Item = P>,
    work: impl Fn(u32, P) -> Result<T, RunError> + Sync,
) -> Result<Vec<T>, RunError> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..).zip(parts).map(|(at, part)| scope.spawn(move || work(at, part))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        // All have ended before the first error is returned.
        let outcomes: Vec<Result<T, RunError>> = threads.into_iter().map(join).collect();
        outcomes.into_iter().collect()
    })
}

/// How the packets of a flow leave.
pub(crate) struct Link {
    local: SocketAddr,
    target: SocketAddr,
    egress: Egress,
    /// The port that they leave by.
    pub(crate) port: PortId,
}

impl Link {
    /// Makes `frame` a datagram of the flow; `write` writes its payload of `len` bytes.
    #[inline]
    pub(crate) fn write(
        &self,
        frame: &mut Frame,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), Reason> {
        udp::send(frame, len, self.local, self.target, &self.egress, write)
    }

    /// The two ends.
    pub(crate) fn tuple(&self) -> Tuple {
        Tuple::new(self.local, self.target)
    }

    /// Bytes of the longest IP packet that leaves in one frame.
    pub(crate) fn mtu(&self) -> u16 {
        self.egress.mtu.min(MTU_MAX) as u16
    }

    /// Makes `frame` a segment of the flow.
    #[inline]
    pub(crate) fn write_segment(&self, frame: &mut Frame, segment: &Outgoing<'_>) -> Result<(), Reason> {
        let repr = TcpFrameRepr {
            source_mac: self.egress.source_mac,
            destination_mac: self.egress.next_hop_mac,
            source: self.local.ip(),
            destination: self.target.ip(),
            hop_limit: HOP_LIMIT,
            ecn_capable: segment.capable,
            id: segment.id,
        };
        let len = repr.frame_len(segment.options.len(), segment.payload.len());
        frame.set_len(len).map_err(|_| Reason::FrameTooLarge)?;
        repr.write(frame.bytes_mut(), &segment.header, segment.options, segment.payload)
            .map_err(|_| Reason::FrameTooLarge)?;
        frame.meta_mut().checksum = Checksum::Verified;
        Ok(())
    }
}

/// An engine that has ended, and a description of the frames dropped meanwhile.
pub(crate) struct Driven<E> {
    pub(crate) engine: E,
    pub(crate) dropped: Vec<String>,
}

/// Runs a worker with the flow's queues on this thread, until its engine is done.
pub(crate) fn drive<E>(
    flow: ClientPath,
    mode: Mode,
    engine: impl FnOnce(Link) -> E,
) -> Result<Driven<E>, RunError>
where
    E: Engine<Command = (), Event = ()>,
{
    // No messages are exchanged, but dropping an end would end the worker.
    let (_commands, inbox) = mailbox(1)?;
    let (outbox, _events) = mailbox(256)?;
    let counters = Arc::new(WorkerCounters::default());
    let ClientPath { mut attachment, queues, pool, local, target, egress, socket } = flow;
    let port = queues.first().map_or_else(PortId::default, |placed| placed.queue.id());
    let engine = engine(Link { local, target, egress, port });
    let idle = IdleConfig { mode, ..IdleConfig::default() };
    let mut worker = Worker::new(&WorkerConfig { idle }, engine, pool, inbox, outbox, Arc::clone(&counters))?;
    for placed in queues {
        let id = placed.queue.id();
        worker.attach(placed.queue);
        attachment.serving(id)?;
    }
    worker.start()?;
    let remains = worker.run();
    // The programs are detached first: late replies then go to the kernel's socket that holds the port.
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
    Ok(Driven { engine: remains.engine, dropped })
}

/// The result of one flow of a load.
pub(crate) struct Outcome {
    pub(crate) summary: Summary,
    pub(crate) cpu_time: Duration,
    pub(crate) allocations: u64,
    pub(crate) dropped: Vec<String>,
    pub(crate) complaint: Option<String>,
    /// The error that ended it early, after some replies had arrived.
    pub(crate) broken: Option<String>,
}

impl Outcome {
    /// Requests and replies.
    pub(crate) fn packets(&self) -> u64 {
        self.summary.sent + self.summary.received
    }
}

/// The thread's counters at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Accounts {
    pub(crate) cpu_time: Duration,
    pub(crate) allocations: u64,
}

impl Accounts {
    pub(crate) fn now() -> Self {
        Self { cpu_time: clock::thread_cpu_time(), allocations: allocations::of_this_thread() }
    }
}
