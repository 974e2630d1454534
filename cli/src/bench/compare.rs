//! `bench compare`: compares two saved measurements with the same settings, as ratios with their uncertainty.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use twinpath_clients::measure::print;
use twinpath_clients::measure::report::{BenchReport, RttUs, RunReport};
use twinpath_load::{Ratio, median, unpaired_ratio};

use super::output::REPORT;

/// Compare two saved measurements: how B stands to A, and whether that is beyond noise
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// The output of `bench ... --json`, or a directory of --output-dir
    #[arg(value_name = "A")]
    first: PathBuf,
    /// The other one
    #[arg(value_name = "B")]
    second: PathBuf,
    /// Compare measurements even if their settings differ
    #[arg(long)]
    force: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Comparison {
    a: Side,
    b: Side,
    /// Settings that differ.
    different: Vec<Difference>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Side {
    file: PathBuf,
    target: String,
    runs: usize,
    /// Whether it ended early.
    partial: bool,
}

#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    setting: &'static str,
    a: String,
    b: String,
}

/// One figure of both measurements.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    /// Its name in the reports.
    figure: &'static str,
    /// Medians of the runs.
    a: f64,
    b: f64,
    /// B divided by A.
    ratio: f64,
    /// Null with too few runs.
    interval95: Option<[f64; 2]>,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// B is better, beyond noise.
    Better,
    Worse,
    WithinNoise,
    /// Too few runs.
    Unknown,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::Better => "B is better, beyond noise",
            Self::Worse => "B is worse, beyond noise",
            Self::WithinNoise => "within noise",
            Self::Unknown => "unknown: too few runs",
        }
    }
}

/// A figure of a run, and whether a larger value is better.
struct Figure {
    name: &'static str,
    of: fn(&RunReport) -> Option<f64>,
    more_is_better: bool,
}

const FIGURES: [Figure; 7] = [
    Figure { name: "requests_per_s", of: |run| Some(run.requests_per_s), more_is_better: true },
    latency("min_us", |run| rtt(run, |rtt| rtt.min)),
    latency("p50_us", |run| rtt(run, |rtt| rtt.p50)),
    latency("p90_us", |run| rtt(run, |rtt| rtt.p90)),
    latency("p99_us", |run| rtt(run, |rtt| rtt.p99)),
    latency("p99_9_us", |run| rtt(run, |rtt| rtt.p99_9)),
    latency("cpu_us_per_request", |run| run.cpu_us_per_request),
];

const fn latency(name: &'static str, of: fn(&RunReport) -> Option<f64>) -> Figure {
    Figure { name, of, more_is_better: false }
}

fn rtt(run: &RunReport, of: fn(&RttUs) -> f64) -> Option<f64> {
    run.rtt_us.as_ref().map(of)
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let (first, second) = (read(&args.first)?, read(&args.second)?);
    let different = differences(&first, &second);
    if !different.is_empty() && !args.force {
        let named: Vec<String> =
            different.iter().map(|Difference { setting, a, b }| format!("{setting} ({a} and {b})")).collect();
        bail!(
            "the two were measured with different settings: {}; --force compares them all the same",
            named.join(", ")
        );
    }
    let (first_runs, second_runs) = (runs_of(&first), runs_of(&second));
    let side = |file: &Path, report: &BenchReport, runs: &[RunReport]| Side {
        file: file.to_owned(),
        target: report.target.clone(),
        runs: runs.len(),
        partial: report.partial,
    };
    let comparison = Comparison {
        a: side(&args.first, &first, &first_runs),
        b: side(&args.second, &second, &second_runs),
        different,
        rows: rows(&first_runs, &second_runs),
    };
    if comparison.rows.is_empty() {
        bail!("there is nothing to compare: in one of the two no reply came");
    }
    print(if args.json { serde_json::to_string(&comparison)? } else { table(&comparison) })?;
    Ok(ExitCode::SUCCESS)
}

fn read(place: &Path) -> anyhow::Result<BenchReport> {
    let file = if place.is_dir() { place.join(REPORT) } else { place.to_owned() };
    let name = file.display();
    let open = File::open(&file).with_context(|| format!("cannot read {name}"))?;
    serde_json::from_reader(BufReader::new(open)).with_context(|| {
        format!("{name} is no report of a measurement: save what `twinpath bench ... --json` prints, or use --output-dir")
    })
}

/// All runs; a report without a list of runs, of an older version, counts as one run.
fn runs_of(report: &BenchReport) -> Vec<RunReport> {
    if !report.runs.is_empty() {
        return report.runs.clone();
    }
    vec![RunReport {
        requests_per_s: report.requests_per_s,
        rtt_us: report.rtt_us,
        received: report.received,
        duration_s: report.duration_s,
        ..RunReport::default()
    }]
}

