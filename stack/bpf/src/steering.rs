//! The programs of one interface: loads them, gives them rules, attaches them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use aya::maps::{Map, MapData, ProgramArray, XskMap};
use aya::programs::xdp::XdpLink;
use aya::programs::{
    Program, ProgramError, ProgramFd, ProgramInfo, SchedClassifier, SocketFilter, TcAttachType, Xdp, xdp,
};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use twinpath_claims::Table;
use twinpath_time::Duration;

use crate::clsact::Position;
use crate::kept::KeptMaps;
use crate::maps::{Maps, typed, wrote};
use crate::names::{OURS, interface_name};
use crate::program::{loaded, program};
use crate::reflex::{REFLEX_PEERS_MAX, ReflexPlan, Reflexes};
use crate::stuck::{StuckRecords, stuck_after_ns};
use crate::tc::{TcLink, attach};
use crate::tcp_flows::{GivenFlows, TcpFlows};
use crate::{SteerError, TcAttach, XdpHolder, revision, xdp_holder};

static PACKET: &[u8] = include_bytes_aligned!("../object/packet.o");
static XDP: &[u8] = include_bytes_aligned!("../object/xdp.o");

pub(crate) const FILTER: &str = "twinpath_filter";
/// The rest of a filter, for claims with a reflex.
const FILTER_REPLIES: &str = "twinpath_filter_replies";
/// The rest of a filter, for segments to ports where workers may have connections.
const FILTER_TCP: &str = "twinpath_filter_tcp";
/// The rest of a filter, for coalesced datagrams.
const FILTER_DATAGRAMS: &str = "twinpath_filter_datagrams";
/// The rest of the program at tc ingress, for SYNs.
const OPENS: &str = "twinpath_opens";
/// The rest of the program at tc ingress, for coalesced datagrams while there is no socket.
const DATAGRAMS: &str = "twinpath_datagrams";
pub(crate) const INGRESS: &str = "twinpath_ingress";
/// The program that does the same if that one is attached already.
const INGRESS_AGAIN: &str = "twinpath_ingress_again";
pub(crate) const REDIRECT: &str = "twinpath_xdp";

/// Maximum number of queues with a socket: the size of the map in bpf/xdp.c.
pub const QUEUES_MAX: u32 = crate::layouts::QUEUES_MAX;

/// Maximum number of queues with their own socket filter: bpf/packet.c has this many programs.
pub const FILTERS_MAX: u32 = 64;

/// Slots of the direct ring, the same number as in a receive ring by default.
pub const DIRECT_SLOTS: u32 = 512;

/// How claimed frames reach user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// A packet socket, with the claim enforced at tc ingress.
    Packet,
    /// An AF_XDP socket.
    Xdp,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// On socket buffers, in the stack.
    Generic,
}

impl XdpMode {
    /// `native` or `generic`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// The result of [`Steering::keep_first`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The program was there and ran first.
    First,
    /// The foreign program of that name ran before ours, and now runs after it.
    Passed(String),
    /// Our program had been removed and was attached again.
    PutBack,
}

/// Which coalesced datagrams workers get, each by itself. Other than none only if
/// [the kernel describes them](crate::describes_datagrams).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Datagrams {
    /// None: they are the kernel's.
    #[default]
    None = 0,
    /// Those that come while there is a socket. A worker without one is told that it needs one; the kernel's socket has
    /// those that come before.
    BySocket = 1,
    /// All for which there is room. That takes one program more.
    All = 2,
}

/// What the programs do besides steering.
#[derive(Clone, Copy, Default)]
pub struct Features<'a> {
    /// Replies by themselves to requests of claims with a [reflex](twinpath_claims::Claim::reflex), after
    /// [`Steering::attach_tc`], and the kept replies that they repeat.
    pub reflexes: Option<(&'a ReflexPlan, Option<&'a Arc<KeptMaps>>)>,
    /// Workers have connections of TCP, on the packet path. Otherwise, and on other paths, claims on
    /// [connections](twinpath_claims::Claim::connections) claim nothing.
    pub connections: Option<&'a Arc<TcpFlows>>,
    /// The sockets of workers take segments of their connections that are longer than a slot, or coalesced, as they
    /// are. Otherwise these are dropped and counted. Every worker must have a socket then.
    pub large: bool,
    /// Which coalesced datagrams workers get, on the packet path.
    pub datagrams: Datagrams,
    /// A SYN whose checksum is wrong is the kernel's. Not for an interface whose frames may have partial checksums.
    pub verifies_syns: bool,
}

