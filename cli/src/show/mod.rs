//! `twinpath show`: prints the state of a running instance, with the reasons for its choices.

mod config;
mod connections;
pub(crate) mod fallback;
pub(crate) mod grid;
pub(crate) mod machine;
mod openflow;
mod programs;
mod rds;
mod rpc;
pub(crate) mod switch;
pub(crate) mod table;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use twinpath_observe::command::{Request, Topic, ask, find_instances, run_directories};
use twinpath_observe::report::Report;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The part to show; without it, everything.
    topic: Option<Shown>,
    /// One JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Measure the cost of a wake-up first (some 100 ms); for `show machine`.
    #[arg(long)]
    measure: bool,
    #[command(flatten)]
    connections: connections::Which,
    /// The command socket of the instance, where more than one runs.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shown {
    /// The services, their paths, the reasons, and the share of requests that came through the kernel.
    Services,
    /// The procedures of services: calls, failures, latency, bytes; those that were called.
    Rpc,
    /// Path and mode of each interface and queue, with the reasons for it and against better ones.
    Interfaces,
    /// The claims, and how often each verdict was given.
    #[value(name = "claims", alias = "rules")]
    Rules,
    /// The cost of a wake-up on this machine, and the effect of a latency request.
    Machine,
    /// The activity and the cost of each worker.
    Workers,
    /// The way of replies to each peer, and why some leave through the kernel.
    Neighbours,
    /// Everything dropped or refused, by reason.
    Drops,
    /// The ports of a switch: state, VLANs, addresses, frames.
    Ports,
    /// The addresses that a switch has learned, and their ports.
    Macs,
    /// The flows in a switch's OpenFlow tables: their matches, instructions and counters.
    Flows,
    /// The groups in a switch's OpenFlow tables, with their buckets.
    Groups,
    /// The meters in a switch's OpenFlow tables, with their bands.
    Meters,
    /// The OpenFlow controllers of a switch: connections and roles, and why others are not connected.
    Controllers,
    /// TCP connections of the services: the path of each and why, its state and its figures. Some of them, or those asked for.
    Connections,
    /// The programs with rings from the owner of an interface, and their sockets.
    Programs,
    /// Reliable Datagram Sockets: paths to peers, and sockets of programs.
    Rds,
    /// Every configuration key: its value, the source of the value, its default, and how to change it.
    Config,
}

impl Shown {
    /// The part of the report; `None`: single connections, which are in none.
    const fn topic(self) -> Option<Topic> {
        Some(match self {
            Self::Services => Topic::Services,
            Self::Rpc => Topic::Rpc,
            Self::Interfaces => Topic::Interfaces,
            Self::Rules => Topic::Rules,
            Self::Machine => Topic::Machine,
            Self::Workers => Topic::Workers,
            Self::Neighbours => Topic::Neighbours,
            Self::Drops => Topic::Drops,
            Self::Config => Topic::Config,
            Self::Ports => Topic::Ports,
            Self::Macs => Topic::Macs,
            Self::Flows => Topic::Flows,
            Self::Groups => Topic::Groups,
            Self::Meters => Topic::Meters,
            Self::Controllers => Topic::Controllers,
            Self::Programs => Topic::Programs,
            Self::Rds => Topic::Rds,
            Self::Connections => return None,
        })
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = socket(args.socket)?;
    let topic = args.topic.map_or(Some(Topic::All), Shown::topic);
    if args.measure && topic != Some(Topic::Machine) {
        bail!("--measure measures what `show machine` shows: ask for that");
    }
    let Some(topic) = topic else { return connections::run(&socket, args.connections, args.json) };
    if args.connections != connections::Which::default() {
        bail!("--peer, --port, --path and --limit say what `show connections` lists: ask for that");
    }
    let request = if args.measure { Request::Measure } else { Request::Show(topic) };
    let answer = ask(&socket, &request)?;
    let text = if args.json {
        serde_json::to_string_pretty(&answer).context("the answer cannot be written as JSON")?
    } else {
        let report: Report =
            serde_json::from_value(answer).context("the instance is another version: show it with --json")?;
        table::render(topic, &report)
    };
    // A closed pipe (`| head`) is not an error.
    let _ = writeln!(std::io::stdout(), "{text}");
    Ok(ExitCode::SUCCESS)
}

/// The named socket, or that of the only running instance.
pub(crate) fn socket(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match named {
        Some(socket) => Ok(socket),
        None => the_only_one(&run_directories()),
    }
}

fn the_only_one(directories: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let found = find_instances(directories).context("cannot look for instances")?;
    let list = |sockets: &[PathBuf]| {
        sockets.iter().map(|socket| format!("\n  {}", socket.display())).collect::<String>()
    };
    match (found.running.as_slice(), found.closed_to_us.as_slice()) {
        ([only], _) => Ok(only.clone()),
        ([], []) => bail!(
            "no instance is running here (looked in {}): start one with `twinpath serve echo --on IFACE --udp 7`, or \
             name its socket with --socket{}",
            found.places(),
            crate::tidy::hint()
        ),
        ([], theirs) => {
            bail!("an instance is running, but as another user: ask as that user or as root{}", list(theirs))
        }
        (several, _) => {
            bail!("{} instances are running: name one with --socket{}", several.len(), list(several))
        }
    }
}

#[cfg(test)]
mod tests;
