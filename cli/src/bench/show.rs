//! Output for users at a terminal: progress, tables and complaints.

use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use twinpath_clients::Transport;
use twinpath_clients::measure::report::BenchReport;
use twinpath_clients::measure::{MeasureError, print};
use twinpath_load::Limit;
use twinpath_socket_load::Progress;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use super::options::too_many_lost;
use super::plan::{BenchPlan, quantile_name};
use super::target::Target;

/// Steps of the progress bar.
const STEPS: u64 = 1000;

/// The progress of a measurement, written by its threads and read by the display.
pub(crate) struct Watch {
    progress: Vec<Progress>,
    iterations: u32,
    warmup: Duration,
    limit: Limit,
    /// The number of the current run, from 1.
    run: AtomicU32,
    /// When it began, ns, and the number of replies until then.
    run_from_ns: AtomicU64,
    answered_before: AtomicU64,
}

impl Watch {
    pub(crate) fn new(plan: &BenchPlan) -> Self {
        Self {
            progress: (0..plan.threads).map(|_| Progress::default()).collect(),
            iterations: plan.iterations,
            warmup: plan.load.warmup,
            limit: plan.load.limit,
            run: AtomicU32::new(1),
            run_from_ns: AtomicU64::new(clock::now().as_nanos()),
            answered_before: AtomicU64::new(0),
        }
    }

    /// One for each thread.
    pub(crate) fn progress(&self) -> &[Progress] {
        &self.progress
    }

    /// Starts a run.
    pub(crate) fn begin(&self, run: u32) {
        self.answered_before.store(self.answered(), Ordering::Relaxed);
        self.run_from_ns.store(clock::now().as_nanos(), Ordering::Relaxed);
        self.run.store(run, Ordering::Relaxed);
    }

    fn answered(&self) -> u64 {
        self.progress.iter().map(Progress::answered).sum()
    }

    /// The completed share of the current run, 0 to 1.
    fn fraction(&self, answered: u64, elapsed: Duration) -> f64 {
        let fraction = match self.limit {
            Limit::Count(count) => answered as f64 / count as f64,
            Limit::Duration(length) => elapsed.as_secs_f64() / (self.warmup + length).as_secs_f64(),
        };
        fraction.min(1.0)
    }
}

/// A progress bar on standard error.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// `None` without a terminal.
    pub(crate) fn on_terminal(plan: &BenchPlan) -> Option<Self> {
        if plan.shown.json || !std::io::stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::new(STEPS);
        let style = ProgressStyle::with_template("{wide_bar} {percent}% {msg}").ok()?;
        bar.set_style(style);
        Some(Self(bar))
    }

    pub(crate) fn draw(&self, watch: &Watch) {
        let answered = watch.answered() - watch.answered_before.load(Ordering::Relaxed);
        let from = Instant::from_nanos(watch.run_from_ns.load(Ordering::Relaxed));
        let elapsed = clock::now().since(from);
        let run = watch.run.load(Ordering::Relaxed);
        let done = f64::from(run - 1) + watch.fraction(answered, elapsed);
        self.0.set_position((done / f64::from(watch.iterations) * STEPS as f64) as u64);
        let rate = answered as f64 / elapsed.as_secs_f64().max(1e-3);
        let which = if watch.iterations > 1 { format!("run {run}, ") } else { String::new() };
        self.0.set_message(format!("{which}{answered} replies, {rate:.0}/s"));
    }

    pub(crate) fn clear(self) {
        self.0.finish_and_clear();
    }
}

/// Prints a text to standard output, above the bar if there is one.
pub(crate) fn print_beside(bar: Option<&Bar>, text: impl fmt::Display) -> Result<(), MeasureError> {
    match bar {
        Some(bar) => bar.0.suspend(|| print(text)),
        None => print(text),
    }
}

