//! Attaches an interface to a path, and detaches it.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::io::Errno;
use std::sync::Arc;

use twinpath_bpf::{
    DIRECT_SLOTS, Datagrams, Kept, Path as Steered, SteerError, Steering, TcAttach, TcpFlows, XdpMode,
};
use twinpath_claims::{Claim, ClaimKind, Table, TableError};
use twinpath_frame::{HEADROOM, Mapping, Region, UMEM_CHUNK_DATA_MAX};
use twinpath_packet::xdp::{CopyMode, XdpConfig, XdpPort};
pub use twinpath_packet::{DATAGRAM_CHUNKS, SUPER_FRAME_CHUNKS};
use twinpath_packet::{PacketConfig, PacketPort};
use twinpath_port::{PORTS_MAX, PortId, PortQueue};
use twinpath_rings::direct::{self, DirectRing};
use twinpath_sys::clock;
use twinpath_sys::packet_socket::FanoutGroup;
use twinpath_time::{Duration, Instant};
use twinpath_wire::Mac;

use twinpath_config::Path;

use crate::load::{Loading, Replies, Replying, Words, word_of};

/// Maximum number of frames that a worker holds: a received burst and a burst waiting to leave, per queue,
/// and the same number for replies that an engine holds back.
const IN_HAND_FRAMES: u32 = 4 * twinpath_frame::BURST_MAX as u32;

/// Frames in transmission on the packet path: the kernel returns a frame when its receiver has taken it, and accepts no
/// more than its socket buffer allows (some 280).
const SEND_ONLY_FRAMES: u32 = 512;

/// Frames of one worker's pool: a full fill ring and a full transmit ring per queue, and the frames in a worker's
/// hands.
///
/// With the default of 512: (2 x 512 + 256) x 2 KiB = 2.5 MiB per queue on the XDP path. On the packet path the receive
/// rings are the kernel's: with 512 slots each, 2 MiB beside a pool of (256 + 512) x 2 KiB = 1.5 MiB.
#[must_use]
pub const fn pool_frames(path: Path, queues: u32, ring_frames: u32) -> u32 {
    match path {
        Path::XdpZeroCopy | Path::XdpNative | Path::XdpGeneric => queues * (2 * ring_frames + IN_HAND_FRAMES),
        Path::Packet | Path::Kernel => IN_HAND_FRAMES + SEND_ONLY_FRAMES,
    }
}

/// Bytes of receive ring that the kernel keeps for one queue, in addition to the pool.
#[must_use]
pub const fn kernel_ring_bytes(path: Path, ring_frames: u32) -> u64 {
    match path {
        Path::Packet => {
            ring_frames as u64 * twinpath_frame::CHUNK_SIZE as u64
                + DIRECT_SLOTS as u64 * direct::SLOT_LEN as u64
        }
        _ => 0,
    }
}

/// The claims on an interface, and the addresses they apply to.
#[derive(Clone, Debug)]
pub struct Target {
    /// Index of the interface.
    pub ifindex: u32,
    /// Its link-layer address.
    pub mac: Mac,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The claims.
    pub claims: Vec<Claim>,
}

impl Target {
    /// The present claims as text, for `show`. A claim at an address that the interface lacks is left out.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let takes = |claim: &&Claim| match claim.kind {
            ClaimKind::Port { address: Some(address), .. } => self.addresses.contains(&address),
            ClaimKind::Flow(flow) => self.addresses.contains(&flow.destination.ip()),
            ClaimKind::Port { address: None, .. } | ClaimKind::EtherType(_) => true,
        };
        self.claims.iter().filter(takes).map(describe).collect()
    }

    /// The same as a table, as used by the verdict.
    ///
    /// # Errors
    /// [`AttachError::Table`]
    pub fn table(&self) -> Result<Table, AttachError> {
        // The smallest frame size of all paths, so that a claim has the same effect on all of them.
        let mut table = Table::new(self.mac, UMEM_CHUNK_DATA_MAX.min(twinpath_frame::CHUNK_SIZE - HEADROOM))?;
        for address in &self.addresses {
            table.add_address(*address)?;
        }
        for claim in &self.claims {
            table.add_claim(claim.clone())?;
        }
        Ok(table)
    }
}

