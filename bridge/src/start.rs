//! Starts an exception port, and reattaches a side that has returned.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;

use twinpath_attach::mirror::table::{Link, Tables};
use twinpath_attach::mirror::{Mirror, MirrorLimits};
use twinpath_bpf::{Exclusive, TcAttach};
use twinpath_host::Awaited;
use twinpath_host::machine::Machine;
use twinpath_host::sandbox::{self as sandbox, Needs};
use twinpath_port::PortId;
use twinpath_sys::clock;
use twinpath_sys::descriptors::set_aside;
use twinpath_sys::packet_socket::FanoutGroup;
use twinpath_vnet::{SocketConfig, Tap, TapHandle, VnetPort, open_socket};

use super::links::Links;
use super::sides::Sides;
use super::stuck::Watch;
use super::workers;
use super::{Bridge, BridgeError, BridgePlan, Carrier, KernelSide, Location, PortSide, QUEUES_MAX};
use crate::engine::Side;

/// The mark of our own frames on their way to a device with a queueing discipline ("twin").
const MARK: u32 = 0x7477_696e;

impl Bridge {
    pub(super) async fn start(plan: BridgePlan, socket: &std::path::Path) -> Result<Self, BridgeError> {
        if plan.queues == 0 || plan.queues > QUEUES_MAX {
            return Err(BridgeError::Queues(plan.queues));
        }
        let mirror = Awaited::new(Mirror::open(MirrorLimits::default())?).map_err(BridgeError::Control)?;
        let links = Links::open().map_err(|error| BridgeError::Control(error.into()))?;
        let link = fit_for_a_port(mirror.tables(), &plan)?;
        let machine = Machine::learn(plan.machine, plan.idle.mode, &plan.cpus, &link.name);
        let needs = Needs {
            socket: socket.to_owned(),
            former_values: machine.former_values.clone(),
            tap: true,
            ..Needs::default()
        };
        let tap = Tap::make(&plan.kernel, plan.queues)?;
        let mut exclusive = Exclusive::load(MARK, plan.queues, plan.fail_open)?;
        // Before the sandbox, because finding the present user of the device needs access to other processes.
        hold_port(&mut exclusive, &link, plan.queues)?;
        let stuck = Watch::new(&exclusive, plan.fail_open)?;
        let confined = sandbox::enter(plan.sandbox, &needs);
        let kernel = KernelSide {
            name: plan.kernel.clone(),
            ifindex: tap.ifindex,
            handle: handle_of(&tap)?,
            offloads: tap.offloads,
            place: Location::Home,
        };
        let port = PortSide {
            name: link.name.clone(),
            ifindex: Some(link.ifindex),
            kind: link.kind.clone(),
            carrier: Carrier::Workers,
            fails_open: false,
            sockets: Vec::new(),
        };
        let (started, sides) = (clock::now(), Sides::default());
        let workers = Vec::new();
        let mut bridge = Self {
            plan,
            mirror,
            links,
            exclusive,
            stuck,
            port,
            kernel,
            sides,
            seen: [None, None],
            devices: Default::default(),
            workers,
            machine,
            confined,
            started,
            attachments: [0; 2],
        };
        let outcome = match bridge.start_workers() {
            Ok(()) => bridge.attach_port(&link),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            bridge.stop();
            return Err(error);
        }
        bridge.attach_kernel(tap);
        bridge.settle();
        Ok(bridge)
    }

    fn start_workers(&mut self) -> Result<(), BridgeError> {
        let mut idle = self.plan.idle;
        idle.request = self.machine.may_hold();
        idle.machine = self.machine.figures();
        for number in 0..self.plan.queues as usize {
            let cpus = &self.plan.cpus;
            let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
            self.workers.push(workers::start(number, self.machine.placement(cpu), idle)?);
        }
        Ok(())
    }

    /// Gives each worker a socket on the device.
    pub(super) fn attach_port(&mut self, link: &Link) -> Result<(), BridgeError> {
        let group = FanoutGroup::default();
        let config = SocketConfig {
            ifindex: link.ifindex,
            fanout_group: (self.plan.queues > 1).then_some(&group),
            mark: MARK,
        };
        let mut sockets = Vec::new();
        for worker in 0..self.plan.queues {
            let socket = open_socket(&config)?;
            self.exclusive.attach_socket_filter(worker, socket.as_fd())?;
            let watched = socket.try_clone().map_err(BridgeError::Control)?;
            sockets.push((socket, watched));
        }
        let port = self.next_number(Side::Port);
        self.port.sockets.clear();
        for (queue, (socket, watched)) in sockets.into_iter().enumerate() {
            let id = PortId { port, queue: queue as u16 };
            let socket = VnetPort::socket(id, link.ifindex, socket);
            // Both sides are in one kernel: its packet sockets accept whatever its TAP driver offers.
            let socket = socket.segmenting(self.kernel.offloads.segmentation());
            let socket = socket.failing_open(self.stuck.words_of(queue, Side::Port));
            self.workers[queue].attach(Box::new(socket));
            self.port.sockets.push((watched, 0));
        }
        self.port.ifindex = Some(link.ifindex);
        self.port.carrier = Carrier::Workers;
        self.port.kind.clone_from(&link.kind);
        Ok(())
    }

