//! Starting an instance, step by step.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use twinpath_attach::mirror::table::Link;
use twinpath_attach::mirror::{Mirror, MirrorLimits};
use twinpath_attach::path::choose::{Choice, Refusal, WhyNot, choose_without};
use twinpath_attach::path::facts::InterfaceFacts;
use twinpath_attach::path::{Announcements, device};
use twinpath_attach::{
    AttachError, AttachPlan, Attaching, DATAGRAM_CHUNKS, PlacedQueue, SUPER_FRAME_CHUNKS, Target, find_link,
    learn_facts, pool_frames, tidy,
};
use twinpath_bpf::{Datagrams, describes_datagrams};
use twinpath_config::{Path, PathAsked};
use twinpath_host::machine::Machine;
use twinpath_host::metrics::Offered;
use twinpath_host::sandbox::{self as sandbox, Needs};
use twinpath_host::{Awaited, MESSAGES_MAX};
use twinpath_lifecycle::{Action, Event, Lifecycle, Origin, Outcome};
use twinpath_serve::{Prototype, Routes};
use twinpath_sys::descriptors::set_aside;
use twinpath_sys::event_loop::channel::bounded;
use twinpath_sys::event_loop::sleep;
use twinpath_sys::{FrameClaim, clock};

use super::Parts;
use super::addresses::{OwnAddresses, check_addresses, claimed};
use super::fallback::Fallback;
use super::lifecycle::limits_of;
use super::reload::{Reloads, Source};
use super::stand_by::FirstInstance;
use super::{Instance, InstanceError, Interface, needs_fast_path};
use crate::hold::{Held, HoldError, Inherited, KernelSockets, former_of, hold_all_ports, hold_frames};
use crate::plan::{Plan, ServicePlan};
use crate::serving::{Connections, ForWorkers, ServedReflexes, WorkerHandle, cpu_of};

/// The socket that holds an EtherType also takes long to close.
const SLOW_SOCKETS_BESIDE: usize = 1;

/// Maximum number of sockets per worker that take long to close: two packet sockets to send, one to
/// receive, one AF_XDP socket.
const SLOW_SOCKETS_EACH: usize = 4;

/// Subscribes to the kernel's announcements, and reads its tables.
fn listen_to_kernel(plan: &Plan) -> Result<(Awaited<Mirror>, Awaited<Announcements>), InstanceError> {
    let mut limits = MirrorLimits::default();
    limits.book.peers = plan.peers_max as usize;
    let mirror = Awaited::new(Mirror::open(limits)?.hearing_of_paths()).map_err(InstanceError::Control)?;
    let announcements = Awaited::new(Announcements::open()).map_err(InstanceError::Control)?;
    Ok((mirror, announcements))
}

/// The number of sockets that take long to close, as known before the device is.
fn slow_sockets(plan: &Plan) -> usize {
    SLOW_SOCKETS_EACH * plan.workers.max(1) as usize + SLOW_SOCKETS_BESIDE
}

impl Instance {
    /// Does every step of the start, until both paths serve.
    pub(super) async fn start(
        plan: Plan,
        parts: Parts<'_>,
        source: Option<Source>,
        socket: &std::path::Path,
    ) -> Result<Self, InstanceError> {
        let lifecycle = Lifecycle::new(origin_of(&plan), limits_of(&plan), plan.path == PathAsked::Auto);
        let mut before = BeforeWorkers::new(plan, parts, lifecycle)?;
        let waits = before.until_workers()?;
        let (mut instance, sockets) = before.into_instance(parts, source, socket).await?;
        let started = instance.start_workers(sockets, parts.services, waits);
        let started = started.and_then(|()| {
            instance.plan = Rc::new(instance.reflexes.settle((*instance.plan).clone()));
            instance.stand_in = instance.new_stand_in(parts.services)?;
            Ok(())
        });
        let outcome = started.map_or_else(|error| instance.failed(error), |()| Outcome::Done);
        instance.on(Event::Outcome(outcome)).await;
        match instance.error.take() {
            Some(error) if instance.lifecycle.is_ended() => Err(error),
            _ => Ok(instance),
        }
    }