/// The report as two small tables and its notes.
pub(crate) fn table(plan: &BenchPlan, report: &BenchReport) -> String {
    let shape = report.arrivals.as_deref().unwrap_or("even");
    let offered =
        report.rate_per_s.map_or(String::new(), |rate| format!(", {rate} requests/s offered, {shape}"));
    let mut text = format!(
        "{} of {} over {} ({} path, {}), {} bytes, {} in flight, {} thread{}{}{}{offered}\n",
        plan.service,
        report.target,
        report.transport,
        report.path,
        report.mode,
        report.size,
        report.inflight,
        report.threads,
        if report.threads == 1 { "" } else { "s" },
        if report.batch { ", batched" } else { "" },
        if report.nagle { ", Nagle" } else { "" },
    );
    if let Some(said) = &report.summarised {
        text += &format!("the {said} of {} runs\n", report.runs.len());
    }
    if let Some(rtt) = &report.rtt_us {
        let mut names = vec!["RTT us: min".to_owned()];
        let mut values = vec![rtt.min];
        for quantile in &report.quantiles_us {
            names.push(quantile_name(quantile.percent));
            values.push(quantile.us);
        }
        names.extend(["max", "mean"].map(str::to_owned));
        values.extend([rtt.max, rtt.mean]);
        text += &row(&names, &values.iter().map(|us| format!("{us:.1}")).collect::<Vec<_>>());
    }
    text += &counts(report);
    if let Some(bytes_per_s) = report.bytes_per_s {
        text += &format!("files: {:.1} MB/s\n", bytes_per_s / 1e6);
    }
    if let Some((names, listing_s)) = report.names.zip(report.listing_s) {
        text += &format!("{names} names in {listing_s:.3} s\n");
    }
    if plan.shown.extended {
        text += &extended(report);
    }
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

fn counts(report: &BenchReport) -> String {
    let mut names = vec!["sent", "received", "lost", "corrupt", "duplicates", "late"];
    let mut counts =
        vec![report.sent, report.received, report.lost, report.corrupt, report.duplicates, report.late];
    if report.refused > 0 {
        names.push("refused");
        counts.push(report.refused);
    }
    let mut values: Vec<String> = counts.iter().map(u64::to_string).collect();
    names.extend(["replies/s", "client CPU"]);
    values.push(format!("{:.0}", report.requests_per_s));
    values.push(format!("{:.1} %", report.cpu_client * 100.0));
    row(&names, &values)
}

/// The additional output of `--extended`: the threads of the last run, and the costs of all runs.
fn extended(report: &BenchReport) -> String {
    let mut text = String::new();
    for (index, thread) in report.runs.last().iter().flat_map(|run| run.threads.iter().enumerate()) {
        let p50 = thread.p50_us.map_or(String::new(), |us| format!(", p50 {us:.1} us"));
        text += &format!(
            "thread {index}: {} replies in {:.3} s, {:.0}/s{p50}\n",
            thread.received, thread.duration_s, thread.requests_per_s
        );
    }
    if let Some(calls) = &report.system_calls {
        text += &format!(
            "system calls: {} sends ({} bytes, {} refused), {} receives ({} bytes), {} found nothing\n",
            calls.sends,
            calls.bytes_sent,
            calls.sends_refused,
            calls.receives,
            calls.bytes_received,
            calls.receives_empty
        );
    }
    if let Some(us) = report.cpu_us_per_request {
        text += &format!("client CPU per request: {us:.3} us\n");
    }
    text
}

fn row(header: &[impl AsRef<str>], values: &[String]) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_BORDERS_ONLY)
        .set_header(header.iter().map(AsRef::as_ref))
        .add_row(values);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

/// The reason why the measurement failed; `None` if it succeeded.
pub(crate) fn complaint(plan: &BenchPlan, report: &BenchReport, was_interrupted: bool) -> Option<String> {
    let Target { address, .. } = &plan.target;
    let first = report.complaint.as_ref().map_or(String::new(), |first| format!("; the first: {first}"));
    if let Some(broken) = &report.broken {
        return Some(format!("{broken} after {} replies: the measurement ended early", report.received));
    }
    if report.corrupt > 0 {
        let replies = if report.corrupt == 1 { "reply" } else { "replies" };
        return Some(format!("{} {replies} from {address} did not match any request{first}", report.corrupt));
    }
    if report.refused > 0 {
        return Some(format!("{address} refused {} of {} requests{first}", report.refused, report.sent));
    }
    if report.received > 0 {
        return too_many_lost(report.lost, report.sent, "requests", plan.loss_max);
    }
    if was_interrupted {
        return Some(format!("interrupted before {address} answered any request that counts"));
    }
    if let Some(complaint) = &report.complaint {
        return Some(format!(
            "{address} answers no request, but sends {complaint}: does another service listen there?"
        ));
    }
    if report.warmup_replies > 0 {
        return Some(format!(
            "{address} answered {} requests while warming up, and then no more for {} s: {}",
            report.warmup_replies,
            plan.load.loss_timeout.as_secs_f64(),
            plan.silence_may_be()
        ));
    }
    let way = match plan.transport {
        Transport::Udp => "UDP",
        Transport::Tcp => "TCP",
    };
    Some(format!(
        "nobody answers on port {} of {}: requests of {} bytes over {way} to {address} by the {} path, each given \
         {} s; does the service run, and may {way} pass?",
        address.port(),
        plan.target.host(),
        report.size,
        report.path,
        plan.load.loss_timeout.as_secs_f64(),
    ))
}
