//! An instance: services on one interface, on two paths, from start to stop.
//!
//! The start mirrors the kernel's tables, holds the ports of the services with kernel sockets, chooses a path,
//! starts the workers (which serve through the kernel from then on), and attaches the fast path. While the
//! instance serves, control follows changes of links, addresses and routes. The stop detaches the programs
//! first, so that the kernel serves every flow again before a socket closes.

mod addresses;
mod attach;
mod begin;
mod bypassed;
mod capture;
mod control_loop;
mod drain;
mod events;
mod fallback;
mod foreign;
mod hand_over;
pub mod hold;
mod leaving_claims;
mod lifecycle;
mod listing;
pub mod plan;
mod reload;
mod reports;
pub mod rpcbind;
pub mod serving;
mod stand_by;
mod stand_in;
mod start;
pub mod stuck;
mod unserved;
mod worker_events;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;

pub use fallback::{FallbackQuestion, MeasureFallback};
pub use reload::{Loaded, Source};
use twinpath_attach::mirror::{Mirror, MirrorError};
use twinpath_attach::path::Announcements;
use twinpath_attach::path::choose::{Choice, Refusal, WhyNot};
use twinpath_attach::path::facts::InterfaceFacts;
use twinpath_attach::{AttachError, Attachment, InterfaceError};
use twinpath_config::Path;
use twinpath_host::metrics::{self, MetricsError};
use twinpath_host::{Awaited, Captures, Offers, Ready, Signals, StartError};
use twinpath_lifecycle::{Event, Lifecycle};
use twinpath_observe::command;
use twinpath_observe::report;
use twinpath_port::LinkState;
use twinpath_serve::Prototype;
use twinpath_sys::FrameClaim;
use twinpath_sys::event_loop::channel::{Receiver, Sender};
use twinpath_sys::event_loop::{self, EventLoop};
use twinpath_time::Instant;
use twinpath_worker::thread::panics;

use self::fallback::Fallback;
use crate::hold::{Held, HoldError, Inherited};
use crate::plan::Plan;
use crate::rpcbind::Registered;
use crate::serving::{StandIn, WorkerHandle};
use crate::stuck::{First, WatchEvent, Watched};

