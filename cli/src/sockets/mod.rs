//! `twinpath sockets`: owns an interface, and gives rings to the UDP sockets of unprivileged programs.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use twinpath_config::Sandbox;
use twinpath_host::Ready;
use twinpath_leases::lending::owner_socket;
use twinpath_leases::rules::Rules;
use twinpath_owner::{self as owner, OwnerPlan, PROGRAMS_MAX, ProgramLimits};

use crate::log::{LogArgs, Voice};

/// Maximum of each limit on sockets.
const SOCKETS_MAX: i64 = twinpath_owner::SOCKETS_MAX as i64;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The interface.
    #[arg(long = "on", alias = "interface", value_name = "INTERFACE")]
    interface: String,
    /// A file of rules, as for `twinpath run` (twinpath-run(1)): which sockets of which programs may have rings. Without it: all.
    /// Datagrams in a ring bypass the host's firewall rules for input.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// The socket for programs; the rights of its folder decide which may connect. Without it: /run/twinpath/INTERFACE/sockets.
    #[arg(long, value_name = "PATH")]
    listen: Option<PathBuf>,
    /// Take over all programs from the owner with this command socket, which then ends; the programs notice nothing
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    take_over: Option<PathBuf>,
    /// Maximum number of programs.
    #[arg(long, value_name = "N", default_value_t = ProgramLimits::default().programs, value_parser = clap::value_parser!(u32).range(1..=i64::from(PROGRAMS_MAX)))]
    programs: u32,
    /// Maximum number of programs of one user.
    #[arg(long, value_name = "N", default_value_t = ProgramLimits::default().programs_per_user)]
    programs_per_user: u32,
    /// Maximum number of sockets of a program; each takes 514 KiB of memory, from the program's first socket on.
    #[arg(long, value_name = "N", default_value_t = ProgramLimits::default().sockets_per_program, value_parser = clap::value_parser!(u32).range(1..=SOCKETS_MAX))]
    sockets_per_program: u32,
    /// Maximum number of sockets of all programs of one user.
    #[arg(long, value_name = "N", default_value_t = ProgramLimits::default().sockets_per_user)]
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
    let rules = args.rules.map(|path| {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Rules::parse(&text).with_context(|| path.display().to_string())
    });
    let plan = OwnerPlan {
        listen: args.listen.unwrap_or_else(|| owner_socket(&args.interface)),
        interface: args.interface,
        rules: rules.transpose()?,
        limits: ProgramLimits {
            programs: args.programs,
            programs_per_user: args.programs_per_user,
            sockets_per_program: args.sockets_per_program,
            sockets_per_user: args.sockets_per_user,
        },
        sandbox: args.sandbox,
        socket: args.socket,
        metrics: args.metrics,
        passed: None,
        take_over: args.take_over,
    };
    owner::run(plan, |ready| announce(ready, voice))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints that programs can connect: one line for programs, the rest for people.
fn announce(ready: &Ready, voice: Voice) {
    let report = &ready.report;
    let ([interface], [programs]) = (report.interfaces.as_slice(), report.instance.ports.as_slice()) else {
        return;
    };
    let facts = serde_json::json!({
        "pid": report.instance.pid,
        "socket": ready.socket,
        "interface": interface.name,
        "programs": programs,
        "metrics": ready.metrics,
    });
    let mut out = String::new();
    let _ = writeln!(out, "{} ({}): {}", interface.name, interface.link, interface.why);
    let _ = writeln!(out, "  try it: twinpath run --owner {programs} --explain PROGRAM");
    voice.ready(&[facts], &out);
}
