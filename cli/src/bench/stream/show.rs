//! Output for users at a terminal: progress, the table and complaints.

use std::io::IsTerminal;

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use twinpath_clients::measure::stream::{IntervalReport, StreamReport};
use twinpath_clients::{Moved, StreamMeasured, Transport};
use twinpath_socket_load::Progress;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use super::super::options::too_many_lost;
use super::options::StreamBench;

/// Steps of the progress bar.
const STEPS: f64 = 1000.0;

/// A progress bar on standard error.
pub(super) struct Bar {
    bar: ProgressBar,
    began: Instant,
    duration: Duration,
}

impl Bar {
    /// `None` without a terminal.
    pub(super) fn on_terminal(bench: &StreamBench) -> Option<Self> {
        if bench.json || !std::io::stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::new(STEPS as u64);
        bar.set_style(ProgressStyle::with_template("{wide_bar} {percent}% {msg}").ok()?);
        Some(Self { bar, began: clock::now(), duration: bench.plan.duration })
    }

    pub(super) fn draw(&self, progress: &[Progress]) {
        let bytes: u64 = progress.iter().map(Progress::answered).sum();
        let elapsed_s = clock::now().since(self.began).as_secs_f64();
        let done = (elapsed_s / self.duration.as_secs_f64()).min(1.0);
        self.bar.set_position((done * STEPS) as u64);
        let rate = bytes as f64 * 8.0 / elapsed_s.max(1e-3);
        self.bar.set_message(format!("{:.1} MB, {:.1} Mbit/s", bytes as f64 / 1e6, rate / 1e6));
    }

