//! Starts a switch, and opens its ports.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use twinpath_attach::mirror::table::Link;
use twinpath_attach::path::forwarding::ForwardingFacts;
use twinpath_attach::{PlacedQueue, PortSetPlan};
use twinpath_bpf::{TcAttach, Unserved};
use twinpath_config::{Offload, OnExit, PortName, PortOffload, Switch as SwitchConfig, SwitchPort};
use twinpath_frame::BURST_MAX;
use twinpath_host::machine::Machine;
use twinpath_host::sandbox::{self as sandbox, Needs};
use twinpath_host::{Captures, WorkerHandle, WorkerPlan};
use twinpath_inspect::SwitchCounters;
use twinpath_learning::{NoMemory, OnMove, Shared, Snapshot, Switch};
use twinpath_observe::metrics;
use twinpath_observe::report;
use twinpath_port::{GsoKinds, PORTS_MAX as CARRIED_MAX, PortQueue};
use twinpath_switch_engine::SwitchEngine;
use twinpath_sys::affinity::keep_current_thread_off;
use twinpath_sys::{Namespace, TrustedDir, clock, ethtool};
use twinpath_time::Duration;
use twinpath_vnet::{QUEUE_FRAMES, Tap};
use twinpath_vxlan::VxlanConfig;
use twinpath_worker::peers::{LENT_MAX, mesh};

use super::keep;
use super::port::{On, OpenError, Port, State, fit_for_a_port, make_local};
use super::snapshots::{self, Snapshots};
use super::{Source, SwitchError, SwitchPlan, Switching, configured};
use crate::homes::{Held, HoldError, HomeAt, HomeError, Homes};
use crate::memory_port::Memory;
use crate::offload::{LEARNED_HOMES_MAX, Learned, Moves, peer_of};
use crate::openflow_control::{Counts, OpenFlow};

/// Messages between control and one worker, in each direction. If more ports come and go at a time, the rest waits.
const MAILBOX_LEN: u32 = 1024;

/// Frames of one worker's pool for the queue of all interfaces of a namespace, however many they are: what the queue can
/// hold, and a burst that waits to leave by it.
///
/// (1,350 + 64) x 2 KiB = 2.8 MiB.
const FRAMES_PER_CARRIER: u32 = twinpath_carrier::QUEUE_FRAMES + BURST_MAX as u32;

/// The same for a VXLAN port, and for the host's interface.
///
/// (33 + 66 + 33 + 64) x 2 KiB = 0.4 MiB.
const FRAMES_PER_QUEUE: u32 = QUEUE_FRAMES + BURST_MAX as u32;

/// The same for a memory port, which holds no frames: 128 KiB.
const FRAMES_PER_MEMORY: u32 = BURST_MAX as u32;

/// Minimum number of frames in one worker's pool, so that ports can be added: 16 MiB. Super-frames that are flooded to
/// many ports need more; copies that find no free frame are counted (`pool_empty`).
const POOL_FRAMES_MIN: u32 = 8192;

/// Slots of the ring for all interfaces of a namespace: 4 MiB, some milliseconds at a million frames a second.
const RING_FRAMES: u32 = 2048;

/// Entries by which the kernel forwards frames, of each network namespace: some 16 MiB of the kernel's memory.
const OFFLOADED_MAX: u32 = 1 << 16;

/// The same without tables, where an entry is for two learned addresses: some 3 MiB, and 0.3 MiB for each CPU.
const LEARNED_MAX: u32 = 1 << 14;

/// With more ports than this, programs are attached by classic filters, not by BPF links. The kernel waits for an RCU
/// grace period of some 10 to 20 ms whenever a BPF link is made or ends, even when a process ends. Two links for each
/// of 1,000 ports take 40 s; a filter takes a tenth of a millisecond. A filter that a killed process leaves behind does
/// nothing, and the next start removes it.
const LINKED_MAX: usize = 64;

/// The folder of memory ports' sockets, beside the command socket.
const MEMORY_PORTS: &str = "ports";