    /// Gives each worker a queue of the kernel's interface.
    pub(super) fn attach_kernel(&mut self, tap: Tap) {
        let port = self.next_number(Side::Kernel);
        let (ifindex, segmentation) = (tap.ifindex, tap.offloads.segmentation());
        let handle = &self.kernel.handle;
        let filtered = self.exclusive.queue_filter().map_err(|error| error.to_string());
        let filtered = filtered.and_then(|filter| {
            filter.map_or(Ok(()), |filter| handle.set_queue_filter(filter).map_err(|error| error.to_string()))
        });
        if let Err(error) = filtered {
            tracing::warn!(
                "a worker that is stuck is found by frames of {} only: {}: {error}",
                self.port.name,
                self.kernel.name
            );
        }
        for (queue, fd) in tap.queues.into_iter().enumerate() {
            let id = PortId { port, queue: queue as u16 };
            let tap = VnetPort::tap(id, ifindex, fd).segmenting(segmentation);
            let tap = tap.failing_open(self.stuck.words_of(queue, Side::Kernel));
            self.workers[queue].attach(Box::new(tap));
        }
    }

    /// Creates the kernel's interface again.
    pub(super) fn make_kernel_again(&mut self) -> Result<(), BridgeError> {
        let tap = Tap::make(&self.kernel.name, self.plan.queues)?;
        self.kernel.handle = handle_of(&tap)?;
        (self.kernel.ifindex, self.kernel.place) = (tap.ifindex, Location::Home);
        self.attach_kernel(tap);
        self.sides.kernel_is_new();
        Ok(())
    }

    fn next_number(&mut self, side: Side) -> u16 {
        let count = &mut self.attachments[side as usize];
        *count = count.wrapping_add(1);
        side.port_number(*count)
    }
}

/// Withholds the device from the kernel's stack.
pub(super) fn hold_port(exclusive: &mut Exclusive, link: &Link, queues: u32) -> Result<(), BridgeError> {
    // Done before the programs are attached; otherwise their links would get the low descriptor numbers that
    // the former sockets had.
    set_aside(queues as usize);
    Ok(exclusive.hold(link.ifindex, TcAttach::here())?)
}

fn handle_of(tap: &Tap) -> Result<TapHandle, BridgeError> {
    // A TAP has at least one queue: there is at least one worker.
    TapHandle::of(tap).map_err(BridgeError::Control)
}

/// The device, if it can be a side of an exception port.
fn fit_for_a_port(tables: &Tables, plan: &BridgePlan) -> Result<Link, BridgeError> {
    let Some(link) = tables.link_named(&plan.port) else {
        let names: Vec<_> = tables.links().map(|link| link.name.as_str()).collect();
        return Err(BridgeError::NoInterface { name: plan.port.clone(), available: names.join(", ") });
    };
    if !link.ethernet || link.loopback {
        return Err(BridgeError::NotEthernet(link.name.clone()));
    }
    if let Some(master) = link.master {
        let users =
            tables.link(master).map_or_else(|| format!("interface {master}"), |link| link.name.clone());
        let advice = format!("ip link set {} nomaster", link.name);
        return Err(BridgeError::Used { port: link.name.clone(), users, advice });
    }
    // A veth device has its peer as its lower link.
    let stacked = |upper: &&Link| {
        upper.lower == Some(link.ifindex)
            && upper.ifindex != link.ifindex
            && link.lower != Some(upper.ifindex)
    };
    let uppers: Vec<_> = tables.links().filter(stacked).map(|link| link.name.as_str()).collect();
    if !uppers.is_empty() {
        let advice = format!("make them on {} instead", plan.kernel);
        return Err(BridgeError::Used { port: link.name.clone(), users: uppers.join(", "), advice });
    }
    let addresses = kernel_addresses(tables, link.ifindex);
    if !addresses.is_empty() {
        let (port, kernel) = (link.name.clone(), plan.kernel.clone());
        return Err(BridgeError::Addresses { port, kernel, addresses });
    }
    Ok(link.clone())
}

/// The addresses that the kernel holds on a link, except those that it assigns to every link.
pub(super) fn kernel_addresses(tables: &Tables, ifindex: u32) -> Vec<(IpAddr, u8)> {
    tables.addresses(ifindex).filter(|(address, _)| !is_link_local(*address)).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if Ipv6Addr::is_unicast_link_local(&address))
}