/// The loaded programs and maps of one interface. Dropping it detaches everything, as [`Steering::detach`] does.
pub struct Steering {
    tc_links: Vec<TcLink>,
    /// How they are attached.
    tc_attach: TcAttach,
    /// The revision of the list of programs at tc ingress when ours was found to run before foreign ones.
    first_at: Option<u64>,
    /// Which of the two equivalent programs is attached at tc ingress, or will be.
    ingress: &'static str,
    xdp_links: Vec<XdpLink>,
    object: Ebpf,
    maps: Maps,
    sockets: Option<XskMap<MapData>>,
    stuck: StuckRecords,
    /// Replies by the programs themselves, if they can.
    reflexes: Option<Reflexes>,
    _flows: Option<GivenFlows>,
}

impl Steering {
    /// Loads the programs that a path needs, for one worker. They never withdraw claims. Nothing is attached or claimed
    /// yet.
    ///
    /// # Errors
    /// [`SteerError::Object`], [`SteerError::Program`].
    pub fn load(path: Path) -> Result<Self, SteerError> {
        Self::load_for(path, 1, Duration::ZERO)
    }

    /// As [`Steering::load`], with a direct ring for each of `workers` workers on the packet path, and with programs
    /// that withdraw the claims of a queue once a frame has been waiting there for longer than `fail_open`, until its
    /// worker reads its rings again (zero: never). The worker reports that through [`Steering::pending`].
    ///
    /// # Errors
    /// As [`Steering::load`]; [`SteerError::Program`] also if the kernel has no coarse clock for programs (added in
    /// Linux 5.11).
    pub fn load_for(path: Path, workers: u32, fail_open: Duration) -> Result<Self, SteerError> {
        Self::load_with(path, workers, fail_open, Features::default())
    }

    /// As [`Steering::load_for`], with programs that reply by themselves to requests of claims with a
    /// [reflex](twinpath_claims::Claim::reflex), after [`Steering::attach_tc`]. They repeat the replies in `kept`.
    ///
    /// # Errors
    /// As [`Steering::load_for`]; [`SteerError::Program`] also if the kernel lacks something that the replies need.
    pub fn load_with_reflexes(
        path: Path,
        workers: u32,
        fail_open: Duration,
        plan: &ReflexPlan,
        kept: Option<&Arc<KeptMaps>>,
    ) -> Result<Self, SteerError> {
        let reflexes = Some((plan, kept));
        Self::load_with(path, workers, fail_open, Features { reflexes, ..Features::default() })
    }

    /// As [`Steering::load_for`], with programs that do more.
    ///
    /// # Errors
    /// As [`Steering::load_for`]; [`SteerError::Program`] also if the kernel lacks something that a feature needs.
    pub fn load_with(
        path: Path,
        workers: u32,
        fail_open: Duration,
        features: Features<'_>,
    ) -> Result<Self, SteerError> {
        Self::load_all(path, false, workers, fail_open, features)
    }

    /// As [`Steering::load`], but the programs return their verdict instead of acting on it: its number, and the
    /// claim's index shifted left by 8. Only for test runs; they handle traffic wrongly.
    #[doc(hidden)]
    pub fn load_for_test_run(path: Path) -> Result<Self, SteerError> {
        let datagrams = match path {
            Path::Packet => Datagrams::BySocket,
            Path::Xdp => Datagrams::None,
        };
        Self::load_all(path, true, 1, Duration::ZERO, Features { datagrams, ..Features::default() })
    }

