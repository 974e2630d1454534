//! Starting an instance, step by step.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant as Due;
use twinpath_attach::{
    AttachError, AttachPlan, Attachment, Placed, Target, find_link, learn_facts, pool_frames, tidy,
};
use twinpath_config::{Path, PathAsked};
use twinpath_host::StartError;
use twinpath_machine::Machine;
use twinpath_mirror::table::Link;
use twinpath_mirror::{Mirror, MirrorLimits};
use twinpath_path::Announcements;
use twinpath_path::choose::{Choice, WhyNot};
use twinpath_path::device;
use twinpath_path::facts::InterfaceFacts;
use twinpath_sandbox::{self as sandbox, Needs};
use twinpath_serve::{HandlerPool, KernelSide, Prototype, Routes, ServeConfig, Share};
use twinpath_sys::descriptors::set_aside;
use twinpath_sys::tcp_listener::Group;
use twinpath_sys::{FrameClaim, clock};

use super::fallback::Fallback;
use super::hand_over::Held;
use super::hold::{KernelSockets, hold_frames, hold_ports};
use super::reload::{Reloads, Source};
use super::stand_by::StandingBy;
use super::take_over::Inherited;
use super::workers::{NewService, WorkerHandle};
use super::{Instance, InstanceError, Interface, Plan, ServicePlan};

/// The socket that holds an EtherType is slow to close as well.
const SLOW_SOCKETS_BESIDE: usize = 1;

/// Sockets per worker that are slow to close, at most: two packet sockets to send, one to receive, an AF_XDP socket.
const SLOW_SOCKETS_EACH: usize = 4;

/// How many of the sockets to come are slow to close, as far as can be told before the device is known.
fn slow_sockets(plan: &Plan) -> usize {
    SLOW_SOCKETS_EACH * plan.workers.max(1) as usize + SLOW_SOCKETS_BESIDE
}

impl Instance {
    /// Everything up to the point where both paths serve.
    pub(super) async fn start(
        plan: Plan,
        services: &[Box<dyn Prototype>],
        source: Option<Source>,
        socket: &std::path::Path,
    ) -> Result<Self, InstanceError> {
        set_aside(slow_sockets(&plan));
        let mut limits = MirrorLimits::default();
        limits.book.peers = plan.peers_max as usize;
        let mirror = Mirror::open(limits).await?;
        let announcements = Announcements::open();
        let link = find_link(&mirror, &plan.interface)?;
        let mut former = former_of(&plan)?;
        let sockets = hold_all_ports(&plan.services, plan.workers, &mut former)?;
        let held = Held::of_all(&sockets).map_err(InstanceError::Control)?;
        let standing_by = stand_by(&plan, &mut former, &held)?;
        former.aside()?;
        let frame_claims = hold_frames(&plan.services, &plan.interface, link.ifindex)?;
        tidy(&link);
        let mut facts = learn_facts(&mirror, &link, plan.ethertype().is_none(), plan.attach).await;
        if standing_by.is_some() {
            // The first instance's, which is gone when it is this one's turn.
            facts.foreign_xdp = None;
        }
        let addresses = mirror.tables().addresses(link.ifindex).map(|(address, _)| address).collect();
        let (choice, fallback) = Fallback::settle(&plan, &facts, addresses)?;
        needs_fast_path(&plan, &choice)?;
        let machine = Machine::learn(plan.machine, plan.idle.mode, &plan.cpus, &link.name);
        let needs = Needs {
            socket: socket.to_owned(),
            former_values: machine.former_values.clone(),
            rpcbind: plan.services.iter().any(|service| !service.rpcbind.is_empty()),
            configuration: source.as_ref().map(|source| source.file.clone()),
            tap: false,
        };
        let (confined, pools_for_xdp) = (sandbox::enter(plan.sandbox, &needs), choice.path.is_xdp());
        let interface = Interface::new(&link, facts, choice, fallback, frame_claims).await;
        let mut instance = Self {
            plan,
            mirror,
            announcements,
            workers: Vec::new(),
            stand_in: None,
            unserved: None,
            interface,
            pools_for_xdp,
            machine,
            scrapers: None,
            captures: Default::default(),
            registered: Default::default(),
            confined,
            drain: None,
            takers: Default::default(),
            standing_by,
            stood_by: Vec::new(),
            begun: 0,
            reloads: Reloads::new(source),
            offered: watch::Sender::new(None),
            held,
            started: clock::now(),
        };
        match instance.begin_to_serve(sockets, services, former).await {
            Ok(()) => Ok(instance),
            Err(error) => {
                instance.stop();
                Err(error)
            }
        }
    }

