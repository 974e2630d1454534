//! Control of an exception port: an interface that user space owns completely, with a second interface for
//! the kernel's own stack.
//!
//! PORT is a device on which the kernel holds no address. NAME is a TAP interface that takes its place: it
//! has PORT's address, MTU and carrier, and workers carry every frame between the two. The workers sleep
//! directly on the descriptors. Meanwhile the kernel's stack receives nothing from PORT and sends nothing
//! through it ([`twinpath_bpf::Exclusive`]). All of this, the sockets and NAME depend on descriptors, so
//! PORT returns to its former state however the process ends.
//!
//! This crate handles no frames. [`sides`] decides which properties are mirrored, and in which direction.

mod control_loop;
pub mod engine;
mod events;
mod links;
mod reports;
pub mod sides;
mod start;
mod stuck;
mod workers;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use twinpath_attach::mirror::table::Link;
use twinpath_attach::mirror::{Mirror, MirrorError};
use twinpath_bpf::{Exclusive, SteerError};
use twinpath_config::Sandbox;
use twinpath_host::{Addresses, Awaited, Ready, StartError, run_to_end};
use twinpath_observe::metrics::MetricsError;
use twinpath_observe::report;
use twinpath_sys::packet_socket::PacketSocketError;
use twinpath_time::{Duration, Instant};
use twinpath_vnet::{Offloads, TapError, TapHandle};
use twinpath_worker::idle::IdleConfig;

use self::links::Links;
use self::sides::Sides;
use self::workers::WorkerHandle;
use crate::engine::Side;

/// The path of both interfaces in reports.
const PATH: &str = "exception";

/// Maximum number of pairs of queues.
pub const QUEUES_MAX: u32 = 64;

/// The component that carries frames from one side to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// The kernel, by programs of ours at tc, while both interfaces are in one network namespace; workers otherwise.
    #[default]
    Kernel,
    /// Workers: frames pass through our queues.
    Workers,
}

impl Carrier {
    /// The name users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Workers => "workers",
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Carrier {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Kernel, Self::Workers]
            .into_iter()
            .find(|carrier| carrier.name() == name)
            .ok_or_else(|| format!("unknown carrier '{name}': choose kernel or workers"))
    }
}

/// The settings of an exception port.
#[derive(Clone, Debug)]
pub struct BridgePlan {
    /// Name of the device.
    pub port: String,
    /// Name of the interface to create for the kernel's stack.
    pub kernel: String,
    /// The component that carries frames.
    pub carrier: Carrier,
    /// Pairs of queues, each with its own worker.
    pub queues: u32,
    /// CPUs for the workers, in order; empty: not pinned.
    pub cpus: Vec<usize>,
    /// When frames have waited for a worker for this long, it counts as stuck, and the kernel carries
    /// frames if it can; 0: never.
    pub fail_open: Duration,
    /// How workers idle; `request` is set from measurements.
    pub idle: IdleConfig,
    /// Latency requests and priority.
    pub machine: twinpath_host::machine::Wanted,
    /// Whether it confines the calling thread, and those that it starts, after the start.
    pub sandbox: Sandbox,
    /// The command socket.
    pub socket: Option<PathBuf>,
    /// The address of the metrics endpoint.
    pub metrics: Option<SocketAddr>,
    /// The configuration keys with their values, for `show config`.
    pub settings: Vec<twinpath_config::Setting>,
}

