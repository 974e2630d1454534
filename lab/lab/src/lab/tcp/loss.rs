//! One stream from a service over a link that delays and loses frames: the same service and link with the kernel's TCP and ours.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use twinpath_clients::measure::stream::StreamReport;

use super::CONGESTION;
use super::path::all_on;
use crate::lab::client::{BULK, SLACK};
use crate::lab::instance::Instance;
use crate::lab::model::Sample;
use crate::lab::peers::{self, FAST_PORT, LINGER_MS, serve_by_one};
use crate::lab::process::{Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::{RELAY, Relayed};

/// Each way takes half of it.
const ROUND_TRIP_MS: f64 = 10.0;
/// A stream begins with slow start, and each of its losses counts for some seconds.
const CHECK_TIME: Duration = Duration::from_secs(10);
const QUICK_TIME: Duration = Duration::from_secs(5);
/// Draws the frames that are lost: the same for all rows.
const SEED: u64 = 41;

/// Goodput of `serve chargen` with its connection on that path, over a link that loses so many percent.
pub(super) async fn measure(session: &Session, path: &str, mode: &str, loss: &str) -> anyhow::Result<Sample> {
    let launcher = &session.launcher;
    let network = Relayed::build()?;
    network.hosts.congestion(CONGESTION)?;
    let relay = format!(
        "plain relay --one {} --other {} --delay-ms {} --loss {loss} --seed {SEED}",
        RELAY[0],
        RELAY[1],
        ROUND_TRIP_MS / 2.0
    );
    let between = Side::At(&network.relay, &session.cpus[..1]);
    let measure = async |_: &Server| {
        let args = serve_by_one(
            session,
            &format!(
                "chargen --tcp {FAST_PORT} --path packet --tcp-path {path} --mode {mode} --linger-ms {LINGER_MS}"
            ),
        );
        let instance =
            Instance::start_at(launcher, Side::At(&network.hosts.server, &session.cpus), &args).await?;
        let measured = stream(session, &network, peers::server(FAST_PORT)).await;
        let report = instance.report().await;
        instance.stop(launcher).await?;
        let sample = measured?;
        all_on(&report?, path)?;
        Ok(sample)
    };
    launcher.beside(between, &words(&relay), measure).await
}

async fn stream(session: &Session, network: &Relayed, target: SocketAddr) -> anyhow::Result<Sample> {
    let time = session.either(CHECK_TIME, QUICK_TIME);
    let line = format!(
        "bench stream {target} --reverse --path kernel --mode interrupt --duration {:.3} --json",
        time.as_secs_f64()
    );
    let client = Side::At(&network.hosts.client, &session.cpus[..1]);
    let finished = session.launcher.client(client, &words(&line), time + SLACK, None).await?;
    let report: StreamReport = finished.json("bench stream").context("no stream was measured")?;
    Ok(Sample { values: [(BULK, report.bits_per_s / 1e9)].into(), ..Sample::default() })
}
