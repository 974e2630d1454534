//! An interface of the kernel as a port, of any network namespace: its frames are withheld from the kernel's stack.

use std::net::{IpAddr, Ipv6Addr};

use twinpath_attach::mirror::table::{Link, Tables};
use twinpath_attach::path::forwarding::ForwardingFacts;
use twinpath_attach::{AttachError, PortSetPlan, ReceiveThread, ReceiveThreadError};
use twinpath_bpf::TcAttach;
use twinpath_config::{Offload, OnExit, PortName, PortOffload, Receive};
use twinpath_port::PORTS_MAX as CARRIED_MAX;
use twinpath_sys::ethtool;
use twinpath_time::Duration;

use super::carried::Carried;
use super::kind::{About, Kind, OpenError, Opened, Opening};
use crate::homes::{HoldError, HomeAt, Homes};
use crate::offload::{LEARNED_HOMES_MAX, peer_of};

/// The kernel's name for the kind of a bridge.
const BRIDGE: &str = "bridge";

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

/// Why an interface cannot be a port.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("{0} carries no Ethernet frames: a port of a switch needs an Ethernet device")]
    NotEthernet(String),
    #[error("{port} is in use by {users}: take it out first ({advice})")]
    Used { port: String, users: String, advice: String },
    #[error(
        "the kernel holds {addresses} on {port}, where nothing would reach it: remove it there (ip address flush dev {port}), and give \
         it to the switch's own interface (--local NAME)"
    )]
    Addresses { port: String, addresses: String },
    #[error(
        "{0} belongs to no kernel bridge, which on_exit = \"bridge\" needs: make one that has the interfaces of all ports (ip link set {0} \
         master BRIDGE)"
    )]
    NoBridge(String),
    #[error("{interface} is port {port} of this switch already")]
    Twice { interface: String, port: PortName },
    #[error("offload=xdp: {0}; without this key frames are forwarded at tc")]
    Xdp(HoldError),
    #[error("receive=thread: {0}; without this key frames are taken in the call that sends them")]
    Receive(ReceiveThreadError),
}

/// An interface.
#[derive(Default)]
pub(crate) struct Interface {
    carried: Carried,
    /// It may be absent when its port is made: it comes and goes with a virtual machine.
    comes_and_goes: bool,
}

impl Interface {
    /// A TAP interface of a virtual machine.
    pub(crate) fn tap() -> Self {
        Self { comes_and_goes: true, ..Self::default() }
    }

    /// Has the kernel do with an interface that is held what its configuration asks for.
    fn equip(&mut self, opening: &mut Opening<'_>, link: &Link) -> Result<(), OpenError> {
        let Opening { homes, home, config, .. } = opening;
        let (home, ifindex) = (*home, link.ifindex);
        self.carried.settings =
            homes.run(home, || ethtool::link_settings(&link.name)).map_err(OpenError::of)?.ok();
        let driver = homes.run(home, || ethtool::driver(&link.name)).map_err(OpenError::of)?;
        if driver.is_ok_and(|driver| driver.is_virtual_function()) {
            tracing::warn!(
                "{}: is a virtual function (SR-IOV), and its card gives it the frames for its own address only: \
                 hosts behind other ports get none through it, unless the card's owner trusts it (ip link set \
                 dev CARD vf NUMBER trust on) and its driver then takes all frames",
                opening.name
            );
        }
        if config.receive == Receive::Thread {
            let started = homes.run(home, || ReceiveThread::start(&link.name, ifindex));
            self.carried.thread =
                Some(started.map_err(OpenError::of)?.map_err(|error| OpenError::of(Unfit::Receive(error)))?);
        }
        if homes.has_entries(home) {
            self.carried.peer =
                homes.run(home, || peer_of(ifindex)).map_err(OpenError::of)?.unwrap_or_default();
            let outcome = forward_in_driver(homes, home, link, config.offload);
            self.carried.xdp = Some(outcome.map_err(|error| OpenError::of(Unfit::Xdp(error)))?);
        }
        Ok(())
    }
}

impl Kind for Interface {
    fn open(&mut self, mut opening: Opening<'_>) -> Result<Opened, OpenError> {
        let name = opening.name.interface().unwrap_or_default();
        let tables = opening.homes.tables(opening.home);
        let Some(link) = tables.link_named(name).cloned() else {
            return match self.comes_and_goes {
                true => Ok(Opened::Nothing),
                false => Err(OpenError::NoInterface {
                    name: name.to_owned(),
                    available: opening.homes.names(opening.home),
                }),
            };
        };
        fit_for_a_port(tables, &link, opening.switch.on_exit).map_err(OpenError::of)?;
        if let Some(port) = (opening.port_on)(opening.home, link.ifindex) {
            return Err(OpenError::of(Unfit::Twice { interface: name.to_owned(), port }));
        }
        let plan = port_set(&opening);
        let held = opening.homes.hold(opening.home, plan, (opening.number, link.ifindex));
        let opened = Opened::Interface(link.ifindex, held.map_err(OpenError::of)?);
        match self.equip(&mut opening, &link) {
            Ok(()) => Ok(opened),
            Err(error) => {
                // Why it cannot be a port matters more.
                let _ = self.take_back(opening.homes, opening.home, opened);
                Err(error)
            }
        }
    }

    fn take_back(&mut self, homes: &mut Homes, home: HomeAt, opened: Opened) -> Result<(), AttachError> {
        let Opened::Interface(ifindex, held) = opened else { return Ok(()) };
        homes.end_thread(home, self.carried.thread.take());
        homes.take_back(home, ifindex, held)
    }