impl Switching {
    pub(super) async fn start(
        plan: SwitchPlan,
        source: Option<Source>,
        offered: watch::Sender<Option<Rc<metrics::Server>>>,
        socket: &Path,
    ) -> Result<Self, SwitchError> {
        snapshots::check(plan.switch())?;
        let segmentation = segmentation()?;
        let homes = Homes::own(keep::take(&plan).await?).await?;
        let first = plan.switch().port.iter().filter_map(|port| port.name.as_ref()?.interface());
        let machine = Machine::learn(
            plan.machine,
            plan.idle.mode,
            &plan.cpus,
            first.into_iter().next().unwrap_or_default(),
        );
        let folder = socket.parent().unwrap_or_else(|| Path::new(".")).join(MEMORY_PORTS);
        let (shared, learned) = shared_state(plan.switch())?;
        let openflow = match plan.switch().has_tables() {
            true => Some(OpenFlow::start(&plan.name, plan.switch(), plan.workers(), seed()).await?),
            false => None,
        };
        let mut switch = Self {
            homes,
            ports: Vec::new(),
            coming: Vec::new(),
            last_number: 0,
            next_worker: 0,
            snapshots: Snapshots::new(Arc::new(Snapshot::compile(Default::default())?), plan.workers()),
            learned,
            shared,
            openflow,
            ports_changed: true,
            workers: Vec::new(),
            sweep_from: None,
            counted: Vec::new(),
            segmentation,
            folder,
            confined: Default::default(),
            machine,
            started: clock::now(),
            read_at: clock::now(),
            reloads: report::Configuration {
                file: source.as_ref().map(|source| source.file.display().to_string()).unwrap_or_default(),
                ..report::Configuration::default()
            },
            settings: plan.config.settings(&plan.usual, &plan.given),
            waiting: Vec::new(),
            offered,
            captures: Captures::default(),
            ended: mpsc::unbounded_channel(),
            source,
            plan,
        };
        let opened = switch.open_configured().await?;
        // Finding the present user of an interface needs access to other processes, so ports are opened before.
        switch.confined = sandbox::enter(switch.plan.sandbox, &switch.needs(socket));
        // Frames of interfaces wait in rings already: workers know the ports before they read the first of them.
        switch.begin_with_snapshot()?;
        if let Err(error) = switch.start_workers() {
            switch.stop();
            return Err(error);
        }
        switch.with_openflow(|openflow, workers| openflow.equip(workers));
        switch.attach_first(opened);
        switch.finish_openflow();
        switch.finish_learned();
        switch.homes.keep_no_others();
        Ok(switch)
    }

    /// Makes the ports that are configured, and opens what they are on.
    async fn open_configured(&mut self) -> Result<Vec<Opened>, SwitchError> {
        let (mut opened, mut mistakes) = (Vec::new(), Vec::new());
        let wanted = configured(self.plan.config.switch.as_ref());
        let numbers = self.numbers_for(&wanted);
        for ((name, config), number) in wanted.into_iter().zip(numbers) {
            let made = match number {
                Ok(number) => self.make_port(name.clone(), config, number).await,
                Err(error) => Err(error.into()),
            };
            match made {
                Ok((port, this)) => {
                    self.ports.push(port);
                    opened.push(this);
                }
                Err(error) => mistakes.push(format!("port {name}: {error}")),
            }
        }
        if mistakes.is_empty() { Ok(opened) } else { Err(SwitchError::Ports(mistakes)) }
    }

    fn needs(&self, socket: &Path) -> Needs {
        Needs {
            socket: socket.to_owned(),
            former_values: self.machine.former_values.clone(),
            tap: true,
            namespaces: true,
            sockets: Some(self.folder.clone()),
            listeners: self
                .plan
                .switch()
                .listen
                .iter()
                .filter_map(|it| it.path().map(Path::to_owned))
                .collect(),
            // Controllers may be given by name, also by a later configuration.
            kept: self.homes.kept().map(Path::to_owned),
            resolver: self.openflow.is_some(),
            configuration: self.source.as_ref().map(|source| source.file.clone()),
            ..Needs::default()
        }
    }

