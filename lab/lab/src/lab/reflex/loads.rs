//! Who answers, the programs or the worker, by load: `--reflex auto` decides, beside `always` and `off`.

use std::cell::OnceCell;
use std::time::Duration;

use anyhow::Context;
use twinpath_load::Arrivals;

use super::Round;
use super::services::{PORT, by_reflex};
use crate::lab::client;
use crate::lab::instance::Instance;
use crate::lab::model::Sample;
use crate::lab::paced::Load;
use crate::lab::peers::{serve_by_one, server};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;
use crate::lab::topology::CLIENT;

/// Until the decision stands.
const WARMUP: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_millis(1000);
/// Start-up, attaching and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(20);
/// Requests on their way where the capacity is measured.
const CAPACITY_IN_FLIGHT: u32 = 128;
/// A load that steps: for how long each of its rates lasts, the high one as a share of the capacity, and the low one as a
/// share of that. Twice low and twice high.
const STEP: Duration = Duration::from_secs(2);
const STEP_HIGH: f64 = 0.9;
const STEP_LOW: f64 = 0.1;
const STEPS: u32 = 4;
/// Without a warm-up, the client's first requests would wait until the server's next hop is known.
const STEP_WARMUP: Duration = Duration::from_millis(100);
/// The reciprocal of the median latency, so that more is better.
const PER_P50: &str = "p50_per_s";

/// What the worker answers with the programs off, calls a second: measured once in a round, if a row needs it.
#[derive(Default)]
pub(super) struct Capacity(OnceCell<f64>);

impl Capacity {
    async fn of(&self, session: &Session) -> anyhow::Result<f64> {
        if let Some(known) = self.0.get() {
            return Ok(*known);
        }
        let sample = ask(session, "off", &closed(CAPACITY_IN_FLIGHT), WARMUP, TIME).await?;
        let rate = *sample.values.get(client::RATE).context("no rate was measured")?;
        Ok(*self.0.get_or_init(|| rate))
    }
}

/// `load-HOW-N`: N requests on their way. `open-HOW-N`: requests at random times, N % of the capacity. `step-HOW`: the same
/// at a rate that steps up and down.
pub(super) async fn measure(round: &Round<'_>, row: &str) -> anyhow::Result<Sample> {
    let mut parts = row.split('-');
    let (kind, how, size) = (parts.next(), parts.next(), parts.next());
    let how = how.with_context(|| format!("no such row: {row}"))?;
    let size = || size.and_then(|size| size.parse().ok()).with_context(|| format!("no such row: {row}"));
    let session = round.session;
    if kind == Some("load") {
        return ask(session, how, &closed(size()?), WARMUP, TIME).await;
    }
    let capacity = round.capacity.of(session).await?;
    let open = |rate_per_s, arrivals| Load { rate_per_s, arrivals, seed: round.draw.seed }.options();
    if kind == Some("open") {
        let rate_per_s = capacity * f64::from(size()?) / 100.0;
        return ask(session, how, &open(rate_per_s, Arrivals::Poisson), WARMUP, TIME).await;
    }
    let rate_per_s = capacity * STEP_HIGH * (1.0 + STEP_LOW) / 2.0;
    let arrivals = Arrivals::Steps { step: STEP, low: STEP_LOW };
    ask(session, how, &open(rate_per_s, arrivals), STEP_WARMUP, STEP * STEPS - STEP_WARMUP).await
}

fn closed(in_flight: u32) -> String {
    format!("--inflight {in_flight}")
}

/// NULL to `serve rpc` with `--reflex HOW`, from our client on AF_XDP, which spins.
async fn ask(
    session: &Session,
    how: &str,
    load: &str,
    warmup: Duration,
    time: Duration,
) -> anyhow::Result<Sample> {
    let serves = format!("rpc --udp {PORT} --path packet --reflex {how} --reflex-rate 10000000");
    let args = serve_by_one(session, &serves);
    let line = format!(
        "bench rpc {} --udp --on {} --path xdp --mode poll {load} --duration {:.3} --warmup {:.3} --json",
        server(PORT),
        CLIENT.interface,
        time.as_secs_f64(),
        warmup.as_secs_f64()
    );
    let asked = words(&line);
    let measure = async |instance: &Instance| {
        let (side, deadline) = (Side::Client, warmup + time + SLACK);
        let finished = session.launcher.client(side, &asked, deadline, Some(instance.pid())).await?;
        let mut sample = client::sample_of(&finished)?;
        let p50_us = sample.values.get("p50_us").copied().context("no latency was measured")?;
        sample.values.insert(PER_P50, 1e6 / p50_us);
        sample.values.insert("reflex_share", by_reflex(&instance.report().await?, 0.0)?);
        anyhow::Ok(sample)
    };
    Instance::during(&session.launcher, &args, measure).await
}
