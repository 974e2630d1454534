//! Starts a switch, and opens its ports.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::engine::SwitchEngine;
use twinpath_attach::PlacedQueue;
use twinpath_bpf::Unserved;
use twinpath_config::{Offload, OnExit, PortName, Switch as SwitchConfig, SwitchPort};
use twinpath_forwarding::learning::{NoMemory, OnMove, Shared, Snapshot, Switch};
use twinpath_frame::BURST_MAX;
use twinpath_host::machine::Machine;
use twinpath_host::sandbox::{self as sandbox, Needs};
use twinpath_host::{Captures, WorkerHandle, WorkerPlan};
use twinpath_inspect::SwitchCounters;
use twinpath_observe::metrics::Offered;
use twinpath_observe::report;
use twinpath_port::GsoKinds;
use twinpath_sys::affinity::keep_current_thread_off;
use twinpath_sys::event_loop::channel::bounded;
use twinpath_sys::{Namespace, clock};
use twinpath_time::Duration;
use twinpath_vnet::Tap;
use twinpath_worker::Command;
use twinpath_worker::peers::{LENT_MAX, mesh};

use super::keep;
use super::port::{Port, State};
use super::snapshots::{self, Snapshots};
use super::{Source, SwitchError, SwitchPlan, Switching, configured};
use crate::homes::{Held, HomeError, Homes};
use crate::kinds::{self, Making, OpenError, Opened, Opening};
use crate::offload::{Learned, Moves};
use crate::openflow_control::{Counts, OpenFlow};
use crate::secret::secret;

/// Messages between control and one worker, in each direction. If more ports come and go at a time, the rest waits.
const MAILBOX_LEN: u32 = 1024;

/// Frames of one worker's pool for the queue of all interfaces of a namespace, however many they are: what the queue can
/// hold, and a burst that waits to leave by it.
///
/// (1,350 + 64) x 2 KiB = 2.8 MiB.
const FRAMES_PER_CARRIER: u32 = twinpath_vnet::carrier::QUEUE_FRAMES + BURST_MAX as u32;

/// Minimum number of frames in one worker's pool, so that ports can be added: 16 MiB. Super-frames that are flooded to
/// many ports need more; copies that find no free frame are counted (`pool_empty`).
const POOL_FRAMES_MIN: u32 = 8192;

/// The folder of memory ports' sockets, beside the command socket.
const MEMORY_PORTS: &str = "ports";

impl Switching {
    pub(super) async fn start(
        plan: SwitchPlan,
        source: Option<Source>,
        offered: Offered,
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
            true => Some(OpenFlow::start(&plan.name, plan.switch(), plan.workers(), secret()).await?),
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
            ended: bounded(usize::MAX),
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
        let own: u32 = self.ports.iter().map(|port| port.on.pool_frames()).sum();
        let held = namespaces.len() as u32 * FRAMES_PER_CARRIER + own.div_ceil(workers);
        held.max(POOL_FRAMES_MIN) + (workers - 1) * LENT_MAX
    }