    fn start_workers(&mut self) -> Result<(), SwitchError> {
        let mut idle = self.plan.idle;
        idle.request = self.machine.may_hold();
        idle.machine = self.machine.figures();
        let count = self.plan.workers();
        let pool_frames = self.pool_frames();
        // Only ports that one worker has need it.
        let mut peers = Vec::new();
        if count > 1 {
            peers = mesh(count as u16).map_err(SwitchError::Peers)?;
        }
        let mut peers = peers.into_iter();
        for number in 0..count {
            let cpu = self.plan.cpus.get(number).copied();
            let plan = WorkerPlan {
                number,
                placement: self.machine.placement(cpu),
                idle,
                pool_frames,
                mailbox_len: MAILBOX_LEN,
            };
            let counted = Arc::<SwitchCounters>::default();
            let (snapshot, shared) = (Arc::clone(&self.snapshots.current), Arc::clone(&self.shared));
            let tables = self.openflow.as_mut().and_then(|openflow| openflow.worker(number));
            let engine = SwitchEngine::new(Switch::new(snapshot, shared, Arc::clone(&counted)), tables);
            self.workers.push(WorkerHandle::start_among(plan, engine, peers.next())?);
            self.counted.push(counted);
        }
        // What controllers ask for may take milliseconds at a time. A worker that has stepped down from its higher priority
        // would wait for that long where this thread shares its CPU.
        if let Err(error) = keep_current_thread_off(&self.plan.cpus) {
            tracing::warn!("control shares the workers' CPUs: {error}");
        }
        Ok(())
    }

    /// The frames of one worker's pool, by the ports that are configured at the start.
    fn pool_frames(&self) -> u32 {
        let workers = self.plan.workers() as u32;
        let namespaces: BTreeSet<_> = self.ports.iter().map(|port| port.home).collect();
        let own = |port: &Port| match port.on {
            On::Interface => 0,
            On::Local(_) | On::Vxlan(_) => FRAMES_PER_QUEUE,
            On::Memory(_) => FRAMES_PER_MEMORY,
        };
        let own: u32 = self.ports.iter().map(own).sum();
        let held = namespaces.len() as u32 * FRAMES_PER_CARRIER + own.div_ceil(workers);
        held.max(POOL_FRAMES_MIN) + (workers - 1) * LENT_MAX
    }

    /// Gives the workers what has been opened for all ports, in their order. The queues for interfaces come to them last, and
    /// carry all of their ports by then.
    fn attach_first(&mut self, opened: Vec<Opened>) {
        let mut placed: Vec<PlacedQueue> = Vec::new();
        for (at, opened) in opened.into_iter().enumerate() {
            let Opened::Interface(Held { queues, ports }) = opened else {
                self.attach(at, opened);
                continue;
            };
            placed.extend(queues);
            for (number, (carrier, port)) in ports.into_iter().enumerate() {
                let queue = placed.iter_mut().find(|placed| placed.queue.id() == carrier);
                let refused = match queue.and_then(|placed| placed.queue.carrier()) {
                    Some(carrier) => carrier.add(port).err(),
                    None => Some(port),
                };
                // What the queue refuses, the worker refuses as well, which is counted.
                refused.into_iter().for_each(|port| self.workers[number].add_port(carrier, port));
            }
        }
        placed.into_iter().for_each(|PlacedQueue { worker, queue }| self.workers[worker].attach(queue));
        (0..self.ports.len()).for_each(|at| self.claim(at));
    }

    /// Gives the workers what has been opened for ports, by their numbers, while the switch runs, and a snapshot with these ports.
    /// An interface is given first, and its frames come once all workers have both. In other queues frames may wait already,
    /// so workers get the snapshot before them.
    pub(super) fn bring_in(&mut self, opened: Vec<(u16, Opened)>) {
        let (interfaces, others): (Vec<_>, Vec<_>) =
            opened.into_iter().partition(|(_, opened)| matches!(opened, Opened::Interface(_)));
        let joining: Vec<_> = interfaces.iter().map(|(number, _)| *number).collect();
        for (number, opened) in interfaces {
            if let Some(at) = self.at(number) {
                self.attach(at, opened);
            }
        }
        self.take_snapshot();
        for number in joining {
            if let Some(at) = self.at(number) {
                self.ports[at].joins_with = Some(self.snapshots.number());
            }
        }
        for (number, opened) in others {
            if let Some(at) = self.at(number) {
                self.attach(at, opened);
            }
        }
        self.claim_joined();
    }