/// The reason that an interface could not be attached to a path.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The claims do not fit.
    #[error("{0}")]
    Table(#[from] TableError),
    /// The BPF side.
    #[error("{0}")]
    Steer(#[from] SteerError),
    /// A packet socket.
    #[error("{0}")]
    Packet(#[from] twinpath_packet::OpenError<SteerError>),
    /// An AF_XDP socket.
    #[error("{0}")]
    Xdp(#[from] twinpath_packet::xdp::OpenError),
    /// Sharing the memory among queues.
    #[error("cannot share the frame memory among queues: {0}")]
    ShareUmem(Errno),
    /// No descriptor left.
    #[error("cannot duplicate a socket's descriptor: {0}; raise the limit of open files (ulimit -n)")]
    Descriptor(std::io::Error),
    /// Another program has held the queue for longer than a dead owner could.
    #[error(
        "{source}; it was tried again for {waited:?}: stop the program that holds it (Linux does not tell which without CONFIG_XDP_SOCKETS_DIAG)"
    )]
    StillBusy {
        /// The error of the last try.
        source: twinpath_packet::xdp::OpenError,
        /// The time spent trying.
        waited: Duration,
    },
}

/// A queue with its worker.
pub struct PlacedQueue {
    /// Number of the worker.
    pub worker: usize,
    /// The queue.
    pub queue: Box<dyn PortQueue>,
}

/// An attached interface. Dropping it detaches the programs; the workers must give back the queues.
pub struct Attachment {
    pub(crate) steering: Steering,
    pub(crate) target: Target,
    path: Path,
    tc: Option<TcAttach>,
    queues: u32,
    /// Duplicates of the AF_XDP sockets: to steer frames to them once their worker serves them, and to read their
    /// counts of lost frames.
    sockets: Vec<(PortId, OwnedFd)>,
    /// Queues to which no frames are steered yet.
    waiting: usize,
    /// The words in which the programs record since when a frame has waited for a queue's worker; none if
    /// claims are never withdrawn.
    pending: Option<Words>,
    /// The replies that the programs send by themselves.
    pub(crate) replying: Replying,
    /// Why workers have no connections of TCP.
    no_connections: Option<String>,
}

/// Parameters of a path besides the target.
#[derive(Clone, Debug)]
pub struct AttachPlan {
    /// The path; not [`Path::Kernel`].
    pub path: Path,
    /// Receive queues of the interface.
    pub rx_queues: u32,
    /// Entries per ring.
    pub ring_frames: u32,
    /// How a program at tc ingress is attached.
    pub tc: TcAttach,
    /// Whether it is a virtual device: its frames may have partial checksums, and its queueing discipline is not
    /// needed.
    pub virtual_device: bool,
    /// The port's number in this process.
    pub port: u16,
    /// How long a frame may wait for a worker before the kernel withdraws the claims; zero: for ever.
    pub fail_open: Duration,
    /// The replies that the programs may send by themselves; `None`: none.
    pub replies: Option<Replies>,
    /// Whether super-frames come and leave as they are, which connections need. Only the packet path knows them. Each
    /// worker's pool then needs [`SUPER_FRAME_CHUNKS`] frames more.
    pub super_frames: bool,
    /// Which coalesced datagrams workers get, each as a frame. Only the packet path knows them, and only if
    /// [the kernel describes them](twinpath_bpf::describes_datagrams); otherwise the kernel has them. Each worker's pool
    /// then needs [`DATAGRAM_CHUNKS`] frames more.
    pub datagrams: Datagrams,
    /// Connections of TCP that workers have, on the packet path; `None`: the kernel has all of them. On the other paths
    /// the kernel has them in any case.
    pub connections: Option<Arc<TcpFlows>>,
}

// What the programs claim, the port takes apart.
const _: () = assert!(twinpath_claims::DATAGRAMS_MAX == twinpath_packet::DATAGRAMS_MAX);

/// How long a queue of a process that has just died may stay busy: the kernel frees its memory in a deferred work item
/// (65 ms here), so a quick restart tries again.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

impl Attachment {
    /// Attaches `target` to a path, with one region of frame memory per worker. Waits while a process that has just died
    /// may still hold a queue; a caller that must not wait has [`Attaching`].
    ///
    /// # Errors
    /// [`AttachError`]; in this case nothing stays attached.
    pub fn attach(
        target: Target,
        plan: &AttachPlan,
        regions: &[Arc<Region>],
    ) -> Result<(Self, Vec<PlacedQueue>), AttachError> {
        let mut attaching = Attaching::begin(target, plan, regions)?;
        while let Some(pause) = attaching.open_queues(clock::now())? {
            let pause = Timespec::try_from(pause).ok();
            // A signal ends it early, which does no harm.
            let _ = rustix::event::poll(&mut [], pause.as_ref());
        }
        Ok(attaching.finish())
    }

    fn attach_packet(
        target: Target,
        table: &Table,
        plan: &AttachPlan,
        regions: &[Arc<Region>],
    ) -> Result<(Self, Vec<PlacedQueue>), AttachError> {
        let loading = loading(Steered::Packet, regions.len() as u32, plan);
        let ((mut steering, pending, replying), mut no_connections) =
            loading.load_most(plan.replies.as_ref())?;
        if plan.connections.is_none() {
            no_connections = Some("they are switched off".to_owned());
        }
        let workers = regions.len();
        steering.attach_tc(target.ifindex, plan.tc)?;
        // A direct ring is used only if it holds as many frames as the configuration says.
        let states = if plan.ring_frames <= DIRECT_SLOTS { direct_states(&steering, workers) } else { None };
        // Without a socket the program at tc ingress decides alone. A program that outlives this process
        // would continue to do so. With several workers the kernel selects the worker by selecting the
        // socket. Super-frames come through the socket only.
        let binds_late = workers == 1 && plan.tc.ends_with_process() && !plan.super_frames;
        let (mut placed, mut waiting) = (Vec::with_capacity(workers), 0);
        let group = FanoutGroup::default();
        for (worker, region) in regions.iter().enumerate() {
            let config = PacketConfig {
                id: PortId { port: plan.port, queue: worker as u16 },
                ifindex: target.ifindex,
                ring_slots: plan.ring_frames,
                fanout_group: (workers > 1).then_some(&group),
                binds_late,
                bypass_qdisc: plan.virtual_device,
                super_frames: plan.super_frames,
                datagrams: plan.datagrams != Datagrams::None,
            };
            let sender = send_only(&config, plan, region);
            let direct = states.as_ref().and_then(|states| direct(&steering, states, worker as u32));
            // Without a socket, the worker must open its ring first.
            waiting += usize::from(binds_late && direct.is_some());
            let filter = |socket: BorrowedFd<'_>| steering.attach_socket_filter(worker as u32, socket);
            let queue = PacketPort::open(&config, filter, sender, direct)?;
            let queue = queue.failing_open(word_of(pending.as_ref(), config.id));
            placed.push(PlacedQueue { worker, queue: Box::new(queue) });
        }
        // Claims come last. From then on, the kernel does not get the frames that a socket takes. Before
        // the sockets have joined the fan-out group, each of them would take the same frame.
        steering.apply(table)?;
        let sockets = Vec::new();
        let (path, tc, queues) = (Path::Packet, Some(plan.tc), workers as u32);
        let attachment =
            Self { steering, target, path, tc, queues, sockets, waiting, pending, replying, no_connections };
        Ok((attachment, placed))
    }

    /// Attaches the programs of the XDP path, which pass all frames while their map has no sockets.
    fn attach_xdp(
        target: Target,
        table: &Table,
        plan: &AttachPlan,
        mode: XdpMode,
    ) -> Result<Self, AttachError> {
        let loading = loading(Steered::Xdp, 1, plan);
        let (mut steering, mut pending, mut replying) = loading.load(plan.replies.as_ref())?;
        let mut tc = None;
        if replying.none.is_none() {
            // Attached before the XDP program, which leaves requests to it.
            match steering.attach_tc(target.ifindex, plan.tc) {
                Ok(()) => tc = Some(plan.tc),
                Err(error) => {
                    tracing::info!("workers answer everything: {error}");
                    let why = format!("the program that replies cannot be attached: {error}");
                    (steering, pending, replying) = loading.without_replies(&why)?;
                }
            }
        }
        steering.apply(table)?;
        // If another program holds the interface, no socket has been opened in vain.
        steering.attach_xdp(target.ifindex, mode)?;
        let (path, queues) = (plan.path, plan.rx_queues);
        let no_connections = Some("workers have connections on the packet path only".to_owned());
        let (sockets, waiting) = (Vec::new(), 0);
        Ok(Self { steering, target, path, tc, queues, sockets, waiting, pending, replying, no_connections })
    }

    /// A worker now serves this queue, so frames are steered to it from here on. Until then the kernel
    /// serves them: a socket without receive buffers would lose them.
    ///
    /// # Errors
    /// The map of sockets refused it; the kernel continues to serve that queue.
    pub fn serving(&mut self, id: PortId) -> Result<(), SteerError> {
        self.waiting = self.waiting.saturating_sub(1);
        let Some((_, socket)) = self.sockets.iter().find(|(known, _)| *known == id) else { return Ok(()) };
        self.steering.set_queue(u32::from(id.queue), socket.as_fd())
    }

    /// Makes sure that our program at tc ingress is attached, and runs before all others.
    ///
    /// # Errors
    /// The order cannot be read or changed.
    pub fn keep_first(&mut self) -> Result<Kept, SteerError> {
        self.steering.keep_first(self.target.ifindex)
    }

    /// The kernel's id of our own program at the XDP hook; `None` on the packet path.
    #[must_use]
    pub fn xdp_program_id(&self) -> Option<u32> {
        self.steering.xdp_program_id()
    }

    /// Readable once the kernel has withdrawn the claims of a queue, until [`Self::read_stuck`]; `None` if it never
    /// does.
    #[must_use]
    pub fn stuck(&self) -> Option<BorrowedFd<'_>> {
        self.steering.stuck()
    }

    /// Acknowledges that event.
    pub fn read_stuck(&mut self) {
        self.steering.read_stuck();
    }

    /// If the kernel has withdrawn the claims of this queue: since when a frame has been waiting for its worker.
    #[must_use]
    pub fn stuck_since(&self, id: PortId) -> Option<Instant> {
        word_of(self.pending.as_ref(), id)?.stuck_since()
    }

    /// Queues to which no frames are steered yet.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Frames that the kernel could not deliver to a queue on the XDP path; 0 on others, where the port itself counts.
    #[must_use]
    pub fn lost_frames(&self, id: PortId) -> u64 {
        let socket = self.sockets.iter().find(|(known, _)| *known == id);
        socket.map_or(0, |(_, socket)| twinpath_packet::xdp::lost_frames(socket))
    }

    /// The path.
    #[must_use]
    pub const fn path(&self) -> Path {
        self.path
    }

    /// How the program at tc ingress is attached. `None` on the XDP paths if it does not
    /// [reply](Self::no_reflex) to requests, because that is its only purpose there.
    #[must_use]
    pub const fn tc(&self) -> Option<TcAttach> {
        self.tc
    }

    /// Why workers have no connections of TCP here, whatever claims say; `None` if they have.
    #[must_use]
    pub fn no_connections(&self) -> Option<&str> {
        self.no_connections.as_deref()
    }

    /// Queues served.
    #[must_use]
    pub const fn queues(&self) -> u32 {
        self.queues
    }

    /// The present claims.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Changes the addresses of the claims.
    ///
    /// # Errors
    /// [`AttachError`]; the former claims stay in force.
    pub fn retarget(&mut self, mac: Mac, addresses: Vec<IpAddr>) -> Result<(), AttachError> {
        self.apply(Target { mac, addresses, ..self.target.clone() })
    }

    /// Changes the claims.
    ///
    /// # Errors
    /// [`AttachError`]; the former claims stay in force.
    pub fn claim(&mut self, claims: Vec<Claim>) -> Result<(), AttachError> {
        self.apply(Target { claims, ..self.target.clone() })
    }

    fn apply(&mut self, target: Target) -> Result<(), AttachError> {
        self.steering.apply(&target.table()?)?;
        self.target = target;
        Ok(())
    }

    /// The count of each verdict by its stable name, over all CPUs.
    ///
    /// # Errors
    /// The map of counters cannot be read.
    pub fn verdicts(&self) -> Result<Vec<(&'static str, u64)>, SteerError> {
        self.steering.counters()
    }
}