    pub(super) fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// The report as a table and its notes.
pub(super) fn table(report: &StreamReport, extended: bool) -> String {
    let what = if report.datagrams.is_some() { "in datagrams of" } else { "by calls of" };
    let offered = report.rate_bits_per_s.map_or(String::new(), |rate| format!(", {} offered", mbits(rate)));
    let mut text = format!(
        "stream {} {} over {} ({} path, {}), {what} {} bytes, {} thread{}{offered}\n",
        report.direction,
        report.target,
        report.transport,
        report.path,
        report.mode,
        report.size,
        report.threads,
        if report.threads == 1 { "" } else { "s" },
    );
    text += &grid(report);
    let per_byte = report.cpu_ns_per_byte.map_or(String::new(), |ns| format!(", {ns:.3} ns per byte"));
    text += &format!("client CPU: {:.1} %{per_byte}", report.cpu_client * 100.0);
    if let Some(connections) = &report.connections {
        text += &format!("; RTT us: {:.1}, least {:.1}", connections.rtt_us, connections.rtt_min_us);
    }
    if let Some(datagrams) = &report.datagrams {
        text += &format!("; left: {}", mbits(report.sent_bits_per_s));
        if datagrams.left_out > 0 {
            text += &format!("; {} were due and not sent", datagrams.left_out);
        }
    }
    text.push('\n');
    if extended {
        text += &streams(report);
    }
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    text.trim_end().to_owned()
}

fn mbits(bits_per_s: f64) -> String {
    format!("{:.1} Mbit/s", bits_per_s / 1e6)
}

/// A row per interval, and one for all.
fn grid(report: &StreamReport) -> String {
    let whole = IntervalReport {
        from_s: 0.0,
        to_s: report.duration_s,
        bytes: report.bytes,
        bits_per_s: report.bits_per_s,
        sent: report.datagrams.map(|datagrams| datagrams.sent),
        received: report.datagrams.map(|datagrams| datagrams.received),
        lost_here: report.datagrams.map(|datagrams| datagrams.lost_here),
        retransmits: report.connections.and_then(|connections| connections.retransmits),
    };
    let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let of_datagrams = report.datagrams.is_some();
    let row = |interval: &IntervalReport| {
        let mut cells = vec![
            format!("{:.1}-{:.1}", interval.from_s, interval.to_s),
            format!("{:.1}", interval.bits_per_s / 1e6),
            format!("{:.1}", interval.bytes as f64 / 1e6),
        ];
        if of_datagrams {
            let lost =
                interval.sent.zip(interval.received).map(|(sent, received)| sent as i64 - received as i64);
            cells.push(count(interval.sent));
            cells.push(count(interval.received));
            // Datagrams under way at the end of an interval can make the loss of the next one negative.
            cells.push(lost.map_or_else(|| "-".to_owned(), |lost| lost.max(0).to_string()));
            cells.push(count(interval.lost_here));
        } else {
            cells.push(count(interval.retransmits));
        }
        cells
    };
    let mut names = vec!["s", "Mbit/s", "MB"];
    names.extend(if of_datagrams {
        ["sent", "received", "lost", "lost here"].as_slice()
    } else {
        ["retransmits"].as_slice()
    });
    if of_datagrams {
        names.push("out of order");
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_header(names);
    for interval in &report.intervals {
        table.add_row(row(interval));
    }
    let mut all = row(&whole);
    all.extend(report.datagrams.map(|datagrams| datagrams.out_of_order.to_string()));
    all[0] = "all".to_owned();
    table.add_row(all);
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("{table}\n")
}

/// The additional output of `--extended`.
fn streams(report: &StreamReport) -> String {
    let mut text = String::new();
    for (index, stream) in report.streams.iter().enumerate() {
        text += &format!(
            "stream {index}: {} bytes in {:.3} s, {}",
            stream.bytes,
            stream.duration_s,
            mbits(stream.bits_per_s)
        );
        if let Some(datagrams) = &stream.datagrams {
            text += &format!(", {} of {} datagrams", datagrams.received, datagrams.sent);
        }
        if let Some(connection) = &stream.connection {
            text += &format!(", RTT {:.1} us", connection.rtt_us);
        }
        text.push('\n');
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
    text
}

/// The reason why the measurement failed; `None` if it succeeded.
pub(super) fn complaint(
    bench: &StreamBench,
    measured: &StreamMeasured,
    was_interrupted: bool,
) -> Option<String> {
    let address = bench.target.address;
    if let Some(broken) = measured.flows.iter().find_map(|flow| flow.broken.as_ref()) {
        return Some(format!("{broken}: the measurement ended early"));
    }
    match bench.plan.transport {
        Transport::Udp => datagrams_complaint(bench, measured, was_interrupted),
        Transport::Tcp => {
            let outcomes = || {
                measured.flows.iter().filter_map(|flow| match &flow.moved {
                    Moved::Bytes(outcome) => Some(outcome),
                    Moved::Datagrams(_) => None,
                })
            };
            let came_back: u64 = outcomes().map(|outcome| outcome.came_back).sum();
            if came_back > 0 {
                return Some(format!(
                    "{address} sent {came_back} bytes back instead of discarding them: does another service listen there?"
                ));
            }
            if outcomes().any(|outcome| outcome.bytes > 0) {
                return None;
            }
            Some(if was_interrupted {
                format!("interrupted before anything arrived at or from {address}")
            } else if bench.plan.from_service {
                format!("{address} sends nothing: does another service than chargen listen there?")
            } else {
                format!("{address} took nothing: does the service run?")
            })
        }
    }
}

fn datagrams_complaint(
    bench: &StreamBench,
    measured: &StreamMeasured,
    was_interrupted: bool,
) -> Option<String> {
    let address = bench.target.address;
    let told = || {
        measured.flows.iter().filter_map(|flow| match &flow.moved {
            Moved::Datagrams(summary) => Some(summary),
            Moved::Bytes(_) => None,
        })
    };
    let timeout_s = bench.plan.timeout.as_secs_f64();
    if told().any(|summary| !summary.is_counted) {
        if was_interrupted {
            return Some(format!("interrupted before {address} had answered"));
        }
        if told().any(|summary| summary.foreign > 0) {
            return Some(format!(
                "{address} answers, but does not count the datagrams of a stream: does another service than `twinpath serve \
                 discard` listen there?"
            ));
        }
        return Some(format!(
            "nobody answers on port {} of {}: it was asked for {timeout_s} s, by the {} path, what had arrived; does \
             `twinpath serve discard` run there, which counts datagrams, and may UDP pass?",
            address.port(),
            bench.target.host(),
            measured.path
        ));
    }
    if told().any(|summary| summary.is_silent) {
        return Some(format!(
            "{address} answered no more: what is said to have arrived is what it counted last; did the service end?"
        ));
    }
    if told().all(|summary| summary.arrived.datagrams == 0) {
        return Some(format!(
            "{address} answers, but none of the datagrams arrived: are they too large for the path?"
        ));
    }
    let sent: u64 = told().map(|summary| summary.sent).sum();
    let arrived: u64 = told().map(|summary| summary.arrived.datagrams).sum();
    too_many_lost(sent.saturating_sub(arrived), sent, "datagrams", bench.loss_max)
}