    fn start_workers(
        &mut self,
        sockets: Vec<KernelSockets>,
        services: &[Box<dyn Prototype>],
        waits: bool,
    ) -> Result<(), InstanceError> {
        let path = self.interface.choice.path;
        let queues = self.interface.facts.rx_queues.max(1);
        // On the XDP path, a worker without a queue would only sleep.
        let count = if path.is_xdp() { self.plan.workers.min(queues) } else { self.plan.workers };
        let queues_each = queues.div_ceil(count);
        let mut idle = self.plan.idle;
        idle.request = self.machine.may_hold();
        idle.machine = self.machine.figures();
        let mut each: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        let workers = self.for_workers(count as usize, waits);
        for (at, sockets) in sockets.into_iter().enumerate() {
            let new =
                workers.service(&self.plan.services[at], self.held[at].part, &*services[at], sockets)?;
            each.iter_mut().zip(new).for_each(|(worker, new)| worker.push(new));
        }
        for (number, services) in each.into_iter().enumerate() {
            let cpu = cpu_of(&self.plan.cpus, number);
            let super_frames = if self.connections.flows().is_some() { SUPER_FRAME_CHUNKS } else { 0 };
            let datagrams = if describes_datagrams() { DATAGRAM_CHUNKS } else { 0 };
            let frames = pool_frames(path, queues_each, self.plan.ring_frames) + super_frames + datagrams;
            let placement = self.machine.placement(cpu);
            let routes = self.routes();
            let claims = self.connections.of_worker(number).unwrap_or_else(|error| {
                tracing::warn!("worker {number} has no TCP connections on the fast path: {error}");
                None
            });
            let worker = WorkerHandle::start(number, placement, idle, frames, routes, services, claims)?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// The parameters of new services, for `count` workers.
    pub(super) fn for_workers(&self, count: usize, wait: bool) -> ForWorkers<'_> {
        let (cpus, kept) = (self.plan.cpus.as_slice(), self.reflexes.kept());
        ForWorkers { count, cpus, addresses: self.addresses().into(), wait, kept }
    }

    /// The best path by the ranking of `host/attach/src/path/choose.rs`, without those that are ruled out: by the
    /// measurement at start, by the size of the workers' pools, or because attaching has `failed`.
    pub(super) fn choose_path(&self, failed: &[WhyNot]) -> Result<Choice, Refusal> {
        let Interface { facts, fallback, .. } = &self.interface;
        let mut ruled_out = [fallback.ruled_out.as_slice(), failed].concat();
        if !self.pools_for_xdp {
            ruled_out.extend([Path::XdpNative, Path::XdpGeneric].map(|path| {
                let reason =
                    "the frame memory taken at start suits the packet path only; restart to change that";
                WhyNot { path, reason: reason.to_owned() }
            }));
        }
        choose_without(facts, self.plan.path, &ruled_out)
    }
}

/// The rights that the sandbox must leave to the instance.
fn needs(plan: &Plan, machine: &Machine, source: Option<&Source>, socket: &std::path::Path) -> Needs {
    Needs {
        socket: socket.to_owned(),
        former_values: machine.former_values.clone(),
        rpcbind: plan.services.iter().any(|service| !service.rpcbind.is_empty()),
        configuration: source.map(|source| source.file.clone()),
        exports: plan.services.iter().flat_map(|service| service.exports.iter().cloned()).collect(),
        ..Needs::default()
    }
}

/// Where the sockets of an instance with this plan come from.
const fn origin_of(plan: &Plan) -> Origin {
    match (&plan.stand_by, &plan.take_over) {
        (Some(_), _) => Origin::StandsBy,
        (None, Some(_)) => Origin::TakesOver,
        (None, None) => Origin::Fresh,
    }
}

/// The start before the workers. Dropping it undoes it.
struct BeforeWorkers {
    lifecycle: Lifecycle,
    reflexes: ServedReflexes,
    plan: Plan,
    mirror: Awaited<Mirror>,
    announcements: Awaited<Announcements>,
    link: Link,
    /// The ports, once they are held.
    sockets: Vec<KernelSockets>,
    held: Vec<Held>,
    first: Option<FirstInstance>,
    /// Last: the former instance attaches its own programs when its connection closes.
    former: Inherited,
}

impl BeforeWorkers {
    fn new(plan: Plan, parts: Parts<'_>, lifecycle: Lifecycle) -> Result<Self, InstanceError> {
        let (reflexes, plan) = ServedReflexes::of(plan, parts.services);
        set_aside(slow_sockets(&plan));
        let (mirror, announcements) = listen_to_kernel(&plan)?;
        let link = find_link(&mirror, &plan.interface)?;
        let (sockets, held, former) = (Vec::new(), Vec::new(), Inherited::default());
        Ok(Self {
            lifecycle,
            reflexes,
            plan,
            mirror,
            announcements,
            link,
            sockets,
            held,
            first: None,
            former,
        })
    }

