//! The generator of `three-rtts`: a worker whose engine sends a frame when the last one has returned. The service, or
//! the port to the application, can share its thread as ports of the same worker, so that all of it turns and sleeps as
//! a worker does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::io::Errno;
use twinpath_attach::{AttachPlan, Attachment, PlacedQueue, Target, pool_frames};
use twinpath_bpf::{Datagrams, TcAttach};
use twinpath_claims::Claim;
use twinpath_config::Path;
use twinpath_frame::{BURST_MAX, Burst, Frame, Pool, Region};
use twinpath_inspect::Reason;
use twinpath_load::{Echo, Limit, Load, LoadConfig, Summary};
use twinpath_port::PortId;
use twinpath_serve::{KernelSide, ServeCommand, ServeConfig, ServeCounters, ServeEngine, ServeEvent, Served};
use twinpath_service::Reflect;
use twinpath_shm::ShmPort;
use twinpath_sys::{Namespace, affinity, clock};
use twinpath_time::Instant;
use twinpath_wire::Mac;
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::{Engine, Io, Worker, WorkerConfig, WorkerCounters};

use crate::lab::topology::{CLIENT, End, SERVER};
use crate::plain::reflect::interface_index;

/// An EtherType for experiments within one network (IEEE 802, local experimental EtherType 1).
pub(super) const ETHERTYPE: u16 = 0x88b5;

/// The numbers of ports here, which are also their indices.
const GENERATOR: u16 = 0;
const SERVICE: u16 = 1;
pub(super) const APPLICATION: u16 = 2;

/// The id of a port; each has one queue.
const fn name(port: u16) -> PortId {
    PortId { port, queue: 0 }
}

const HEADER_LEN: usize = 14;
/// 64 bytes from the Ethernet header on, without the check sequence.
const PAYLOAD_LEN: usize = 64 - HEADER_LEN;
const RING_FRAMES: u32 = 512;
const WARMUP: Duration = Duration::from_millis(50);
const LOSS_TIMEOUT: Duration = Duration::from_millis(200);

/// The role of the generator's thread besides generating.
pub(super) enum Role {
    /// None: another process sends the frames back.
    Generator,
    /// The service.
    Direct,
    /// The worker's side of the port to another process.
    HandOver(Box<ShmPort>),
}

/// The parameters of one run.
pub(super) struct Driven {
    pub(super) client: Namespace,
    pub(super) server: Namespace,
    pub(super) cpu: usize,
    pub(super) mode: Mode,
    pub(super) time: Duration,
    pub(super) role: Role,
}

