//! One run of a lab: the network, the child processes, the selection of rows, and the progress.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use super::model::{RatioSpec, Sample};
use super::process::Launcher;
use super::progress::Progress;
use super::record::Record;
use super::spec::Table;

/// The definition of a lab, which [`lab!`] makes.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) table: LazyLock<Table>,
    /// Additional files in a virtual machine.
    pub(crate) in_guest: &'static InGuest,
    /// Measures the selected rows; returns the number of rounds.
    pub(crate) run: for<'a> fn(&'a Session) -> Running<'a>,
}

impl Lab {
    /// Whether a row is measured in a virtual machine only.
    pub(crate) fn is_in_guest(&self, row: &str) -> bool {
        self.table.row(row).is_some_and(|row| row.in_guest)
    }

    /// Whether a ratio needs such a row.
    pub(crate) fn needs_guest(&self, ratio: &RatioSpec) -> bool {
        ratio.formula.rows().iter().any(|row| self.is_in_guest(row))
    }
}

/// The files that a lab needs in a virtual machine. Files that this machine lacks are left out: the lab inside reports what is
/// missing.
#[derive(Debug)]
pub(crate) struct InGuest {
    /// Kernel modules, with their dependencies.
    pub(crate) modules: &'static [&'static str],
    /// Programs in PATH, with their libraries.
    pub(crate) programs: &'static [&'static str],
    /// Other files, by their paths.
    pub(crate) files: &'static [&'static str],
    /// Links: path and target.
    pub(crate) links: &'static [(&'static str, &'static str)],
}

impl InGuest {
    /// No additions.
    pub(crate) const SAME: Self = Self { modules: &[], programs: &[], files: &[], links: &[] };
}

/// `lab!("NAME", "what it is about", run)` defines the lab `LAB` of a module: its table is `tables/NAME.txt`, and `async fn
/// run(session: &Session) -> anyhow::Result<usize>` measures. [`InGuest`] may follow. `LABS` in `lab/mod.rs` lists the labs.
macro_rules! lab {
    ($name:literal, $about:literal, $run:ident) => {
        $crate::lab::session::lab!($name, $about, $run, &$crate::lab::session::InGuest::SAME);
    };
    ($name:literal, $about:literal, $run:ident, $in_guest:expr) => {
        pub(crate) static LAB: $crate::lab::session::Lab = $crate::lab::session::Lab {
            name: $name,
            about: $about,
            table: std::sync::LazyLock::new(|| {
                let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tables/", $name, ".txt"));
                $crate::lab::spec::Table::of(text)
            }),
            in_guest: $in_guest,
            run: |session| Box::pin($run(session)),
        };
    };
}
pub(crate) use lab;

/// The future of a running lab.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = anyhow::Result<usize>> + 'a>>;

/// One run of a lab.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) lab: &'static Lab,
    /// What has been measured so far.
    pub(crate) record: RefCell<Record>,
    pub(crate) launcher: Launcher,
    /// The client's CPU, then the server's.
    pub(crate) cpus: [usize; 2],
    /// Directory of the children's sockets, which is removed with the session.
    pub(crate) run_dir: TempDir,
    pub(crate) selection: Selection,
    /// The value of `--repeat`.
    pub(crate) repeat: Option<usize>,
    /// The value of `--files`.
    #[cfg(feature = "all")]
    pub(crate) files: Option<usize>,
    /// The value of `--seed`, or a random one.
    pub(crate) seed: u64,
    pub(crate) check: bool,
    pub(crate) progress: Progress,
}