    /// The same for the packet path with connections.
    #[doc(hidden)]
    pub fn load_connections_for_test_run(flows: &Arc<TcpFlows>) -> Result<Self, SteerError> {
        let features =
            Features { connections: Some(flows), datagrams: Datagrams::BySocket, ..Features::default() };
        Self::load_all(Path::Packet, true, 1, Duration::ZERO, features)
    }

    fn load_all(
        path: Path,
        test_run: bool,
        workers: u32,
        fail_open: Duration,
        features: Features<'_>,
    ) -> Result<Self, SteerError> {
        let plan = features.reflexes;
        let flows = features.connections.filter(|_| matches!(path, Path::Packet));
        let bytes = match path {
            Path::Packet => PACKET,
            Path::Xdp => XDP,
        };
        let mut loader = EbpfLoader::new();
        let slot_mask = DIRECT_SLOTS - 1;
        if matches!(path, Path::Packet) {
            loader.override_global("slot_mask", &slot_mask, true);
            let workers = workers.clamp(1, FILTERS_MAX);
            loader.map_max_entries("direct", workers);
            loader.map_max_entries("slots", workers * DIRECT_SLOTS);
        }
        let globals = plan.map(|(plan, kept)| ReflexGlobals::of(plan, kept));
        if let Some(globals) = &globals {
            globals.apply(&mut loader, path);
        }
        let fail_open_ns = stuck_after_ns(fail_open);
        loader.override_global("fail_open_ns", &fail_open_ns, true);
        let takes_large = u32::from(features.large);
        let takes_datagrams = features.datagrams as u32;
        if matches!(path, Path::Packet) {
            loader.override_global("takes_large", &takes_large, true);
            loader.override_global("takes_datagrams", &takes_datagrams, true);
        }
        let verifies_syns = u32::from(features.verifies_syns);
        if flows.is_some() {
            loader.override_global("verifies_syns", &verifies_syns, true);
        }
        let connections = u32::from(flows.is_some());
        loader.override_global("connections", &connections, true);
        let test_run = u32::from(test_run);
        loader.override_global("test_run", &test_run, true);
        let mut object = loader.load(bytes).map_err(|error| SteerError::Object(Box::new(error)))?;
        let more = [plan.is_some(), flows.is_some(), features.datagrams != Datagrams::None];
        load_programs(&mut object, path, more, features.datagrams == Datagrams::All)?;
        let sockets = match path {
            Path::Packet => None,
            Path::Xdp => Some(typed(&mut object, "sockets")?),
        };
        let maps = Maps::take(&mut object, flows.is_some())?;
        let given = flows.map(|flows| flows.give(&mut object)).transpose()?;
        let reflexes = plan.map(|(plan, kept)| Reflexes::take(&mut object, plan, kept)).transpose()?;
        let stuck = StuckRecords::take(&mut object, fail_open_ns)?;
        let (tc_links, xdp_links) = (Vec::new(), Vec::new());
        let (tc_attach, ingress) = (TcAttach::Tcx, INGRESS);
        let first_at = None;
        Ok(Self {
            tc_links,
            tc_attach,
            first_at,
            ingress,
            xdp_links,
            object,
            maps,
            sockets,
            stuck,
            reflexes,
            _flows: given,
        })
    }

    /// Makes the rules equal the table while traffic flows; the crate's documentation says what a change means for
    /// a frame. Waits for running programs to end, which may take tens of milliseconds.
    ///
    /// # Errors
    /// [`SteerError::Map`]; the old rules are then in force, or the new ones if only removing the old ones failed.
    pub fn apply(&mut self, table: &Table) -> Result<(), SteerError> {
        if let Some(reflexes) = &mut self.reflexes {
            // A limit applies from here on, even if the rest of the table fails.
            reflexes.apply(table)?;
        }
        self.maps.apply(table)
    }

    /// The programs' own replies; `None` if they give none.
    pub fn reflexes(&mut self) -> Option<&mut Reflexes> {
        self.reflexes.as_mut()
    }