    /// Does the steps before the workers start. Returns whether the workers are to wait with what is in the sockets.
    fn until_workers(&mut self) -> Result<bool, InstanceError> {
        let (mut event, mut error) = (Event::Start, None);
        loop {
            let outcome = match self.lifecycle.handle(clock::now(), event).first() {
                Some(Action::HoldPorts) => self.hold_ports().map(|()| Outcome::Done),
                Some(Action::Say(step)) => {
                    self.former.say(*step).map_err(InstanceError::from).and_then(|heard| {
                        let from = self.plan.take_over.clone().unwrap_or_default();
                        let silent = || HoldError::TakeOver { from, why: "it does not answer".to_owned() };
                        if heard { Ok(Outcome::Done) } else { Err(silent().into()) }
                    })
                }
                Some(Action::StartWorkers { waits }) => return Ok(*waits),
                _ => return Err(error.unwrap_or(InstanceError::TooMany)),
            };
            event = Event::Outcome(outcome.unwrap_or_else(|why| {
                error = Some(why);
                Outcome::Failed
            }));
        }
    }

    /// Holds the ports of the plan, including those that another instance passes on.
    fn hold_ports(&mut self) -> Result<(), InstanceError> {
        self.former = former_of(&self.plan)?;
        let (former, plan) = (&mut self.former, &self.plan);
        // Addresses that another instance serves stay valid.
        let was_served = |service: &ServicePlan, address| former.serves_at(service, address);
        check_addresses(&plan.services, was_served, &self.mirror, &self.link.name)?;
        let vrf = self.mirror.tables().vrf_of(self.link.ifindex);
        self.sockets = hold_all_ports(&plan.services, plan.workers, former, vrf)?;
        let services = plan.services.iter().cloned().zip(&self.sockets);
        let services = services.map(|(service, sockets)| sockets.name_ports(service)).collect();
        self.plan = Plan { services, ..plan.clone() };
        self.held = Held::of_all(&self.sockets).map_err(InstanceError::Control)?;
        self.first = stand_by(&self.plan, &mut self.former, &self.held)?;
        Ok(())
    }

