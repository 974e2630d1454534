//! The labs: `twinpath-lab NAME` measures twinpath against the kernel and its peers, both sides in one run,
//! alternating.
//!
//! A lab is a [`session::Lab`]: two tables and a function that measures. This module has what all labs share: a network
//! of their own, child processes, the selection of rows, statistics, verdicts, and the report as table, JSON and HTML.

#[cfg(feature = "all")]
mod adopt;
#[cfg(feature = "all")]
mod asking;
mod chart;
mod client;
#[cfg(feature = "all")]
mod counters;
#[cfg(feature = "all")]
mod devices;
#[cfg(all(test, feature = "all"))]
mod documents;
mod fallback;
#[cfg(feature = "all")]
mod guest;
mod html;
mod instance;
#[cfg(feature = "all")]
mod kni;
#[cfg(feature = "all")]
mod ledger;
mod model;
#[cfg(feature = "all")]
mod nfs;
#[cfg(feature = "all")]
mod openflow;
#[cfg(feature = "all")]
mod paced;
mod peers;
#[cfg(feature = "all")]
mod probe;
mod process;
pub(crate) mod programs;
mod progress;
mod quick;
#[cfg(feature = "all")]
mod rds;
mod record;
#[cfg(feature = "all")]
mod reflex;
#[cfg(feature = "all")]
mod rpc;
mod session;
#[cfg(feature = "all")]
mod sockets;
mod spec;
#[cfg(feature = "all")]
mod stall;
mod stats;
mod summary;
#[cfg(feature = "all")]
mod switch;
#[cfg(feature = "all")]
mod switches;
mod table;
#[cfg(feature = "all")]
mod tcp;
#[cfg(feature = "all")]
mod three_rtts;
mod topology;
#[cfg(feature = "all")]
mod traffic;
mod values;
#[cfg(feature = "all")]
mod wakeup;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
#[cfg(feature = "all")]
use clap::builder::PossibleValuesParser;
use tokio::signal::unix::{SignalKind, signal};
use twinpath_sys::netns::NetnsError;

use self::model::{LabReport, RatioSpec, RowSpec};
use self::process::Launcher;
use self::programs::Programs;
use self::progress::Progress;
use self::record::Record;
use self::session::Lab;
use self::session::{Selection, Session};
use self::summary::Shown;
use self::topology::Topology;

/// All labs that this program was built with, in the order of the help text. `make run` builds it for `quick` alone.
static LABS: &[&Lab] = &[
    &quick::LAB,
    #[cfg(feature = "all")]
    &kni::LAB,
    #[cfg(feature = "all")]
    &three_rtts::LAB,
    #[cfg(feature = "all")]
    &wakeup::LAB,
    #[cfg(feature = "all")]
    &fallback::LAB,
    #[cfg(feature = "all")]
    &rpc::LAB,
    #[cfg(feature = "all")]
    &nfs::LAB,
    #[cfg(feature = "all")]
    &rds::LAB,
    #[cfg(feature = "all")]
    &switch::LAB,
    #[cfg(feature = "all")]
    &openflow::LAB,
    #[cfg(feature = "all")]
    &stall::LAB,
    #[cfg(feature = "all")]
    &devices::LAB,
    #[cfg(feature = "all")]
    &sockets::LAB,
    #[cfg(feature = "all")]
    &reflex::LAB,
    #[cfg(feature = "all")]
    &adopt::LAB,
    #[cfg(feature = "all")]
    &tcp::LAB,
];

/// Why a lab may be missing.
const NOT_BUILT: &str = if cfg!(feature = "all") {
    ""
} else {
    ", which `make run` has built for lab quick alone: `make build` builds it with all"
};

