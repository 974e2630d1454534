//! Rows that do not measure the latency of packets: silence, modes that are switched under load, and values computed
//! from other rows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use twinpath_clients::measure::report::BenchReport;
use twinpath_sys::clock;

use super::LAB;
use super::measure::sample_of;
use super::scene::{DEFAULT, serve};
use super::ticks::Ticks;
use crate::lab::instance::{Facts, Instance, watched};
use crate::lab::model::Sample;
use crate::lab::paced::{Draw, Load};
use crate::lab::peers::{self, FAST_PORT};
use crate::lab::process::{Side, words};
use crate::lab::record::Record;
use crate::lab::session::Session;

/// Traffic before the silence, so that a latency request is held.
const BEFORE_SILENCE: Duration = Duration::from_millis(300);
/// Load that is followed by silence: its rate, its duration, and when measuring the silence begins.
const LOAD_PER_S: u32 = 20_000;
const LOAD: Duration = Duration::from_secs(4);
const AFTER_LOAD: Duration = Duration::from_secs(2);
/// Slots of the ring while modes are switched: 40 ms of packets. The host of a virtual machine may stop a CPU for
/// longer than the 5 ms of the default, and packets lost then are not lost by switching.
const SWITCHING_RING_FRAMES: u32 = 4096;
/// Packets per second while modes are switched.
const SWITCHING_PER_S: f64 = 100_000.0;
/// Longest time between two switches.
const SWITCH_EVERY: Duration = Duration::from_millis(20);
const SLACK: Duration = Duration::from_secs(6);

/// Some traffic, then silence for `length`.
pub(super) async fn silence(session: &Session, draw: &Draw, length: Duration) -> anyhow::Result<Sample> {
    let measure = async |instance: &Instance| quiet(session, instance, draw, length).await;
    Instance::during(&session.launcher, &serve(session, "adaptive", DEFAULT), measure).await
}

async fn quiet(
    session: &Session,
    instance: &Instance,
    draw: &Draw,
    length: Duration,
) -> anyhow::Result<Sample> {
    let args = draw.load().bench(FAST_PORT, Duration::ZERO, BEFORE_SILENCE);
    session.launcher.client(Side::Client, &args, BEFORE_SILENCE + SLACK, None).await?;
    instance.until_idle().await?;
    let mut values = watched(instance.pid(), length).await?;
    let report = instance.report().await?;
    values.insert("request_held", f64::from(u8::from(report.request_held())));
    values.insert("silence_s", length.as_secs_f64());
    Ok(Sample { values, path: Some(report.path()), ..Sample::default() })
}

/// Load beside a busy process on each CPU, then silence, of which `length` is measured: the worker's CPU usage. Neither
/// worker nor client is pinned: a worker that is moved among busy processes has learnt the worst.
pub(super) async fn idle_after_load(session: &Session, length: Duration) -> anyhow::Result<Sample> {
    let launcher = &session.launcher;
    let mut args = serve(session, "adaptive", DEFAULT);
    let cpu = args.iter().position(|arg| arg == "--cpu").context("serve is placed")?;
    args.drain(cpu..cpu + 2);
    let instance = Instance::start_at(launcher, Side::Both, &args).await?;
    let mut busy = Vec::new();
    let measured = async {
        for side in [Side::Client, Side::Server] {
            busy.push(launcher.background(side, &words("plain busy"))?);
        }
        after_load(session, &instance, length).await
    }
    .await;
    for process in busy {
        launcher.finish(process).await?;
    }
    instance.stop(launcher).await?;
    measured
}

async fn after_load(session: &Session, instance: &Instance, length: Duration) -> anyhow::Result<Sample> {
    let line = format!(
        "bench echo {} --udp --path kernel --rate {LOAD_PER_S} --duration {} --warmup 0 --json",
        peers::server(FAST_PORT),
        LOAD.as_secs()
    );
    let args = words(&line);
    let side = Side::At(&session.launcher.topology().client, &session.cpus);
    session.launcher.client(side, &args, LOAD + SLACK, None).await?;
    tokio::time::sleep(AFTER_LOAD).await;
    let before = instance.report().await?;
    let begun = Instant::now();
    tokio::time::sleep(length).await;
    let (seconds, after) = (begun.elapsed().as_secs_f64(), instance.report().await?);
    ensure!(after.frames_in() == before.frames_in(), "packets came in what was to be silence");
    let [before, after] = [&before, &after].map(|report| report.workers.first());
    let (before, after) = before.zip(after).context("no worker is reported")?;
    let values = BTreeMap::from([
        ("cpu_worker", (after.counts.cpu_ns - before.counts.cpu_ns) as f64 / 1e9 / seconds),
        ("sleeps_per_s", (after.counts.sleeps - before.counts.sleeps) as f64 / seconds),
        ("spin_limit_sleeps", after.idle.counts.spin_limit_sleeps as f64),
        ("silence_s", seconds),
    ]);
    let note = format!("decided last: {}", after.idle.decided);
    Ok(Sample { values, notes: vec![note], path: Some(instance.report().await?.path()), ..Sample::default() })
}

