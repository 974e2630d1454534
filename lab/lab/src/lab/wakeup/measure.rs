//! Measures one row of `lab wakeup` once.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use twinpath_clients::measure::report::{BenchReport, RttUs};
use twinpath_observe::report::{Idle, Report};
use twinpath_sys::{LatencyRequest, child, clock};
use twinpath_time::Instant;

use super::draw;
use super::polled::polled_packets;
use super::scene::{Running, Scene};
use crate::lab::client;
use crate::lab::instance::{Facts, context_switches};
use crate::lab::model::{How, RowSpec, Sample};
use crate::lab::paced::{Draw, Load};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;

/// Time for the start, and a second until the last requests are given up, beyond the measured time.
const SLACK: Duration = Duration::from_secs(6);
/// Time from a client's start until it sends.
const CLIENT_START: Duration = Duration::from_millis(60);
/// Part of the measured time that the receiver's counters leave out at each end.
const MARGIN: f64 = 0.08;
/// Share of the answered packets that must have come by the fast path.
const FAST_SHARE: f64 = 0.95;

/// Fewer packets than this are sent for a longer time.
const SELDOM_PER_S: f64 = 500.0;
/// A sender that is later than this with one packet in a hundred had lost its CPU.
const SENT_LATE_US: f64 = 50.0;

/// Durations of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) warmup: Duration,
    pub(super) often: Duration,
    pub(super) rarely: Duration,
    /// For rows whose p99.9 is used by a ratio: at least 10,000 packets, of which ten decide it.
    pub(super) tail: Duration,
}

impl Times {
    /// Warm-up and measured time of a row: longer for fewer packets.
    fn of(&self, how: How, offer: &Load) -> (Duration, Duration) {
        let length = if how.has("tail") {
            self.tail
        } else if how.has("often") {
            self.often
        } else {
            self.rarely
        };
        let times = if offer.rate_per_s < SELDOM_PER_S { 2 } else { 1 };
        (times * self.warmup, times * length)
    }
}

/// The output of `plain eventfd-wake`.
#[derive(Deserialize)]
struct Woken {
    wake_us: RttUs,
    histogram: Vec<(u64, u64)>,
}

/// The receiver's counters at one moment.
struct Accounts {
    at: Instant,
    cpu: Duration,
    switches: [u64; 2],
    report: Option<Report>,
}

/// Measures a row with the choices in `draw`.
pub(super) async fn measure(
    session: &Session,
    times: &Times,
    spec: &RowSpec,
    draw: &Draw,
) -> anyhow::Result<Sample> {
    let offer = draw::load(draw, spec.how.get("pace"))?;
    let (warmup, length) = times.of(spec.how, &offer);
    let mut sample = match spec.how.first().0 {
        "floor" => floor(session, spec.how, &offer, warmup, length).await?,
        _ => packets(session, spec, &offer, warmup, length).await?,
    };
    sample.values.insert("offered_per_s", offer.rate_per_s);
    Ok(sample)
}

/// A single eventfd wake-up with the same arrivals, without socket and packet.
async fn floor(
    session: &Session,
    how: How,
    offer: &Load,
    warmup: Duration,
    length: Duration,
) -> anyhow::Result<Sample> {
    let _held = (how.get("request") == Some("always")).then(|| LatencyRequest::open(0)).transpose()?;
    let line = format!(
        "plain eventfd-wake --cpus {},{} --warmup {:.3} --duration {:.3} {}",
        session.cpus[0],
        session.cpus[1],
        warmup.as_secs_f64(),
        length.as_secs_f64(),
        offer.options()
    );
    let args = words(&line);
    let finished = session.launcher.client(Side::Both, &args, warmup + length + SLACK, None).await?;
    let woken: Woken = finished.json("plain eventfd-wake")?;
    Ok(Sample { values: woken.wake_us.values(), histogram: woken.histogram, ..Sample::default() })
}

async fn packets(
    session: &Session,
    spec: &RowSpec,
    offer: &Load,
    warmup: Duration,
    length: Duration,
) -> anyhow::Result<Sample> {
    let how = spec.how;
    let mut scene = Scene::set(session, spec).await?;
    let args = offer.bench(scene.port, warmup, length);
    let polled = || match (how.first().0, scene.receiver.pid()) {
        ("busy-poll", Some(pid)) => polled_packets(pid),
        _ => None,
    };
    let polled_before = polled();
    let running = session.launcher.client(Side::Client, &args, warmup + length + SLACK, None);
    let (finished, watched) = tokio::join!(running, watch(&scene.receiver, CLIENT_START + warmup, length));
    let came = match &scene.receiver {
        Running::Twinpath(instance) => Some(instance.report().await),
        _ => None,
    };
    let polled = polled().zip(polled_before).map(|(after, before)| after.saturating_sub(before));
    let said = scene.said.take();
    let marks = scene.end(&session.launcher).await?;
    let (finished, (before, after)) = (finished?, watched?);
    let report: BenchReport = finished.json("bench")?;
    let mut sample = sample_of(&report)?;
    sample.notes.extend(said);
    accounts(&mut sample, how, &before, &after);
    if let Some(came) = came.transpose()? {
        by_twinpath(&mut sample, how, &came, report.received as f64)?;
    }
    if let Some(polled) = polled {
        sample.values.insert("polled", polled as f64);
        let all = report.requests_per_s * (warmup + length).as_secs_f64();
        sample.notes.push(format!(
            "{:.0} % of the packets were taken by polling the device",
            100.0 * polled as f64 / all
        ));
    }
    if how.has("beside") {
        let speed = marks.speed(before.at.as_nanos(), after.at.as_nanos());
        sample
            .values
            .insert("neighbour_per_s", 1e9 * speed.context("the competing process counted nothing")?);
    }
    Ok(sample)
}

