//! A switch: its ports, wherever their interfaces are, the snapshots by which workers judge frames, and the engine of a
//! worker.
//!
//! A configured port is present or absent: its interface may be gone, or no application may be connected. The snapshot
//! has the ports that are present. When that changes, workers get a new snapshot, and control frees the former one when
//! they have taken it. Everything that a port needs depends on descriptors. So its interfaces are restored, however the
//! process ends.
//!
//! Control handles no frames: that is [`engine`]. Nothing here decides about them: that is [`twinpath_forwarding::learning`].

mod changes;
mod control_loop;
pub mod controllers;
pub mod engine;
mod events;
pub mod homes;
mod keep;
mod kinds;
mod learned;
mod numbers;
pub mod offload;
mod openflow;
pub mod openflow_control;
mod port;
mod reports;
mod secret;
mod snapshots;
mod start;
mod within_tokio;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::SwitchEngine;
use twinpath_bpf::KeepError;
use twinpath_config::{Config, Given, PortName, Sandbox, Switch, SwitchPort};
use twinpath_forwarding::learning::{ConfigError, NoMemory, Shared};
use twinpath_host::{Addresses, Captures, Ready, StartError, WorkerHandle, to_end};
use twinpath_inspect::SwitchCounters;
use twinpath_observe::metrics::{self as metrics, MetricsError};
use twinpath_observe::report;
use twinpath_port::GsoKinds;
use twinpath_sys::event_loop::channel::{Receiver, Sender};
use twinpath_sys::netns::NetnsError;
use twinpath_time::Instant;
use twinpath_worker::idle::IdleConfig;

use self::port::Port;
use self::snapshots::Snapshots;
use crate::homes::{HomeError, Homes};
use crate::offload::Learned;
use crate::openflow_control::OpenFlow;

/// The path of a switch's ports in reports.
const PATH: &str = "switch";

/// What a switch is to be.
#[derive(Clone, Debug)]
pub struct SwitchPlan {
    /// Its name.
    pub name: String,
    /// The configuration, valid in itself: the switch and its ports.
    pub config: Config,
    /// The default values of keys.
    pub usual: Config,
    /// The keys that are given.
    pub given: Given,
    /// CPUs for the workers, in order; empty: not pinned.
    pub cpus: Vec<usize>,
    /// How workers idle; `request` is set from measurements.
    pub idle: IdleConfig,
    /// Latency requests and priority.
    pub machine: twinpath_host::machine::Wanted,
    /// Whether to confine the calling thread, and those that it starts, after the start.
    pub sandbox: Sandbox,
    /// The command socket.
    pub socket: Option<PathBuf>,
    /// Where metrics are offered.
    pub metrics: Option<SocketAddr>,
}

impl SwitchPlan {
    /// How many workers it has: one at least.
    fn workers(&self) -> usize {
        self.config.worker.count.max(1) as usize
    }

    /// The switch and its ports.
    fn switch(&self) -> &Switch {
        // A plan is made from the configuration of a switch.
        static NONE: std::sync::LazyLock<Switch> = std::sync::LazyLock::new(Switch::default);
        self.config.switch.as_ref().unwrap_or(&NONE)
    }
}

/// A configuration as it was read again, valid in itself.
#[derive(Debug)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// The keys that it gives.
    pub given: Given,
}

/// The file that a configuration came from.
pub struct Source {
    /// Its name.
    pub file: PathBuf,
    /// Reads it again. The error is everything that is wrong with it, a line for each. Called on the control thread.
    pub read: Box<dyn Fn() -> Result<Loaded, String>>,
}

/// An error at the start of a switch.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// Ports that cannot be opened, a line for each.
    #[error("{}", .0.join("\n"))]
    Ports(Vec<String>),
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The MAC table.
    #[error("{0}")]
    Memory(#[from] NoMemory),
    /// A network namespace.
    #[error("{0}")]
    Namespace(#[from] NetnsError),
    /// The same, or its links.
    #[error("{0}")]
    Home(#[from] HomeError),
    /// Workers.
    #[error("{0}")]
    Workers(#[from] StartError),
    /// The rings between workers.
    #[error("cannot make a descriptor that wakes a worker: {0}; raise the limit of open files (ulimit -n)")]
    Peers(rustix::io::Errno),
    /// What outlives the process.
    #[error("{0}")]
    Keep(#[from] KeepError),
    /// Controllers.
    #[error("{0}")]
    OpenFlow(#[from] crate::openflow_control::StartError),
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

/// One running switch.
struct Switching {
    plan: SwitchPlan,
    /// What can be read again.
    source: Option<Source>,
    reloads: report::Configuration,
    /// When the configuration in force was read.
    read_at: Instant,
    /// The configuration keys with their values, for `show config`.
    settings: Vec<twinpath_config::Setting>,
    captures: Captures,
    /// Captures that have ended, by their number; the sender is for their threads.
    ended: (Sender<u32>, Receiver<u32>),
    /// Where metrics are offered, which may change.
    offered: metrics::Offered,
    /// Clients that wait for a change to be complete.
    waiting: Vec<changes::Waiting>,
    homes: Homes,
    ports: Vec<Port>,
    /// Ports that a change is about to make, beside those of the plan.
    coming: Vec<PortName>,
    /// Number of the port that was made last.
    last_number: u16,
    /// The worker that gets the next queue that only one of them has.
    next_worker: usize,
    shared: Arc<Shared>,
    snapshots: Snapshots,
    /// Its tables and controllers, if it has any.
    openflow: Option<OpenFlow>,
    /// Frames that the kernel forwards by learned addresses, if there are no tables.
    learned: Option<Learned>,
    /// Ports have come, gone or changed since controllers, or the kernel's programs, were told of them.
    ports_changed: bool,
    workers: Vec<WorkerHandle<SwitchEngine>>,
    /// Where sweeping the MAC table goes on, if it is under way.
    sweep_from: Option<usize>,
    /// What each of them counts of the switch.
    counted: Vec<Arc<SwitchCounters>>,
    /// The kinds of super-frames that the kernel takes from us.
    segmentation: GsoKinds,
    /// Where applications connect to memory ports.
    folder: PathBuf,
    machine: twinpath_host::machine::Machine,
    /// Its confinement.
    confined: report::Sandbox,
    started: Instant,
}

/// The ports of a switch by name, with that of the host itself.
fn configured(switch: Option<&Switch>) -> Vec<(PortName, SwitchPort)> {
    let ports = switch.iter().flat_map(|switch| &switch.port);
    let ports = ports.filter_map(|port| Some((port.name.clone()?, port.clone())));
    let local = switch.and_then(|switch| switch.local.clone());
    ports.chain(local.map(|name| (PortName::local(name), SwitchPort::default()))).collect()
}

/// Carries frames until SIGINT or SIGTERM; `ready` is called once it does. Returns the names of workers that were stuck at the end,
/// which end with the process.
///
/// # Errors
/// [`SwitchError`]; in this case nothing is left changed.
pub fn run(
    plan: SwitchPlan,
    source: Option<Source>,
    ready: impl FnOnce(&Ready),
) -> Result<Vec<String>, SwitchError> {
    let (socket, name) = (plan.socket.clone(), plan.name.clone());
    let addresses = Addresses {
        socket: socket.as_deref(),
        kind: &report::InstanceKind::Switch,
        name: &name,
        metrics: plan.metrics,
    };
    let start = async |offered, socket: &Path| Switching::start(plan, source, offered, socket).await;
    within_tokio::run(to_end(addresses, start, ready, Switching::stop))?
}