/// The modes that `mode-switching` goes through.
pub(super) const SWITCHED: [&str; 3] = ["poll", "interrupt", "adaptive"];

/// Sets modes repeatedly while packets come: alternating, or, for comparison, always the same.
pub(super) async fn switching(
    session: &Session,
    draw: &Draw,
    length: Duration,
    modes: &[&str],
) -> anyhow::Result<Sample> {
    let mut args = serve(session, "adaptive", DEFAULT);
    args.extend(["--ring-frames".to_owned(), SWITCHING_RING_FRAMES.to_string()]);
    let instance = Instance::start(&session.launcher, &args).await?;
    let offer = Load { rate_per_s: SWITCHING_PER_S, ..draw.load() };
    let args = offer.bench(FAST_PORT, Duration::ZERO, length);
    let running = session.launcher.client(Side::Client, &args, length + SLACK, None);
    let mut random = fastrand::Rng::with_seed(draw.seed);
    let mut switches = 0_u64;
    let switch = async {
        for mode in modes.iter().cycle() {
            instance.set_mode(mode).await?;
            switches += 1;
            tokio::time::sleep(SWITCH_EVERY.mul_f64(random.f64())).await;
        }
        anyhow::Ok(())
    };
    let finished = tokio::select! {
        finished = running => finished,
        refused = switch => Err(refused.err().context("switching ended by itself")?),
    };
    let report = instance.report().await;
    instance.stop(&session.launcher).await?;
    let (finished, report) = (finished?, report?);
    let bench: BenchReport = finished.json("bench")?;
    let mut sample = sample_of(&bench)?;
    ensure!(switches >= 3, "only {switches} switches within {:.1} s", length.as_secs_f64());
    sample.values.insert("switches", switches as f64);
    sample.values.insert("offered_per_s", offer.rate_per_s);
    sample.path = Some(report.path());
    for dropped in &report.drops {
        sample.notes.push(format!("{} dropped at {}: {}", dropped.count, dropped.place, dropped.reason));
    }
    Ok(sample)
}

/// `interrupt` divided by its floor, for the rounds that have all values.
pub(super) fn interrupt_floor(record: &mut Record) {
    let [p50, held, floor, floor_held, poll] = [
        "twinpath-interrupt",
        "twinpath-interrupt-request",
        "floor-eventfd",
        "floor-eventfd-request",
        "twinpath-poll",
    ]
    .map(|row| record.by_round(row, "p50_us"));
    for (round, poll) in poll {
        let over = |top: &BTreeMap<usize, f64>, floor: &BTreeMap<usize, f64>| {
            Some(top.get(&round)? / (floor.get(&round)? + poll))
        };
        let (Some(without), Some(with)) = (over(&p50, &floor), over(&held, &floor_held)) else { continue };
        let values = BTreeMap::from([
            ("worst", without.max(with)),
            ("without_request", without),
            ("with_request", with),
        ]);
        record.add("interrupt-floor", round, Sample { values, ..Sample::default() });
    }
}

/// The worst of the rows whose receiver sleeps, over all rounds.
pub(super) fn tick(record: &mut Record) {
    let tick_ns = clock::tick().as_nanos() as u64;
    let excess = |row: &&'static str| {
        let ticks = Ticks::of(&record.histogram(row), tick_ns);
        (ticks.total > 0).then(|| (*row, ticks, ticks.excess()))
    };
    // Their receiver sleeps, and cannot be delayed by a competing process.
    let rows = LAB.table.needs.iter().filter(|(row, _)| *row == "tick").flat_map(|(_, rows)| rows.iter());
    let worst = rows.filter_map(excess).max_by(|a, b| a.2.1.total_cmp(&b.2.1));
    let Some((row, ticks, (share, low))) = worst else {
        return record.fail("tick", "no row was measured whose receiver sleeps".to_owned());
    };
    let values = BTreeMap::from([
        ("excess_low", low),
        ("excess_share", share),
        ("tick_ms", tick_ns as f64 / 1e6),
        ("near", ticks.near as f64),
        ("wakeups", ticks.total as f64),
    ]);
    let note = format!(
        "worst: {row}, {} of {} near a multiple of {} ms",
        ticks.near,
        ticks.total,
        tick_ns as f64 / 1e6
    );
    record.add("tick", 0, Sample { values, notes: vec![note], ..Sample::default() });
}
