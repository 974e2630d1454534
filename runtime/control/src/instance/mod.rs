//! An instance: services on one interface, on two paths, from start to stop.
//!
//! The order of things: mirror the kernel's tables; hold the service's ports with kernel sockets; choose a path; start the
//! workers, which from then on serve through the kernel; attach the fast path; then keep all of it true while links,
//! addresses and routes change. Stopping goes the other way: the programs come off first, so that the kernel serves every
//! flow again before a socket closes.

mod begin;
mod bypassed;
mod capturing;
mod drain;
mod events;
mod fallback;
mod foreign;
mod hand_over;
mod hold;
mod plan;
mod reload;
mod reports;
mod said;
mod stand_by;
mod stand_in;
mod start;
mod take_over;
mod unserved;
mod workers;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

pub use reload::{Loaded, Source};
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant as Due;
use twinpath_attach::{AttachError, Attachment, InterfaceError};
use twinpath_command::{self as command, Request, default_socket, run_directory};
use twinpath_config::{AttachAsked, Path, PathAsked, Sandbox};
use twinpath_host::{Ready, Signals, StartError};
use twinpath_metrics::{self as metrics, MetricsError};
use twinpath_mirror::{Mirror, MirrorError};
use twinpath_path::Announcements;
use twinpath_path::choose::{Choice, Refusal};
use twinpath_path::facts::InterfaceFacts;
use twinpath_port::LinkState;
use twinpath_report as report;
use twinpath_rpcbind::{Registered, Registration};
use twinpath_serve::{PoolLimits, Prototype, Served, ServedPort, TcpLimits};
use twinpath_steer::{Claim, ClaimKind, Prefix};
use twinpath_sys::FrameClaim;
use twinpath_time::{Duration, Instant};
use twinpath_wire::{FlowKey, Protocol};
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::panics;

use self::fallback::Fallback;
use self::stand_in::StandIn;
use self::workers::WorkerHandle;

/// What an instance is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The services, at least one.
    pub services: Vec<ServicePlan>,
    /// Name of the interface.
    pub interface: String,
    /// The path asked for.
    pub path: PathAsked,
    /// How the packet path's program at tc ingress is to be attached.
    pub attach: AttachAsked,
    /// Measure at start what attaching costs the kernel's own traffic, and let `auto` mind it.
    pub measure_fallback: bool,
    /// The share that it may cost: 0.1 is a tenth.
    pub fallback_loss_max: f64,
    /// Workers.
    pub workers: u32,
    /// CPUs for them, in order; empty: not pinned.
    pub cpus: Vec<usize>,
    /// How they idle; `request` is set by what is measured.
    pub idle: IdleConfig,
    /// Latency requests and priority.
    pub machine: twinpath_machine::Wanted,
    /// How long connections may take to end when it stops.
    pub drain: Duration,
    /// Peers answered on the fast path at once.
    pub peers_max: u32,
    /// Entries per ring.
    pub ring_frames: u32,
    /// How long something may wait for a worker before the kernel stops claiming for it; zero: for ever.
    pub fail_open: Duration,
    /// The command socket of the instance to take over from.
    pub take_over: Option<PathBuf>,
    /// The command socket of the instance to stand by for; not together with the one before.
    pub stand_by: Option<PathBuf>,
    /// How long an instance that takes over may be silent before it serves.
    pub take_over_patience: Duration,
    /// Whether it confines the calling thread, and those that it starts, once it has started.
    pub sandbox: Sandbox,
    /// The command socket.
    pub socket: Option<PathBuf>,
    /// Where metrics are offered.
    pub metrics: Option<SocketAddr>,
    /// The configuration keys with their values, for `show config`.
    pub settings: Vec<report::Setting>,
}