impl Session {
    /// Whether a row is to be measured.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.selection.rows.contains(row)
    }

    /// The rows to be measured, in the order of the table.
    pub(crate) fn rows(&self) -> Vec<&'static str> {
        self.lab.table.rows.iter().map(|row| row.id).filter(|row| self.wants(row)).collect()
    }

    /// The number of rounds: under `--check` as many as the table asks for pairs, else `quick`; `--repeat` asks for others.
    pub(crate) fn rounds(&self, quick: usize) -> usize {
        self.rounds_of(self.lab.table.check_pairs, quick)
    }

    /// The same with at least `check` under `--check`.
    pub(crate) fn rounds_of(&self, check: usize, quick: usize) -> usize {
        match self.check {
            true => self.repeat.unwrap_or(check).max(check),
            false => self.repeat.unwrap_or(quick),
        }
    }

    /// `check` under `--check`, else `quick`.
    pub(crate) fn either<T>(&self, check: T, quick: T) -> T {
        if self.check { check } else { quick }
    }

    /// Runs rounds. Unless their number was asked for, none begins that would end after `budget`, but for the first two, as the
    /// first one may be longer than others. Returns how many it was.
    pub(crate) async fn in_rounds(
        &self,
        count: usize,
        budget: Duration,
        mut round: impl AsyncFnMut(usize),
    ) -> usize {
        let is_budgeted = !self.check && self.repeat.is_none();
        let (begun, mut last) = (Instant::now(), Duration::ZERO);
        for at in 0..count {
            if is_budgeted && at > 1 && begun.elapsed() + last > budget {
                self.progress.line(&format!("{at} rounds: another would take too long; --repeat N runs N"));
                return at;
            }
            self.progress.line(&format!("round {} of {count}", at + 1));
            let round_begun = Instant::now();
            round(at).await;
            last = round_begun.elapsed();
        }
        count
    }

    /// Measures these rows by turns, in rounds, each as often as [`Self::due`] says. Returns how many rounds it was.
    pub(crate) async fn by_turns(
        &self,
        rows: &[&'static str],
        rounds: usize,
        budget: Duration,
        mut measure: impl AsyncFnMut(&'static str, usize) -> anyhow::Result<Sample>,
    ) -> usize {
        let round = async |round: usize| {
            for row in self.due(rows, rounds, round) {
                self.step(row, round, measure(row, round)).await;
            }
        };
        let done = self.in_rounds(self.expect(rows, rounds), budget, round).await;
        done.min(rounds)
    }

    /// Announces what will be measured; returns in how many rounds.
    pub(crate) fn expect(&self, rows: &[&'static str], rounds: usize) -> usize {
        let each = || rows.iter().map(|row| self.rounds_with(row, rounds));
        self.progress.expect(each().sum());
        each().max().unwrap_or(rounds)
    }

    /// Those of the rows that a round measures, in its order: backwards in odd rounds.
    pub(crate) fn due(&self, rows: &[&'static str], rounds: usize, round: usize) -> Vec<&'static str> {
        let is_due = |row: &&'static str| self.is_due(row, rounds, round);
        by_turns(&rows.iter().copied().filter(is_due).collect::<Vec<_>>(), round)
    }

    /// Whether a round measures a row.
    pub(crate) fn is_due(&self, row: &str, rounds: usize, round: usize) -> bool {
        self.wants(row) && round < self.rounds_with(row, rounds)
    }

    /// How many rounds measure a row, where `rounds` measure most. One whose ratios need fewer pairs than others is measured as often as
    /// they need under `--check`, and once without. One that needs more is measured more often under `--check`.
    fn rounds_with(&self, row: &str, rounds: usize) -> usize {
        let usual = self.lab.table.check_pairs;
        match self.lab.table.pairs_of(row) {
            Some(pairs) if pairs < usual && self.check => pairs.min(rounds),
            Some(pairs) if pairs < usual => pairs.min(self.repeat.unwrap_or(1)),
            Some(pairs) if self.check => pairs.max(rounds),
            _ => rounds,
        }
    }

    /// Measures a row once. A failure is recorded as its reason, and the lab goes on. A row that never succeeds is left out.
    pub(crate) async fn step(
        &self,
        row: &'static str,
        round: usize,
        measured: impl Future<Output = anyhow::Result<Sample>>,
    ) {
        self.progress.step(self.lab.table.row(row).map_or(row, |spec| spec.label));
        if !self.record.borrow().is_hopeless(row) {
            let measured = measured.await;
            self.note(row, round, measured);
        }
    }

    /// Records what was measured, or why it was not.
    pub(crate) fn note(&self, row: &'static str, round: usize, measured: anyhow::Result<Sample>) {
        match measured {
            Ok(sample) => self.record.borrow_mut().add(row, round, sample),
            Err(error) => self.fail(&[row], &error),
        }
    }

    /// Records why rows were not measured.
    pub(crate) fn fail(&self, rows: &[&'static str], error: &anyhow::Error) {
        let reason = format!("{error:#}");
        self.progress.line(&format!("{}: {reason}", rows.join(", ")));
        rows.iter().for_each(|row| self.record.borrow_mut().fail(row, reason.clone()));
    }

    /// A path below the directory of sockets.
    pub(crate) fn socket(&self, name: &str) -> String {
        self.run_dir.path().join(format!("{name}.sock")).display().to_string()
    }
}

/// Backwards in odd rounds: any drift of the machine affects both sides of a pair alike.
pub(crate) fn by_turns<T: Clone>(rows: &[T], round: usize) -> Vec<T> {
    let mut rows = rows.to_vec();
    if round % 2 == 1 {
        rows.reverse();
    }
    rows
}

/// The rows and ratios to run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selection {
    pub(crate) rows: BTreeSet<&'static str>,
    pub(crate) ratios: BTreeSet<&'static str>,
}

impl Selection {
    /// All rows and ratios, or those in `only` and those that they need.
    pub(crate) fn new(lab: &Lab, only: &[String]) -> anyhow::Result<Self> {
        let (rows, ratios) = (lab.table.rows, lab.table.ratios);
        if only.is_empty() {
            let (rows, ratios) = (rows.iter().map(|row| row.id), ratios.iter().map(|ratio| ratio.id));
            return Ok(Self { rows: rows.collect(), ratios: ratios.collect() });
        }
        let mut chosen = Self { rows: BTreeSet::new(), ratios: BTreeSet::new() };
        for id in only.iter().map(|id| id.trim()).filter(|id| !id.is_empty()) {
            if let Some(ratio) = ratios.iter().find(|ratio| ratio.id == id) {
                chosen.ratios.insert(ratio.id);
                chosen.rows.extend(ratio.formula.rows());
                chosen.rows.extend(ratio.steady.iter().flat_map(|(formula, _)| formula.rows()));
            } else if let Some(row) = rows.iter().find(|row| row.id == id) {
                chosen.rows.insert(row.id);
            } else {
                let ratios: Vec<_> = ratios.iter().map(|ratio| ratio.id).collect();
                let rows: Vec<_> = rows.iter().map(|row| row.id).collect();
                bail!("--only: no such id: {id}\nratios: {}\nrows: {}", ratios.join(", "), rows.join(", "));
            }
        }
        for (row, needs) in lab.table.needs {
            if chosen.rows.contains(row) {
                chosen.rows.extend(needs.iter().copied());
            }
        }
        if chosen.rows.is_empty() {
            bail!("--only names nothing");
        }
        Ok(chosen)
    }

    /// The rows that the summary of a lab is made from, and the ratios that need no others.
    pub(crate) fn of_summary(lab: &Lab) -> anyhow::Result<Self> {
        let rows =
            lab.table.summary.iter().flat_map(|compared| compared.kernel.iter().chain([&compared.twinpath]));
        let only: Vec<_> = rows.map(|row| (*row).to_owned()).collect();
        let mut chosen = Self::new(lab, &only)?;
        let measured = |ratio: &&RatioSpec| ratio.formula.rows().iter().all(|row| chosen.rows.contains(row));
        chosen.ratios = lab.table.ratios.iter().filter(measured).map(|ratio| ratio.id).collect();
        Ok(chosen)
    }

    /// Removes the rows that are measured only in a virtual machine. `asked`: the ids of `--only`.
    pub(crate) fn outside_a_guest(mut self, lab: &Lab, asked: &[String]) -> anyhow::Result<Self> {
        let ratio = |id: &str| lab.table.ratios.iter().find(|ratio| ratio.id == id);
        let is_inside =
            |id: &str| lab.is_in_guest(id) || ratio(id).is_some_and(|ratio| lab.needs_guest(ratio));
        if let Some(id) = asked.iter().find(|id| is_inside(id.trim())) {
            bail!("{id} is measured in a virtual machine only: add --guest");
        }
        self.rows.retain(|id| !is_inside(id));
        self.ratios.retain(|id| !is_inside(id));
        Ok(self)
    }
}

/// Creates a directory for the children's sockets, and removes those of killed labs, whose process id is in the name.
pub(crate) fn run_dir() -> anyhow::Result<TempDir> {
    const PREFIX: &str = "twinpath-lab-";
    let temporary = std::env::temp_dir();
    for entry in std::fs::read_dir(&temporary).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Failures are ignored: files of other users do not prevent measuring.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let prefix = format!("{PREFIX}{}-", std::process::id());
    tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir()
        .with_context(|| format!("cannot make a directory for sockets in {}", temporary.display()))
}

/// The first two CPUs this process may use; the same one twice if there is only one.
pub(crate) fn cpus() -> anyhow::Result<[usize; 2]> {
    let allowed = twinpath_sys::affinity::allowed_cpus()?;
    let first = *allowed.first().context("this process may use no CPU")?;
    Ok([first, *allowed.get(1).unwrap_or(&first)])
}

#[cfg(test)]
mod tests {
    use super::super::quick;
    use super::*;

    fn only(ids: &[&str]) -> anyhow::Result<Selection> {
        let ids: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
        Selection::new(&quick::LAB, &ids)
    }

    #[test]
    fn a_ratio_brings_what_it_needs_and_a_row_what_comes_before_it() {
        let chosen = only(&["udp-rtt-adaptive"]).unwrap();
        assert_eq!(chosen.rows, BTreeSet::from(["twinpath-adaptive", "twinpath-poll"]));
        assert_eq!(chosen.ratios, BTreeSet::from(["udp-rtt-adaptive"]));
        // The offered rate is half of the best plain server's.
        let cost = only(&["cpu-twinpath"]).unwrap();
        assert!(cost.rows.contains("rate-kernel-batch") && cost.ratios.is_empty());
        assert_eq!(only(&[]).unwrap().ratios.len(), quick::LAB.table.ratios.len());
    }

    #[test]
    fn a_summary_brings_its_rows_and_the_ratios_between_them() {
        let chosen = Selection::of_summary(&quick::LAB).unwrap();
        assert!(chosen.rows.contains("paced-kernel") && chosen.rows.contains("idle-adaptive"));
        assert!(!chosen.rows.contains("floor-eventfd"));
        assert!(chosen.ratios.contains("udp-rate") && !chosen.ratios.contains("udp-rtt-interrupt"));
    }

    #[test]
    fn an_unknown_id_is_answered_by_all_ids() {
        let error = only(&["pool-mib", "pool"]).unwrap_err().to_string();
        assert!(error.contains("no such id: pool\n"), "{error}");
        for ratio in quick::LAB.table.ratios {
            assert!(error.contains(ratio.id), "{error}");
        }
        assert!(only(&[","]).is_err());
    }
}