/// 128 + SIGINT and 128 + SIGTERM, as shells report them.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;
/// The exit code under `--check` if no target was missed, but something could not be measured.
const NOT_MEASURED: u8 = 3;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The lab: `quick` measures UDP and TCP echo, twinpath against the kernel's sockets; `kni` an NFS walk beside
    /// twinpath and through its exception port; `three-rtts` frames reflected by a worker, by another process over shared
    /// memory, and by a packet socket; `wakeup` latency against CPU, with single packets at several rates, for every
    /// mode of waiting; `fallback` what the programs cost the kernel's own traffic; `rpc` ONC RPC calls to twinpath,
    /// nfs-ganesha and bare servers; `nfs` files served by twinpath and by nfs-ganesha; `rds` messages between two programs, against UDP; `switch` frames and round trips through a switch, against the kernel's bridge, Open
    /// vSwitch and testpmd; `openflow` a switch and its controller, against Open vSwitch; `stall`
    /// round trips while a controller keeps the switch busy; `devices` whether each path works on the network cards of a guest;
    /// `sockets` UDP echo in an application's own loop, by our sockets and the kernel's; `reflex` replies that the kernel
    /// gives while the worker sleeps; `adopt` what a program on the library takes to build, and the example of a memcached;
    /// `tcp` connections on the fast path, against bare servers on kernel sockets.
    /// `all` measures every ratio of all labs that has a target, once, and keeps what came out in a ledger.
    #[cfg_attr(feature = "all", arg(value_parser = PossibleValuesParser::new(LABS.iter().map(|lab| lab.name).chain([ledger::ALL]))))]
    name: String,
    /// Also write everything as one JSON object.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where to write the report. Default: lab-out/NAME-TIME.html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Rounds, each with both sides of every ratio.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    repeat: Option<u16>,
    #[cfg(feature = "all")]
    /// With `all`: where the ledger is. Default: docs/generated/ledger.tsv
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    #[cfg(feature = "all")]
    /// With `all`: which commit was measured, for the ledger.
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,
    #[cfg(feature = "all")]
    /// Files in the tree that `kni` walks, for a quick look: a run that is judged takes at least 20,000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    files: Option<u32>,
    /// Draws the periods, gaps and orders of `wakeup`, and the orders of `switch`; a run says which it drew.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run only these ratios and rows, and what they need.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure only what the summary shows: the kernel and twinpath side by side, of `quick` and `reflex`.
    #[arg(long, conflicts_with_all = ["only", "check"])]
    summary: bool,
    /// Measure long enough to judge, with as many pairs as each ratio needs. Ends with 1 if a ratio misses its target, else
    /// with 3 if one could not be measured.
    #[arg(long)]
    check: bool,
    #[cfg(feature = "all")]
    /// Run the lab in a virtual machine (qemu; KVM where it works), with the kernel of this Debian package, .deb file or
    /// directory with boot and lib/modules. Default: linux-image-cloud-amd64/backports, fetched by apt-get and not
    /// installed.
    #[arg(long, value_name = "KERNEL", num_args = 0..=1, require_equals = true, default_missing_value = guest::KERNEL)]
    guest: Option<String>,
    #[cfg(feature = "all")]
    /// With --guest: keep what is fetched in this directory, and fetch nothing that it has already.
    #[arg(long, value_name = "DIRECTORY", requires = "guest")]
    keep: Option<PathBuf>,
    #[cfg(feature = "all")]
    /// With --guest: between two network cards of this kind, joined by a cable, instead of a veth pair.
    #[arg(long, value_name = "DEVICE", requires = "guest")]
    nic: Option<guest::Nic>,
    /// Between these two interfaces, which are joined outside.
    #[arg(long, hide = true, value_delimiter = ',')]
    between: Vec<String>,
    /// The lab is in a virtual machine.
    #[arg(long, hide = true)]
    inside: bool,
    /// A sentence for the report's notes.
    #[arg(long = "note", value_name = "TEXT", hide = true)]
    notes: Vec<String>,
}

/// Runs the init process of a lab's guest.
#[cfg(feature = "all")]
pub(crate) fn run_inside_guest() -> anyhow::Result<ExitCode> {
    guest::inside::run()
}

/// Targets are for runs that judge or ask for single rows, and for labs that have no summary.
fn shown(lab: &Lab, args: &Args) -> Shown {
    if args.check || !args.only.is_empty() || lab.table.summary.is_empty() {
        Shown::Targets
    } else {
        Shown::Summary
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "all")]
    if args.name == ledger::ALL {
        return ledger::run(&args);
    }
    let lab = LABS
        .iter()
        .find(|lab| lab.name == args.name)
        .with_context(|| format!("no lab {} in this program{NOT_BUILT}", args.name))?;
    let selection = if args.summary {
        anyhow::ensure!(
            !lab.table.summary.is_empty(),
            "lab {} has no summary: leave out --summary",
            lab.name
        );
        Selection::of_summary(lab)?
    } else {
        Selection::new(lab, &args.only)?
    };
    #[cfg(feature = "all")]
    if let Some(files) = args.files {
        anyhow::ensure!(lab.name == kni::LAB.name, "--files is for lab kni: lab {} walks no tree", lab.name);
        anyhow::ensure!(
            !args.check || files >= kni::CHECK_FILES,
            "--check judges a walk of at least {} files: leave out --files {files}, or --check",
            kni::CHECK_FILES
        );
    }
    #[cfg(feature = "all")]
    if let Some(kernel) = &args.guest {
        anyhow::ensure!(!args.summary, "--summary is of this machine: leave out --guest, or --summary");
        return guest::run(lab, &args, &selection, kernel);
    }
    let selection = if args.inside { selection } else { selection.outside_a_guest(lab, &args.only)? };
    let session = match session(lab, &args, selection) {
        Ok(session) => session,
        Err(error) => {
            eprintln!("twinpath-lab: {error:#}");
            return Ok(ExitCode::from(if args.check { NOT_MEASURED } else { 1 }));
        }
    };
    let begun = Instant::now();
    let ended = until_told((lab.run)(&session));
    session.launcher.end_all();
    session.progress.finish();
    let rounds = match ended? {
        Ok(rounds) => rounds,
        Err(code) => {
            eprintln!("twinpath-lab: stopped; every process, namespace and program of the lab is gone");
            return Ok(ExitCode::from(code));
        }
    };
    let record = session.record.borrow();
    let mut report = report(lab, &args, &session, &record, rounds)?;
    report.wall_s = begun.elapsed().as_secs_f64();
    let shown = shown(lab, &args);
    let text = match shown {
        Shown::Summary => summary::render(lab, &report, &record),
        Shown::Targets => table::render(lab, &report, &record),
    };
    println!("{text}");
    write_outputs(lab, &args, &report, &record, shown)?;
    Ok(ExitCode::from(if args.check { record::check_code(&report.ratios) } else { 0 }))
}