    fn carried(&self) -> Option<&Carried> {
        Some(&self.carried)
    }

    fn carried_mut(&mut self) -> Option<&mut Carried> {
        Some(&mut self.carried)
    }

    /// The queues that carry it have their own.
    fn pool_frames(&self) -> u32 {
        0
    }

    fn why(&self, about: &About<'_>) -> String {
        if !about.is_attached {
            return "the interface is not there; the port is in use when it comes".to_owned();
        }
        let taken =
            if self.carried.thread.is_some() { ", its frames taken by a thread of the kernel" } else { "" };
        let what = format!("a port of {}, withheld from the kernel's stack{taken}", about.switch);
        match &self.carried.xdp {
            Some(Ok(())) => format!("{what}; its driver forwards flows (xdp), and tc those that it cannot"),
            Some(Err(why)) => format!("{what}; flows are forwarded at tc, not in its driver: {why}"),
            None => what,
        }
    }
}

/// Whether a link can be a port: it is an Ethernet device, and nothing else uses it.
fn fit_for_a_port(tables: &Tables, link: &Link, on_exit: OnExit) -> Result<(), Unfit> {
    if !link.ethernet || link.loopback {
        return Err(Unfit::NotEthernet(link.name.clone()));
    }
    let used = |users, advice| Unfit::Used { port: link.name.clone(), users, advice };
    if on_exit == OnExit::Bridge && link.port_kind != BRIDGE {
        return Err(Unfit::NoBridge(link.name.clone()));
    }
    if let Some(master) = link.master.filter(|_| on_exit != OnExit::Bridge) {
        let users =
            tables.link(master).map_or_else(|| format!("interface {master}"), |link| link.name.clone());
        return Err(used(users, format!("ip link set {} nomaster", link.name)));
    }
    // A veth device has its peer as its lower link.
    let stacked = |upper: &&Link| {
        upper.lower == Some(link.ifindex)
            && upper.ifindex != link.ifindex
            && link.lower != Some(upper.ifindex)
    };
    let uppers: Vec<_> = tables.links().filter(stacked).map(|link| link.name.as_str()).collect();
    if let Some(first) = uppers.first() {
        return Err(used(uppers.join(", "), format!("ip link delete {first}")));
    }
    let is_link_local =
        |address: IpAddr| matches!(address, IpAddr::V6(address) if Ipv6Addr::is_unicast_link_local(&address));
    let addresses = tables.addresses(link.ifindex).filter(|(address, _)| !is_link_local(*address));
    let addresses: Vec<_> = addresses.map(|(address, prefix)| format!("{address}/{prefix}")).collect();
    if !addresses.is_empty() {
        return Err(Unfit::Addresses { port: link.name.clone(), addresses: addresses.join(", ") });
    }
    Ok(())
}

/// Has the driver of an attached interface look for flows, if that is asked for or known to take nothing from other traffic;
/// otherwise the reason is returned.
fn forward_in_driver(
    homes: &mut Homes,
    home: HomeAt,
    link: &Link,
    asked: PortOffload,
) -> Result<Result<(), String>, HoldError> {
    let obstacle = match asked {
        PortOffload::Tc => Some("offload=tc".to_owned()),
        PortOffload::Xdp => None,
        PortOffload::Auto => homes.run(home, || ForwardingFacts::of(link).obstacle())?,
    };
    if let Some(obstacle) = obstacle {
        return Ok(Err(obstacle));
    }
    match homes.attach_xdp(home, link.ifindex) {
        Ok(()) => Ok(Ok(())),
        Err(error) if asked == PortOffload::Auto => {
            tracing::warn!("frames of {} are forwarded at tc: {error}", link.name);
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// What the interfaces of a namespace get in common.
fn port_set(first: &Opening<'_>) -> PortSetPlan {
    // Without a bridge, nothing could carry the frames of a stuck worker.
    let fails_open = first.switch.on_exit == OnExit::Bridge;
    PortSetPlan {
        number: 0,
        workers: first.workers as u32,
        ring_frames: RING_FRAMES,
        ports_max: CARRIED_MAX,
        fail_open: if fails_open { first.fail_open } else { Duration::ZERO },
        offloaded: entries_for(first),
        tc: tc_attach(first),
        segmentation: first.segmentation,
    }
}

/// Entries by which the kernel may forward frames in the network namespace of a port. Each namespace takes memory for its own, so
/// without tables others than the switch's own have some only if they have several ports.
fn entries_for(first: &Opening<'_>) -> u32 {
    let switch = first.switch;
    let namespace = first.name.namespace();
    let is_there = |name: &&PortName| name.namespace() == namespace && name.interface().is_some();
    let names = switch.port.iter().filter_map(|other| other.name.as_ref()).chain(first.coming);
    let has_several = || names.filter(is_there).nth(1).is_some();
    match switch.offload {
        Offload::Off => 0,
        Offload::Auto if switch.has_tables() => OFFLOADED_MAX,
        Offload::Auto if first.homes.with_entries() >= LEARNED_HOMES_MAX => 0,
        Offload::Auto if namespace.is_none() || has_several() => LEARNED_MAX,
        Offload::Auto => 0,
    }
}

/// How the programs of a namespace's interfaces are attached: by links, unless that would take too long. Only links can be
/// left to another process.
fn tc_attach(first: &Opening<'_>) -> TcAttach {
    let keeps = matches!(first.switch.on_exit, OnExit::Keep(_));
    if first.switch.port.len() > LINKED_MAX && !keeps { TcAttach::Clsact } else { TcAttach::here() }
}
