//! `twinpath-lab all`: measures every ratio that has a target, each lab in a process of its own, and keeps what came out in a
//! ledger, so that no figure moves unseen.
//!
//! The ledger is a table of tab-separated values, a line for each ratio. A run prints what has moved since the run before it,
//! and which ratios came and went.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use super::model::{Better, LabReport, Ratio};
use super::session::Lab;
use super::{Args, LABS, table};

/// The name by which all labs are asked for.
pub(crate) const ALL: &str = "all";

const HEADER: &str = "id\tlab\tvalue\tleast\tmost\tpairs\ttarget\tverdict\tcommit\ttime\tmachine";

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    lab: String,
    /// The median of the pairs, and the least and greatest of them; `None`: not measured.
    value: Option<[f64; 3]>,
    pairs: usize,
    target: String,
    verdict: String,
    commit: String,
    time: String,
    machine: String,
}

/// All lines, by the ids of their ratios.
type Ledger = BTreeMap<String, Line>;

impl Line {
    fn parse(text: &str) -> Option<(String, Self)> {
        let mut fields = text.split('\t').map(str::to_owned);
        let mut next = || fields.next();
        let (id, lab) = (next()?, next()?);
        let value = [next()?, next()?, next()?].map(|number| number.parse().ok());
        let value = match value {
            [Some(value), Some(least), Some(most)] => Some([value, least, most]),
            _ => None,
        };
        let pairs = next()?.parse().ok()?;
        let (target, verdict, commit, time, machine) = (next()?, next()?, next()?, next()?, next()?);
        Some((id, Self { lab, value, pairs, target, verdict, commit, time, machine }))
    }

    /// Whether it differs from `former` by more than both spreads: each value is outside of the other's.
    fn has_moved_from(&self, former: &Self) -> bool {
        let (Some([now, least, most]), Some([then, then_least, then_most])) = (self.value, former.value)
        else {
            return false;
        };
        let is_outside = |value: f64, least: f64, most: f64| value < least || value > most;
        is_outside(now, then_least, then_most) && is_outside(then, least, most)
    }
}

impl Display for Line {
    /// All but the id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lab, value, pairs, target, verdict, commit, time, machine } = self;
        let [value, least, most] = value.map_or_else(Default::default, |value| value.map(in_short));
        write!(
            f,
            "{lab}\t{value}\t{least}\t{most}\t{pairs}\t{target}\t{verdict}\t{commit}\t{time}\t{machine}"
        )
    }
}

/// Four significant digits.
fn in_short(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { 3 - value.abs().log10().floor() as i32 };
    format!("{value:.*}", digits.clamp(0, 6) as usize)
}

fn parse(text: &str) -> anyhow::Result<Ledger> {
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        bail!("its first line is not that of a ledger: {HEADER}");
    }
    lines
        .enumerate()
        .map(|(number, line)| {
            Line::parse(line).with_context(|| format!("line {} has other fields", number + 2))
        })
        .collect()
}

fn written(ledger: &Ledger) -> String {
    let lines = ledger.iter().map(|(id, line)| format!("{id}\t{line}\n"));
    std::iter::once(format!("{HEADER}\n")).chain(lines).collect()
}

/// What a run says of the ledger before it. `all`: of ratios that were not measured nothing is known otherwise.
fn told(former: &Ledger, now: &Ledger, all: bool, better: &BTreeMap<String, Better>) -> Vec<String> {
    let mut told = Vec::new();
    for (id, line) in now {
        match former.get(id) {
            None => told.push(format!("{id}: new")),
            Some(then) if then.value.is_some() && line.value.is_none() => {
                told.push(format!("{id}: not measured: {}", line.verdict));
            }
            Some(then) if line.has_moved_from(then) => {
                let spread = |line: &Line| {
                    let [value, least, most] = line.value.unwrap_or_default().map(in_short);
                    format!("{value} ({least} to {most})")
                };
                let rises = line.value > then.value;
                let is_better = better.get(id).is_some_and(|better| rises == (*better == Better::Higher));
                let how = if is_better { "better" } else { "worse" };
                told.push(format!("{id}: {how}: {} after {} of {}", spread(line), spread(then), then.commit));
            }
            Some(_) => {}
        }
    }
    if all {
        told.extend(
            former.keys().filter(|id| !now.contains_key(*id)).map(|id| format!("{id}: gone, or renamed")),
        );
    }
    told
}