/// The purpose for which the programs are loaded.
const fn loading(path: Steered, workers: u32, plan: &AttachPlan) -> Loading<'_> {
    let AttachPlan { fail_open, virtual_device, super_frames, datagrams, .. } = *plan;
    let connections = plan.connections.as_ref();
    Loading { path, workers, fail_open, virtual_device, connections, super_frames, datagrams }
}

/// An attachment whose programs are attached, and whose queues are being opened.
///
/// A process that has just died may still hold a queue. The caller waits for that as it likes, and tries again.
pub struct Attaching<'a> {
    attachment: Attachment,
    placed: Vec<PlacedQueue>,
    plan: &'a AttachPlan,
    regions: &'a [Arc<Region>],
    copy_mode: CopyMode,
    /// The frame memory of each worker that has a queue.
    umems: Vec<Option<twinpath_packet::xdp::Umem>>,
    /// AF_XDP queues to be opened, and how many are.
    served: u32,
    opened: u32,
    /// Since when the next queue has been busy.
    busy_since: Option<Instant>,
}

impl<'a> Attaching<'a> {
    /// Attaches the programs for `target`, with one region of frame memory per worker. On the packet path the queues are
    /// opened as well.
    ///
    /// # Errors
    /// [`AttachError`]; in this case nothing stays attached.
    pub fn begin(
        target: Target,
        plan: &'a AttachPlan,
        regions: &'a [Arc<Region>],
    ) -> Result<Self, AttachError> {
        let table = target.table()?;
        let (mode, copy_mode) = match plan.path {
            Path::Packet | Path::Kernel => {
                let (attachment, placed) = Attachment::attach_packet(target, &table, plan, regions)?;
                return Ok(Self::with(attachment, placed, plan, regions));
            }
            Path::XdpZeroCopy => (XdpMode::Native, CopyMode::ZeroCopy),
            Path::XdpNative => (XdpMode::Native, CopyMode::Copy),
            Path::XdpGeneric => (XdpMode::Generic, CopyMode::Copy),
        };
        let attachment = Attachment::attach_xdp(target, &table, plan, mode)?;
        let served = plan.rx_queues.min((regions.len() * PORTS_MAX) as u32);
        if served < plan.rx_queues {
            tracing::warn!(
                "queues from {served} on stay with the kernel: a worker serves at most {PORTS_MAX}"
            );
        }
        Ok(Self { copy_mode, served, ..Self::with(attachment, Vec::new(), plan, regions) })
    }