    /// Chooses the path. Returns the instance before its workers, and the sockets for them.
    async fn into_instance(
        self,
        parts: Parts<'_>,
        source: Option<Source>,
        socket: &std::path::Path,
    ) -> Result<(Instance, Vec<KernelSockets>), InstanceError> {
        let Self { plan, mirror, link, .. } = &self;
        let frame_claims = hold_frames(&plan.services, &plan.interface, link.ifindex)?;
        tidy(link);
        let mut facts = learn_facts(mirror, link, plan.ethertype().is_none(), plan.attach);
        if self.first.is_some() {
            // That of the first instance will be gone when this one attaches.
            facts.foreign_xdp = None;
        }
        let addresses = claimed(&plan.services, mirror, link.ifindex);
        let (choice, fallback) = Fallback::settle(plan, &facts, &addresses, parts.measure_fallback)?;
        needs_fast_path(plan, &choice)?;
        let machine = Machine::learn(plan.machine, plan.idle.mode, &plan.cpus, &link.name);
        let needs = needs(plan, &machine, source.as_ref(), socket);
        let vrf = mirror.tables().vrf_of(link.ifindex);
        let connections = Connections::make(plan, choice.path, plan.workers, (mirror.tables(), link.ifindex));
        let (confined, pools_for_xdp) = (sandbox::enter(plan.sandbox, &needs), choice.path.is_xdp());
        let interface =
            Interface { vrf, ..Interface::new(link, facts, choice, fallback, frame_claims).await };
        let own = OwnAddresses::now(&plan.services, mirror, interface.ifindex);
        let (tell, messages) = bounded(MESSAGES_MAX);
        let instance = Instance {
            plan: Rc::new(self.plan),
            lifecycle: self.lifecycle,
            events: VecDeque::new(),
            failed_paths: Vec::new(),
            error: None,
            left_behind: Vec::new(),
            cut_off: 0,
            former: self.former,
            mirror: self.mirror,
            announcements: self.announcements,
            workers: Vec::new(),
            stand_in: None,
            unserved: None,
            interface,
            pools_for_xdp,
            machine,
            scrapers: None,
            captures: Default::default(),
            reflexes: self.reflexes,
            connections,
            leaving: Default::default(),
            registered: Default::default(),
            confined,
            followers: Default::default(),
            takers: Default::default(),
            first: self.first,
            standbys: Default::default(),
            asking: None,
            begun: 0,
            own,
            reloads: Reloads::new(source),
            offered: Offered::new(None),
            held: self.held,
            tell,
            messages,
            rest_at: clock::now(),
            started: clock::now(),
            moves_awaited: None,
            cut_left: Default::default(),
            listings: Default::default(),
        };
        Ok((instance, self.sockets))
    }
}

/// Becomes a standby of the instance that the sockets came from, if the plan says so.
fn stand_by(plan: &Plan, former: &mut Inherited, held: &[Held]) -> Result<Option<FirstInstance>, HoldError> {
    let Some(first) = &plan.stand_by else { return Ok(None) };
    let failed = |why: String| HoldError::StandBy { from: first.clone(), why };
    let former = std::mem::take(former);
    if former.left().is_some() {
        return Err(failed("it serves more ports than this one: give both the same".to_owned()));
    }
    let watched = FirstInstance::new(former, held, plan.fail_open);
    watched.map(Some).map_err(|error| failed(format!("its process cannot be watched: {error}")))
}

impl Interface {
    /// The interface before anything is attached.
    async fn new(
        link: &Link,
        facts: InterfaceFacts,
        choice: Choice,
        fallback: Fallback,
        frame_claims: Vec<FrameClaim>,
    ) -> Self {
        Self {
            name: link.name.clone(),
            ifindex: Some(link.ifindex),
            vrf: None,
            device: device::look(&link.name),
            device_due: false,
            queues_due: false,
            look_at: clock::now(),
            facts,
            choice,
            fallback,
            attachment: None,
            stuck_said: None,
            link_told: None,
            may_keep: false,
            frame_claims,
            next_port: 0,
            went_in_front: 0,
        }
    }
}

impl Instance {
    /// The routes of frames to the services of a worker.
    pub(super) fn routes(&self) -> Routes {
        let served: Vec<_> = self.plan.services.iter().map(ServicePlan::served).collect();
        Routes::of(self.held.iter().map(|held| held.part).zip(&served))
    }

    /// Attaches the interface to the chosen path, and gives the queues to the workers.
    pub(super) async fn attach(&mut self) -> Result<(), AttachError> {
        // Done before the programs are attached; otherwise their links would get the low descriptor numbers
        // that the former sockets had.
        set_aside(slow_sockets(&self.plan));
        let Some(ifindex) = self.interface.ifindex else { return Ok(()) };
        self.connections.guard(self.plan.services.iter().zip(&self.held));
        let claims = self.claims();
        if claims.is_empty() {
            return Ok(());
        }
        let Some(mac) = self.mirror.tables().link(ifindex).and_then(|link| link.mac) else { return Ok(()) };
        let target = Target { ifindex, mac, addresses: self.claimed_addresses(), claims };
        let plan = AttachPlan {
            path: self.interface.choice.path,
            rx_queues: self.interface.facts.rx_queues.max(1),
            ring_frames: self.plan.ring_frames,
            tc: self.interface.facts.tc_attach(),
            virtual_device: self.interface.facts.is_virtual(),
            port: self.interface.next_port,
            fail_open: self.plan.fail_open,
            replies: self.reflexes.replies(&self.plan),
            connections: self.connections.flows(),
            super_frames: self.connections.flows().is_some(),
            datagrams: if describes_datagrams() { Datagrams::BySocket } else { Datagrams::None },
        };
        let regions: Vec<_> = self.workers.iter().map(|worker| Arc::clone(&worker.region)).collect();
        let mut attaching = Attaching::begin(target, &plan, &regions)?;
        while let Some(pause) = attaching.open_queues(clock::now())? {
            sleep(pause).await;
        }
        let (attachment, placed) = attaching.finish();
        self.interface.next_port = self.interface.next_port.wrapping_add(1);
        self.interface.attachment = Some(attachment);
        self.show_replies();
        self.watch_workers();
        self.mirror.serve_on([ifindex]);
        for placed in placed {
            let PlacedQueue { worker, queue } = placed;
            self.workers[worker].attach(queue);
        }
        self.tell_link(true);
        Ok(())
    }
}