fn line_of(lab: &str, ratio: &Ratio, commit: &str, time: &str, machine: &str) -> Line {
    let verdict = match (ratio.holds, &ratio.undecided) {
        (Some(true), _) => "holds".to_owned(),
        (Some(false), _) => "misses".to_owned(),
        // The report has what failed in full, with paths of this machine.
        (None, reason) => reason.as_ref().map_or_else(|| "undecided".to_owned(), ToString::to_string),
    };
    let sign = if ratio.better == Better::Lower { "<=" } else { ">=" };
    Line {
        lab: lab.to_owned(),
        value: ratio.value.zip(ratio.spread).map(|(value, [least, most])| [value, least, most]),
        pairs: ratio.pairs,
        target: ratio.target.map_or_else(String::new, |target| format!("{sign} {target}")),
        verdict,
        commit: commit.to_owned(),
        time: time.to_owned(),
        machine: machine.to_owned(),
    }
}

/// The processors and the kernel.
fn machine() -> String {
    let known = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = known.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown CPU", |(_, model)| model);
    let cpus = known.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = rustix::system::uname();
    format!("{cpus} x {model}, Linux {}", kernel.release().to_string_lossy())
}

fn read(path: &Path) -> anyhow::Result<Ledger> {
    let cannot = || format!("cannot read the ledger {}", path.display());
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text).with_context(cannot),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Ledger::new()),
        Err(error) => Err(error).with_context(cannot),
    }
}

/// The ratios of a lab that belong in the ledger: those that have a target, and need no guest. `only`: of these, if any are named.
fn wanted(lab: &Lab, only: &[String]) -> Vec<&'static str> {
    let is_named = |id: &str| only.is_empty() || only.iter().any(|only| only.trim() == id);
    let ratios = lab.table.ratios.iter().filter(|ratio| ratio.target.is_some() && !lab.needs_guest(ratio));
    ratios.map(|ratio| ratio.id).filter(|id| is_named(id)).collect()
}

/// How a lab has ended.
enum Ended {
    /// It has measured something, or said why it could not.
    Report(Option<LabReport>),
    /// It was interrupted, and ended with that code.
    Interrupted(u8),
}

/// Measures some ratios of a lab, in a process of its own. `json`: where that writes its report.
fn measure(lab: &Lab, ratios: &[&str], args: &Args, json: &Path) -> anyhow::Result<Ended> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args([lab.name, "--only", &ratios.join(","), "--json"]).arg(json);
    command.arg("--html").arg(json.with_extension("html")).stdout(Stdio::null());
    if let Some(repeat) = args.repeat {
        command.args(["--repeat", &repeat.to_string()]);
    }
    let ended = command.status().with_context(|| format!("cannot run lab {}", lab.name))?;
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&ended) {
        bail!("lab {} was ended by signal {signal}: the ledger is as it was", lab.name);
    }
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    if let Some(code @ (super::INTERRUPTED | super::TERMINATED)) = code {
        return Ok(Ended::Interrupted(code));
    }
    let Ok(text) = std::fs::read_to_string(json) else { return Ok(Ended::Report(None)) };
    let report =
        serde_json::from_str(&text).with_context(|| format!("cannot read the report of lab {}", lab.name))?;
    Ok(Ended::Report(Some(report)))
}