    /// Has the frames of interfaces that all workers know by now come to the workers. A worker that is stuck is not waited
    /// for: until it knows a port, it drops that port's frames (port_down).
    pub(super) fn claim_joined(&mut self) {
        let is_stuck = |worker| self.homes.stuck_since(worker).is_some();
        let adopted = self.snapshots.adopted_by_all(is_stuck);
        for at in 0..self.ports.len() {
            if self.ports[at].joins_with.is_some_and(|number| number <= adopted) {
                self.claim(at);
            }
        }
    }

    /// Has the frames of an interface that is a port come to the workers.
    fn claim(&mut self, at: usize) {
        let port = &mut self.ports[at];
        port.joins_with = None;
        if !port.is_attached() || !matches!(port.on, On::Interface) {
            return;
        }
        self.ports_changed = true;
        let unserved = match self.plan.switch().on_exit {
            OnExit::Bridge => Unserved::Kernel,
            _ => Unserved::Dropped,
        };
        if let Err(error) = self.homes.claim(port.home, port.ifindex, unserved) {
            tracing::error!("{}: {error}", port.name);
            self.detach(at, State::Refused(error.to_string()));
        }
    }

    /// Gives the workers what has been opened for the port at that place.
    fn attach(&mut self, at: usize, opened: Opened) {
        match opened {
            Opened::Nothing => {}
            Opened::Queue(queue) => {
                let (number, owner) = (self.ports[at].number, self.ports[at].worker);
                self.workers[owner].attach(queue);
                self.tell_owner(number, owner, Some(owner as u16));
            }
            Opened::Interface(Held { queues, ports }) => {
                for PlacedQueue { worker, queue } in queues {
                    self.workers[worker].attach(queue);
                }
                for (worker, (carrier, port)) in self.workers.iter_mut().zip(ports) {
                    worker.add_port(carrier, port);
                }
            }
        }
    }

    /// The worker that is to have a queue that only one of them has: each in turn.
    fn next_worker(&mut self) -> usize {
        let next = self.next_worker;
        self.next_worker = (next + 1) % self.plan.workers();
        next
    }

    /// Gives back what was opened for ports that are not to be ports after all, and returns the reasons, a line for each.
    pub(super) fn take_back(&mut self, made: Vec<(Port, Opened)>, mistakes: &[String]) -> String {
        for (mut port, opened) in made {
            let Opened::Interface(held) = opened else { continue };
            self.homes.end_thread(port.home, port.thread.take());
            if let Err(error) = self.homes.take_back(port.home, port.ifindex, held) {
                tracing::warn!("{}: {error}", port.name);
            }
        }
        mistakes.join("\n")
    }

    /// Makes a port, and opens it. One that may be absent is made without a queue.
    pub(super) async fn make_port(
        &mut self,
        name: PortName,
        config: SwitchPort,
        number: u16,
    ) -> Result<(Port, Opened), SwitchOrOpen> {
        let home = self.homes.at(name.namespace()).await?;
        let on = match &name {
            PortName::Interface { .. } | PortName::Tap(_) => On::Interface,
            PortName::Local(_) => On::Local(None),
            PortName::Vxlan { .. } => On::Vxlan(0),
            PortName::Memory(app) => {
                let path = self.folder.join(format!("{}-{app}", self.plan.name));
                let listen = |error| OpenError::Listen { path: path.display().to_string(), error };
                TrustedDir::make_shared(&self.folder)
                    .map_err(|error| listen(std::io::Error::other(error)))?;
                On::Memory(Memory::offer(&path).map_err(listen)?)
            }
        };
        let worker = if matches!(on, On::Interface) { 0 } else { self.next_worker() };
        let mut port = Port {
            name,
            config,
            number,
            home,
            state: State::Gone,
            ifindex: 0,
            on,
            worker,
            leaving: 0,
            removed: false,
            peer: None,
            xdp: None,
            thread: None,
            asked_down: None,
            settings: None,
            joins_with: None,
            before: Counts::default(),
        };
        let opened = self.open(&mut port);
        let may_be_absent = matches!(port.name, PortName::Tap(_));
        match opened {
            Err(OpenError::NoInterface { .. }) if may_be_absent => Ok((port, Opened::Nothing)),
            Err(error) => Err(error.into()),
            Ok(opened) => Ok((port, opened)),
        }
    }

