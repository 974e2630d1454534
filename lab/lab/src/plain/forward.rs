//! `plain forward`: forwards frames between interfaces over packet sockets, by one loop or by two threads.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use twinpath_clients::measure::{attend, print};
use twinpath_socket_load::Stop;
use twinpath_test_plain::{FORWARD_BURST_MAX, Forwarding, Shape, forward};

use super::reflect::interface_index;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Who does control's work
    #[arg(value_enum)]
    shape: Who,
    /// The ports, interfaces of this network namespace
    #[arg(long, value_name = "IFACE", value_delimiter = ',', required = true)]
    ports: Vec<String>,
    /// Frames per system call
    #[arg(long, default_value_t = 1)]
    burst: usize,
    /// Changes of the table per second
    #[arg(long, default_value_t = 1000)]
    changes: u32,
    /// The file that each change is logged in
    #[arg(long)]
    log: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Who {
    /// The loop that forwards
    OneLoop,
    /// A thread of its own
    TwoThreads,
}

/// The result that is printed.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Counts {
    pub(crate) frames: u64,
    pub(crate) packet_calls: u64,
    pub(crate) control_calls: u64,
    pub(crate) changes: u64,
}

/// Forwards until a signal.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(
        (1..=FORWARD_BURST_MAX).contains(&args.burst),
        "--burst {} is impossible: choose 1 to {FORWARD_BURST_MAX}",
        args.burst
    );
    let shape = match args.shape {
        Who::OneLoop => Shape::OneLoop,
        Who::TwoThreads => Shape::TwoThreads,
    };
    let ifindexes = args.ports.iter().map(|port| interface_index(port)).collect::<Result<Vec<_>, _>>()?;
    let log = File::create(&args.log).with_context(|| format!("cannot write {}", args.log.display()))?;
    let (burst, changes_per_s) = (args.burst, args.changes);
    let stop = Stop::new();
    let (forwarded, _) = attend(&stop, None, || {
        forward(Forwarding { ifindexes: &ifindexes, shape, burst, changes_per_s, log }, &stop)
    })?;
    let forwarded = forwarded?;
    Ok(print(serde_json::to_value(Counts {
        frames: forwarded.frames,
        packet_calls: forwarded.packet_calls,
        control_calls: forwarded.control_calls,
        changes: forwarded.changes,
    })?)?)
}
