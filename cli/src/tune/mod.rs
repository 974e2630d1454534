//! `twinpath tune`: finds and changes settings of this machine and an interface that make services slow to answer, and
//! restores them.
//!
//! Without options it changes nothing. `--apply` stores every former value before it changes anything, and `--restore`
//! restores them.

pub(crate) mod start;
mod text;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde::Serialize;
use twinpath_config::{Command, Key, Mode, WorkerOverrides};
use twinpath_host::machine::withdraw_abandoned_requests;
use twinpath_tune::apply::{MACHINE, Outcome, apply};
use twinpath_tune::journal::{self, Journal, Stage};
use twinpath_tune::restore::{Which, recover, restore};
use twinpath_tune::{Host, Id, Line, State, System, Wish, advise, apply::Done, survey, topology};
use twinpath_worker::costs::Costs;

use crate::options::{HasKeys, KeyOptions};

/// The exit code if `--apply` would change something.
const EXIT_WOULD_CHANGE: u8 = 3;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("action").args(["check", "apply", "restore"]))]
pub(crate) struct Args {
    /// Examine this interface; without it, the whole machine
    interface: Option<String>,
    /// Change nothing (the default); exit code 3 if --apply would change something
    #[arg(long)]
    check: bool,
    /// Change the settings that are not as advised, after writing their former values to the journal
    #[arg(long)]
    apply: bool,
    /// Restore the settings that --apply has changed: those of this interface, or all
    #[arg(long)]
    restore: bool,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: KeyOptions<Tune>,
    /// Only these lines, by their names
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    only: Vec<Id>,
    /// All but these lines
    #[arg(long, value_name = "ID,...", value_delimiter = ',', conflicts_with = "restore")]
    skip: Vec<Id>,
    /// The journal of former values
    #[arg(long, value_name = "FILE", default_value = journal::DEFAULT)]
    journal: PathBuf,
    /// A directory with copies of /sys and /proc, instead of this machine
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

struct Tune;

impl HasKeys for Tune {
    const COMMAND: Command = Command::Tune;