/// What one service of an instance is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlan {
    /// Its name, for `show` and metrics.
    pub name: String,
    /// What is registered with rpcbind while it serves.
    pub rpcbind: Vec<Registration>,
    /// UDP port, on both paths.
    pub udp: Option<u16>,
    /// TCP port, on the kernel path.
    pub tcp: Option<u16>,
    /// EtherType whose frames are served whole: on the fast path only, as the kernel has no socket for them.
    pub ethertype: Option<u16>,
    /// Own addresses that the ports are served at; empty: all.
    pub addresses: Vec<IpAddr>,
    /// UDP flows that are claimed instead of the port.
    pub flows: Vec<FlowKey>,
    /// Senders served at the ports; empty: everybody.
    pub sources: Vec<Prefix>,
    /// What TCP connections may take.
    pub tcp_limits: TcpLimits,
    /// Replies per second to one source that are as large as their requests, per worker; 0: no limit.
    pub reply_rate: u32,
    /// Threads of each worker for what may block, if the service has such work.
    pub pool: PoolLimits,
}

impl ServicePlan {
    /// What is claimed on the interface; nothing, if the service has the kernel path only.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        let served = self.served();
        let flows = served.flows().iter().map(|flow| Claim::flow(*flow));
        // Where flows are named, the port is held for everybody else, on the kernel path.
        let ports = if self.flows.is_empty() { served.ports() } else { &[] };
        let ports = ports.iter().map(|port| port_claim(*port, &self.sources));
        flows.chain(ports).chain(self.ethertype.map(Claim::ethertype)).collect()
    }

    /// What the service is given, by whichever path.
    #[must_use]
    pub fn served(&self) -> Served {
        let served = Served::new().with_flows(&self.flows).with_sources(&self.sources);
        let served = served.with_ethertype(self.ethertype);
        match self.udp {
            Some(port) => served.with_port(Protocol::Udp, port, &self.addresses),
            None => served,
        }
    }

    /// What is served, in words: `udp/7`.
    #[must_use]
    pub fn ports(&self) -> Vec<String> {
        let mut flow_ports: BTreeSet<u16> = self.flows.iter().map(|flow| flow.destination.port()).collect();
        flow_ports.extend(self.udp);
        let udp = flow_ports.into_iter().map(|port| format!("udp/{port}"));
        let tcp = self.tcp.map(|port| format!("tcp/{port}"));
        let frames = self.ethertype.map(|ethertype| format!("ethertype/{ethertype:#06x}"));
        udp.chain(tcp).chain(frames).collect()
    }
}