    async fn begin_to_serve(
        &mut self,
        sockets: Vec<KernelSockets>,
        services: &[Box<dyn Prototype>],
        former: Inherited,
    ) -> Result<(), InstanceError> {
        // Until everything is ready, what waits in the sockets is the former instance's.
        self.start_workers(sockets, services, former.is_some() || self.standing_by.is_some())?;
        self.stand_in = self.new_stand_in(services)?;
        if let Some(standing_by) = &self.standing_by {
            (self.interface.choice.path, self.interface.choice.why) = (Path::Kernel, standing_by.sentence());
            return Ok(());
        }
        self.attach_first().await?;
        self.wait_until_steered();
        if former.is_some() {
            self.begin_with_sockets()?;
        }
        former.serving()
    }

    fn start_workers(
        &mut self,
        sockets: Vec<KernelSockets>,
        services: &[Box<dyn Prototype>],
        waits: bool,
    ) -> Result<(), InstanceError> {
        let path = self.interface.choice.path;
        let queues = self.interface.facts.rx_queues.max(1);
        // A worker without a queue would only sleep.
        let count = if path.is_xdp() { self.plan.workers.min(queues) } else { self.plan.workers };
        let queues_each = queues.div_ceil(count);
        let mut idle = self.plan.idle;
        idle.request = self.machine.may_hold();
        idle.machine = self.machine.costs.machine(idle.request);
        let mut each: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        for (at, sockets) in sockets.into_iter().enumerate() {
            let plan = self.plan.services[at].clone();
            let new =
                self.new_service(&plan, self.held[at].slot, &*services[at], sockets, waits, count as usize)?;
            each.iter_mut().zip(new).for_each(|(worker, new)| worker.push(new));
        }
        for (number, services) in each.into_iter().enumerate() {
            let cpu = self.cpu_of(number);
            let frames = pool_frames(path, queues_each, self.plan.ring_frames);
            let placement = self.machine.placement(cpu);
            let routes = self.routes();
            self.workers.push(WorkerHandle::start(number, placement, idle, frames, routes, services)?);
        }
        Ok(())
    }

    /// A service for each of `count` workers.
    pub(super) fn new_service(
        &mut self,
        plan: &ServicePlan,
        slot: usize,
        service: &dyn Prototype,
        sockets: KernelSockets,
        waits: bool,
        count: usize,
    ) -> Result<Vec<NewService>, InstanceError> {
        let addresses: Arc<[IpAddr]> = self.addresses().into();
        let KernelSockets { udp, listeners } = sockets;
        let served = Arc::new(plan.served());
        let share = Arc::new(Share::new(plan.tcp_limits, count as u32));
        let mut new = Vec::with_capacity(count);
        let shared_out = share_out(listeners, count);
        let accepting = shared_out.iter().filter(|listeners| !listeners.is_empty()).count().max(1) as u32;
        for (number, listeners) in shared_out.into_iter().enumerate() {
            let handlers =
                service.defers().then(|| HandlerPool::new(plan.pool, self.cpu_of(number))).transpose();
            let kernel = KernelSide {
                udp: Arc::clone(&udp),
                receives: number == 0,
                listeners,
                connections: part_of(plan.tcp_limits.connections, accepting, number as u32),
                handlers: handlers.map_err(|source| StartError::Descriptors { worker: number, source })?,
                share: Arc::clone(&share),
                waits,
            };
            let config = ServeConfig {
                served: Arc::clone(&served),
                addresses: Arc::clone(&addresses),
                reply_rate: plan.reply_rate,
                kernel,
            };
            new.push(NewService::new(slot, &plan.name, service, config));
        }
        Ok(new)
    }

