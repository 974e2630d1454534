//! Runs clients, and reads their results.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use twinpath_clients::measure::report::{BenchReport, RttUs};

use super::model::Sample;
use super::peers::{self, Bench};
use super::process::{Finished, Side};
use super::session::Session;

/// Time for start-up, attaching, warm-up and tear-down, beyond the measured time.
pub(crate) const SLACK: Duration = Duration::from_secs(5);
/// Requests that are answered in a second.
pub(crate) const RATE: &str = "requests_per_s";
/// What a bulk transfer reaches.
pub(crate) const BULK: &str = "gbit_per_s";

/// Runs a client, and measures the CPU of the `watched` process meanwhile.
pub(crate) async fn bench(session: &Session, bench: &Bench, watched: Option<u32>) -> anyhow::Result<Sample> {
    let finished =
        session.launcher.client(Side::Client, &bench.args(), bench.duration + SLACK, watched).await?;
    sample_of(&finished)
}

/// Two threads that wake each other and sleep in between: what a wake-up costs, without a packet.
pub(crate) async fn eventfd_floor(session: &Session, duration: Duration) -> anyhow::Result<Sample> {
    /// The output of `plain eventfd-pingpong`.
    #[derive(Deserialize)]
    struct PingPong {
        rtt_us: RttUs,
        histogram: Vec<(u64, u64)>,
    }
    let args = peers::eventfd_pingpong(session.cpus, duration);
    let finished = session.launcher.client(Side::Both, &args, duration + SLACK, None).await?;
    let result: PingPong = finished.json("plain eventfd-pingpong")?;
    Ok(Sample { values: result.rtt_us.values(), histogram: result.histogram, ..Sample::default() })
}

/// The result of `plain tcp-bulk`, and the CPU of the process that was watched.
pub(crate) fn bulk_sample(finished: &Finished, duration: Duration) -> anyhow::Result<Sample> {
    #[derive(Deserialize)]
    struct Bulk {
        gbit_per_s: f64,
    }
    let bulk: Bulk = finished.json("plain tcp-bulk")?;
    let mut sample = Sample { values: [(BULK, bulk.gbit_per_s)].into(), ..Sample::default() };
    sample.values.extend(finished.cpu_share(duration).map(|share| ("cpu_server", share)));
    Ok(sample)
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
    values.insert(RATE, report.requests_per_s);
    values.insert("cpu_client", report.cpu_client);
    values.insert("lost", report.lost as f64);
    values.extend(report.allocations_per_packet.map(|count| ("allocations_per_packet", count)));
    // The server's report names the path and the reason in fewer words.
    let notes = report.notes.iter().filter(|note| !note.starts_with("path "));
    let notes = notes.map(|note| format!("client: {note}")).collect();
    Ok(Sample { values, histogram: report.histogram.clone(), path: None, notes })
}

/// Half of the best rate of these rows, by the medians so far.
pub(crate) fn half_of_best(session: &Session, rows: &[&'static str]) -> anyhow::Result<f64> {
    let record = session.record.borrow();
    let best = record.best(rows, RATE).context("the rate of no plain server was measured")?;
    Ok(record.median(best, RATE).context("no rate")? / 2.0)
}