    /// Gives the workers what has been opened for all ports, in their order. The queues for interfaces come to them last, and
    /// carry all of their ports by then.
    fn attach_first(&mut self, opened: Vec<Opened>) {
        let mut placed: Vec<PlacedQueue> = Vec::new();
        for (at, opened) in opened.into_iter().enumerate() {
            let Opened::Interface(_, Held { queues, ports }) = opened else {
                self.attach(at, opened);
                continue;
            };
            self.ports[at].given = self.workers.len();
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
            opened.into_iter().partition(|(_, opened)| matches!(opened, Opened::Interface(..)));
        let joining: Vec<_> = interfaces.iter().map(|(number, _)| *number).collect();
        for (number, opened) in interfaces {
            if let Some(at) = self.at(number) {
                self.attach(at, opened);
            }
        }
        self.take_snapshot();
        for number in joining {
            if let Some(at) = self.at(number) {
                self.await_snapshot(at);
            }
        }
        for (number, opened) in others {
            if let Some(at) = self.at(number) {
                self.attach(at, opened);
            }
        }
        self.claim_joined();
    }

    /// Has an interface wait until all workers have the present snapshot.
    fn await_snapshot(&mut self, at: usize) {
        if let Some(carried) = self.ports[at].on.carried_mut() {
            carried.joins_with = Some(self.snapshots.number());
        }
    }

    /// Has the frames of interfaces that all workers know by now come to the workers. A worker that is stuck is not waited
    /// for: until it knows a port, it drops that port's frames (port_down).
    pub(super) fn claim_joined(&mut self) {
        self.look_at_stuck();
        let adopted = self.snapshots.adopted_by_all(|worker| self.workers[worker].is_stuck());
        for at in 0..self.ports.len() {
            if self.ports[at].joins_with().is_some_and(|number| number <= adopted) {
                self.claim(at);
            }
        }
    }

    /// Has the frames of an interface that is a port come to the workers.
    fn claim(&mut self, at: usize) {
        let port = &mut self.ports[at];
        if let Some(carried) = port.on.carried_mut() {
            carried.joins_with = None;
        }
        if port.carried().is_none() {
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

    /// Gives the workers what has been opened for the port at that place. Workers without a queue of it hand their frames for it
    /// to the first one that has one.
    fn attach(&mut self, at: usize, opened: Opened) {
        match opened {
            Opened::Nothing => {}
            Opened::Queues(queues) => {
                let Port { number, worker: first, .. } = self.ports[at];
                let workers = self.workers.len();
                self.ports[at].given = queues.len();
                let mut queues = queues.into_iter();
                for worker in (first..workers).chain(0..first) {
                    match queues.next() {
                        Some(queue) => self.workers[worker].attach(queue),
                        None => {
                            let elsewhere =
                                Command::PortElsewhere { port: number, worker: Some(first as u16) };
                            self.workers[worker].tell(elsewhere);
                        }
                    }
                }
            }
            Opened::Interface(_, Held { queues, ports }) => {
                self.ports[at].given = self.workers.len();
                for PlacedQueue { worker, queue } in queues {
                    self.workers[worker].attach(queue);
                }
                for (worker, (carrier, port)) in self.workers.iter_mut().zip(ports) {
                    worker.add_port(carrier, port);
                }
            }
        }
    }

    /// The worker that is to have the next queue that only one of them has: each in turn.
    fn next_worker(&mut self) -> usize {
        let next = self.next_worker;
        self.next_worker = (next + 1) % self.plan.workers();
        next
    }

    /// Gives back what was opened for ports that are not to be ports after all, and returns the reasons, a line for each.
    pub(super) fn take_back(&mut self, made: Vec<(Port, Opened)>, mistakes: &[String]) -> String {
        for (mut port, opened) in made {
            if let Err(error) = port.on.take_back(&mut self.homes, port.home, opened) {
                tracing::warn!("{}: {error}", port.name);
            }
        }
        mistakes.join("\n")
    }

    /// Makes a port, and opens it. One whose other side may be absent is made without a queue.
    pub(super) async fn make_port(
        &mut self,
        name: PortName,
        config: SwitchPort,
        number: u16,
    ) -> Result<(Port, Opened), SwitchOrOpen> {
        let home = self.homes.at(name.namespace()).await?;
        let making = Making { name: &name, switch: &self.plan.name, folder: &self.folder };
        let on = kinds::make(&making)?;
        let worker = if on.carried().is_some() { 0 } else { self.next_worker() };
        let mut port = Port {
            name,
            config,
            number,
            home,
            state: State::Gone,
            ifindex: 0,
            on,
            worker,
            given: 0,
            leaving: 0,
            removed: false,
            before: Counts::default(),
        };
        let opened = self.open(&mut port)?;
        Ok((port, opened))
    }

    /// Opens what a port is on, if it is there.
    pub(super) fn open(&mut self, port: &mut Port) -> Result<Opened, OpenError> {
        let ports = &self.ports;
        let opened = port.on.open(Opening {
            name: &port.name,
            config: &port.config,
            number: port.number,
            home: port.home,
            homes: &mut self.homes,
            switch: self.plan.switch(),
            workers: self.plan.workers(),
            fail_open: Duration::from_millis(self.plan.config.worker.fail_open_ms.into()),
            coming: &self.coming,
            segmentation: self.segmentation,
            port_on: &|home, ifindex| {
                ports.iter().find(|other| other.is_on(home, ifindex)).map(|other| other.name.clone())
            },
        })?;
        port.ifindex = match &opened {
            Opened::Nothing => return Ok(opened),
            Opened::Queues(queues) => {
                queues.iter().map(|queue| queue.ifindex()).find(|it| *it != 0).unwrap_or(0)
            }
            Opened::Interface(ifindex, _) => *ifindex,
        };
        port.state = State::Attached;
        Ok(opened)
    }
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
    let shared = Shared::new(switch.mac_entries, secret())?;
    if switch.offload == Offload::Off || switch.has_tables() {
        return Ok((Arc::new(shared), None));
    }
    let moves = Arc::new(Moves::new(secret()));
    let shared = Arc::new(shared.heard_by(Arc::clone(&moves) as Arc<dyn OnMove>));
    let learned = Learned::new(Arc::clone(&shared), moves);
    Ok((shared, Some(learned)))
}
