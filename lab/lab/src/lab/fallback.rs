//! The cost of attaching for the kernel's own traffic, as rows for any lab: on a scratch link, like `serve
//! --measure-fallback`, but with more samples; and the programs alone, in test runs.

use std::collections::BTreeMap;

use anyhow::Context;
use tokio::task::spawn_blocking;
use twinpath_bpf::TcAttach;
use twinpath_config::Path;
use twinpath_fallback::loss::Measure;
use twinpath_fallback::{FrameCost, Question, measure as measure_on_scratch, test_runs, traffic};
use twinpath_sys::affinity;
use twinpath_time::Duration;

use super::model::Sample;
use super::session::{Session, lab};

lab!("fallback", "What attaching costs the kernel's own traffic", run);

/// Rounds under `--check`.
const CHECK_ROUNDS: usize = 3;

/// Entries per ring: the default of `serve`.
const RING_FRAMES: u32 = 512;

/// Rows of each path, whose `ratio` is after divided by before: round trips, bulk TCP, requests.
const PACKET: [&str; 3] = ["kernel-rtt-packet", "kernel-bulk-packet", "kernel-rate-packet"];
const XDP: [&str; 3] = ["kernel-rtt-xdp-native", "kernel-bulk-xdp-native", "kernel-rate-xdp-native"];
/// Rows of what programs add: the XDP program, whose published counterpart takes 13.3 ns; both programs of the packet path.
pub(crate) const TAXES: [&str; 2] = ["kernel-xdp-tax", "kernel-packet-tax"];

/// Rows that are measured together, and the path that measures them.
const PARTS: [(&[&str], Option<Path>); 3] =
    [(&PACKET, Some(Path::Packet)), (&XDP, Some(Path::XdpNative)), (&TAXES, None)];

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.repeat.unwrap_or(session.either(CHECK_ROUNDS, 1));
    session.progress.expect(steps(session) * rounds);
    for at in 0..rounds {
        round(session, at).await;
    }
    Ok(rounds)
}

fn parts(session: &Session) -> impl Iterator<Item = &'static (&'static [&'static str], Option<Path>)> {
    PARTS.iter().filter(move |(rows, _)| rows.iter().any(|row| session.wants(row)))
}

/// Number of steps of one round, for the progress bar.
pub(crate) fn steps(session: &Session) -> usize {
    parts(session).count()
}

/// Measures the selected rows once; a failure is recorded as the rows' reason.
pub(crate) async fn round(session: &Session, round: usize) {
    for (rows, path) in parts(session) {
        let measured = match path {
            Some(path) => {
                session.progress.step(&format!("kernel traffic beside {path}"));
                measure(session, *path).await
            }
            None => {
                session.progress.step("test runs of the programs");
                taxes(session).await
            }
        };
        note(session, round, rows, measured);
    }
}

/// Records the samples, or the reason for each row without one.
pub(crate) fn note(
    session: &Session,
    round: usize,
    rows: &[&'static str],
    measured: anyhow::Result<Vec<(&'static str, Sample)>>,
) {
    match measured {
        Ok(samples) => samples.into_iter().for_each(|(row, sample)| session.note(row, round, Ok(sample))),
        Err(error) => session.fail(rows, &error),
    }
}

/// Measures the rows of one path once; both sides of each alternate within it.
///
/// # Errors
/// No scratch link, no such path on a veth, or a program that cannot be loaded.
async fn measure(session: &Session, path: Path) -> anyhow::Result<Vec<(&'static str, Sample)>> {
    let question = Question {
        path,
        claims: traffic::table()?.claims().to_vec(),
        addresses: traffic::table()?.addresses().to_vec(),
        ring_frames: RING_FRAMES,
        tc: TcAttach::here(),
        bare: true,
        pairs: if session.check { 2 * Question::PAIRS } else { Question::PAIRS },
        slice: if session.check { Duration::from_millis(100) } else { Question::SLICE },
    };
    let found = spawn_blocking(move || measure_on_scratch(&question)).await?;
    let found = found.with_context(|| format!("measuring what {path} costs the kernel's own traffic"))?;
    let mut rows = Vec::new();
    for loss in &found.losses {
        let [low, high] = loss.interval95;
        let values = [
            ("before", loss.before),
            ("after", loss.after),
            ("ratio", loss.ratio),
            ("ratio_low", low),
            ("ratio_high", high),
            ("pairs", loss.pairs as f64),
        ];
        let notes = vec![format!("before and after in {}", loss.measure.unit())];
        let sample = Sample { values: BTreeMap::from(values), notes, ..Sample::default() };
        rows.push((measure_row(path, loss.measure), sample));
    }
    Ok(rows)
}

/// The programs' rows, by test runs with 16 claims and 4 addresses; takes a second and a half.
///
/// # Errors
/// A program cannot be loaded or run.
pub(crate) async fn taxes(session: &Session) -> anyhow::Result<Vec<(&'static str, Sample)>> {
    let cpu = session.cpus[1];
    let runs = spawn_blocking(move || -> anyhow::Result<_> {
        // On a thread of its own, so that no other thread is pinned.
        let pinned = std::thread::spawn(move || -> anyhow::Result<_> {
            affinity::pin_current_thread(cpu)?;
            let table = traffic::table()?;
            Ok([test_runs(Path::XdpNative, &table)?, test_runs(Path::Packet, &table)?])
        });
        pinned.join().map_err(|_| anyhow::anyhow!("the test runs panicked"))?
    });
    let [xdp, packet] = runs.await?.context("running the steering programs for a test")?;
    Ok(TAXES.into_iter().zip([tax(&xdp), tax(&packet)]).collect())
}

/// The most expensive kind of frame, summed over all programs of the path.
fn tax(costs: &[FrameCost]) -> Sample {
    let sum = |cost: &FrameCost, of: fn(&twinpath_fallback::ProgramCost) -> f64| {
        cost.programs.iter().map(of).sum::<f64>()
    };
    let worst = costs.iter().max_by(|a, b| sum(a, |p| p.added_ns()).total_cmp(&sum(b, |p| p.added_ns())));
    let Some(worst) = worst else { return Sample::default() };
    let values = [
        ("added_ns", sum(worst, |program| program.added_ns())),
        ("run_ns", sum(worst, |program| program.run_ns)),
        ("empty_ns", sum(worst, |program| program.empty_ns)),
    ];
    let programs: Vec<String> = worst
        .programs
        .iter()
        .map(|program| format!("{} {:.0} ns", program.program, program.added_ns()))
        .collect();
    let note =
        format!("costliest of {} kinds of frame: {}; {}", costs.len(), worst.frame, programs.join(", "));
    Sample { values: BTreeMap::from(values), notes: vec![note], ..Sample::default() }
}

fn measure_row(path: Path, measure: Measure) -> &'static str {
    let at = match measure {
        Measure::Rtt => 0,
        Measure::Bulk => 1,
        Measure::Rate => 2,
    };
    if path == Path::Packet { PACKET[at] } else { XDP[at] }
}