    /// Opens what a port is on. A memory port has no queue before an application connects.
    pub(super) fn open(&mut self, port: &mut Port) -> Result<Opened, OpenError> {
        let id = port.id();
        let opened = match &mut port.on {
            On::Interface => {
                let name = port.name.interface().unwrap_or_default();
                let available = || self.homes.names(port.home);
                let on_exit = self.plan.switch().on_exit;
                let found = fit_for_a_port(self.homes.tables(port.home), name, on_exit, available)?;
                let link = found.ifindex;
                if let Some(other) = self.ports.iter().find(|other| other.is_on(port.home, link)) {
                    return Err(OpenError::Twice { interface: name.to_owned(), port: other.name.clone() });
                }
                let held = self.homes.hold(port.home, self.port_set(port), (port.number, link))?;
                port.ifindex = link;
                port.settings = self.homes.run(port.home, || ethtool::link_settings(name))?.ok();
                let driver = self.homes.run(port.home, || ethtool::driver(name))?;
                if driver.is_ok_and(|driver| driver.is_virtual_function()) {
                    tracing::warn!(
                        "{}: is a virtual function (SR-IOV), and its card gives it the frames for its own address only: \
                         hosts behind other ports get none through it, unless the card's owner trusts it (ip link set \
                         dev CARD vf NUMBER trust on) and its driver then takes all frames",
                        port.name
                    );
                }
                if let Err(error) = self.start_thread(port, &found) {
                    let _ = self.homes.take_back(port.home, link, held);
                    return Err(error);
                }
                if self.homes.has_entries(port.home) {
                    port.peer = self.homes.run(port.home, || peer_of(link))?.unwrap_or_default();
                    match self.forward_in_driver(port.home, &found, port.config.offload) {
                        Ok(outcome) => port.xdp = Some(outcome),
                        Err(error) => {
                            self.homes.end_thread(port.home, port.thread.take());
                            let _ = self.homes.take_back(port.home, link, held);
                            return Err(OpenError::Xdp(error));
                        }
                    }
                }
                Opened::Interface(held)
            }
            On::Local(handle) => {
                let (queue, tap, ifindex) = make_local(port.name.interface().unwrap_or_default(), id)?;
                if let Err(error) = tap.set_carrier(true) {
                    tracing::warn!("{}: no carrier: {error}", port.name);
                }
                (*handle, port.ifindex) = (Some(tap), ifindex);
                Opened::Queue(queue)
            }
            On::Memory(_) => return Ok(Opened::Nothing),
            On::Vxlan(mtu) => {
                let (SwitchPort { vni, remotes, local, udp_port, .. }, ageing_s) =
                    (&port.config, self.plan.switch().ageing_s);
                let config = VxlanConfig {
                    id,
                    vni: vni.unwrap_or_default(),
                    remotes: remotes.addresses().to_vec(),
                    local: *local,
                    udp_port: *udp_port as u16,
                    ageing: Duration::from_secs(ageing_s.into()),
                    seed: seed(),
                };
                let queue = self.homes.open_vxlan(port.home, &config)??;
                *mtu = queue.inner_mtu();
                Opened::Queue(Box::new(queue))
            }
        };
        port.state = State::Attached;
        Ok(opened)
    }