/// An error at the start of an exception port.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// There is no such interface.
    #[error("there is no interface {name}; there is {available}")]
    NoInterface {
        /// The name.
        name: String,
        /// The interfaces that exist.
        available: String,
    },
    /// It does not carry Ethernet frames.
    #[error("{0} carries no Ethernet frames: an exception port needs an Ethernet device")]
    NotEthernet(String),
    /// Another interface or process uses it.
    #[error(
        "{port} is in use by {users}: take it out first ({advice}); an exception port has its device to itself"
    )]
    Used {
        /// The device.
        port: String,
        /// The user.
        users: String,
        /// The command that ends this use.
        advice: String,
    },
    /// The kernel has addresses on it.
    #[error(
        "the kernel holds {} on {port}, where nothing would reach it; move {} to {kernel}:\n{}",
        list(addresses),
        if addresses.len() == 1 { "it" } else { "them" },
        moves(port, kernel, addresses)
    )]
    Addresses {
        /// The device.
        port: String,
        /// The interface to be made.
        kernel: String,
        /// The addresses, with prefix lengths.
        addresses: Vec<(IpAddr, u8)>,
    },
    /// More queues than possible.
    #[error("{0} queues are not possible: choose 1 to {QUEUES_MAX}")]
    Queues(u32),
    /// The TAP interface.
    #[error("{0}")]
    Tap(#[from] TapError),
    /// A packet socket.
    #[error("{0}")]
    Socket(#[from] PacketSocketError),
    /// The memory in which programs and workers mark a stuck worker.
    #[error("cannot map the words that say since when a frame waits for a worker: {0}")]
    Words(rustix::io::Errno),
    /// The BPF programs.
    #[error("{0}")]
    Steer(#[from] SteerError),
    /// Netlink.
    #[error("{0}")]
    Mirror(#[from] MirrorError),
    /// Workers.
    #[error("{0}")]
    Workers(#[from] StartError),
    /// The listener for metrics.
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// The command socket.
    #[error("{0}")]
    Command(#[from] twinpath_observe::command::CommandError),
    /// The runtime or a descriptor.
    #[error("cannot start the control thread: {0}")]
    Control(#[from] std::io::Error),
}

fn list(addresses: &[(IpAddr, u8)]) -> String {
    let words: Vec<_> = addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect();
    words.join(", ")
}

/// The commands that move addresses: off the device now, onto the kernel's interface once it is there.
fn moves(port: &str, kernel: &str, addresses: &[(IpAddr, u8)]) -> String {
    let each = |verb: &str, name: &str| {
        let line =
            |(address, prefix): &(IpAddr, u8)| format!("  ip address {verb} {address}/{prefix} dev {name}\n");
        addresses.iter().map(line).collect::<String>()
    };
    let (now, later) = (each("delete", port), each("add", kernel));
    format!("{now}  twinpath bridge {port} --kernel {kernel}     (then, from another terminal:)\n{later}")
        .trim_end()
        .to_owned()
}

/// The device's side.
struct PortSide {
    name: String,
    /// `None` while it is gone.
    ifindex: Option<u32>,
    kind: String,
    /// How frames were carried at the last look; `Workers` while the device is gone.
    carrier: Carrier,
    /// Whether the kernel carries frames while a worker is stuck.
    fails_open: bool,
    /// Duplicates of the sockets, for their counts of lost frames; and the counts so far.
    sockets: Vec<(OwnedFd, u64)>,
}

/// The location of the kernel's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    /// In our network namespace.
    Home,
    /// In another one: frames still pass, but changes there are not seen.
    Elsewhere,
    /// It is gone, and could not be created again yet.
    Nowhere,
}

/// The kernel's side.
struct KernelSide {
    name: String,
    ifindex: u32,
    handle: TapHandle,
    offloads: Offloads,
    place: Location,
}

/// One running exception port.
struct Bridge {
    plan: BridgePlan,
    mirror: Awaited<Mirror>,
    links: Links,
    /// The programs that withhold the device from the kernel's stack, and let frames cross.
    exclusive: Exclusive,
    stuck: stuck::Watch,
    port: PortSide,
    kernel: KernelSide,
    sides: Sides,
    /// The links of both sides, as last read.
    seen: [Option<Link>; 2],
    /// Their drivers and offloads.
    devices: [report::Device; 2],
    workers: Vec<WorkerHandle>,
    machine: twinpath_host::machine::Machine,
    /// Its confinement.
    confined: report::Sandbox,
    started: Instant,
    /// Interfaces attached so far, per side.
    attachments: [u16; 2],
}

impl Bridge {
    fn name_of(&self, side: Side) -> &str {
        match side {
            Side::Port => &self.port.name,
            Side::Kernel => &self.kernel.name,
        }
    }
}

/// Carries frames until SIGINT or SIGTERM, and calls `ready` once it does. Returns the names of workers
/// that were stuck at the end; they end with the process.
///
/// # Errors
///
/// [`BridgeError`]; everything has been undone then.
pub fn run(plan: BridgePlan, ready: impl FnOnce(&Ready)) -> Result<Vec<String>, BridgeError> {
    let (socket, name) = (plan.socket.clone(), plan.port.clone());
    let addresses = Addresses {
        socket: socket.as_deref(),
        kind: &report::InstanceKind::Bridge,
        name: &name,
        metrics: plan.metrics,
    };
    let start = async |_offered, socket: &Path| Bridge::start(plan, socket).await;
    run_to_end(addresses, start, ready, Bridge::stop)
}