impl Plan {
    /// What all services claim on the interface.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        self.services.iter().flat_map(ServicePlan::claims).collect()
    }

    /// The services by name: `echo`, `echo, rpc`.
    fn names(&self) -> String {
        self.services.iter().map(|service| service.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The first EtherType that is served: such frames have no path but the fast one.
    fn ethertype(&self) -> Option<u16> {
        self.services.iter().find_map(|service| service.ethertype)
    }

    /// The command socket, unless one is named: for several services it is called by none of them.
    fn default_socket(&self) -> PathBuf {
        let name = match self.services.as_slice() {
            [only] => only.name.as_str(),
            _ => "services",
        };
        default_socket(&run_directory(), name, &self.interface)
    }
}

/// The claim on a port, for those senders.
fn port_claim(served: ServedPort, sources: &[Prefix]) -> Claim {
    let ServedPort { protocol, port, address } = served;
    let kind = ClaimKind::Port { protocol, port, address };
    Claim { kind, vlan: None, sources: sources.to_vec() }
}

/// Why an instance could not start.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// The interface.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// Another socket holds the port.
    #[error("cannot serve {port}: {holder}; stop it or choose another port")]
    PortHeld {
        /// `udp port 7`.
        port: String,
        /// Who holds it.
        holder: String,
    },
    /// The instance that was there before does not hand over.
    #[error("cannot take over from {}: {why}; start without --take-over once it has stopped", from.display())]
    TakeOver {
        /// Its command socket.
        from: PathBuf,
        /// Why.
        why: String,
    },
    /// Services that have left have too many connections yet.
    #[error("too many services are leaving: try again once their connections have ended")]
    TooMany,
    /// There is nobody to stand by for, or not any longer.
    #[error("cannot stand by for {}: {why}", from.display())]
    StandBy {
        /// Its command socket.
        from: PathBuf,
        /// Why.
        why: String,
    },
    /// Several things at once.
    #[error("{}", several(.0))]
    Several(Vec<InstanceError>),
    /// Another instance has the frames.
    #[error(
        "frames of EtherType {ethertype:#06x} on {interface} are served by {holder}; stop it or choose another type"
    )]
    FramesHeld {
        /// The type.
        ethertype: u16,
        /// The interface.
        interface: String,
        /// Who has them.
        holder: String,
    },
    /// The port could not be bound.
    #[error("cannot bind {port}: {source}{advice}")]
    Bind {
        /// `udp port 7`.
        port: String,
        /// Why.
        source: std::io::Error,
        /// What to do about it, if anything is known.
        advice: &'static str,
    },
    /// The path asked for can't be had.
    #[error("{0}")]
    Path(#[from] Refusal),
    /// What is served has no kernel path, and the choice fell on that.
    #[error(
        "frames of EtherType {ethertype:#06x} have the fast path only, and {interface} is on the kernel path: {why}"
    )]
    NoFastPath {
        /// The type.
        ethertype: u16,
        /// The interface.
        interface: String,
        /// Why, and what to do.
        why: String,
    },
    /// Attaching failed, and another path was not to be tried.
    #[error("cannot attach {path} to {interface}: {source}")]
    Attach {
        /// The path.
        path: Path,
        /// The interface.
        interface: String,
        /// Why.
        source: AttachError,
    },
    /// Netlink.
    #[error("{0}")]
    Mirror(#[from] MirrorError),
    /// Workers.
    #[error("{0}")]
    Workers(#[from] StartError),
    /// The command socket.
    #[error("{0}")]
    Command(#[from] twinpath_command::CommandError),
    /// The listener for metrics.
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// The runtime or a descriptor.
    #[error("cannot start the control thread: {0}")]
    Control(std::io::Error),
}

fn several(errors: &[InstanceError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A question to the control loop, and where its answer goes.
enum Asked {
    /// From the command socket.
    Request(Request, oneshot::Sender<Result<serde_json::Value, String>>),
    /// For a scrape: the report without its neighbours, of which there may be thousands.
    Scrape(oneshot::Sender<report::Report>),
    /// What waking up costs, measured again.
    Measured(Box<twinpath_costs::Costs>),
    /// From an instance that is to take over.
    Sockets(std::os::unix::net::UnixStream),
    /// From an instance that is to stand by.
    StandBy(std::os::unix::net::UnixStream),
    /// What was found of the instance that this one stands by for.
    First(stand_by::First),
    /// What was found of workers whose sockets are not served.
    Unserved(unserved::Found),
    /// What became of the one of that number.
    Taker(u32, hand_over::Heard),
    /// From whoever wants it to end.
    Drain(twinpath_command::Drain, std::os::unix::net::UnixStream),
    /// From a client that is to be sent a file.
    Capture(twinpath_command::Capture, std::os::unix::net::UnixStream),
    /// From the thread of a capture that has ended.
    CaptureEnded(u32),
}

/// One running instance.
struct Instance {
    plan: Plan,
    mirror: Mirror,
    announcements: Announcements,
    workers: Vec<WorkerHandle>,
    /// Who serves the kernel's sockets while one of them is stuck.
    stand_in: Option<StandIn>,
    /// The watch over the sockets of the workers, while they serve them.
    unserved: Option<unserved::Watched>,
    interface: Interface,
    /// The workers' pools were sized for the XDP path.
    pools_for_xdp: bool,
    machine: twinpath_machine::Machine,
    /// What became of scrapers.
    scrapers: Option<Arc<metrics::Counters>>,
    captures: capturing::Captures,
    /// What rpcbind was told.
    registered: Registered,
    /// What is held for each service of the plan, in its order.
    held: Vec<hand_over::Held>,
    /// Instances that take over.
    takers: hand_over::Takers,
    /// Set while it stands by for another instance.
    standing_by: Option<stand_by::StandingBy>,
    /// Connections of instances that stand by for this one.
    stood_by: Vec<std::os::unix::net::UnixStream>,
    /// Services of workers that have begun to serve what waits in sockets that others had before.
    begun: usize,
    /// How its configuration is read again, and what has become of that.
    reloads: reload::Reloads,
    /// Where metrics are offered now.
    offered: watch::Sender<Option<Rc<metrics::Server>>>,
    /// How it is confined.
    confined: report::Sandbox,
    /// It is stopping.
    drain: Option<drain::Drain>,
    started: Instant,
}

/// The interface served, as it is now.
struct Interface {
    name: String,
    /// `None` while it is gone.
    ifindex: Option<u32>,
    facts: InterfaceFacts,
    /// Driver and offloads, as last asked for.
    device: report::Device,
    /// They may have changed.
    device_due: bool,
    /// The number of its queues may have changed.
    queues_due: bool,
    /// When to look again whether a foreign program runs before ours at tc ingress.
    look_at: Due,
    choice: Choice,
    /// What was measured at start, and the paths it rules out.
    fallback: Fallback,
    attachment: Option<Attachment>,
    /// Readable when a worker is found stuck; `None` while that cannot be.
    stuck_said: Option<AsyncFd<OwnedFd>>,
    /// Its state, as the workers were last told.
    link_told: Option<LinkState>,
    /// What keeps others from claiming the same frames, one for each type served.
    frame_claims: Vec<FrameClaim>,
    /// It is to be attached, as soon as workers have given back every former queue.
    attach_due: bool,
    /// Nothing is claimed for now, as claimed flows would pass by what the kernel is asked to check.
    held_back: bool,
    /// Times that we went in front of others at tc ingress.
    went_in_front: u32,
    /// Number of the next port, so that a worker can tell an old one from a new one.
    next_port: u16,
}

/// Serves until SIGINT or SIGTERM; `ready` is called once it does. `services` are those of the plan, in its order; every worker gets a
/// clone of each. With a `source`, SIGHUP and `twinpath reload` have its file read again.
///
/// # Errors
/// [`InstanceError`]; nothing is left changed then.
pub fn run(
    plan: Plan,
    services: &[Box<dyn Prototype>],
    source: Option<Source>,
    ready: impl FnOnce(&Ready),
) -> Result<(), InstanceError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(InstanceError::Control)?;
    panics::end_process_on_panic(|| {
        runtime.block_on(async {
            // Before anything is changed, so that no signal finds it half done.
            let mut signals = Signals::new().map_err(InstanceError::Control)?;
            let scrapes = match plan.metrics {
                Some(address) => Some(Rc::new(metrics::Server::bind(address).await?)),
                None => None,
            };
            // Also before anything is changed: an instance that cannot be asked must not take another one's place.
            let socket = plan.socket.clone().unwrap_or_else(|| plan.default_socket());
            let server = command::Server::bind(&socket)?;
            let mut instance = Instance::start(plan, services, source, server.path()).await?;
            instance.scrapers = scrapes.as_ref().map(|scrapes| Arc::clone(scrapes.counters()));
            instance.offered.send_replace(scrapes);
            let registrations: Vec<_> =
                instance.plan.services.iter().flat_map(|service| service.rpcbind.iter().copied()).collect();
            if instance.standing_by.is_none() {
                instance.registered = Registered::set(&registrations).await;
            }
            let outcome = instance.listen_and_serve(&mut signals, &server, ready).await;
            // Already undone, unless something failed.
            std::mem::take(&mut instance.registered).unset().await;
            instance.stop();
            outcome
        })
    })
}