    /// The counts of the programs' own replies; `None` if they give none.
    #[must_use]
    pub const fn counted_reflexes(&self) -> Option<&Reflexes> {
        self.reflexes.as_ref()
    }

    /// Makes a packet socket (`SOCK_RAW`, bound to `ETH_P_ALL`) receive claimed frames and nothing else. With
    /// `PACKET_FANOUT`, attach it to each socket of the group. `queue` is the number of the socket in the group,
    /// below [`FILTERS_MAX`]. Claims may be in force only after [`Steering::attach_tc`] and while every socket is
    /// in place. Otherwise the kernel gets a copy of a claimed frame, or two sockets do. So call
    /// [`Steering::apply`] last.
    ///
    /// # Errors
    /// [`SteerError::OtherPath`], [`SteerError::Queue`], [`SteerError::Filter`].
    pub fn attach_socket_filter(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        let name = if queue == 0 { FILTER.to_owned() } else { format!("{FILTER}_{queue}") };
        attach_filter(&mut self.object, (FILTER, &name), queue, socket)
    }

    /// Withholds claimed frames from the kernel, by a program at tc ingress that runs before all others. On the XDP
    /// path, it replies to requests instead, if [programs reply](Steering::load_with_reflexes); there it is
    /// attached before the XDP program, and before claims are in force. A classic filter whose process was killed
    /// drops nothing, because filters no longer leave notes. For the same reason, every worker must have a socket
    /// if [`TcAttach::ends_with_process`] is false.
    ///
    /// # Errors
    /// [`SteerError::OtherPath`], [`SteerError::NoInterface`], [`SteerError::Tcx`], [`SteerError::Clsact`],
    /// [`SteerError::NotFirst`].
    pub fn attach_tc(&mut self, ifindex: u32, how: TcAttach) -> Result<(), SteerError> {
        if self.sockets.is_some() && self.reflexes.is_none() {
            return Err(SteerError::OtherPath(INGRESS));
        }
        let ingress: &mut SchedClassifier = program(&mut self.object, self.ingress)?;
        self.tc_links.push(attach(ingress, INGRESS, ifindex, TcAttachType::Ingress, how)?);
        self.tc_attach = how;
        Ok(())
    }

    /// Makes sure that our program at tc ingress is attached and runs before foreign ones. A foreign program that
    /// runs first and ends the chain would pass frames to the kernel that the socket has received. After an error
    /// nothing has changed; call it again.
    ///
    /// # Errors
    /// As [`Steering::attach_tc`]; [`SteerError::Order`] without the right to query (CAP_SYS_ADMIN).
    pub fn keep_first(&mut self, ifindex: u32) -> Result<Kept, SteerError> {
        let kept = match self.tc_links.first() {
            None => Kept::PutBack,
            Some(TcLink::Tcx(_) | TcLink::Passable(_)) => {
                // Before the list is read, so that a change in between is not missed. If it is unknown, the list is
                // read each time.
                let revision = revision::at_ingress(ifindex).ok();
                if revision.is_some() && revision == self.first_at {
                    return Ok(Kept::First);
                }
                self.first_at = None;
                match self.before_us(ifindex)? {
                    None => {
                        self.first_at = revision;
                        return Ok(Kept::First);
                    }
                    Some(name) => Kept::Passed(name),
                }
            }
            Some(TcLink::Clsact(filter)) => match filter.position().map_err(SteerError::Leftovers)? {
                Position::First => return Ok(Kept::First),
                Position::Behind(name) => Kept::Passed(name),
                Position::Gone => Kept::PutBack,
            },
        };
        // Attach the other copy first, then detach this one, so that at every moment one of them withholds the
        // frames that the socket receives.
        let former = self.ingress;
        self.ingress = if former == INGRESS { INGRESS_AGAIN } else { INGRESS };
        let had = self.tc_links.len();
        if let Err(error) = self.attach_tc(ifindex, self.tc_attach) {
            self.ingress = former;
            return Err(error);
        }
        self.tc_links.drain(..had);
        Ok(kept)
    }

