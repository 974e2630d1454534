//! What a person at a terminal sees.

use std::fmt;
use std::io::{IsTerminal, Write};

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use twinpath_load::Limit;
use twinpath_plain::Progress;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use super::plan::{Plan, Transport};
use super::report::BenchReport;

/// Steps of the bar.
const STEPS: u64 = 1000;

/// A progress bar on standard error.
pub(crate) struct Bar {
    bar: ProgressBar,
    started: Instant,
    warmup: Duration,
    limit: Limit,
}

impl Bar {
    /// None when nobody looks, or only a machine.
    pub(crate) fn on_terminal(plan: &Plan) -> Option<Self> {
        if plan.json || !std::io::stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::new(STEPS);
        let style = ProgressStyle::with_template("{wide_bar} {percent}% {msg}").ok()?;
        bar.set_style(style);
        Some(Self { bar, started: clock::now(), warmup: plan.load.warmup, limit: plan.load.limit })
    }

    pub(crate) fn draw(&self, progress: &[Progress]) {
        let answered: u64 = progress.iter().map(Progress::answered).sum();
        let elapsed = clock::now().since(self.started);
        let fraction = match self.limit {
            Limit::Count(count) => answered as f64 / count as f64,
            Limit::Duration(length) => elapsed.as_secs_f64() / (self.warmup + length).as_secs_f64(),
        };
        self.bar.set_position((fraction.min(1.0) * STEPS as f64) as u64);
        self.bar.set_message(format!("{answered} replies"));
    }

    pub(crate) fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// One text on standard output. A reader that went away is an error, not a panic.
pub(crate) fn print(text: impl fmt::Display) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}").context("cannot print the result")
}

/// The report as two small tables and its notes.
pub(crate) fn table(report: &BenchReport) -> String {
    let shape = report.arrivals.as_deref().unwrap_or("even");
    let offered =
        report.rate_per_s.map_or(String::new(), |rate| format!(", {rate} requests/s offered, {shape}"));
    let mut text = format!(
        "{} over {} ({} path, {}), {} bytes, {} in flight, {} thread{}{offered}\n",
        report.target,
        report.transport,
        report.path,
        report.mode,
        report.size,
        report.inflight,
        report.threads,
        if report.threads == 1 { "" } else { "s" },
    );
    if let Some(rtt) = &report.rtt_us {
        let values =
            [rtt.min, rtt.p50, rtt.p90, rtt.p99, rtt.p99_9, rtt.max, rtt.mean].map(|us| format!("{us:.1}"));
        text += &row(&["RTT us: min", "p50", "p90", "p99", "p99.9", "max", "mean"], &values);
    }
    let counts = [report.sent, report.received, report.lost, report.corrupt, report.duplicates, report.late];
    let mut values = counts.map(|count| count.to_string()).to_vec();
    values.push(format!("{:.0}", report.requests_per_s));
    values.push(format!("{:.1} %", report.cpu_client * 100.0));
    text += &row(
        &["sent", "received", "lost", "corrupt", "duplicates", "late", "replies/s", "client CPU"],
        &values,
    );
    if let Some(pacing) = &report.pacing_us {
        text += &format!(
            "sent late by us: p50 {:.1}, p99 {:.1}, max {:.1}\n",
            pacing.p50, pacing.p99, pacing.max
        );
    }
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    text.trim_end().to_owned()
}

fn row(header: &[&str], values: &[String]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_header(header).add_row(values);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// Why the run does not count as a success; `None` when it does.
pub(crate) fn complaint(plan: &Plan, report: &BenchReport, was_interrupted: bool) -> Option<String> {
    let address = plan.target;
    if report.corrupt > 0 {
        return Some(format!("{} replies from {address} did not match their requests", report.corrupt));
    }
    if report.received > 0 {
        return None;
    }
    if was_interrupted {
        return Some(format!("interrupted before {address} answered any request that counts"));
    }
    let way = match plan.transport {
        Transport::Udp => "UDP",
        Transport::Tcp => "TCP",
    };
    Some(format!(
        "nobody answers on port {} of {}: requests of {} bytes over {way} to {address} by the {} path, each given \
         {} s; does the service run, and may {way} pass?",
        address.port(),
        plan.target_name.rsplit_once(':').map_or(plan.target_name.as_str(), |(host, _)| host),
        report.size,
        report.path,
        plan.load.loss_timeout.as_secs_f64(),
    ))
}
