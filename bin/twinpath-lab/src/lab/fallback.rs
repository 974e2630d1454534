//! The cost of attaching for the kernel's own traffic, as rows for any lab: on a scratch link, like `serve
//! --measure-fallback`, but with more samples; and the programs alone, in test runs.

use std::collections::BTreeMap;

use anyhow::Context;
use tokio::task::spawn_blocking;
use twinpath_config::Path;
use twinpath_fallback::loss::Measure;
use twinpath_fallback::{FrameCost, Question, measure as measure_on_scratch, test_runs, traffic};
use twinpath_steer_bpf::TcAttach;
use twinpath_sys::affinity;
use twinpath_time::Duration;

use super::model::{Better, Formula, Group, Judged, RatioSpec, RowSpec, Sample};
use super::record::Record;
use super::session::Session;
use super::session::{InGuest, Lab};

/// The lab that measures only this.
pub(crate) const LAB: Lab = Lab {
    name: "fallback",
    about: "What attaching costs the kernel's own traffic",
    rows: &ROWS,
    ratios: &[XDP_TAX],
    plots: &[],
    summary: &[],
    together: &[],
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

/// Rounds under `--check`.
const CHECK_ROUNDS: usize = 3;

/// Entries per ring: the default of `serve`.
const RING_FRAMES: u32 = 512;

const fn row(id: &'static str, label: &'static str, path: &'static str, main: &'static str) -> RowSpec {
    RowSpec { id, label, group: Group::Beside, path: Some(path), mode: None, main, base: &[] }
}

/// The rows; `ratio` is after divided by before.
pub(crate) const ROWS: [RowSpec; 8] = [
    row("kernel-rtt-packet", "kernel UDP round trip beside the packet path", "packet", "ratio"),
    row("kernel-bulk-packet", "kernel bulk TCP beside the packet path", "packet", "ratio"),
    row("kernel-rate-packet", "kernel UDP 64 B requests beside the packet path", "packet", "ratio"),
    row("kernel-rtt-xdp-native", "kernel UDP round trip beside native XDP", "xdp-native", "ratio"),
    row("kernel-bulk-xdp-native", "kernel bulk TCP beside native XDP", "xdp-native", "ratio"),
    row("kernel-rate-xdp-native", "kernel UDP 64 B requests beside native XDP", "xdp-native", "ratio"),
    XDP_TAX_ROW,
    PACKET_TAX_ROW,
];

/// The time that the XDP program adds to its hook.
pub(crate) const XDP_TAX_ROW: RowSpec =
    row("kernel-xdp-tax", "the XDP program on a frame of the kernel's", "xdp-native", "added_ns");
/// The time that both programs of the packet path add.
pub(crate) const PACKET_TAX_ROW: RowSpec =
    row("kernel-packet-tax", "socket filter and tc program on such a frame", "packet", "added_ns");

/// Cost of the steering program per packet of kernel traffic, ns; published elsewhere: 13.3.
pub(crate) const XDP_TAX: RatioSpec = RatioSpec {
    id: "kernel-xdp-tax-ns",
    what: "XDP steering program on a frame that stays the kernel's, over an empty program, ns, the costliest kind",
    formula: Formula::Value(("kernel-xdp-tax", "added_ns")),
    target: Some(25.0),
    better: Better::Lower,
    judged: Judged::Median,
    check_pairs: 1,
    also: &[],
    steady: None,
};

/// Rows that are measured together, and the path that measures them.
const PARTS: [(&[RowSpec], Option<Path>); 3] = [
    (ROWS.split_at(3).0, Some(Path::Packet)),
    (ROWS.split_at(3).1.split_at(3).0, Some(Path::XdpNative)),
    (ROWS.split_at(6).1, None),
];

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let rounds = session.repeat.unwrap_or(if session.check { CHECK_ROUNDS } else { 1 });
    let mut record = Record::default();
    session.progress.expect(steps(session) * rounds);
    for at in 0..rounds {
        round(session, &mut record, at).await;
    }
    Ok((record, rounds))
}

fn parts(session: &Session) -> impl Iterator<Item = &'static (&'static [RowSpec], Option<Path>)> {
    let wanted = |row: &RowSpec| session.selection.rows.contains(row.id);
    PARTS.iter().filter(move |(rows, _)| rows.iter().any(wanted))
}

/// Number of steps of one round, for the progress bar.
pub(crate) fn steps(session: &Session) -> usize {
    parts(session).count()
}

/// Measures the selected rows of [`ROWS`] once; a failure is recorded as the rows' reason.
pub(crate) async fn round(session: &Session, record: &mut Record, round: usize) {
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
        if let Err(error) = &measured {
            session.progress.line(&format!("{error:#}"));
        }
        note(record, round, rows, measured);
    }
}

/// Records the samples, or the reason for each row without one.
pub(crate) fn note(
    record: &mut Record,
    round: usize,
    rows: &[RowSpec],
    measured: anyhow::Result<Vec<(&'static str, Sample)>>,
) {
    match measured {
        Ok(samples) => samples.into_iter().for_each(|(row, sample)| record.add(row, round, sample)),
        Err(error) => rows.iter().for_each(|row| record.fail(row.id, format!("{error:#}"))),
    }
}

/// Measures the rows of one path once; both sides of each alternate within it.
///
/// # Errors
/// No scratch link, no such path on a veth, or a program that cannot be loaded.
pub(crate) async fn measure(session: &Session, path: Path) -> anyhow::Result<Vec<(&'static str, Sample)>> {
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
    Ok(vec![("kernel-xdp-tax", tax(&xdp)), ("kernel-packet-tax", tax(&packet))])
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
    let of = |rows: &[RowSpec]| match measure {
        Measure::Rtt => rows[0].id,
        Measure::Bulk => rows[1].id,
        Measure::Rate => rows[2].id,
    };
    if path == Path::Packet { of(&ROWS[..3]) } else { of(&ROWS[3..6]) }
}