    /// The foreign program that runs before ours by tcx links.
    fn before_us(&mut self, ifindex: u32) -> Result<Option<String>, SteerError> {
        let interface = interface_name(ifindex)?;
        let order = |error| SteerError::Order { interface: interface.clone(), error: Box::new(error) };
        let ingress: &mut SchedClassifier = program(&mut self.object, self.ingress)?;
        let own = ingress.info().map_err(order)?.id();
        let (_, asked) = SchedClassifier::query_tcx(&interface, TcAttachType::Ingress).map_err(order)?;
        let name =
            |program: &ProgramInfo| program.name_as_str().unwrap_or("a program without a name").to_owned();
        // Another twinpath instance drops only its own frames: it may run before us.
        let mut in_front = asked.iter().take_while(|program| program.id() != own).map(name);
        Ok(in_front.find(|name| !name.starts_with(OURS)))
    }

    /// Attaches the XDP program to an interface, by a link. A program that is attached already stays.
    ///
    /// # Errors
    /// [`SteerError::XdpHeld`] naming that program, [`SteerError::XdpWithoutLink`], [`SteerError::Xdp`],
    /// [`SteerError::OtherPath`].
    pub fn attach_xdp(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), SteerError> {
        xdp_links()?;
        let redirect: &mut Xdp = program(&mut self.object, REDIRECT)?;
        let flags = match mode {
            XdpMode::Native => xdp::XdpMode::Driver,
            XdpMode::Generic => xdp::XdpMode::Skb,
        };
        let id =
            redirect.attach_to_if_index(ifindex, flags).map_err(|error| refused(ifindex, mode, error))?;
        let link = redirect.take_link(id).map_err(|error| refused(ifindex, mode, error))?;
        self.xdp_links.push(link);
        Ok(())
    }

    /// The ID of our program on the XDP hook, to tell it from a foreign one; `None` on the packet path.
    #[must_use]
    pub fn xdp_program_id(&self) -> Option<u32> {
        let redirect: &Xdp = self.object.program(REDIRECT)?.try_into().ok()?;
        redirect.info().ok().map(|info| info.id())
    }

    /// Withdraws all claims, waits until no program that still saw them runs, then detaches the programs. In this
    /// order, no frame goes to both sides. From then on nothing is added to a ring; frames that are in a ring
    /// should still be served. Takes some tens of milliseconds (an RCU grace period).
    pub fn detach(&mut self) {
        // If this fails, the links are removed nevertheless. Frames that the socket receives meanwhile then also
        // reach the kernel.
        let _ = self.maps.withdraw();
        self.tc_links.clear();
        self.xdp_links.clear();
    }

    /// The memory of the workers' direct rings, into which the programs put claimed frames while they are open: the
    /// states of all rings, one after the other, and [`DIRECT_SLOTS`] slots for each. The caller maps both. Every call
    /// returns the same memory.
    ///
    /// # Errors
    /// [`SteerError::OtherPath`].
    pub fn direct(&self) -> Result<[BorrowedFd<'_>; 2], SteerError> {
        let map = |name| match self.object.map(name) {
            Some(Map::Array(data)) => Ok(data.fd().as_fd()),
            _ => Err(SteerError::OtherPath(name)),
        };
        Ok([map("direct")?, map("slots")?])
    }