    fn with(
        attachment: Attachment,
        placed: Vec<PlacedQueue>,
        plan: &'a AttachPlan,
        regions: &'a [Arc<Region>],
    ) -> Self {
        let umems = regions.iter().map(|_| None).collect();
        let (copy_mode, served, opened, busy_since) = (CopyMode::Copy, 0, 0, None);
        Self { attachment, placed, plan, regions, copy_mode, umems, served, opened, busy_since }
    }

    /// Opens the queues that are not open yet. Returns how long to wait before the next call, if one is busy; `None`: all
    /// are open.
    ///
    /// # Errors
    /// [`AttachError`], also if a queue has been busy for longer than a dead owner could hold it.
    pub fn open_queues(&mut self, now: Instant) -> Result<Option<Duration>, AttachError> {
        while self.opened < self.served {
            match self.open_next() {
                Err(AttachError::Xdp(source @ twinpath_packet::xdp::OpenError::Busy { .. })) => {
                    let waited = now.since(*self.busy_since.get_or_insert(now));
                    if waited > BUSY_PATIENCE {
                        return Err(AttachError::StillBusy { source, waited: BUSY_PATIENCE });
                    }
                    tracing::info!("{source}; trying again, as its owner may just have died");
                    return Ok(Some(BUSY_PAUSE));
                }
                outcome => outcome?,
            }
            self.busy_since = None;
        }
        Ok(None)
    }

