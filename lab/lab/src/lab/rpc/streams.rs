//! Streams in one direction, beside calls: how much the same link carries, over TCP beside iperf3.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use twinpath_clients::measure::stream::StreamReport;
use twinpath_sys::LatencyRequest;

use super::measure::Stage;
use crate::lab::instance::{Facts, Instance};
use crate::lab::model::Sample;
use crate::lab::peers::{LINGER_MS, server};
use crate::lab::process::{Side, words};
use crate::lab::topology::{CLIENT, SERVER};
use crate::plain::program::AskReport;

const DISCARD_PORT: u16 = 7009;
const IPERF3_PORT: u16 = 7201;
/// iperf3 takes whole seconds; so do all rows, as they are compared.
const TIME: Duration = Duration::from_secs(2);
/// Time for start-up, attaching and tear-down, and for what is under way at the end.
const SLACK: Duration = Duration::from_secs(8);
/// Bytes of a datagram that fills a packet of 1,500, and of a small one.
const FULL: usize = 1472;
const SMALL: usize = 64;

const GBIT: &str = "gbit_per_s";

/// The rows, in the order in which they are measured: both sides of a ratio stand together.
pub(super) const TOGETHER: &[&[&str]] = &[
    &["stream-tcp-iperf3", "stream-tcp-twinpath"],
    &["stream-udp-kernel", "stream-udp-fast"],
    &["stream-udp-64-kernel", "stream-udp-64-fast"],
];

/// Whether the row is one of these.
pub(super) fn has(row: &str) -> bool {
    TOGETHER.iter().any(|rows| rows.contains(&row))
}

pub(super) async fn measure(stage: &Stage<'_>, row: &str) -> anyhow::Result<Sample> {
    let size = if row.contains("-64-") { SMALL } else { FULL };
    // The rows over TCP sleep, and hold the same latency request: otherwise the cost of wake-ups is what they are
    // limited by, which changes within seconds on a virtual machine.
    let request = row.starts_with("stream-tcp").then(|| LatencyRequest::open(0));
    let mut sample = match row {
        "stream-tcp-iperf3" => iperf3(stage).await,
        "stream-tcp-twinpath" => {
            twinpath(stage, "kernel", "interrupt --latency-request never", "--tcp --mode interrupt").await
        }
        _ if row.ends_with("-fast") => {
            let more = format!("--udp --size {size} --mode poll --on {} --path auto", CLIENT.interface);
            twinpath(stage, "auto", "poll", &more).await
        }
        _ => twinpath(stage, "kernel", "poll", &format!("--udp --size {size} --mode poll")).await,
    }?;
    sample.notes.extend(request.map(|request| match request {
        Ok(_) => "latency request held".to_owned(),
        Err(error) => format!("no latency request held: {error}"),
    }));
    Ok(sample)
}

/// `bench stream` to `serve discard` on that path.
async fn twinpath(stage: &Stage<'_>, path: &str, mode: &str, more: &str) -> anyhow::Result<Sample> {
    let session = stage.session;
    let mut args = words(&format!(
        "serve discard --on {} --udp {DISCARD_PORT} --tcp {DISCARD_PORT} --path {path} --mode {mode} --workers 1 --cpu {} \
         --linger-ms {LINGER_MS} --socket",
        SERVER.interface, session.cpus[1]
    ));
    args.push(session.run_dir.path().join("discard.sock").display().to_string());
    Instance::during(&session.launcher, &args, async |instance| ask(stage, instance, more).await).await
}

async fn ask(stage: &Stage<'_>, instance: &Instance, more: &str) -> anyhow::Result<Sample> {
    let line = format!("bench stream {} {more} --duration {} --json", server(DISCARD_PORT), TIME.as_secs());
    let launcher = &stage.session.launcher;
    let before = instance.report().await?;
    let finished = launcher.client(Side::Client, &words(&line), TIME + SLACK, Some(instance.pid())).await?;
    let report: StreamReport = finished.json("bench stream")?;
    ensure!(report.bytes > 0, "nothing arrived");
    let mut values = BTreeMap::from([(GBIT, report.bits_per_s / 1e9), ("cpu_client", report.cpu_client)]);
    values.extend(report.allocations_per_packet.map(|count| ("allocations_per_packet", count)));
    values.extend(
        report.connections.and_then(|told| told.retransmits).map(|count| ("retransmits", count as f64)),
    );
    if let Some(told) = report.datagrams {
        values.extend([
            ("sent_gbit_per_s", report.sent_bits_per_s / 1e9),
            ("frames_per_s", told.received as f64 / report.duration_s),
            ("lost", told.lost as f64),
            ("lost_here", told.lost_here as f64),
        ]);
    }
    values.extend(
        finished.cpu_share(Duration::from_secs_f64(report.duration_s)).map(|share| ("cpu_server", share)),
    );
    let mut path = None;
    if report.path != "kernel" {
        let after = instance.report().await?;
        ensure!(
            after.frames_in() > before.frames_in(),
            "no datagram came by the fast path: it is {}",
            after.path()
        );
        path = Some(after.path());
    }
    let notes = report.notes.iter().filter(|note| !note.starts_with("path "));
    let notes = notes.map(|note| format!("client: {note}")).collect();
    Ok(Sample { values, path, notes, ..Sample::default() })
}

async fn iperf3(stage: &Stage<'_>) -> anyhow::Result<Sample> {
    let launcher = &stage.session.launcher;
    let target = server(IPERF3_PORT);
    let running =
        launcher.server(Side::Server, &words(&format!("plain program iperf3 --listen {target}"))).await?;
    let pid = running.process("program_pid");
    let line = format!("plain ask iperf3 {target} --duration {}", TIME.as_secs());
    let finished = launcher.client(Side::Client, &words(&line), TIME + SLACK, pid).await;
    launcher.stop(running).await?;
    let finished = finished?;
    let report: AskReport = finished.json("iperf3")?;
    let mut values = BTreeMap::from([(GBIT, report.bits_per_s / 1e9)]);
    values.extend(finished.cpu_share(TIME).map(|share| ("cpu_server", share)));
    Ok(Sample { values, ..Sample::default() })
}