    /// The words that say since when a frame has been waiting for the worker of a queue, to be mapped: [`QUEUES_MAX`]
    /// times `twinpath_rings::pending::STRIDE` bytes. `None` if claims are never withdrawn.
    #[must_use]
    pub fn pending(&self) -> Option<BorrowedFd<'_>> {
        self.stuck.words()
    }

    /// A descriptor that becomes readable when the program has withdrawn the claims of a queue, until
    /// [`Steering::read_stuck`]. `None` if it never does.
    #[must_use]
    pub fn stuck(&self) -> Option<BorrowedFd<'_>> {
        self.stuck.readable()
    }

    /// Discards these records, so that the descriptor is no longer readable.
    pub fn read_stuck(&mut self) {
        self.stuck.discard();
    }

    /// Sends the claimed frames of a queue to an AF_XDP socket.
    ///
    /// # Errors
    /// [`SteerError::OtherPath`], [`SteerError::Queue`], [`SteerError::Map`].
    pub fn set_queue(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        self.sockets_of(queue)?.set(queue, socket, 0).map_err(wrote("sockets"))
    }

    /// Sends the claimed frames of a queue to the kernel again.
    ///
    /// # Errors
    /// [`SteerError::OtherPath`], [`SteerError::Queue`].
    pub fn clear_queue(&mut self, queue: u32) -> Result<(), SteerError> {
        // The caller wants a queue without a socket, so a missing one is fine.
        let _ = self.sockets_of(queue)?.unset(queue);
        Ok(())
    }

    fn sockets_of(&mut self, queue: u32) -> Result<&mut XskMap<MapData>, SteerError> {
        let sockets = self.sockets.as_mut().ok_or(SteerError::OtherPath("the map of sockets"))?;
        if queue < QUEUES_MAX { Ok(sockets) } else { Err(SteerError::Queue { queue, max: QUEUES_MAX }) }
    }

    /// Number of frames per verdict, by its stable name, summed over all CPUs.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn counters(&self) -> Result<Vec<(&'static str, u64)>, SteerError> {
        self.maps.counters()
    }

    pub(crate) fn loaded(&self, name: &'static str) -> Result<&Program, SteerError> {
        self.object.program(name).ok_or(SteerError::Missing(name))
    }

    /// A program of this path, for test runs.
    #[doc(hidden)]
    #[must_use]
    pub fn program(&self, name: &str) -> Option<&Program> {
        self.object.program(name)
    }
}

/// The constants of programs that reply by themselves.
struct ReflexGlobals<'a> {
    tries_worker: u32,
    partial_checksums: u32,
    station_seed: u64,
    handed_key: u64,
    kept_max: u32,
    kept_seed: u64,
    kept: Option<&'a Arc<KeptMaps>>,
}

impl<'a> ReflexGlobals<'a> {
    fn of(plan: &ReflexPlan, kept: Option<&'a Arc<KeptMaps>>) -> Self {
        // The standard library's keys are random.
        let [station_seed, handed_key] = [0; 2].map(|_| RandomState::new().build_hasher().finish());
        Self {
            tries_worker: plan.tries_worker.into(),
            partial_checksums: plan.partial_checksums.into(),
            station_seed,
            handed_key,
            kept_max: kept.map_or(0, |kept| kept.count),
            kept_seed: kept.map_or(0, |kept| kept.keys.seed()),
            kept,
        }
    }

    fn apply(&'a self, loader: &mut EbpfLoader<'a>, path: Path) {
        loader.override_global("reflexes", &1_u32, true);
        loader.override_global("tries_worker", &self.tries_worker, true);
        loader.override_global("station_seed", &self.station_seed, true);
        loader.override_global("partial_checksums", &self.partial_checksums, true);
        loader.override_global("kept_max", &self.kept_max, true);
        loader.override_global("kept_seed", &self.kept_seed, true);
        if let Some(kept) = self.kept {
            loader.override_global("kept_keys", kept.keys.words(), true);
        }
        loader.map_max_entries("peers", REFLEX_PEERS_MAX);
        if matches!(path, Path::Xdp) {
            loader.override_global("handed_key", &self.handed_key, true);
        }
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.detach();
    }
}

/// On older kernels the library would attach in a way that outlives a crash.
pub(crate) fn xdp_links() -> Result<(), SteerError> {
    if KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(5, 9, 0)) {
        Ok(())
    } else {
        Err(SteerError::XdpWithoutLink)
    }
}

