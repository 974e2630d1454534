//! Round trips of echo, back to back and paced. Limits of rates are the defaults.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::Round;
use crate::lab::client::bench;
use crate::lab::instance::{Facts as _, Instance};
use crate::lab::model::Sample;
use crate::lab::peers::{self, Bench, FAST_PORT, PLAIN_PORT};
use crate::lab::process::{Server, Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;

/// Round trips of a row back to back: within the burst that `limits.reply_rate` allows one source after silence.
const ROUND_TRIPS: u64 = 8000;
/// Requests that make the way to the client known, and that show who answers.
const PROBES: u64 = 64;
/// Requests on their way in the paced rows; more are not sent.
const PACED_INFLIGHT: u32 = 16;
const QUICK_PACED: Duration = Duration::from_secs(2);
/// At least 6,000 requests, so that several are slower than 99.9 %.
const CHECK_PACED: Duration = Duration::from_secs(3);
/// The share of a row's requests that has to be answered by reflex: the others are canaries.
const SHARE_MIN: f64 = 0.98;

pub(super) async fn measure(round: &Round<'_>, row: &str) -> anyhow::Result<Sample> {
    let session = round.session;
    let paced = |port| paced(session, port, round.draw.load().rate_per_s);
    match row {
        "kernel-spinning" => by_kernel(session, "poll", &back_to_back(PLAIN_PORT)).await,
        "paced-kernel-spinning" => by_kernel(session, "poll", &paced(PLAIN_PORT)).await,
        "paced-kernel-sleeping" => by_kernel(session, "interrupt", &paced(PLAIN_PORT)).await,
        "reflex" => by_twinpath(session, &back_to_back(FAST_PORT)).await,
        "paced-reflex" => by_twinpath(session, &paced(FAST_PORT)).await,
        _ => bail!("no such row: {row}"),
    }
}

fn back_to_back(port: u16) -> Bench {
    Bench { count: Some(ROUND_TRIPS), ..Bench::round_trips(port, "kernel", "poll", Duration::from_secs(1)) }
}

fn paced(session: &Session, port: u16, rate: f64) -> Bench {
    let duration = if session.check { CHECK_PACED } else { QUICK_PACED };
    let inflight = PACED_INFLIGHT;
    Bench { rate: Some(rate), inflight, ..Bench::round_trips(port, "kernel", "poll", duration) }
}

/// A plain server on kernel sockets.
async fn by_kernel(session: &Session, mode: &str, client: &Bench) -> anyhow::Result<Sample> {
    let measure = async |server: &Server| bench(session, client, Some(server.pid)).await;
    session.launcher.beside(Side::Server, &peers::udp_echo("connected", mode), measure).await
}

/// The command of a program of some thirty lines at tc.
pub(super) fn bare(more: &str) -> Vec<String> {
    words(&format!("plain mirror --on {} --port {PLAIN_PORT} {more}", SERVER.interface))
}

async fn by_twinpath(session: &Session, client: &Bench) -> anyhow::Result<Sample> {
    let instance = serve(session, "--mode adaptive --reflex always").await?;
    let result = answered(session, &instance, bench(session, client, Some(instance.pid()))).await;
    instance.stop(&session.launcher).await?;
    result
}

pub(super) async fn serve(session: &Session, more: &str) -> anyhow::Result<Instance> {
    let args = peers::serve_by_one(session, &format!("echo --udp {FAST_PORT} {more}"));
    Instance::start(&session.launcher, &args).await
}

/// Measures after a probe. Nearly all replies have to be reflexes.
pub(super) async fn answered(
    session: &Session,
    instance: &Instance,
    measure: impl Future<Output = anyhow::Result<Sample>>,
) -> anyhow::Result<Sample> {
    let probe = Bench { count: Some(PROBES), ..back_to_back(FAST_PORT) };
    bench(session, &probe, None).await.context("the probe after attaching")?;
    let before = instance.report().await?;
    let mut sample = measure.await?;
    let after = instance.report().await?;
    let count = |report: &twinpath_observe::report::Report| {
        let services = report.services.iter();
        services.fold((0, 0), |(reflex, worker), service| {
            (
                reflex + service.reflex_replies,
                worker + service.serve.fast_requests + service.serve.kernel_requests,
            )
        })
    };
    let (before, now) = (count(&before), count(&after));
    let (reflex, worker) = ((now.0 - before.0) as f64, (now.1 - before.1) as f64);
    ensure!(reflex + worker > 0.0, "nobody has answered");
    let share = reflex / (reflex + worker);
    ensure!(share >= SHARE_MIN, "only {:.1} % of the replies were reflexes", share * 100.0);
    sample.values.insert("reflex_share", share);
    sample.path = Some(after.path());
    Ok(sample)
}
