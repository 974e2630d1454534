//! The daemon of Reliable Datagram Sockets: `twinpath rds`. It has the connections to peers, and the programs of this host
//! connect to it.
//!
//! One thread has all connections and all sockets of programs (`hub`), and asks the engine (`twinpath_rds`) what to do. Control
//! is the process's first thread: it lets programs in, watches the addresses of the interfaces, and reports.

mod conn;
mod control;
mod hub;
mod io;
pub mod keeper;
mod program;
mod reports;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use twinpath_attach::mirror::MirrorError;
use twinpath_config::Sandbox;
use twinpath_host::{Addresses, DoorError, Ready, run_to_end};
use twinpath_observe::command::CommandError;
use twinpath_observe::metrics::MetricsError;
use twinpath_observe::report;

pub use hub::SocketLimits;
pub use twinpath_rds::Config;

/// The settings of a daemon.
#[derive(Clone, Debug)]
pub struct RdsPlan {
    /// The interfaces whose addresses it serves.
    pub interfaces: Vec<String>,
    /// Where programs connect; its folder is made if it is missing.
    pub listen: PathBuf,
    /// Begins a process that runs [`keeper::run`] with the descriptor as its standard input, and with the path; `None`: what
    /// programs have sent does not outlive the daemon.
    pub keeper: Option<fn(OwnedFd, &Path) -> std::io::Result<()>>,
    /// The engine's settings. Its life is chosen by the daemon if it is 0.
    pub config: Config,
    /// How many sockets programs may have.
    pub limits: SocketLimits,
    /// Whether it confines itself after the start.
    pub sandbox: Sandbox,
    /// The command socket; `None`: the usual one.
    pub socket: Option<PathBuf>,
    /// Where metrics are offered.
    pub metrics: Option<SocketAddr>,
}

/// An error at the start of a daemon, or the one that it ended with.
#[derive(Debug, thiserror::Error)]
pub enum RdsError {
    /// There is no such interface.
    #[error("{0}")]
    Interface(#[from] twinpath_attach::InterfaceError),
    /// Something else has the port of TCP.
    #[error(
        "port 16385 of TCP is in use: another daemon or the kernel's own RDS (module rds_tcp) serves this network namespace; end it first"
    )]
    PortInUse,
    /// It cannot listen for peers.
    #[error("cannot listen for peers at port 16385 of TCP: {0}")]
    Listen(#[source] std::io::Error),
    /// The socket to which programs connect.
    #[error("{0}")]
    Door(#[from] DoorError),
    /// Netlink.
    #[error("{0}")]
    Mirror(#[from] MirrorError),
    /// The listener for metrics.
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// The command socket.
    #[error("{0}")]
    Command(#[from] CommandError),
    /// The runtime, a descriptor or a thread.
    #[error("cannot start: {0}")]
    Control(#[from] std::io::Error),
}

/// Serves programs and peers until SIGINT or SIGTERM, and calls `ready` when it does.
///
/// # Errors
/// [`RdsError`]; everything has been undone then.
pub fn run(plan: RdsPlan, ready: impl FnOnce(&Ready)) -> Result<(), RdsError> {
    let (socket, name) = (plan.socket.clone(), plan.interfaces.join("+"));
    let addresses = Addresses {
        socket: socket.as_deref(),
        kind: &report::InstanceKind::Rds,
        name: &name,
        metrics: plan.metrics,
    };
    let start = async |_offered, socket: &Path| control::Daemon::start(plan, socket);
    let stop = |daemon: control::Daemon| {
        daemon.stop();
        Vec::new()
    };
    run_to_end(addresses, start, ready, stop).map(drop)
}
