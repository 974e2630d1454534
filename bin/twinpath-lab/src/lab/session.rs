//! One run of a lab: the network, the child processes, the selection of rows, and the progress.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use anyhow::{Context, bail};
use tempfile::TempDir;

use super::model::{Compared, PlotSpec, RatioSpec, RowSpec};
use super::process::Launcher;
use super::progress::Progress;
use super::record::Record;

/// The definition of a lab. To add one, write its two tables and its function, and list it in `lab/mod.rs`.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) rows: &'static [RowSpec],
    pub(crate) ratios: &'static [RatioSpec],
    /// What its report plots beside the groups of all labs.
    pub(crate) plots: &'static [PlotSpec],
    /// What a run without `--check` and `--only` shows instead of rows and targets; empty: it shows these.
    pub(crate) summary: &'static [Compared],
    /// Rows that need others measured before them.
    pub(crate) together: &'static [(&'static str, &'static [&'static str])],
    /// Additional rows and files in a virtual machine.
    pub(crate) in_guest: &'static InGuest,
    /// Measures the selected rows; returns the samples and the number of rounds.
    pub(crate) run: for<'a> fn(&'a Session) -> Running<'a>,
}

/// The rows that a lab measures only in a virtual machine, and the files that it needs there. Files that this machine
/// lacks are left out: the lab inside reports what is missing.
#[derive(Debug)]
pub(crate) struct InGuest {
    /// Rows that are measured only there. If the guest's instructions are emulated, its clock can count them: these
    /// rows are meaningful then as well, and are the only ones measured unless others are selected.
    pub(crate) rows: &'static [&'static str],
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
    pub(crate) const SAME: Self = Self { rows: &[], modules: &[], programs: &[], files: &[], links: &[] };
}

/// The future of a running lab.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = anyhow::Result<(Record, usize)>> + 'a>>;

/// One run of a lab.
#[derive(Debug)]
pub(crate) struct Session {
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

/// The rows and ratios to run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selection {
    pub(crate) rows: BTreeSet<&'static str>,
    pub(crate) ratios: BTreeSet<&'static str>,
}

impl Selection {
    /// All rows and ratios, or those in `only` and those that they need. `together`: rows that need others measured
    /// before them.
    pub(crate) fn new(
        rows: &[RowSpec],
        ratios: &[RatioSpec],
        together: &[(&'static str, &[&'static str])],
        only: &[String],
    ) -> anyhow::Result<Self> {
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
        for (row, needs) in together {
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
        let rows = lab.summary.iter().flat_map(|compared| compared.kernel.iter().chain([&compared.twinpath]));
        let only: Vec<_> = rows.map(|row| (*row).to_owned()).collect();
        let mut chosen = Self::new(lab.rows, lab.ratios, lab.together, &only)?;
        let measured = |ratio: &&RatioSpec| ratio.formula.rows().iter().all(|row| chosen.rows.contains(row));
        chosen.ratios = lab.ratios.iter().filter(measured).map(|ratio| ratio.id).collect();
        Ok(chosen)
    }

    /// Removes the rows that are measured only in a virtual machine. `asked`: the ids of `--only`.
    pub(crate) fn outside_a_guest(mut self, lab: &Lab, asked: &[String]) -> anyhow::Result<Self> {
        let rows = lab.in_guest.rows;
        let inside = |ratio: &&RatioSpec| ratio.formula.rows().iter().any(|row| rows.contains(row));
        let ratios: Vec<_> = lab.ratios.iter().filter(inside).map(|ratio| ratio.id).collect();
        let is_inside = |id: &str| rows.contains(&id) || ratios.contains(&id);
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
        let lab = quick::LAB;
        Selection::new(lab.rows, lab.ratios, lab.together, &ids)
    }

    #[test]
    fn a_ratio_brings_what_it_needs_and_a_row_what_comes_before_it() {
        let chosen = only(&["udp-rtt-adaptive"]).unwrap();
        assert_eq!(chosen.rows, BTreeSet::from(["twinpath-adaptive", "twinpath-poll"]));
        assert_eq!(chosen.ratios, BTreeSet::from(["udp-rtt-adaptive"]));
        // The offered rate is half of the best plain server's.
        let cost = only(&["cpu-twinpath"]).unwrap();
        assert!(cost.rows.contains("rate-kernel-batch") && cost.ratios.is_empty());
        assert_eq!(only(&[]).unwrap().ratios.len(), quick::LAB.ratios.len());
    }

    #[test]
    fn a_summary_brings_its_rows_and_the_ratios_between_them() {
        let chosen = Selection::of_summary(&quick::LAB).unwrap();
        assert!(chosen.rows.contains("paced-kernel") && chosen.rows.contains("idle-adaptive"));
        assert!(!chosen.rows.contains("floor-eventfd") && !chosen.rows.contains("packet-poll"));
        assert!(chosen.ratios.contains("udp-rate") && !chosen.ratios.contains("udp-rtt-interrupt"));
    }

    #[test]
    fn an_unknown_id_is_answered_by_all_ids() {
        let error = only(&["pool-mib", "pool"]).unwrap_err().to_string();
        assert!(error.contains("no such id: pool\n"), "{error}");
        for ratio in quick::LAB.ratios {
            assert!(error.contains(ratio.id), "{error}");
        }
        assert!(only(&[","]).is_err());
    }
}
