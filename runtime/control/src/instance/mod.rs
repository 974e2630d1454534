//! An instance: services on one interface, on two paths, from start to stop.
//!
//! The order of things: mirror the kernel's tables; hold the service's ports with kernel sockets; choose a path; start the
//! workers, which from then on serve through the kernel; attach the fast path; then keep all of it true while links,
//! addresses and routes change. Stopping goes the other way: the programs come off first, so that the kernel serves every
//! flow again before a socket closes.

mod again;
mod begin;
mod bypassed;
mod capture;
mod control_loop;
mod drain;
mod events;
mod foreign;
mod hand_over;
mod reload;
mod reports;
mod said;
mod stand_by;
mod stand_in;
mod start;
mod unserved;

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

pub use reload::{Loaded, Source};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant as Due, Interval};
use twinpath_attach::{AttachError, Attachment, InterfaceError};
use twinpath_command as command;
use twinpath_config::Path;
use twinpath_fallback::Fallback;
use twinpath_hold::{Held, HoldError};
use twinpath_host::{Offers, Ready, Signals, StartError};
use twinpath_metrics::{self as metrics, MetricsError};
use twinpath_mirror::{Mirror, MirrorError};
use twinpath_path::Announcements;
use twinpath_path::choose::{Choice, Refusal};
use twinpath_path::facts::InterfaceFacts;
use twinpath_plan::Plan;
use twinpath_port::LinkState;
use twinpath_report as report;
use twinpath_rpcbind::Registered;
use twinpath_serve::Prototype;
use twinpath_serving::{Captures, StandIn, WorkerHandle};
use twinpath_stuck::{First, Found, Watched};
use twinpath_sys::FrameClaim;
use twinpath_time::Instant;
use twinpath_worker::panics;

/// Why an instance could not start.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// The interface.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// What is served cannot be held.
    #[error("{0}")]
    Hold(#[from] HoldError),
    /// Services that have left have too many connections yet.
    #[error("too many services are leaving: try again once their connections have ended")]
    TooMany,
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
    Control(#[from] std::io::Error),
}

/// Frames of an EtherType are served on the fast path or not at all.
fn needs_fast_path(plan: &Plan, choice: &Choice) -> Result<(), InstanceError> {
    let Some(ethertype) = plan.ethertype().filter(|_| choice.path == Path::Kernel) else { return Ok(()) };
    let reasons = choice.why_not.iter().map(|not| format!("; not {}: {}", not.path, not.reason));
    let why = std::iter::once(choice.why.clone()).chain(reasons).collect();
    Err(InstanceError::NoFastPath { ethertype, interface: plan.interface.clone(), why })
}

/// What a task or a thread beside the control loop has found.
enum Outcome {
    /// What waking up costs, measured again.
    Measured(Box<twinpath_costs::Costs>),
    /// What was found of the instance that this one stands by for.
    First(First),
    /// What was found of workers whose sockets are not served.
    Unserved(Found),
    /// What became of the instance of that number that takes over.
    Taker(u32, hand_over::Heard),
    /// The capture of that number has ended.
    CaptureEnded(u32),
}

impl From<First> for Outcome {
    fn from(first: First) -> Self {
        Self::First(first)
    }
}

impl From<Found> for Outcome {
    fn from(found: Found) -> Self {
        Self::Unserved(found)
    }
}

/// One running instance.
struct Instance {
    plan: Plan,
    mirror: Mirror,
    announcements: Announcements,
    workers: Vec<WorkerHandle>,
    /// Serves the kernel's sockets while one of them is stuck.
    stand_in: Option<StandIn>,
    /// The watch over the sockets of the workers, while they serve them.
    unserved: Option<Watched>,
    interface: Interface,
    /// The workers' pools were sized for the XDP path.
    pools_for_xdp: bool,
    machine: twinpath_machine::Machine,
    /// What became of scrapers.
    scrapers: Option<Arc<metrics::Counters>>,
    captures: Captures,
    /// What rpcbind was told.
    registered: Registered,
    /// What is held for each service of the plan, in its order.
    held: Vec<Held>,
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
    /// For tasks and threads beside the control loop.
    tell: mpsc::Sender<Outcome>,
    /// Their findings.
    outcomes: mpsc::Receiver<Outcome>,
    /// When to look whether the workers are at rest.
    rest: Interval,
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
            if instance.standing_by.is_none() {
                instance.registered = Registered::set(&instance.plan.registrations()).await;
            }
            instance.watch_first();
            instance.watch_sockets();
            let offers = Offers { commands: &server, metrics: instance.offered.subscribe() };
            let outcome = twinpath_host::run(&mut instance, &mut signals, offers, ready).await;
            if outcome.is_ok() {
                instance.tell_the_end();
            }
            // Already undone, unless something failed.
            std::mem::take(&mut instance.registered).unset().await;
            instance.stop();
            outcome
        })
    })
}
