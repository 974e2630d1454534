//! Prints a line per run, like ksf's tools: the median (or average) of the runs so far, then the values of this run.

use twinpath_clients::measure::report::{RunReport, ThreadReport};
use twinpath_load::median;

use super::moment::Moment;
use super::plan::{BenchPlan, quantile_name};
use super::runs::summarise;

/// Minimum width of a column; a longer name widens it.
const WIDTH: usize = 8;
/// Shown for a value that was not measured.
const NOTHING: &str = "-";

/// The columns' names.
pub(crate) fn header(plan: &BenchPlan) -> String {
    let cells = cells(plan, &[RunReport::default()]);
    joined(cells.iter().map(|cell| (cell.name.len(), cell.name.as_str())))
}

/// The last of `runs`; empty without runs.
pub(crate) fn row(plan: &BenchPlan, runs: &[RunReport]) -> String {
    joined(cells(plan, runs).iter().map(|cell| (cell.name.len(), cell.value.as_str())))
}

struct Cell {
    name: String,
    value: String,
}

fn cell(name: impl Into<String>, value: impl Into<Option<String>>) -> Cell {
    Cell { name: name.into(), value: value.into().unwrap_or_else(|| NOTHING.to_owned()) }
}

fn cells(plan: &BenchPlan, runs: &[RunReport]) -> Vec<Cell> {
    let (Some(run), Some(said)) = (runs.last(), summarise(runs, plan.running_average)) else {
        return Vec::new();
    };
    let us = |us: f64| format!("{us:.1}");
    let so_far = if plan.running_average { "average" } else { "median" };
    let mut cells = vec![
        cell("started", Moment::from_unix_s(run.started_unix_s).to_string()),
        cell("threads", plan.threads.to_string()),
        cell("inflight", plan.load.inflight.to_string()),
        cell(format!("{so_far}/s"), format!("{:.0}", said.requests_per_s)),
        cell(format!("{so_far}_us"), said.rtt_us.map(|rtt| us(rtt.p50))),
        cell("Mbit/s", megabits_per_s(run).map(|rate| format!("{rate:.1}"))),
        cell("min", run.rtt_us.map(|rtt| us(rtt.min))),
    ];
    let quantiles = plan.shown.quantiles.iter().enumerate();
    cells.extend(quantiles.map(|(index, percent)| {
        cell(quantile_name(*percent), run.quantiles_us.get(index).map(|quantile| us(quantile.us)))
    }));
    cells.push(cell("max", run.rtt_us.map(|rtt| us(rtt.max))));
    if plan.shown.extended {
        cells.extend(extended(run));
    }
    cells
}

/// The columns of `--extended`: differences among the threads, and costs.
fn extended(run: &RunReport) -> Vec<Cell> {
    let sorted = |of: fn(&ThreadReport) -> f64| {
        let mut values: Vec<f64> = run.threads.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let seconds = |value: Option<f64>| value.map(|seconds| format!("{seconds:.3}"));
    let per_s = |value: Option<f64>| value.map(|rate| format!("{rate:.0}"));
    let (times, rates) = (sorted(|thread| thread.duration_s), sorted(|thread| thread.requests_per_s));
    vec![
        cell("requests", run.received.to_string()),
        cell("lost", run.lost.to_string()),
        cell("min_s", seconds(times.first().copied())),
        cell("median_s", seconds(median(&times))),
        cell("max_s", seconds(times.last().copied())),
        cell("slowest/s", per_s(rates.first().copied())),
        cell("middle/s", per_s(median(&rates))),
        cell("fastest/s", per_s(rates.last().copied())),
        cell("sends", run.system_calls.map(|calls| calls.sends.to_string())),
        cell("receives", run.system_calls.map(|calls| calls.receives.to_string())),
        cell("empty", run.system_calls.map(|calls| calls.receives_empty.to_string())),
        cell("cpu_us", run.cpu_us_per_request.map(|us| format!("{us:.3}"))),
    ]
}

/// Both directions together, without headers of lower layers.
fn megabits_per_s(run: &RunReport) -> Option<f64> {
    let calls = run.system_calls.filter(|_| run.duration_s > 0.0)?;
    Some((calls.bytes_sent + calls.bytes_received) as f64 * 8.0 / run.duration_s / 1e6)
}

/// Aligned to the right, each at least as wide as its column's name and [`WIDTH`].
fn joined<'a>(cells: impl Iterator<Item = (usize, &'a str)>) -> String {
    let cells: Vec<String> = cells
        .enumerate()
        .map(|(index, (width, text))| {
            // The first column is a time.
            let width = if index == 0 { 20 } else { width.max(WIDTH) };
            format!("{text:>width$}")
        })
        .collect();
    cells.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use twinpath_clients::measure::report::{QuantileUs, RttUs, SystemCalls};

    use super::super::options::EchoArgs;
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        echo: EchoArgs,
    }

    fn plan(options: &str) -> BenchPlan {
        let words = ["echo", "127.0.0.1:7"].into_iter().chain(options.split_whitespace());
        BenchPlan::echo(&Line::try_parse_from(words).unwrap().echo).unwrap()
    }

    fn run(p50: f64) -> RunReport {
        let rtt = RttUs { min: 1.0, p50, p90: 4.0, p99: 5.0, p99_9: 6.0, max: 7.0, mean: p50 };
        let calls = SystemCalls {
            sends: 10,
            receives: 9,
            bytes_sent: 640,
            bytes_received: 610,
            ..SystemCalls::default()
        };
        let thread = |duration_s| ThreadReport {
            duration_s,
            received: 5,
            requests_per_s: 5.0 / duration_s,
            p50_us: None,
        };
        RunReport {
            duration_s: 0.5,
            received: 10,
            requests_per_s: 20.0,
            rtt_us: Some(rtt),
            quantiles_us: vec![QuantileUs { percent: 99.9, us: 6.0 }],
            system_calls: Some(calls),
            threads: vec![thread(0.25), thread(0.5)],
            ..RunReport::default()
        }
    }

    #[test]
    fn a_line_has_the_running_median_and_the_runs_own_quantiles() {
        let plan = plan("-q 99.9 -x -j 2 -a 4 -i 3");
        let header = header(&plan);
        let row = row(&plan, &[run(1.0), run(9.0), run(2.0)]);
        assert_eq!(
            header
                .split_whitespace()
                .zip(row.split_whitespace())
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join(" "),
            "started=1970-01-01T00:00:00Z threads=2 inflight=4 median/s=20 median_us=2.0 Mbit/s=0.0 min=1.0 \
             p99.9=6.0 max=7.0 requests=10 lost=0 min_s=0.250 median_s=0.375 max_s=0.500 slowest/s=10 middle/s=15 \
             fastest/s=20 sends=10 receives=9 empty=0 cpu_us=-"
        );
        assert_eq!(header.len(), row.len());
    }

    #[test]
    fn the_average_has_its_name_and_nothing_measured_is_a_dash() {
        let plan = plan("-m -i 2 -q 50");
        assert!(header(&plan).contains("average/s average_us"));
        assert!(row(&plan, &[run(1.0), run(4.0)]).contains(" 2.5 "));
        let silent = row(&plan, &[RunReport::default()]);
        assert_eq!(silent.split_whitespace().filter(|cell| *cell == NOTHING).count(), 5, "{silent}");
        assert_eq!(row(&plan, &[]), "");
    }
}