    fn cpu_of(&self, worker: usize) -> Option<usize> {
        (!self.plan.cpus.is_empty()).then(|| self.plan.cpus[worker % self.plan.cpus.len()])
    }

    /// The first attachment. What was asked for by name must work; `auto` goes on to the next best path, saying why.
    async fn attach_first(&mut self) -> Result<(), InstanceError> {
        if self.interface.choice.path != Path::Kernel && self.is_held_back() {
            return Ok(());
        }
        while self.interface.choice.path != Path::Kernel {
            let path = self.interface.choice.path;
            let Err(source) = self.attach().await else { return Ok(()) };
            if self.plan.path != PathAsked::Auto {
                return Err(InstanceError::Attach { path, interface: self.interface.name.clone(), source });
            }
            let next = if path == Path::Packet || self.interface.facts.tc.is_err() {
                Path::Kernel
            } else {
                Path::Packet
            };
            self.fall_back(next, format!("attaching failed: {source}"));
            needs_fast_path(&self.plan, &self.interface.choice)?;
        }
        Ok(())
    }

    fn fall_back(&mut self, next: Path, reason: String) {
        let Choice { path, why_not, .. } = &mut self.interface.choice;
        tracing::warn!("{} on {}: {reason}; going on with {next}", path, self.interface.name);
        why_not.push(WhyNot { path: *path, reason });
        *path = next;
        self.interface.choice.why = format!("what ranks above {next} could not be attached");
    }
}

/// The instance that was there before, and its sockets, if it is to be taken over or stood by for.
fn former_of(plan: &Plan) -> Result<Inherited, InstanceError> {
    match (&plan.stand_by, &plan.take_over) {
        (Some(first), _) => {
            let former = Inherited::ask_to_stand_by(first)?;
            let missing = plan.services.iter().find(|service| !former.has_all(service));
            match (missing, plan.ethertype()) {
                (Some(service), _) => {
                    let why =
                        format!("it does not serve all ports of `{}`: give both the same", service.name);
                    Err(InstanceError::StandBy { from: first.clone(), why })
                }
                (None, Some(ethertype)) => {
                    let why = format!(
                        "frames of EtherType {ethertype:#06x} have no socket that two instances could hold: serve them by an instance \
                         of their own"
                    );
                    Err(InstanceError::StandBy { from: first.clone(), why })
                }
                (None, None) => Ok(former),
            }
        }
        (None, Some(former)) => Inherited::ask(former),
        (None, None) => Ok(Inherited::default()),
    }
}

/// Stands by, if that is asked for, for the instance that the sockets came from.
fn stand_by(plan: &Plan, former: &mut Inherited, held: &[Held]) -> Result<Option<StandingBy>, InstanceError> {
    let Some(first) = &plan.stand_by else { return Ok(None) };
    let failed = |why: String| InstanceError::StandBy { from: first.clone(), why };
    let former = std::mem::take(former);
    if former.left().is_some() {
        return Err(failed("it serves more ports than this one: give both the same".to_owned()));
    }
    let watched = StandingBy::new(former, held, plan.fail_open);
    watched.map(Some).map_err(|error| failed(format!("its process cannot be watched: {error}")))
}

impl Interface {
    /// As it is before anything is attached.
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
            device: device::look(&link.name).await,
            device_due: false,
            queues_due: false,
            look_at: Due::now(),
            facts,
            choice,
            fallback,
            attachment: None,
            stuck_said: None,
            link_told: None,
            frame_claims,
            attach_due: false,
            next_port: 0,
            held_back: false,
            went_in_front: 0,
        }
    }
}