    /// Has the driver of an attached interface look for flows, if that is asked for or known to take nothing from other traffic;
    /// otherwise the reason is returned.
    fn forward_in_driver(
        &mut self,
        home: HomeAt,
        link: &Link,
        asked: PortOffload,
    ) -> Result<Result<(), String>, HoldError> {
        let obstacle = match asked {
            PortOffload::Tc => Some("offload=tc".to_owned()),
            PortOffload::Xdp => None,
            PortOffload::Auto => self.homes.run(home, || ForwardingFacts::of(link).obstacle())?,
        };
        if let Some(obstacle) = obstacle {
            return Ok(Err(obstacle));
        }
        match self.homes.attach_xdp(home, link.ifindex) {
            Ok(()) => Ok(Ok(())),
            Err(error) if asked == PortOffload::Auto => {
                tracing::warn!("frames of {} are forwarded at tc: {error}", link.name);
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// What the interfaces of a namespace get in common.
    fn port_set(&self, first: &Port) -> PortSetPlan {
        // Without a bridge, nothing could carry the frames of a stuck worker.
        let fails_open = self.plan.switch().on_exit == OnExit::Bridge;
        let fail_open = Duration::from_millis(self.plan.config.worker.fail_open_ms.into());
        PortSetPlan {
            number: 0,
            workers: self.plan.workers() as u32,
            ring_frames: RING_FRAMES,
            ports_max: CARRIED_MAX,
            fail_open: if fails_open { fail_open } else { Duration::ZERO },
            offloaded: self.entries_for(first),
            tc: self.tc_attach(),
            segmentation: self.segmentation,
        }
    }

    /// Entries by which the kernel may forward frames in the network namespace of a port. Each namespace takes memory for its own, so
    /// without tables others than the switch's own have some only if they have several ports.
    fn entries_for(&self, port: &Port) -> u32 {
        let switch = self.plan.switch();
        let namespace = port.name.namespace();
        let is_there = |name: &&PortName| name.namespace() == namespace && name.interface().is_some();
        let names = switch.port.iter().filter_map(|other| other.name.as_ref()).chain(&self.coming);
        let has_several = || names.filter(is_there).nth(1).is_some();
        match switch.offload {
            Offload::Off => 0,
            Offload::Auto if switch.has_tables() => OFFLOADED_MAX,
            Offload::Auto if self.homes.with_entries() >= LEARNED_HOMES_MAX => 0,
            Offload::Auto if namespace.is_none() || has_several() => LEARNED_MAX,
            Offload::Auto => 0,
        }
    }

    /// How the programs of a namespace's interfaces are attached: by links, unless that would take too long. Only links can be
    /// left to another process.
    fn tc_attach(&self) -> TcAttach {
        let SwitchConfig { port, on_exit, .. } = self.plan.switch();
        let keeps = matches!(on_exit, OnExit::Keep(_));
        if port.len() > LINKED_MAX && !keeps { TcAttach::Clsact } else { TcAttach::here() }
    }
}

/// What was opened for a port.
pub(super) enum Opened {
    /// It has nothing yet.
    Nothing,
    /// A queue of its own.
    Queue(Box<dyn PortQueue>),
    /// An interface, which a queue is to carry.
    Interface(Held),
}

/// What can go wrong when a port is made.
#[derive(Debug, thiserror::Error)]
pub(super) enum SwitchOrOpen {
    #[error("{0}")]
    Home(#[from] HomeError),
    #[error("{0}")]
    Open(#[from] OpenError),
}

/// The kinds of super-frames that this kernel takes from a TAP interface or a packet socket: what an interface says that
/// is made for that, where nobody sees it.
fn segmentation() -> Result<GsoKinds, SwitchError> {
    let made = Namespace::new()?.run(|| Tap::make("probe", 1))?;
    let tap = made.map_err(|error| SwitchError::Ports(vec![error.to_string()]))?;
    Ok(tap.offloads.segmentation())
}

/// What workers share, and what is for frames that the kernel forwards between learned addresses, if it may.
fn shared_state(switch: &SwitchConfig) -> Result<(Arc<Shared>, Option<Learned>), NoMemory> {
    let shared = Shared::new(switch.mac_entries, seed())?;
    if switch.offload == Offload::Off || switch.has_tables() {
        return Ok((Arc::new(shared), None));
    }
    let moves = Arc::new(Moves::new(seed()));
    let shared = Arc::new(shared.heard_by(Arc::clone(&moves) as Arc<dyn OnMove>));
    let learned = Learned::new(Arc::clone(&shared), moves);
    Ok((shared, Some(learned)))
}

/// A random secret for the MAC table.
fn seed() -> [u64; 2] {
    let random = || RandomState::new().hash_one(std::process::id());
    [random(), random()]
}