fn session(lab: &'static Lab, args: &Args, selection: Selection) -> anyhow::Result<Session> {
    let topology = match args.between.as_slice() {
        [client, server] => Topology::over([client, server]),
        _ => Topology::build(),
    };
    let topology = topology.map_err(|error| match error.downcast_ref::<NetnsError>() {
        Some(NetnsError::Unshare(_)) => anyhow!(
            "lab {} needs root: it creates network namespaces (CAP_SYS_ADMIN), links in them (CAP_NET_ADMIN), packet \
             and AF_XDP sockets (CAP_NET_RAW) and BPF programs (CAP_BPF). Run it with `sudo`, or `make run`",
            lab.name
        ),
        _ => error,
    })?;
    let cpus = session::cpus()?;
    Ok(Session {
        lab,
        record: RefCell::default(),
        launcher: Launcher::new(Programs::found()?, topology, cpus).adopting()?,
        cpus,
        run_dir: session::run_dir()?,
        selection,
        repeat: args.repeat.map(usize::from),
        #[cfg(feature = "all")]
        files: args.files.map(|files| files as usize),
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
        check: args.check,
        progress: Progress::new(),
    })
}

/// Works on an event loop until done; or until told to stop, which gives the exit code. Children are spawned by this thread, and end
/// with it.
fn until_told<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<Result<T, u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start an event loop")?;
    let ended = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
        tokio::select! {
            biased;
            _ = interrupt.recv() => Ok(Err(INTERRUPTED)),
            _ = terminate.recv() => Ok(Err(TERMINATED)),
            result = work => result.map(Ok),
        }
    });
    // A measurement on a thread of its own may take seconds more; it ends with the process.
    runtime.shutdown_background();
    ended
}

fn report(
    lab: &Lab,
    args: &Args,
    session: &Session,
    record: &Record,
    rounds: usize,
) -> anyhow::Result<LabReport> {
    let rows = |spec: &&RowSpec| session.selection.rows.contains(spec.id);
    let ratios = |spec: &&RatioSpec| session.selection.ratios.contains(spec.id);
    let mut notes = args.notes.clone();
    if session.cpus[0] == session.cpus[1] {
        notes.push("only one CPU: both sides share it, so rows that spin measure the scheduler".to_owned());
    }
    if let (Some(RowSpec { id, .. }), false) = (lab.table.rows.iter().find(|row| row.in_guest), args.inside) {
        notes.push(format!("{id} and its like are measured in a virtual machine only: --guest"));
    }
    notes.extend(record::interval_note(rounds));
    let uname = rustix::system::uname();
    Ok(LabReport {
        lab: lab.name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        cpus: session.cpus.to_vec(),
        rows: lab.table.rows.iter().filter(rows).map(|spec| record.row(spec)).collect(),
        ratios: lab
            .table
            .ratios
            .iter()
            .filter(ratios)
            .map(|spec| record.ratio(spec, session.check))
            .collect(),
        unix_time_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        wall_s: 0.0,
        rounds,
        notes,
    })
}

fn write_outputs(
    lab: &Lab,
    args: &Args,
    report: &LabReport,
    record: &Record,
    shown: Shown,
) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        let mut text = serde_json::to_string_pretty(report)?;
        text.push('\n');
        write(path, &text)?;
    }
    let path = html_path(args, lab.name, report.unix_time_s)?;
    write(&path, &html::render(lab, report, record, shown)?)?;
    let shown = std::fs::canonicalize(&path).unwrap_or(path);
    println!("report: {}", shown.display());
    Ok(())
}

/// The path of the report: the requested one, or one in a directory that is created for it.
fn html_path(args: &Args, name: &str, unix_time_s: u64) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.html {
        return Ok(path.clone());
    }
    let directory = Path::new("lab-out");
    std::fs::create_dir_all(directory).context("cannot create lab-out; name a file with --html")?;
    give_back(directory);
    Ok(directory.join(format!("{name}-{}.html", table::utc(unix_time_s).replace(':', "-"))))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    give_back(path);
    Ok(())
}

/// Under sudo, files belong to the user who called it. Failures are ignored, as the report exists either way.
fn give_back(path: &Path) {
    let id = |name| std::env::var(name).ok().and_then(|id| id.parse().ok());
    if let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID")) {
        let _ = std::os::unix::fs::chown(path, Some(uid), Some(gid));
    }
}
