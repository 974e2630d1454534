//! `twinpath rds`: Reliable Datagram Sockets for the programs of this host.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use twinpath_config::Sandbox;
use twinpath_host::Ready;
use twinpath_rds_daemon::{self as daemon, Config, RdsPlan, SocketLimits};
use twinpath_rds_socket::default_path;
use twinpath_sys::child;

use crate::log::{LogArgs, Voice};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The interface whose addresses are served; may be repeated.
    #[arg(long = "on", alias = "interface", value_name = "INTERFACE", required = true)]
    interfaces: Vec<String>,
    /// The socket for programs; the rights of its folder decide which may connect. Without it: /run/twinpath/rds/programs.
    #[arg(long, value_name = "PATH")]
    listen: Option<PathBuf>,
    /// Maximum number of connections to each peer, which share its messages by the sender's port. More than one needs peers that name
    /// a connection's path by its port (twinpath, Linux since 2026).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    paths: u16,
    /// Maximum number of peers.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    peers: u32,
    /// Maximum number of sockets of programs.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    sockets: u32,
    /// Maximum number of sockets of one user.
    #[arg(long, value_name = "N", default_value_t = 256)]
    sockets_per_user: u32,
    /// The command socket, for `twinpath show`.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Offer metrics for Prometheus at this address.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Whether it gives up rights, files and system calls after its start: on or off.
    #[arg(long, value_name = "on|off", default_value = "on")]
    sandbox: Sandbox,
    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let voice = crate::log::start(&args.log)?;
    let plan = RdsPlan {
        interfaces: args.interfaces,
        keeper: Some(begin_keeper),
        listen: args.listen.unwrap_or_else(default_path),
        config: Config {
            generation: 0,
            paths: args.paths,
            peers_max: args.peers as usize,
            ..Config::default()
        },
        limits: SocketLimits {
            sockets: args.sockets as usize,
            sockets_per_user: args.sockets_per_user as usize,
        },
        sandbox: args.sandbox,
        socket: args.socket,
        metrics: args.metrics,
    };
    let names = plan.interfaces.join(", ");
    daemon::run(plan, |ready| announce(ready, &names, voice))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(clap::Args)]
pub(crate) struct KeeperArgs {
    /// Where it listens for the next daemon.
    #[arg(long)]
    at: PathBuf,
}

/// Keeps what the daemon has, which is its standard input's other end.
pub(crate) fn keep(args: &KeeperArgs) -> anyhow::Result<ExitCode> {
    let daemon = std::io::stdin().as_fd().try_clone_to_owned()?;
    daemon::keeper::run(daemon, &args.at)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts this program again, separated from this process, as its keeper.
fn begin_keeper(socket: OwnedFd, path: &Path) -> std::io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["rds-keeper", "--at"]).arg(path).env_clear().current_dir("/");
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null());
    child::detach(&mut command);
    // The spawned process ends immediately, and leaves the keeper running.
    command.spawn()?.wait()?;
    Ok(())
}

/// Prints that programs can connect: one line for programs, the rest for people.
fn announce(ready: &Ready, names: &str, voice: Voice) {
    let report = &ready.report;
    let [port, programs] = report.instance.ports.as_slice() else { return };
    let facts = serde_json::json!({
        "pid": report.instance.pid,
        "socket": ready.socket,
        "programs": programs,
        "metrics": ready.metrics,
    });
    let mut out = String::new();
    let _ = writeln!(out, "Reliable Datagram Sockets on {names}, {port}; programs connect to {programs}");
    voice.ready(&[facts], &out);
}