    fn open_next(&mut self) -> Result<(), AttachError> {
        let (queue, plan) = (self.opened, self.plan);
        let worker = queue as usize % self.regions.len();
        let config = XdpConfig {
            id: PortId { port: plan.port, queue: queue as u16 },
            ifindex: self.attachment.target.ifindex,
            ring_frames: plan.ring_frames,
            receives: true,
            copy_mode: self.copy_mode,
            virtual_device: plan.virtual_device,
        };
        let port = XdpPort::open(&config, self.umems[worker].as_ref(), &self.regions[worker])?;
        let port = port.failing_open(word_of(self.attachment.pending.as_ref(), config.id));
        if self.umems[worker].is_none() {
            self.umems[worker] = Some(port.umem().map_err(AttachError::ShareUmem)?);
        }
        let socket = port.socket().try_clone_to_owned().map_err(AttachError::Descriptor)?;
        self.attachment.sockets.push((config.id, socket));
        self.attachment.waiting += 1;
        self.placed.push(PlacedQueue { worker, queue: Box::new(port) });
        self.opened += 1;
        Ok(())
    }

    /// The attachment and its queues, once [`Self::open_queues`] has opened them all.
    #[must_use]
    pub fn finish(self) -> (Attachment, Vec<PlacedQueue>) {
        (self.attachment, self.placed)
    }
}