/// What twinpath says of itself after a row.
///
/// # Errors
/// The packets did not come by the fast path.
fn by_twinpath(sample: &mut Sample, how: How, came: &Report, received: f64) -> anyhow::Result<()> {
    // The frames include those of the warm-up.
    let frames = came.frames_in() as f64;
    let no_fast_path = came.no_fast_path();
    ensure!(
        no_fast_path.is_some() || frames >= FAST_SHARE * received,
        "only {frames} of {received} packets came by the fast path ({})",
        came.path()
    );
    sample.notes.extend(no_fast_path);
    sample.path = Some(came.path());
    sample.notes.extend(came.request_verdict().map(|verdict| format!("CPU latency request: {verdict}")));
    // One sentence per round, only for rows that have a target.
    let told = how.has("often") && !how.has("beside");
    if let Some(worker) = came.workers.first().filter(|worker| told && !worker.idle.decided.is_empty()) {
        sample.notes.push(format!("decided last: {}", worker.idle.decided));
    }
    if let Some(worker) = came.workers.first() {
        sample.notes.push(format!("priority at the end: {}", worker.priority));
        if let Some(guard) = &worker.guard {
            sample.values.insert("guard_sleeps", guard.counts.guard_sleeps as f64);
            sample.values.insert("guard_pauses", guard.counts.guard_pauses as f64);
            sample.values.insert("priority_steps", guard.counts.priority_steps as f64);
        }
    }
    Ok(())
}

/// The results of a client.
pub(super) fn sample_of(report: &BenchReport) -> anyhow::Result<Sample> {
    let mut sample = client::sample(report)?;
    let values = &mut sample.values;
    values.insert("requests", report.sent as f64);
    if let Some(pacing) = &report.pacing_us {
        values.insert("sent_late_p50_us", pacing.p50);
        values.insert("sent_late_p99_us", pacing.p99);
        values.insert("sent_late_max_us", pacing.max);
    }
    let late = report.pacing_us.as_ref().is_some_and(|pacing| pacing.p99 > SENT_LATE_US);
    let note = || {
        format!(
            "in some rounds 1 % of the packets were sent more than {SENT_LATE_US} us late, which is in the latencies: others used \
             the sender's CPU"
        )
    };
    sample.notes = late.then(note).into_iter().collect();
    Ok(sample)
}

/// Reads the receiver's counters twice within the measured time. Nothing of the lab runs in between.
async fn watch(
    receiver: &Running,
    begins_in: Duration,
    length: Duration,
) -> anyhow::Result<(Accounts, Accounts)> {
    tokio::time::sleep(begins_in + length.mul_f64(MARGIN)).await;
    let before = look(receiver, true).await?;
    tokio::time::sleep(length.mul_f64(1.0 - 2.0 * MARGIN)).await;
    Ok((before, look(receiver, false).await?))
}

/// Asking costs the receiver a little time, so the first question comes before the counted time.
async fn look(receiver: &Running, asks_first: bool) -> anyhow::Result<Accounts> {
    let ask = async || match receiver {
        Running::Twinpath(instance) => instance.report().await.map(Some),
        _ => Ok(None),
    };
    let early = if asks_first { ask().await? } else { None };
    let at = clock::now();
    let (cpu, switches) = match receiver.pid() {
        Some(pid) => (child::cpu_time(pid)?, context_switches(pid)?),
        None => (Duration::ZERO, [0; 2]),
    };
    let report = if asks_first { early } else { ask().await? };
    Ok(Accounts { at, cpu, switches, report })
}

fn accounts(sample: &mut Sample, how: How, before: &Accounts, after: &Accounts) {
    let seconds = after.at.since(before.at).as_secs_f64();
    if how.first().0 != "nobody" {
        sample.values.insert("cpu_server", after.cpu.saturating_sub(before.cpu).as_secs_f64() / seconds);
        for (name, kind) in [("voluntary_per_s", 0), ("involuntary_per_s", 1)] {
            let switches = after.switches[kind].saturating_sub(before.switches[kind]);
            sample.values.insert(name, switches as f64 / seconds);
        }
    }
    if how.first().0 == "kernel" {
        let is_held = how.get("request") == Some("always");
        sample.values.insert("request_held", f64::from(u8::from(is_held)));
    }
    if let (Some(before), Some(after)) = (&before.report, &after.report) {
        sample.values.extend(idle(before, after, seconds));
    }
}

/// How the worker idled between two readings, by its own counters, as shares of the time and per second.
fn idle(before: &Report, after: &Report, seconds: f64) -> [(&'static str, f64); 4] {
    let sum = |report: &Report, of: fn(&Idle) -> u64| {
        report.workers.iter().map(|worker| of(&worker.idle)).sum::<u64>()
    };
    let per_s = |of: fn(&Idle) -> u64| sum(after, of).saturating_sub(sum(before, of)) as f64 / seconds;
    [
        // The time asleep with it held, as it has no effect otherwise.
        ("request_held", per_s(|idle| idle.counts.held_ns) / 1e9),
        ("spun", per_s(|idle| idle.counts.spun_ns) / 1e9),
        ("woken_by_packet_per_s", per_s(|idle| idle.counts.woken_by_packet)),
        ("woken_by_prediction_per_s", per_s(|idle| idle.counts.woken_by_prediction)),
    ]
}