/// Holds the ports of several services, with a listener of each for so many workers.
pub(super) fn hold_all_ports<'a>(
    services: impl IntoIterator<Item = &'a ServicePlan>,
    workers: u32,
    former: &mut Inherited,
) -> Result<Vec<KernelSockets>, InstanceError> {
    let (mut sockets, mut refused) = (Vec::new(), Vec::new());
    for service in services {
        match hold_ports(service, workers.max(1) as usize, former) {
            Ok(held) => sockets.push(held),
            Err(errors) => refused.extend(errors),
        }
    }
    match refused.len() {
        0 => Ok(sockets),
        1 => Err(refused.remove(0)),
        _ => Err(InstanceError::Several(refused)),
    }
}

/// Gives each worker a listener of each group. A worker fewer than was asked for has the listeners of those that are not there.
fn share_out(groups: Vec<(Option<IpAddr>, u16, Group)>, workers: usize) -> Vec<Vec<OwnedFd>> {
    let mut shares: Vec<_> = (0..workers).map(|_| Vec::new()).collect();
    for (_, _, Group { listeners, .. }) in groups {
        listeners.into_iter().enumerate().for_each(|(at, listener)| shares[at % workers].push(listener));
    }
    shares
}

impl Instance {
    /// Which service of a worker gets which frames.
    pub(super) fn routes(&self) -> Routes {
        let served: Vec<_> = self.plan.services.iter().map(ServicePlan::served).collect();
        Routes::of(self.held.iter().map(|held| held.slot).zip(&served))
    }

    /// Puts the interface on the chosen path and gives the queues to the workers.
    pub(super) async fn attach(&mut self) -> Result<(), AttachError> {
        // Before the programs: where the last attachment's sockets were, their links would come now.
        set_aside(slow_sockets(&self.plan));
        let Some(ifindex) = self.interface.ifindex else { return Ok(()) };
        let claims = self.plan.claims();
        if claims.is_empty() {
            return Ok(());
        }
        let Some(mac) = self.mirror.tables().link(ifindex).and_then(|link| link.mac) else { return Ok(()) };
        let target = Target { ifindex, mac, addresses: self.addresses(), claims };
        let plan = AttachPlan {
            path: self.interface.choice.path,
            rx_queues: self.interface.facts.rx_queues.max(1),
            ring_frames: self.plan.ring_frames,
            tc: self.interface.facts.tc_attach(),
            virtual_device: self.interface.facts.is_virtual(),
            port: self.interface.next_port,
            fail_open: self.plan.fail_open,
        };
        let regions: Vec<_> = self.workers.iter().map(|worker| Arc::clone(&worker.region)).collect();
        let (attachment, placed) = Attachment::attach(target, &plan, &regions).await?;
        self.interface.next_port = self.interface.next_port.wrapping_add(1);
        self.interface.attachment = Some(attachment);
        self.watch_workers();
        self.mirror.serve_on([ifindex]);
        for placed in placed {
            let Placed { worker, queue } = placed;
            self.workers[worker].attach(queue);
        }
        self.tell_link(true);
        Ok(())
    }

    /// The addresses of the interface, as the mirror has them.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let Some(ifindex) = self.interface.ifindex else { return Vec::new() };
        self.mirror.tables().addresses(ifindex).map(|(address, _)| address).collect()
    }
}

/// Frames of an EtherType are served on the fast path or not at all.
pub(super) fn needs_fast_path(plan: &Plan, choice: &Choice) -> Result<(), InstanceError> {
    let Some(ethertype) = plan.ethertype().filter(|_| choice.path == Path::Kernel) else { return Ok(()) };
    let reasons = choice.why_not.iter().map(|not| format!("; not {}: {}", not.path, not.reason));
    let why = std::iter::once(choice.why.clone()).chain(reasons).collect();
    Err(InstanceError::NoFastPath { ethertype, interface: plan.interface.clone(), why })
}

/// The part of `connections` that the worker of that number has, of so many that accept: one at least.
pub(super) fn part_of(connections: u32, workers: u32, number: u32) -> u32 {
    (connections / workers + u32::from(number < connections % workers)).max(1)
}