/// Opens an AF_XDP queue by which the packet path sends. It is optional: if the queue does not exist or
/// another program holds it, frames leave by the packet socket.
fn send_only(config: &PacketConfig<'_>, plan: &AttachPlan, region: &Region) -> Option<XdpPort> {
    let config = XdpConfig {
        id: config.id,
        ifindex: config.ifindex,
        ring_frames: SEND_ONLY_FRAMES,
        receives: false,
        copy_mode: CopyMode::Copy,
        virtual_device: plan.virtual_device,
    };
    match XdpPort::open(&config, None, region) {
        Ok(port) => Some(port),
        Err(error) => {
            tracing::info!("frames leave by the packet socket: {error}");
            None
        }
    }
}

/// The states of the workers' direct rings, which are optional.
fn direct_states(steering: &Steering, workers: usize) -> Option<Arc<Mapping>> {
    let [states, _] = steering.direct().ok()?;
    let mapped = Mapping::of_fd(states, workers * direct::STATE_LEN, 0);
    let refused = |error| tracing::info!("frames come by the packet sockets alone: {error}");
    mapped.map_err(refused).ok().map(Arc::new)
}

/// The direct ring of a worker.
fn direct(steering: &Steering, states: &Arc<Mapping>, worker: u32) -> Option<DirectRing> {
    let [_, slots] = steering.direct().ok()?;
    let bytes = DIRECT_SLOTS as usize * direct::SLOT_LEN;
    match Mapping::of_fd(slots, bytes, u64::from(worker) * bytes as u64) {
        Ok(slots) => DirectRing::new(Arc::clone(states), worker, slots, DIRECT_SLOTS as usize).ok(),
        Err(error) => {
            tracing::info!("the frames of worker {worker} come by its packet socket alone: {error}");
            None
        }
    }
}

/// A claim as text.
#[must_use]
pub fn describe(claim: &Claim) -> String {
    let what = match claim.kind {
        ClaimKind::EtherType(ethertype) => format!("ethertype {ethertype:#06x}"),
        ClaimKind::Port { protocol, port, address: None } => format!("{protocol} port {port}"),
        ClaimKind::Port { protocol, port, address: Some(address) } => {
            format!("{protocol} port {port} to {address}")
        }
        ClaimKind::Flow(flow) => format!("{} from {} to {}", flow.protocol, flow.source, flow.destination),
    };
    let vlan = claim.vlan.map(|vlan| format!(", VLAN {vlan}")).unwrap_or_default();
    let sources = if claim.sources.is_empty() { "" } else { ", from listed sources only" };
    let connections = if claim.connections { ", whole connections" } else { "" };
    format!("{what}{vlan}{sources}{connections}")
}
