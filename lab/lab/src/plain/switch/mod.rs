//! `plain switch`: the switches that twinpath's is compared with, each in the namespace and on the CPUs of its caller:
//! the kernel's bridge, Open vSwitch with its datapath in user space, DPDK's testpmd, and a bare redirect by XDP.
//!
//! Each is started privately: its sockets, its database and its files are in a directory of its own, and it ends with
//! this process.

mod bridge;
mod ovs;
mod programs;
mod source;
mod testpmd;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde_json::json;
use tokio::process::Child;
use twinpath_clients::measure::print;
use twinpath_test_plain::XdpRedirect;

use super::reflect::interface_index;
use crate::foreign;

pub(crate) use self::source::Sent;
pub(super) use self::source::{SinkArgs, SourceArgs, send, sink};

/// A switch to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The kernel's bridge
    Bridge,
    /// Open vSwitch, datapath in user space, ports over packet sockets
    OvsNetdev,
    /// The same, ports over AF_XDP
    OvsAfxdp,
    /// testpmd, which passes frames between two ports, over AF_XDP
    TestpmdAfxdp,
    /// The same over memif, without --ports: to a process that connects to memif.sock in --directory
    TestpmdMemif,
    /// XDP programs on two ports, which send every frame to the other one
    XdpRedirect,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The switch
    #[arg(value_enum)]
    kind: Kind,
    /// Its ports, interfaces of this network namespace
    #[arg(long, value_name = "IFACE", value_delimiter = ',')]
    ports: Vec<String>,
    /// An empty directory for its files
    #[arg(long)]
    directory: PathBuf,
    /// The CPU of its thread that polls
    #[arg(long, default_value_t = 0)]
    cpu: usize,
    /// Of Open vSwitch: pass nothing but what controllers say
    #[arg(long)]
    openflow: bool,
}

/// A switch that runs.
struct Running {
    /// Its processes, that which carries frames first.
    processes: Vec<Child>,
    /// What it is, with its version.
    what: String,
    /// Programs that end with it.
    _programs: Option<XdpRedirect>,
}

/// Runs the switch until a signal comes.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.ports.len() >= 2 || args.kind == Kind::TestpmdMemif,
        "a switch has two ports at least: --ports {}",
        args.ports.join(",")
    );
    super::on_event_loop(async {
        let mut told = super::EndSignals::new()?;
        let running = tokio::select! {
            () = told.come() => return Ok(ExitCode::SUCCESS),
            started = start(args) => started?,
        };
        let pid = running.processes.first().and_then(Child::id);
        print(json!({ "ready": true, "pid": std::process::id(), "switch_pid": pid, "what": running.what }))?;
        told.come().await;
        for process in running.processes {
            // One that has to be ended has been of use all the same.
            let _ = foreign::stop(process).await;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn start(args: &Args) -> anyhow::Result<Running> {
    let directory = std::fs::canonicalize(&args.directory)
        .with_context(|| format!("no directory {}", args.directory.display()))?;
    match args.kind {
        Kind::Bridge => bridge::start(&args.ports),
        Kind::OvsNetdev => ovs::start(args, None, &directory).await,
        Kind::OvsAfxdp => ovs::start(args, Some("afxdp"), &directory).await,
        Kind::XdpRedirect => redirect(&args.ports),
        Kind::TestpmdMemif => testpmd::start_memif(&directory, args.cpu).await,
        Kind::TestpmdAfxdp => testpmd::start(&args.ports, &directory, args.cpu).await,
    }
}

#[derive(clap::Args)]
pub(super) struct MemifArgs {
    /// The directory of the other testpmd
    #[arg(long)]
    directory: PathBuf,
    /// Seconds
    #[arg(long, default_value_t = 1.0)]
    duration: f64,
    /// The CPU to run on
    #[arg(long, default_value_t = 0)]
    cpu: usize,
}

/// Runs a testpmd that is source and sink of another one between two memif ports, and prints the frames per second.
pub(super) fn memif_source(args: &MemifArgs) -> anyhow::Result<()> {
    let frames_per_s = super::on_event_loop(async {
        let socket = args.directory.join(testpmd::MEMIF_SOCKET);
        testpmd::drive_memif(&socket, &args.directory, args.cpu, super::seconds(args.duration)?).await
    })?;
    Ok(print(json!({ "frames_per_s": frames_per_s }))?)
}

fn redirect(ports: &[String]) -> anyhow::Result<Running> {
    let [one, other] = ports else {
        anyhow::bail!("a redirect joins two ports: --ports {}", ports.join(","))
    };
    let programs = XdpRedirect::attach([interface_index(one)?, interface_index(other)?])?;
    Ok(Running { processes: Vec::new(), what: "native XDP".to_owned(), _programs: Some(programs) })
}
