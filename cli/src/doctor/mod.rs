//! `twinpath doctor`: shows on one screen what this host can do, which path each interface would get, what
//! prevents a better one, and what newer kernels would bring. It changes nothing.

mod host;
mod interface;
mod settings;
mod text;

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use twinpath_attach::mirror::{Mirror, MirrorLimits};

use host::Host;
use interface::Interface;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these interfaces; without any, all interfaces that are up
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// The UDP port of a service, to find settings of the kernel that concern only some ports
    #[arg(long, value_name = "PORT", default_value_t = 7)]
    udp: u16,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// All findings.
#[derive(Serialize)]
struct Findings {
    /// The version of this program.
    version: &'static str,
    /// The machine, for all interfaces.
    host: Host,
    /// The interfaces, in the kernel's order.
    interfaces: Vec<Interface>,
    /// Names of interfaces that are down, which are examined only if they are named.
    down: Vec<String>,
    /// Running instances, by the names of their command sockets.
    running: Vec<String>,
    /// Number of programs that killed instances have left on interfaces; none if that is not known.
    left_behind: Option<usize>,
    /// Checks that could not be made.
    not_known: Vec<NotKnown>,
}

/// A check that could not be made. This is not the same as a check that found nothing.
#[derive(Debug, Serialize)]
struct NotKnown {
    /// The subject of the check.
    what: String,
    /// The reason.
    why: String,
}

impl NotKnown {
    fn new(what: impl Into<String>, why: impl Display) -> Self {
        Self { what: what.into(), why: why.to_string() }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let findings = look(&args)?;
    let text = if args.json {
        serde_json::to_string_pretty(&findings).context("the findings cannot be written as JSON")?
    } else {
        text::render(&findings)
    };
    // A closed pipe (`| head`) is not an error.
    let _ = writeln!(std::io::stdout(), "{text}");
    Ok(ExitCode::SUCCESS)
}

fn look(args: &Args) -> anyhow::Result<Findings> {
    let mirror = Mirror::open(MirrorLimits::default()).context("cannot read the kernel's interfaces")?;
    let links: Vec<_> = if args.interfaces.is_empty() {
        mirror.tables().links().filter(|link| link.up).cloned().collect()
    } else {
        let found = args.interfaces.iter().map(|name| interface::named(&mirror, name));
        found.collect::<Result<_, _>>()?
    };
    let down = mirror.tables().links().filter(|link| !link.up).map(|link| link.name.clone());
    let down = if args.interfaces.is_empty() { down.collect() } else { Vec::new() };
    let mut not_known = Vec::new();
    let mut interfaces = Vec::new();
    for link in &links {
        interfaces.push(interface::look(&mirror, link, args.udp, &mut not_known));
    }
    interfaces.sort_by_key(|interface: &Interface| interface.ifindex);
    let host = host::look(&interfaces, &mut not_known);
    let left_behind = twinpath_bpf::leftovers(None).map_err(|error| {
        not_known.push(NotKnown::new("what killed instances have left at interfaces", error))
    });
    Ok(Findings {
        version: env!("TWINPATH_VERSION"),
        host,
        interfaces,
        down,
        running: running(&mut not_known),
        left_behind: left_behind.ok().map(|left| left.len()),
        not_known,
    })
}

/// The instances that this user may query.
fn running(not_known: &mut Vec<NotKnown>) -> Vec<String> {
    match twinpath_observe::command::find_instances(&twinpath_observe::command::run_directories()) {
        Ok(found) => {
            for path in found.closed_to_us {
                let what = format!("instances of another user at {}", path.display());
                not_known.push(NotKnown::new(what, "only that user and root may ask them"));
            }
            let names = found.running.iter().filter_map(|socket| socket.file_stem());
            names.map(|name| name.to_string_lossy().into_owned()).collect()
        }
        Err(error) => {
            not_known.push(NotKnown::new("running instances", error));
            Vec::new()
        }
    }
}