/// Runs in the calling thread, which stays pinned to the CPU.
pub(super) fn run(driven: Driven) -> anyhow::Result<Summary> {
    // On a thread of its own, because the caller's returns to a pool.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("generator".to_owned());
        let thread =
            thread.spawn_scoped(scope, || on_this_thread(driven)).context("cannot start a thread")?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn on_this_thread(driven: Driven) -> anyhow::Result<Summary> {
    affinity::pin_current_thread(driven.cpu)?;
    let frames = 2 * pool_frames(Path::Packet, 1, RING_FRAMES) + 2 * BURST_MAX as u32;
    let pool = Pool::new(frames)?;
    let region = Arc::clone(pool.region());
    let mut attached = vec![attach(&driven.client, CLIENT, GENERATOR, &region)?];
    let (service, port) = match driven.role {
        Role::Generator => (Service::Elsewhere, None),
        Role::Direct => (Service::Here(Box::new(reflect())), None),
        Role::HandOver(port) => (Service::Application, Some(port)),
    };
    if !matches!(service, Service::Elsewhere) {
        attached.push(attach(&driven.server, SERVER, SERVICE, &region)?);
    }
    let load = Load::new(
        LoadConfig {
            limit: Limit::Duration(driven.time),
            warmup: WARMUP,
            loss_timeout: LOSS_TIMEOUT,
            ..LoadConfig::default()
        },
        Box::new(Echo::new(PAYLOAD_LEN, 0)?),
        clock::now(),
    )?;
    let engine = Generator { load, service, done: false };
    // No messages are exchanged, but dropping an end would end the worker.
    let (_commands, inbox) = mailbox(1)?;
    let (outbox, _events) = mailbox(16)?;
    let idle = IdleConfig { mode: driven.mode, ..IdleConfig::default() };
    let counters = Arc::new(WorkerCounters::default());
    let mut worker = Worker::new(&WorkerConfig { idle }, engine, pool, inbox, outbox, counters)?;
    let mut attachments = Vec::new();
    for (attachment, placed) in attached {
        placed.into_iter().for_each(|placed| worker.attach(placed.queue));
        attachments.push(attachment);
    }
    if let Some(port) = port {
        worker.attach(port);
    }
    worker.start()?;
    let remains = worker.run();
    // The programs first: from here on the kernel gets these frames, and drops them.
    drop(attachments);
    let mut pool = remains.pool;
    for port in remains.ports {
        port.close().into_iter().for_each(|frame| pool.release(frame));
    }
    ensure!(pool.free() == pool.frames(), "{} frames were lost to the pool", pool.frames() - pool.free());
    Ok(remains.engine.load.summary())
}

/// Attaches the interface's claim on the packet path, from within its namespace.
fn attach(
    namespace: &Namespace,
    end: End,
    port: u16,
    region: &Arc<Region>,
) -> anyhow::Result<(Attachment, Vec<PlacedQueue>)> {
    namespace.run(|| {
        let target = Target {
            ifindex: interface_index(end.interface)?,
            mac: Mac(end.mac),
            addresses: Vec::new(),
            claims: vec![Claim::ethertype(ETHERTYPE)],
        };
        let plan = AttachPlan {
            path: Path::Packet,
            rx_queues: 1,
            ring_frames: RING_FRAMES,
            tc: TcAttach::here(),
            virtual_device: true,
            port,
            fail_open: twinpath_time::Duration::ZERO,
            replies: None,
            super_frames: false,
            datagrams: Datagrams::None,
            connections: None,
        };
        let regions = [Arc::clone(region)];
        Attachment::attach(target, &plan, &regions)
            .with_context(|| format!("cannot attach to {}", end.interface))
    })?
}

/// The product's serving engine, without sockets.
fn reflect() -> ServeEngine<Reflect> {
    let config = ServeConfig {
        served: Arc::new(Served::new().with_ethertype(Some(ETHERTYPE))),
        addresses: [].into(),
        reply_rate: 0,
        any_source_port: false,
        keeper: None,
        fast_tcp: None,
        kernel: KernelSide::default(),
    };
    ServeEngine::new(Reflect, config, Arc::new(ServeCounters::for_entries(1)))
}

/// The component that sends the frames back.
enum Service {
    Elsewhere,
    Here(Box<ServeEngine<Reflect>>),
    Application,
}

struct Generator {
    load: Load,
    service: Service,
    done: bool,
}

impl Generator {
    fn send_due(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> bool {
        let mut busy = false;
        while let Some(id) = self.load.due(now) {
            busy = true;
            self.load.sent(id, now);
            let Some(mut frame) = io.take() else {
                io.drops().add(Reason::PoolEmpty, 1);
                continue;
            };
            if frame.set_len(HEADER_LEN + PAYLOAD_LEN).is_err() {
                io.release(frame);
                continue;
            }
            let (header, payload) = frame.bytes_mut().split_at_mut(HEADER_LEN);
            header[..6].copy_from_slice(&SERVER.mac);
            header[6..12].copy_from_slice(&CLIENT.mac);
            header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
            self.load.write(id, payload);
            io.send(name(GENERATOR), frame);
        }
        busy
    }

    fn returned(&mut self, now: Instant, frame: &Frame) {
        let (header, payload) = frame.bytes().split_at(HEADER_LEN.min(frame.len()));
        if header.len() == HEADER_LEN && header[..6] == CLIENT.mac && header[6..12] == SERVER.mac {
            self.load.reply(payload, now);
        }
    }
}

impl Engine for Generator {
    type Command = ServeCommand;
    type Event = ServeEvent;

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, ServeEvent>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ServeEvent>) {
        match (port.port, &mut self.service) {
            (GENERATOR, _) => {
                for frame in frames.drain(usize::MAX) {
                    self.returned(now, &frame);
                    io.release(frame);
                }
                self.send_due(now, io);
            }
            (SERVICE, Service::Here(service)) => service.receive(now, port, frames, io),
            (from, _) => {
                let other = name(if from == SERVICE { APPLICATION } else { SERVICE });
                frames.drain(usize::MAX).for_each(|frame| io.send(other, frame));
            }
        }
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, ServeEvent>) -> bool {
        false
    }

    fn run(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> bool {
        if now >= self.load.next_deadline() {
            self.load.expire(now);
        }
        if self.load.done(now) {
            self.done = true;
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

    fn command(&mut self, _now: Instant, _command: ServeCommand, _io: &mut Io<'_, ServeEvent>) {}
}
