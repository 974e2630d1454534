//! One port: what it is on, and whether that is there.

use std::net::{IpAddr, Ipv6Addr};
use twinpath_attach::mirror::table::{Link, Tables};
use twinpath_attach::{ReceiveThread, ReceiveThreadError};
use twinpath_config::{OnExit, PortName, SwitchPort};
use twinpath_port::{PortId, PortQueue};
use twinpath_sys::ethtool::LinkSettings;
use twinpath_vnet::{Tap, TapError, TapHandle, VnetPort};

use crate::homes::{HoldError, HomeAt};
use crate::memory_port::Memory;
use crate::openflow_control::Counts;

/// Why a port could not be opened. The sentence does not name the port.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("there is no interface {name}; there is {available}")]
    NoInterface { name: String, available: String },
    #[error("{0} carries no Ethernet frames: a port of a switch needs an Ethernet device")]
    NotEthernet(String),
    #[error("{port} is in use by {users}: take it out first ({advice})")]
    Used { port: String, users: String, advice: String },
    #[error(
        "the kernel holds {addresses} on {port}, where nothing would reach it: remove it there (ip address flush dev {port}), and give \
         it to the switch's own interface (--local NAME)"
    )]
    Addresses { port: String, addresses: String },
    #[error("{0}")]
    Tap(#[from] TapError),
    #[error(
        "{0} belongs to no kernel bridge, which on_exit = \"bridge\" needs: make one that has the interfaces of all ports (ip link set {0} \
         master BRIDGE)"
    )]
    NoBridge(String),
    #[error("{0}")]
    Hold(#[from] HoldError),
    #[error("offload=xdp: {0}; without this key frames are forwarded at tc")]
    Xdp(HoldError),
    #[error("receive=thread: {0}; without this key frames are taken in the call that sends them")]
    Receive(#[from] ReceiveThreadError),
    #[error("cannot hold a descriptor a second time: {0}; raise the limit of open files (ulimit -n)")]
    Descriptor(#[from] std::io::Error),
    #[error("{0}")]
    Memory(#[from] twinpath_shm::CreateError),
    #[error("{0}")]
    Vxlan(#[from] twinpath_vxlan::OpenError),
    #[error("{0}")]
    Namespace(#[from] twinpath_sys::netns::NetnsError),
    #[error("{interface} is port {port} of this switch already")]
    Twice { interface: String, port: PortName },
    #[error("{number} is the number of port {by}, which has it until it is gone: give another one")]
    NumberTaken { number: u16, by: PortName },
    #[error("all numbers of ports are in use until ports that were taken out have gone: try again")]
    Numbers,
    #[error("cannot listen at {path} for the application: {error}")]
    Listen { path: String, error: std::io::Error },
}

/// The kernel's name for the kind of a bridge.
const BRIDGE: &str = "bridge";

/// Whether a port carries frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It does.
    Attached,
    /// What it is on is not there.
    Gone,
    /// It is there, and cannot be used.
    Refused(String),
}

/// What a port is on, with what it holds for that.
pub(super) enum On {
    /// An interface, which a queue carries together with others.
    Interface,
    /// The host's own interface, made by us.
    Local(Option<TapHandle>),
    /// Another process.
    Memory(Memory),
    /// Switches of other hosts; with the MTU for hosts here, while attached.
    Vxlan(u32),
}

/// A port.
pub(super) struct Port {
    pub(super) name: PortName,
    pub(super) config: SwitchPort,
    /// Its number in snapshots and frames.
    pub(super) number: u16,
    pub(super) home: HomeAt,
    pub(super) state: State,
    /// The interface, while attached or closing.
    pub(super) ifindex: u32,
    pub(super) on: On,
    /// The worker that has its queue, if it has one of its own; all workers carry interfaces.
    pub(super) worker: usize,
    /// Workers that have yet to give it back. It cannot be attached again before.
    pub(super) leaving: usize,
    /// It is no longer configured, and goes when its queue has come back.
    pub(super) removed: bool,
    /// The address of the other end of its interface, if that is a virtual pair that leads to another network namespace.
    pub(super) peer: Option<[u8; 6]>,
    /// Whether its driver forwards frames, if the kernel forwards any; or why not.
    pub(super) xdp: Option<Result<(), String>>,
    /// The thread of the kernel that takes its frames, if it is to have one.
    pub(super) thread: Option<ReceiveThread>,
    /// Set while the kernel has not yet announced that its interface was set down (`true`) or up for a controller.
    pub(super) asked_down: Option<bool>,
    /// How its interface is connected, as far as the kernel knows.
    pub(super) settings: Option<LinkSettings>,
    /// Its interface is the kernel's until all workers have the snapshot of that number.
    pub(super) joins_with: Option<u64>,
    /// What queues that it had before have counted.
    pub(super) before: Counts,
}

impl Port {
    /// Whether it is on that interface now.
    pub(super) fn is_on(&self, home: HomeAt, ifindex: u32) -> bool {
        self.is_attached() && self.ifindex == ifindex && ifindex != 0 && self.home == home
    }

    /// The name of its queue, if it has one of its own.
    pub(super) const fn id(&self) -> PortId {
        PortId { port: self.number, queue: 0 }
    }

    /// Whether frames may be sent to it.
    pub(super) fn is_attached(&self) -> bool {
        self.state == State::Attached
    }

    /// Whether its interface is set down; `None`: it is on no interface, or is not attached.
    pub(super) fn is_down(&self, link: &Link) -> Option<bool> {
        let is_interface = self.is_attached() && matches!(self.on, On::Interface);
        is_interface.then(|| self.asked_down.unwrap_or(!link.up))
    }

    /// The kernel has announced how the interface is.
    pub(super) fn link_is(&mut self, up: bool) {
        self.asked_down.take_if(|down| *down != up);
    }

    /// Gives up what it holds, after its queue has come back or before it had one.
    pub(super) fn release(&mut self) {
        match &mut self.on {
            On::Interface | On::Vxlan(_) => {}
            On::Local(handle) => *handle = None,
            On::Memory(memory) => memory.release(),
        }
    }
}

/// The interface of a port, if it is there and nothing else uses it.
pub(super) fn fit_for_a_port(
    tables: &Tables,
    name: &str,
    on_exit: OnExit,
    available: impl FnOnce() -> String,
) -> Result<Link, OpenError> {
    let Some(link) = tables.link_named(name) else {
        return Err(OpenError::NoInterface { name: name.to_owned(), available: available() });
    };
    if !link.ethernet || link.loopback {
        return Err(OpenError::NotEthernet(link.name.clone()));
    }
    let used = |users, advice| OpenError::Used { port: link.name.clone(), users, advice };
    if on_exit == OnExit::Bridge && link.port_kind != BRIDGE {
        return Err(OpenError::NoBridge(link.name.clone()));
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
        return Err(OpenError::Addresses { port: link.name.clone(), addresses: addresses.join(", ") });
    }
    Ok(link.clone())
}

/// Makes the host's own interface.
pub(super) fn make_local(name: &str, id: PortId) -> Result<(Box<dyn PortQueue>, TapHandle, u32), OpenError> {
    let tap = Tap::make(name, 1)?;
    let handle = TapHandle::of(&tap)?;
    let (ifindex, segmentation) = (tap.ifindex, tap.offloads.segmentation());
    let fd = tap.queues.into_iter().next().ok_or_else(|| std::io::Error::from(rustix::io::Errno::BADF))?;
    Ok((Box::new(VnetPort::tap(id, ifindex, fd).segmenting(segmentation)), handle, ifindex))
}