/// Attaches the filter of a worker to its packet socket, and loads it first if necessary. The filter is called
/// `own`, and all of its kind `kind`.
pub(crate) fn attach_filter(
    object: &mut Ebpf,
    (kind, own): (&'static str, &str),
    worker: u32,
    socket: BorrowedFd<'_>,
) -> Result<(), SteerError> {
    if worker >= FILTERS_MAX {
        return Err(SteerError::Queue { queue: worker, max: FILTERS_MAX });
    }
    let program = object.program_mut(own).ok_or(SteerError::OtherPath(kind))?;
    let filter: &mut SocketFilter =
        program.try_into().map_err(|error| SteerError::Filter(Box::new(error)))?;
    if filter.fd().is_err() {
        loaded(kind, || filter.load())?;
    }
    // The socket owns the attachment from here on; the identifier is not needed.
    filter.attach(socket).map_err(|error| SteerError::Filter(Box::new(error)))?;
    Ok(())
}

/// Loads the programs of a path.
fn load_programs(
    object: &mut Ebpf,
    path: Path,
    features: [bool; 3],
    all_datagrams: bool,
) -> Result<(), SteerError> {
    let [replies, connections, _] = features;
    match path {
        Path::Packet => {
            let filter = program::<SocketFilter>(object, FILTER)?;
            loaded(FILTER, || filter.load())?;
            for (at, name) in [(0, FILTER_REPLIES), (1, FILTER_TCP), (2, FILTER_DATAGRAMS)] {
                if features[at] {
                    let rest = program::<SocketFilter>(object, name)?;
                    loaded(name, || rest.load())?;
                    let fd = rest.fd().and_then(|fd| Ok(fd.try_clone()?));
                    go_on_in(object, ("filter_goes_on", at as u32), name, fd)?;
                }
            }
            for (at, name, is_used) in [(0, OPENS, connections), (1, DATAGRAMS, all_datagrams)] {
                if is_used {
                    let rest = program::<SchedClassifier>(object, name)?;
                    loaded(name, || rest.load())?;
                    let fd = rest.fd().and_then(|fd| Ok(fd.try_clone()?));
                    go_on_in(object, ("ingress_decides", at), name, fd)?;
                }
            }
        }
        Path::Xdp => {
            let redirect = program::<Xdp>(object, REDIRECT)?;
            loaded(REDIRECT, || redirect.load())?;
        }
    }
    if matches!(path, Path::Packet) || replies {
        for name in [INGRESS, INGRESS_AGAIN] {
            let ingress = program::<SchedClassifier>(object, name)?;
            loaded(name, || ingress.load())?;
        }
        let fd = program::<SchedClassifier>(object, INGRESS)?.fd().and_then(|fd| Ok(fd.try_clone()?));
        go_on_in(object, ("ingress_goes_on", 0), INGRESS, fd)?;
    }
    Ok(())
}

/// Puts a program where others find it for their tail call.
fn go_on_in(
    object: &mut Ebpf,
    (found_in, at): (&'static str, u32),
    name: &'static str,
    fd: Result<ProgramFd, ProgramError>,
) -> Result<(), SteerError> {
    let fd = fd.map_err(|error| SteerError::Program { name, error: Box::new(error) })?;
    let map = object.map_mut(found_in).ok_or(SteerError::Missing(found_in))?;
    let mut array = ProgramArray::try_from(map).map_err(wrote(found_in))?;
    array.set(at, &fd, 0).map_err(wrote(found_in))
}

/// The error for a refused XDP program. It names the program that holds the interface, if that is the reason.
pub(crate) fn refused(ifindex: u32, mode: XdpMode, error: ProgramError) -> SteerError {
    let held = match &error {
        ProgramError::SyscallError(error) => {
            // EEXIST: a program is attached in the other mode.
            matches!(error.io_error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
        }
        _ => false,
    };
    let holder = if held { xdp_holder(ifindex).ok().flatten() } else { None };
    match holder {
        Some(holder) => SteerError::XdpHeld(Box::new(holder)),
        None if held => SteerError::XdpHeld(Box::new(XdpHolder::UNKNOWN)),
        None => SteerError::Xdp { ifindex, mode: mode.name(), error: Box::new(error) },
    }
}
