//! Runs `twinpath bench echo` as a client, and reads its result.

use std::time::Duration;

use anyhow::{Context, ensure};
use twinpath_clients::measure::report::BenchReport;

use super::model::Sample;
use super::peers::Bench;
use super::process::{Finished, Side};
use super::session::Session;

/// Time for start-up, attaching, warm-up and tear-down, beyond the measured time.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

/// Runs a client, and measures the CPU of the `watched` process meanwhile.
pub(crate) async fn bench(session: &Session, bench: &Bench, watched: Option<u32>) -> anyhow::Result<Sample> {
    let finished =
        session.launcher.client(Side::Client, &bench.args(), bench.duration + SLACK, watched).await?;
    sample_of(&finished)
}

/// The result of `twinpath bench`, and the CPU of the server that was watched.
pub(crate) fn sample_of(finished: &Finished) -> anyhow::Result<Sample> {
    let report: BenchReport = finished.json("bench")?;
    let mut sample = sample(&report)?;
    let measured = Duration::from_secs_f64(report.duration_s);
    sample.values.extend(finished.cpu_share(measured).map(|share| ("cpu_server", share)));
    Ok(sample)
}

/// What a report of `twinpath bench` says.
pub(crate) fn sample(report: &BenchReport) -> anyhow::Result<Sample> {
    ensure!(report.corrupt == 0, "{} of {} replies were corrupt", report.corrupt, report.received);
    let rtt = report.rtt_us.as_ref().with_context(|| format!("no reply to {} requests", report.sent))?;
    let mut values = rtt.values();
    values.insert("requests_per_s", report.requests_per_s);
    values.insert("cpu_client", report.cpu_client);
    values.insert("lost", report.lost as f64);
    values.extend(report.allocations_per_packet.map(|count| ("allocations_per_packet", count)));
    // The server's report names the path and the reason in fewer words.
    let notes = report.notes.iter().filter(|note| !note.starts_with("path "));
    let notes = notes.map(|note| format!("client: {note}")).collect();
    Ok(Sample { values, histogram: report.histogram.clone(), path: None, notes })
}