/// Why an instance could not start, or a reload could not be done.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// The interface cannot be used.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// A port or EtherType of a service cannot be held.
    #[error("{0}")]
    Hold(#[from] HoldError),
    /// A service names an address that this host does not have.
    #[error(
        "{service} cannot be served at {address}: {interface} {has}, and no other interface of this host (of its VRF) has it; name an \
         address that is there (--address, service.addresses), or give {interface} that one first (ip address add). If it comes later: \
         sysctl -w net.{family}.ip_nonlocal_bind=1"
    )]
    NoAddress {
        /// The name of the service.
        service: String,
        /// The address.
        address: IpAddr,
        /// The interface.
        interface: String,
        /// The addresses that it has.
        has: String,
        /// `ipv4` or `ipv6`.
        family: &'static str,
    },
    /// Services that earlier reloads removed still have connections, and no part of the workers is free.
    #[error("too many services are leaving: try again once their connections have ended")]
    TooMany,
    /// The configured path cannot be used.
    #[error("{0}")]
    Path(#[from] Refusal),
    /// The service is for an EtherType, which needs a fast path, but only the kernel path can be used.
    #[error(
        "frames of EtherType {ethertype:#06x} have the fast path only, and {interface} is on the kernel path: {why}"
    )]
    NoFastPath {
        /// The EtherType.
        ethertype: u16,
        /// The interface.
        interface: String,
        /// The reason, and what to do.
        why: String,
    },
    /// Attaching failed, and no other path may be tried.
    #[error("cannot attach {path} to {interface}: {source}")]
    Attach {
        /// The path.
        path: Path,
        /// The interface.
        interface: String,
        /// The error.
        source: AttachError,
    },
    /// The mirror of the kernel's tables has failed.
    #[error("{0}")]
    Mirror(#[from] MirrorError),
    /// A worker could not be started.
    #[error("{0}")]
    Workers(#[from] StartError),
    /// The command socket could not be opened.
    #[error("{0}")]
    Command(#[from] twinpath_observe::command::CommandError),
    /// The listener for metrics could not be opened.
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// The instance has ended, and left threads behind.
    #[error("{}", .0.join("\n"))]
    LeftBehind(Vec<String>),
    /// The event loop or a descriptor could not be made.
    #[error("cannot start the control thread: {0}")]
    Control(#[from] std::io::Error),
}

/// Refuses the kernel path for a plan with an EtherType, which has only the fast path.
fn needs_fast_path(plan: &Plan, choice: &Choice) -> Result<(), InstanceError> {
    let Some(ethertype) = plan.ethertype().filter(|_| choice.path == Path::Kernel) else { return Ok(()) };
    let reasons = choice.why_not.iter().map(|not| format!("; not {}: {}", not.path, not.reason));
    let why = std::iter::once(choice.why.clone()).chain(reasons).collect();
    Err(InstanceError::NoFastPath { ethertype, interface: plan.interface.clone(), why })
}

/// A message to the control loop from another task or thread.
enum Message {
    /// The cost of waking up has been measured again.
    Measured(Box<twinpath_worker::costs::Costs>),
    /// The state of the instance that this one is a standby for has changed.
    First(First),
    /// Workers leave requests waiting in their sockets.
    Unserved(WatchEvent),
    /// Something that the phases depend on.
    Event(Event),
    /// The capture with this number has ended.
    CaptureEnded(u32),
}

impl From<First> for Message {
    fn from(first: First) -> Self {
        Self::First(first)
    }
}

impl From<WatchEvent> for Message {
    fn from(found: WatchEvent) -> Self {
        Self::Unserved(found)
    }
}

/// One running instance.
struct Instance {
    plan: Rc<Plan>,
    /// Its phases. What it decides is carried out in `service/instance/src/lifecycle.rs`.
    lifecycle: Lifecycle,
    /// Events for it that have come while something else was carried out.
    events: VecDeque<Event>,
    /// Paths on which attaching has failed at the start.
    failed_paths: Vec<WhyNot>,
    /// Why the last action failed, if the instance ends with that.
    error: Option<InstanceError>,
    /// Workers that had to be left behind at the end.
    left_behind: Vec<String>,
    /// Connections and requests that were cut off at the end.
    cut_off: u64,
    /// The instance that this one takes over from; empty if there is none.
    former: Inherited,
    mirror: Awaited<Mirror>,
    announcements: Awaited<Announcements>,
    workers: Vec<WorkerHandle>,
    /// The worker that serves the kernel's sockets while another one is stuck.
    stand_in: Option<StandIn>,
    /// Watches the workers' sockets for requests that are not served.
    unserved: Option<Watched>,
    interface: Interface,
    /// Whether the workers' pools were sized for the XDP path.
    pools_for_xdp: bool,
    machine: twinpath_host::machine::Machine,
    /// Counters of the clients that scrape metrics.
    scrapers: Option<Arc<metrics::Counters>>,
    captures: Captures,
    /// Which requests the kernel's programs may answer.
    reflexes: crate::serving::ServedReflexes,
    /// TCP on the fast path.
    connections: crate::serving::Connections,
    /// What stays for services that a reload has removed, and that have connections on the fast path yet.
    leaving: leaving_claims::Leaving,
    /// Our registrations with rpcbind.
    registered: Registered,
    /// The sockets of each service of the plan, in the plan's order.
    held: Vec<Held>,
    /// The connections to new instances that take over from this one.
    takers: hand_over::Takers,
    /// The first instance, which this one stands by for.
    first: Option<stand_by::FirstInstance>,
    /// Connections to the standbys of this instance.
    standbys: stand_by::Standbys,
    /// The connection that the present request came over.
    asking: Option<UnixStream>,
    /// How many services, counted once per worker, have started to serve the sockets that a former instance
    /// had.
    begun: usize,
    /// The addresses of this host, as last reported to the workers.
    own: addresses::OwnAddresses,
    /// The source of the configuration, and the state of reloads.
    reloads: reload::Reloads,
    /// The listener for metrics.
    offered: metrics::Offered,
    /// The sandbox as it is in force.
    confined: report::Sandbox,
    /// The clients that follow a drain.
    followers: drain::Followers,
    /// Sends messages from tasks and threads to the control loop.
    tell: Sender<Message>,
    /// Receives these messages.
    messages: Receiver<Message>,
    /// When to check whether the workers are at rest.
    rest_at: Instant,
    started: Instant,
    /// Until when another instance waits for connections that move to the kernel, and keep no queue.
    moves_awaited: Option<Instant>,
    /// The list of connections that a client waits for.
    listings: listing::Listings,
    /// What was left when it was looked last, while connections are closed at the end of a drain.
    cut_left: drain::CutLeft,
}

/// The present state of the interface.
struct Interface {
    name: String,
    /// The index; `None` while the interface is gone.
    ifindex: Option<u32>,
    /// The VRF that it was in at the start: the sockets of its services are there.
    vrf: Option<u32>,
    facts: InterfaceFacts,
    /// Driver and offloads, when last read.
    device: report::Device,
    /// Whether `device` may be out of date.
    device_due: bool,
    /// Whether the number of queues may have changed.
    queues_due: bool,
    /// When to check again for foreign programs at tc ingress.
    look_at: Instant,
    choice: Choice,
    /// What was measured at start, and the paths that it rules out.
    fallback: Fallback,
    attachment: Option<Attachment>,
    /// Readable when a worker is found stuck; `None` if stuck workers are not detected.
    stuck_said: Option<event_loop::Watched<OwnedFd>>,
    /// The state that the workers were told last.
    link_told: Option<LinkState>,
    /// Workers may keep connections since the interface was gone: they are told when routes change.
    may_keep: bool,
    /// The claims on the service's EtherTypes, one for each.
    frame_claims: Vec<FrameClaim>,
    /// How often our program was moved before others at tc ingress.
    went_in_front: u32,
    /// The number of the next port, so that workers can tell a new port from a former one.
    next_port: u16,
}

/// What the program provides to an instance; the plan says what to do with it.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// The services of the plan, in its order; each worker gets a clone of each.
    pub services: &'a [Box<dyn Prototype>],
    /// Measures the cost of a path; `None` if the program is built without it.
    pub measure_fallback: Option<MeasureFallback>,
}

/// Serves until `signals` asks it to end. Calls `ready` when it serves, with the plan, in which ports left
/// to the kernel are filled in. With a `source`, its file can be reloaded. Returns how many connections and
/// requests were cut off at the end.
///
/// # Errors
///
/// [`InstanceError`]; everything has been undone then.
pub fn run(
    plan: Plan,
    parts: Parts<'_>,
    source: Option<Source>,
    signals: Signals,
    ready: impl FnOnce(&Ready, &Plan),
) -> Result<u64, InstanceError> {
    let events = EventLoop::new().map_err(InstanceError::Control)?;
    panics::end_process_on_panic(|| {
        events.run(async {
            // Handled before anything is changed, so that a signal cannot end the start halfway.
            let mut signals = signals.hear().map_err(InstanceError::Control)?;
            let scrapes = plan.metrics.map(metrics::Server::bind).transpose()?.map(Rc::new);
            // Bound before anything is changed, because an instance without a command socket must not take over
            // from another one.
            let socket = plan.socket.clone().unwrap_or_else(|| plan.default_socket());
            let server = command::Server::bind(&socket)?;
            let mut instance = Instance::start(plan, parts, source, server.path()).await?;
            instance.reloads.notifies = signals.is_process();
            instance.scrapers = scrapes.as_ref().map(|scrapes| Arc::clone(scrapes.counters()));
            instance.offered.set(scrapes);
            let offers = Offers { commands: &server, metrics: instance.offered.clone() };
            let plan = Rc::clone(&instance.plan);
            let outcome =
                twinpath_host::run(&mut instance, &mut signals, offers, |state| ready(state, &plan)).await;
            if !instance.lifecycle.is_ended() {
                instance.on(Event::Broken).await;
            }
            let Instance { left_behind, cut_off, .. } = instance;
            let left =
                if left_behind.is_empty() { Ok(()) } else { Err(InstanceError::LeftBehind(left_behind)) };
            outcome.and(left).map(|()| cut_off)
        })
    })
}
