//! Round trips over TCP to a worker, beside datagrams to the UDP port of the same service: from one source, and from forged
//! ones. The datagrams are the same but for that.

use std::time::Duration;

use anyhow::ensure;

use super::echo::serve;
use crate::lab::client::bench;
use crate::lab::instance::Facts as _;
use crate::lab::model::Sample;
use crate::lab::peers::{Bench, FAST_PORT, frame_source, server};
use crate::lab::process::{self, Side};
use crate::lab::session::Session;
use crate::lab::topology::{CLIENT, CONNECTED, REMOTE, SERVER};
use crate::plain::switch::Sent;

const DATAGRAMS_PER_S: u32 = 20_000;
/// Datagrams that come at once. A request behind them waits until the service has taken all of them.
const BATCH: usize = 8;
const ROUND_TRIPS: Duration = Duration::from_secs(2);
/// From the start of the flood to the first round trip: its beginning, when the limits of rates are full, is not what lasts.
const SETTLE: Duration = Duration::from_secs(2);
const SLACK: Duration = Duration::from_secs(2);

pub(super) async fn measure(session: &Session, row: &str) -> anyhow::Result<Sample> {
    let sources = match row {
        "flood-one" => format!("{}/32", CLIENT.ipv4),
        "flood-neighbours" => format!("{}/{}", CONNECTED.0, CONNECTED.1),
        "flood-remote" => format!("{}/{}", REMOTE.0, REMOTE.1),
        _ => anyhow::bail!("no such row: {row}"),
    };
    session.launcher.topology().further_networks()?;
    let measured = beside_flood(session, &sources).await;
    session.launcher.topology().no_further_networks()?;
    measured
}

async fn beside_flood(session: &Session, sources: &str) -> anyhow::Result<Sample> {
    let launcher = &session.launcher;
    let instance = serve(session, &format!("--tcp {FAST_PORT}")).await?;
    let options = format!(
        "--datagrams-to {} --sources {sources} --batch {BATCH} --rate {DATAGRAMS_PER_S} --priority fifo:2 --duration {:.3}",
        server(FAST_PORT),
        (SETTLE + ROUND_TRIPS + SLACK).as_secs_f64()
    );
    let args = frame_source(CLIENT.interface, CLIENT.mac, SERVER.mac, &options);
    let source = launcher.background(Side::Client, &args)?;
    tokio::time::sleep(SETTLE).await;
    let client = Bench { tcp: true, ..Bench::round_trips(FAST_PORT, "kernel", "poll", ROUND_TRIPS) };
    let measured = bench(session, &client, Some(instance.pid())).await;
    let sent: Sent = process::json(&launcher.finish(source).await?, "plain frame-source")?;
    let report = instance.report().await;
    instance.stop(launcher).await?;
    let (mut sample, report) = (measured?, report?);
    let offered = sent.frames as f64 / sent.duration_s;
    ensure!(offered > 0.9 * f64::from(DATAGRAMS_PER_S), "the source sent {offered:.0} datagrams/s only");
    let came: u64 = report
        .services
        .iter()
        .map(|service| service.serve.fast_requests + service.serve.kernel_requests + service.reflex_replies)
        .sum();
    ensure!(came > sent.frames / 2, "the service got {came} of {} datagrams", sent.frames);
    sample.values.insert("offered_per_s", offered);
    sample.path = Some(report.path());
    Ok(sample)
}
