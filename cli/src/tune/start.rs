//! The connections between tuning and running instances: recovery when they start, and their parameters.

use std::path::Path;

use anyhow::Context as _;
use twinpath_config::Mode;
use twinpath_observe::command::{Request, Topic, ask, find_instances, run_directories};
use twinpath_observe::report::Report;
use twinpath_sys::affinity;
use twinpath_time::Duration;
use twinpath_tune::Host;
use twinpath_tune::apply::Outcome;
use twinpath_tune::journal::{self, Journal, JournalError, Stage};
use twinpath_tune::restore::recover;
use twinpath_worker::costs::{self as costs, Costs};

/// Duration of the measurement of wake-ups: the same as at the start of an instance.
const MEASURE: Duration = Duration::from_millis(120);

/// Undoes the changes of a `tune --apply` that died. `serve` and `bridge` call it first; it logs the changes, and a
/// failure does not prevent serving.
pub(crate) fn undo_what_died() {
    match undo(Path::new(journal::DEFAULT)) {
        Ok(outcomes) => {
            for outcome in outcomes {
                tracing::warn!(
                    "a `tune --apply` died before it was through: {}",
                    super::text::said(&outcome)
                );
            }
        }
        Err(error) => tracing::warn!(
            "a `tune --apply` died before it was through, and what it did can't be undone: {error:#}; \
             run `twinpath tune --restore` as root"
        ),
    }
}

fn undo(file: &Path) -> anyhow::Result<Vec<Outcome>> {
    // Usually there is no journal, and then nothing is locked or created.
    let died = |record: journal::Record| record.entries.iter().any(|entry| entry.stage == Stage::Intended);
    if !journal::read(file)?.is_some_and(died) {
        return Ok(Vec::new());
    }
    let mut host = Host::open(None)?;
    match Journal::open(file, &host) {
        Ok(mut journal) => Ok(recover(&mut host, &mut journal)?),
        // It has not died, but is running.
        Err(JournalError::Busy { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// The instance on an interface: the mode of its workers, and their CPUs.
pub(super) struct Running {
    pub(super) mode: Mode,
    pub(super) cpus: Vec<usize>,
    /// `echo, pid 12`.
    pub(super) name: String,
    /// The cost of a wake-up there, as measured last.
    pub(super) costs: Option<Costs>,
}

/// The instance that serves this interface, if there is exactly one, it answers, and its workers have the same mode.
pub(super) fn running(interface: &str) -> Option<Running> {
    let sockets = find_instances(&run_directories()).ok()?.running;
    let mut reports = sockets.iter().filter_map(|socket| {
        let report = ask(socket, &Request::Show(Topic::All)).context("asked").ok()?;
        serde_json::from_value::<Report>(report).ok()
    });
    let serves = |report: &Report| report.interfaces.iter().any(|served| served.name == interface);
    let report = reports.by_ref().find(serves)?;
    if reports.any(|report| serves(&report)) {
        return None;
    }
    let mode: Mode = report.workers.first()?.mode.parse().ok()?;
    if report.workers.iter().any(|worker| worker.mode != mode.name()) {
        return None;
    }
    let cpus: Option<Vec<usize>> =
        report.workers.iter().map(|worker| worker.cpu.map(|cpu| cpu as usize)).collect();
    let name = format!("{}, pid {}", report.instance.kind, report.instance.pid);
    Some(Running { mode, cpus: cpus.unwrap_or_default(), name, costs: report.machine })
}

/// Measures the cost of a wake-up on the first of these CPUs, or on any.
pub(super) fn measure(cpus: &[usize]) -> Costs {
    let any = || affinity::allowed_cpus().ok()?.first().copied();
    costs::measure(cpus.first().copied().or_else(any).unwrap_or(0), MEASURE)
}