/// Runs the labs one after the other, and writes the ledger.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.ledger.as_deref().unwrap_or(Path::new("docs/generated/ledger.tsv"));
    let former = read(path)?;
    let commit = args.commit.as_deref().unwrap_or("unknown");
    let reports = tempfile::tempdir().context("cannot make a directory for the reports")?;
    let (mut measured, mut better) = (Ledger::new(), BTreeMap::new());
    let (machine, begun) = (machine(), Instant::now());
    for lab in LABS {
        let ratios = wanted(lab, &args.only);
        if ratios.is_empty() {
            continue;
        }
        eprintln!("{:4.0} s: {} ratios of {}", begun.elapsed().as_secs_f64(), ratios.len(), lab.name);
        let report = match measure(lab, &ratios, args, &reports.path().join(lab.name))? {
            Ended::Report(Some(report)) => report,
            Ended::Report(None) => continue,
            Ended::Interrupted(code) => return Ok(ExitCode::from(code)),
        };
        let time = table::utc(report.unix_time_s);
        for ratio in &report.ratios {
            better.insert(ratio.id.clone(), ratio.better);
            measured.insert(ratio.id.clone(), line_of(lab.name, ratio, commit, &time, &machine));
        }
    }
    let is_all = args.only.is_empty();
    told(&former, &measured, is_all, &better).iter().for_each(|line| println!("{line}"));
    let mut ledger = if is_all { Ledger::new() } else { former };
    ledger.extend(measured);
    let count = |verdict: &str| ledger.values().filter(|line| line.verdict == verdict).count();
    println!(
        "{}: {} ratios, {} hold, {} miss; measured in {:.0} s",
        path.display(),
        ledger.len(),
        count("holds"),
        count("misses"),
        begun.elapsed().as_secs_f64()
    );
    super::write(path, &written(&ledger))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::super::model::Sample;
    use super::super::quick;
    use super::super::record::Record;
    use super::*;

    fn line(value: Option<[f64; 3]>) -> Line {
        Line {
            lab: "quick".to_owned(),
            value,
            pairs: 3,
            target: "<= 1".to_owned(),
            verdict: "holds".to_owned(),
            commit: "abc".to_owned(),
            time: "2026-11-29 14:00:00".to_owned(),
            machine: "2 x CPU, Linux 6.18".to_owned(),
        }
    }

    fn ledger(lines: &[(&str, Option<[f64; 3]>)]) -> Ledger {
        lines.iter().map(|(id, value)| ((*id).to_owned(), line(*value))).collect()
    }

    #[test]
    fn what_was_written_is_read_again() {
        let all = ledger(&[("a", Some([0.5, 0.25, 1234.0])), ("b", None)]);
        assert_eq!(parse(&written(&all)).unwrap(), all);
        assert!(parse("id\tvalue\n").unwrap_err().to_string().contains("first line"));
        let cut_off = format!("{HEADER}\na\tquick\t1\n");
        assert!(parse(&cut_off).unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn the_ledger_names_a_row_that_was_not_measured_and_nothing_of_the_machine() {
        let mut record = Record::default();
        record.fail("kernel-spinning", "/run/x/twinpath-lab: no such file\t(exit status: 1)".to_owned());
        let spec = quick::LAB.table.ratios.iter().find(|ratio| ratio.id == "udp-rtt-poll").unwrap();
        record.add("twinpath-poll", 0, Sample { values: [("p50_us", 2.0)].into(), ..Sample::default() });
        let ratio = record.ratio(spec, false);
        assert!(ratio.skipped.as_ref().unwrap().contains("/run/x"), "the report says it in full: {ratio:?}");
        let line = line_of("quick", &ratio, "abc", "now", "here");
        assert_eq!(line.verdict, "kernel-spinning was not measured");
        assert_eq!(Line::parse(&format!("udp-rtt-poll\t{line}")), Some(("udp-rtt-poll".to_owned(), line)));
    }

    #[test]
    fn four_digits_are_kept() {
        let written = [0.0, 0.012_346, 1.234_56, 12.3456, 123_456.7, -2.5].map(in_short);
        assert_eq!(written, ["0", "0.01235", "1.235", "12.35", "123457", "-2.500"]);
    }

    #[test]
    fn a_ratio_has_moved_if_each_value_is_outside_of_the_others_spread() {
        let then = line(Some([1.0, 0.9, 1.1]));
        assert!(line(Some([1.5, 1.4, 1.6])).has_moved_from(&then));
        assert!(!line(Some([1.5, 0.9, 1.6])).has_moved_from(&then), "its spread has the former value");
        assert!(!line(Some([1.05, 1.04, 1.06])).has_moved_from(&then), "the former spread has it");
        assert!(!line(None).has_moved_from(&then));
    }

    #[test]
    fn what_moved_came_or_went_is_told() {
        let former = ledger(&[
            ("gone", Some([1.0; 3])),
            ("lost", Some([1.0; 3])),
            ("same", Some([1.0; 3])),
            ("up", Some([1.0, 0.9, 1.1])),
        ]);
        let now = ledger(&[
            ("came", Some([1.0; 3])),
            ("lost", None),
            ("same", Some([1.0; 3])),
            ("up", Some([2.0, 1.9, 2.1])),
        ]);
        let better = BTreeMap::from([("up".to_owned(), Better::Higher)]);
        let all = [
            "came: new",
            "lost: not measured: holds",
            "up: better: 2.000 (1.900 to 2.100) after 1.000 (0.9000 to 1.100) of abc",
            "gone: gone, or renamed",
        ];
        assert_eq!(told(&former, &now, true, &better), all);
        assert_eq!(told(&former, &now, false, &better), all[..3]);
        let better = BTreeMap::from([("up".to_owned(), Better::Lower)]);
        assert!(told(&former, &now, true, &better)[2].starts_with("up: worse"));
    }
}