/// The settings that differ. The target is not a setting: comparing two servers is the purpose.
fn differences(first: &BenchReport, second: &BenchReport) -> Vec<Difference> {
    type Setting = (&'static str, fn(&BenchReport) -> String);
    const SETTINGS: [Setting; 14] = [
        ("service", |report| report.service.clone()),
        ("procedure", |report| optional(report.procedure.as_ref())),
        ("auth", |report| optional(report.auth.as_ref())),
        ("fragments", |report| optional(report.fragments)),
        ("transport", |report| report.transport.clone()),
        ("path", |report| report.path.clone()),
        ("mode", |report| report.mode.clone()),
        ("size", |report| report.size.to_string()),
        ("inflight", |report| report.inflight.to_string()),
        ("threads", |report| report.threads.to_string()),
        ("batch", |report| report.batch.to_string()),
        ("nagle", |report| report.nagle.to_string()),
        ("rate", |report| optional(report.rate_per_s)),
        ("arrivals", |report| optional(report.arrivals.as_ref())),
    ];
    let differs = |(setting, of): Setting| {
        let (a, b) = (of(first), of(second));
        (a != b).then_some(Difference { setting, a, b })
    };
    SETTINGS.into_iter().filter_map(differs).collect()
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or("none".to_owned(), |value| value.to_string())
}

fn rows(first: &[RunReport], second: &[RunReport]) -> Vec<Row> {
    let row = |figure: &Figure| {
        let values = |runs: &[RunReport]| runs.iter().map(figure.of).collect::<Option<Vec<f64>>>();
        let (a, b) = (values(first)?, values(second)?);
        let Ratio { ratio, interval95 } = unpaired_ratio(&a, &b)?;
        let verdict = match interval95 {
            None => Verdict::Unknown,
            Some([low, high]) if low <= 1.0 && high >= 1.0 => Verdict::WithinNoise,
            Some([low, _]) if (low > 1.0) == figure.more_is_better => Verdict::Better,
            Some(_) => Verdict::Worse,
        };
        Some(Row { figure: figure.name, a: median(&a)?, b: median(&b)?, ratio, interval95, verdict })
    };
    FIGURES.iter().filter_map(row).collect()
}

fn table(comparison: &Comparison) -> String {
    let Comparison { a, b, different, rows } = comparison;
    let side = |name: &str, side: &Side| {
        let plural = if side.runs == 1 { "" } else { "s" };
        let partial = if side.partial { " (partial: it ended before it was done)" } else { "" };
        format!("{name}: {}, {} run{plural} of {}{partial}\n", side.file.display(), side.runs, side.target)
    };
    let mut text = side("A", a) + &side("B", b);
    for Difference { setting, a, b } in different {
        text += &format!("different: {setting} ({a} and {b})\n");
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_header(["", "A", "B", "B to A", "95 %", ""]);
    for row in rows {
        let interval = row.interval95.map_or("-".to_owned(), |[low, high]| format!("{low:.3} to {high:.3}"));
        table.add_row([
            row.figure.to_owned(),
            shown(row.a),
            shown(row.b),
            format!("{:.3}", row.ratio),
            interval,
            row.verdict.words().to_owned(),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text + &table.to_string()
}

fn shown(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rates: &[f64]) -> BenchReport {
        let run = |rate: &f64| {
            let us = 1e6 / rate;
            let rtt = RttUs { min: us, p50: us, p90: us, p99: us, p99_9: us, max: us, mean: us };
            RunReport { requests_per_s: *rate, rtt_us: Some(rtt), ..RunReport::default() }
        };
        BenchReport { inflight: 1, runs: rates.iter().map(run).collect(), ..BenchReport::default() }
    }

    fn verdicts(first: &[f64], second: &[f64]) -> Vec<(&'static str, Verdict)> {
        let rows = rows(&report(first).runs, &report(second).runs);
        rows.iter().map(|row| (row.figure, row.verdict)).filter(|(name, _)| name.contains('p')).collect()
    }

    #[test]
    fn more_requests_and_less_latency_are_better() {
        let (slow, fast) = ([100.0, 101.0, 102.0, 103.0, 104.0], [200.0, 201.0, 202.0, 203.0, 204.0]);
        assert!(verdicts(&slow, &fast).iter().all(|(_, verdict)| *verdict == Verdict::Better));
        assert!(verdicts(&fast, &slow).iter().all(|(_, verdict)| *verdict == Verdict::Worse));
        assert!(verdicts(&slow, &slow).iter().all(|(_, verdict)| *verdict == Verdict::WithinNoise));
        assert!(verdicts(&slow[..3], &fast[..3]).iter().all(|(_, verdict)| *verdict == Verdict::Unknown));
        assert_eq!(verdicts(&slow, &fast).len(), 5, "CPU time was not measured");
    }

    #[test]
    fn settings_that_differ_are_named_and_targets_are_none() {
        let first = BenchReport { target: "a:1".to_owned(), ..report(&[1.0]) };
        let second = BenchReport { target: "b:2".to_owned(), ..report(&[2.0]) };
        assert_eq!(differences(&first, &second), []);
        let second = BenchReport { inflight: 8, auth: Some("sys".to_owned()), ..second };
        let named: Vec<_> = differences(&first, &second).into_iter().map(|found| found.setting).collect();
        assert_eq!(named, ["auth", "inflight"]);
    }

    #[test]
    fn a_report_of_former_times_is_one_run() {
        let mut old = serde_json::to_value(report(&[])).unwrap();
        for field in ["service", "runs", "iterations", "quantiles_us", "batch", "refused", "version"] {
            old.as_object_mut().unwrap().remove(field).expect(field);
        }
        let old: BenchReport = serde_json::from_value(old).unwrap();
        assert_eq!((old.service.as_str(), old.iterations), ("echo", 1));
        assert_eq!(runs_of(&old).len(), 1);
    }
}
