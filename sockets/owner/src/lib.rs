//! The owner of an interface: a process that has the rights to open it, and gives rings to programs without these
//! rights. Each program gets them for its own UDP sockets only.
//!
//! A program connects to a UNIX socket, and shows a socket of its own by passing its descriptor
//! ([`twinpath_leases::lending::message`] has the messages). The owner reads from that socket which port it holds, and
//! whether it is in the owner's network namespace. It has one program in the kernel for all processes
//! ([`twinpath_attach::LeasedInterface`]), and hands out the memory of each process's own rings. Neither the owner nor
//! the kernel's program trusts anything that is written there. The owner is not involved in what arrives: without
//! requests it sleeps.
//!
//! What a process has been given ends with the process, or with its connection. If the owner ends, all of it does, and the kernel
//! serves the sockets.

mod budget;
mod bypassed;
mod control_loop;
mod handing;
mod lend;
mod places;
mod program;
mod refusal;
mod reports;
pub mod starter;
mod take_over;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use twinpath_attach::LeasedInterface;
pub use twinpath_attach::SOCKETS_MAX;
use twinpath_attach::mirror::{Mirror, MirrorError};
use twinpath_attach::path::Announcements;
use twinpath_config::Sandbox;
use twinpath_host::{Addresses, Awaited, Door, Ready, run_to_end};
use twinpath_inspect::Counter;
use twinpath_observe::metrics::MetricsError;
use twinpath_observe::report;
use twinpath_time::{Duration, Instant};

use self::budget::Budget;
use self::program::Program;
use self::take_over::Taker;
use twinpath_leases::lending::message::Token;
use twinpath_leases::rules::Rules;

/// Maximum number of programs.
pub const PROGRAMS_MAX: u32 = 60;

/// How much programs may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramLimits {
    /// Programs at a time.
    pub programs: u32,
    /// Those of one user.
    pub programs_per_user: u32,
    /// Sockets of a program. Memory for all of them, 514 KiB each, is taken with the first one.
    pub sockets_per_program: u32,
    /// Those of all programs of one user.
    pub sockets_per_user: u32,
}

impl Default for ProgramLimits {
    fn default() -> Self {
        Self { programs: 32, programs_per_user: 16, sockets_per_program: 8, sockets_per_user: 64 }
    }
}

/// How often programs of a user are given rings for the first time, beyond a burst of twice as many as it may have: the kernel checks
/// a program and makes maps each time, and frees these late.
const OPENED_EVERY: Duration = Duration::from_secs(2);
/// How often its sockets are given leases, beyond a burst of twice as many as it may have: the owner waits for the kernel each time.
const LENT_EVERY: Duration = Duration::from_millis(250);

/// Connections that the process passes which starts owners ([`starter`]).
#[derive(Clone, Debug)]
pub struct Passed {
    /// The UNIX socket over which they come.
    pub from: Arc<OwnedFd>,
    /// What programs show.
    pub token: Token,
}
/// How often what is in a ring is handed over for programs of a user, beyond a burst: each time the owner may send as many frames as a ring
/// has slots, and waits for them.
const HANDED_EVERY: Duration = Duration::from_millis(2);
const HANDED_BURST: u32 = 256;

/// The settings of an owner.
#[derive(Clone, Debug)]
pub struct OwnerPlan {
    /// The interface.
    pub interface: String,
    /// Where programs connect; its folder is made if it is missing.
    pub listen: PathBuf,
    /// Instead of that: what passes the connections of one program and its children. The owner ends when that has ended and no
    /// program is left.
    pub passed: Option<Passed>,
    /// Which sockets of which programs may have rings; `None`: all.
    pub rules: Option<Rules>,
    /// How much programs may have.
    pub limits: ProgramLimits,
    /// Whether it confines itself after the start.
    pub sandbox: Sandbox,
    /// The command socket; `None`: the usual one.
    pub socket: Option<PathBuf>,
    /// Where metrics are offered.
    pub metrics: Option<SocketAddr>,
    /// The command socket of an owner whose programs it takes over, with the socket to which they connect.
    pub take_over: Option<PathBuf>,
}

/// An error at the start of an owner, or the one that it ended with.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// There is no such interface, or nothing can be claimed there.
    #[error("{0}")]
    Interface(#[from] twinpath_attach::LeaseError),
    /// The socket to which programs connect.
    #[error("{0}")]
    Door(#[from] twinpath_host::DoorError),
    /// The programs of another owner.
    #[error("cannot take over from {}: {why}", from.display())]
    TakeOver {
        /// Its command socket.
        from: PathBuf,
        /// Why.
        why: String,
    },
    /// Netlink.
    #[error("{0}")]
    Mirror(#[from] MirrorError),
    /// The listener for metrics.
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// The command socket.
    #[error("{0}")]
    Command(#[from] twinpath_observe::command::CommandError),
    /// The runtime or a descriptor.
    #[error("cannot start the control thread: {0}")]
    Control(#[from] io::Error),
}

/// What was refused so far.
#[derive(Default)]
struct Refused {
    /// Programs beyond a limit.
    programs: Counter,
    /// Leases that could not be given.
    leases: Counter,
    /// Programs that have sent something that is not a message.
    faults: Counter,
}

/// One running owner.
struct Owner {
    plan: OwnerPlan,
    mirror: Awaited<Mirror>,
    announcements: Awaited<Announcements>,
    door: Door,
    /// Identifies its network namespace.
    namespace: u64,
    /// The interface's index; `None` while it is gone.
    ifindex: Option<u32>,
    programs: Vec<Program>,
    /// The rings of all programs; `None` while none has any.
    leased: Option<LeasedInterface>,
    /// The program after this one is heard first, so that each has its turn.
    heard: u64,
    /// Of the program that comes next.
    next_number: u64,
    refused: Refused,
    /// Datagrams that were left unread in rings, and could not be handed over.
    unread: Counter,
    /// Of the programs that are given rings for the first time, and of all leases.
    openings: Budget,
    lendings: Budget,
    /// Of rings whose contents are handed over.
    handings: Budget,
    /// A new owner has the programs, and does not serve yet.
    taker: Option<Taker>,
    confined: report::Sandbox,
    started: Instant,
}

/// Serves programs until SIGINT or SIGTERM, and calls `ready` when it does.
///
/// # Errors
/// [`OwnerError`]; everything has been undone then.
pub fn run(plan: OwnerPlan, ready: impl FnOnce(&Ready)) -> Result<(), OwnerError> {
    let (socket, name) = (plan.socket.clone(), plan.interface.clone());
    let addresses = Addresses {
        socket: socket.as_deref(),
        kind: &report::InstanceKind::Sockets,
        name: &name,
        metrics: plan.metrics,
    };
    let start = async |_offered, socket: &Path| Owner::start(plan, socket).await;
    let stop = |owner| {
        drop(owner);
        Vec::new()
    };
    run_to_end(addresses, start, ready, stop).map(|_| ())
}