    fn help(key: &Key) -> Option<(&'static str, &'static str)> {
        match key.path {
            "worker.mode" => Some((
                "How the workers idle: adaptive, interrupt or poll",
                "as the instance that runs there, or adaptive",
            )),
            "worker.cpus" => Some((
                "CPUs of the workers, as given to serve, such as 0,2-3",
                "those of the instance that runs there",
            )),
            _ => None,
        }
    }
}

/// The whole output.
#[derive(Serialize)]
struct Report {
    /// The interface; none for the machine alone.
    interface: Option<String>,
    /// Interfaces below it, to be tuned as well: those of a VLAN, bond or bridge.
    stands_on: Vec<String>,
    /// The workload that it is tuned for.
    mode: Mode,
    /// The workers' CPUs; empty: not known.
    cpus: Vec<usize>,
    /// The running instance that both were taken from; none: from the command line.
    instance: Option<String>,
    /// Every line, after any changes.
    lines: Vec<Line>,
    /// The changes.
    outcomes: Vec<Outcome>,
    /// The state of the journal.
    journal: JournalState,
    /// The cost of a wake-up here: measured now, or by the instance; none after a change, and with `--only`.
    wake_ups: Option<Costs>,
}

/// The state of the journal.
#[derive(Default, Serialize)]
struct JournalState {
    file: PathBuf,
    /// Settings that `--restore` would restore.
    entries: usize,
    /// Settings that an apply was about to change when it died.
    unfinished: usize,
    /// The reason why it cannot be read; empty if it can.
    trouble: String,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut host: Box<dyn System> = match &args.root {
        Some(root) => Box::new(Host::at(root)),
        None => Box::new(Host::open(args.interface.as_deref())?),
    };
    let system = host.as_mut();
    let outcomes = if args.restore { put_back(system, &args)? } else { Vec::new() };
    if args.restore && args.root.is_none() {
        for cpu in
            withdraw_abandoned_requests().context("cannot look for latency requests of killed instances")?
        {
            eprintln!("withdrawn: the latency request that a killed instance left on CPU {cpu}");
        }
    }
    let mut report = look(system, &args, outcomes)?;
    if args.apply {
        change(system, &args, &mut report)?;
    }
    let text = if args.json {
        serde_json::to_string_pretty(&report).context("the report cannot be written as JSON")?
    } else if args.restore {
        text::restored(&report)
    } else if args.apply {
        text::applied(&report)
    } else {
        text::lines(&report)
    };
    // A closed pipe (`| head`) is not an error.
    let _ = writeln!(std::io::stdout(), "{text}");
    if report.outcomes.iter().any(|outcome| outcome.what == Done::Failed) {
        return Ok(ExitCode::FAILURE);
    }
    let open = report.lines.iter().any(|line| line.state == State::Change);
    Ok(if open && !args.apply && !args.restore { EXIT_WOULD_CHANGE.into() } else { ExitCode::SUCCESS })
}

/// Reads the present state. After a restore the interface may be gone: then there are no lines.
fn look(system: &dyn System, args: &Args, outcomes: Vec<Outcome>) -> anyhow::Result<Report> {
    let (Wish { mode, cpus }, instance, measured) = wish(args);
    let mut stands_on = Vec::new();
    let lines = match topology::look(system, args.interface.as_deref()) {
        Err(_) if args.restore => Vec::new(),
        topology => {
            let topology = topology?;
            let online = |cpu: &usize| topology.cpus.iter().any(|known| known.number == *cpu);
            if let Some(missing) = cpus.iter().find(|cpu| !online(cpu)) {
                let there: Vec<String> = topology.cpus.iter().map(|cpu| cpu.number.to_string()).collect();
                bail!("--cpu: CPU {missing} does not run here; there are: {}", there.join(", "));
            }
            stands_on = topology.interface.iter().flat_map(|interface| interface.stands_on.clone()).collect();
            let mut lines =
                survey::survey(system, advise::advise(&topology, &Wish { mode, cpus: cpus.clone() }));
            lines.retain(|line| args.only.is_empty() || args.only.contains(&line.id));
            lines.retain(|line| !args.skip.contains(&line.id));
            lines
        }
    };
    let journal = journal_state(&args.journal);
    let looks = !args.apply && !args.restore && args.only.is_empty() && args.root.is_none();
    let wake_ups = looks.then(|| measured.unwrap_or_else(|| start::measure(&cpus)));
    let interface = args.interface.clone();
    Ok(Report { interface, stands_on, mode, cpus, instance, lines, outcomes, journal, wake_ups })
}

/// The command line's values, with those of the instance that runs on the interface as defaults.
fn wish(args: &Args) -> (Wish, Option<String>, Option<Costs>) {
    let WorkerOverrides { mode, cpus, .. } = &args.keys.overrides.worker;
    let told: Vec<usize> = cpus.iter().flatten().map(|cpu| *cpu as usize).collect();
    let asked = args.interface.as_deref().filter(|_| mode.is_none() && cpus.is_none());
    match asked.filter(|_| args.root.is_none()).and_then(start::running) {
        Some(start::Running { mode, cpus, name, costs }) => (Wish { mode, cpus }, Some(name), costs),
        None => (Wish { mode: mode.unwrap_or_default(), cpus: told }, None, None),
    }
}

fn journal_state(file: &Path) -> JournalState {
    let state = JournalState { file: file.to_owned(), ..JournalState::default() };
    match journal::read(file) {
        Err(error) => JournalState { trouble: error.to_string(), ..state },
        Ok(None) => state,
        Ok(Some(record)) => {
            let unfinished = record.entries.iter().filter(|entry| entry.stage == Stage::Intended).count();
            JournalState { entries: record.entries.len(), unfinished, ..state }
        }
    }
}

fn change(system: &mut dyn System, args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let mut journal = Journal::open(&args.journal, system)?;
    let recovered = recover(system, &mut journal)?;
    if !recovered.is_empty() {
        *report = look(system, args, recovered)?;
    }
    let asker = args.interface.as_deref().unwrap_or(MACHINE);
    let outcomes = apply(system, &mut journal, &report.lines, asker)?;
    drop(journal);
    let outcomes = [std::mem::take(&mut report.outcomes), outcomes].concat();
    *report = look(system, args, outcomes)?;
    Ok(())
}

fn put_back(system: &mut dyn System, args: &Args) -> anyhow::Result<Vec<Outcome>> {
    // Without a journal there is nothing to lock, and its directory is not created.
    if journal::read(&args.journal)?.is_none() {
        return Ok(Vec::new());
    }
    let mut journal = Journal::open(&args.journal, system)?;
    let which = Which { asker: args.interface.as_deref(), ids: &args.only };
    Ok(restore(system, &mut journal, &which)?)
}
