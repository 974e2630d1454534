//! The cost of attaching for the kernel's own traffic: the programs on a frame that stays the kernel's, in test runs. Other labs take these
//! rows.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use twinpath_clients::fallback::{FrameCost, test_runs, test_runs_with_connections, traffic};
use twinpath_config::Path;
use twinpath_sys::affinity;

use super::model::Sample;
use super::session::{Session, lab};

lab!("fallback", "What attaching costs the kernel's own traffic", run);

/// What the programs add: the XDP program, whose published counterpart takes 13.3 ns; both programs of the packet path.
pub(crate) const TAXES: [&str; 2] = ["kernel-xdp-tax", "kernel-packet-tax"];

async fn run(session: &Session) -> anyhow::Result<usize> {
    let measure = async |row: &'static str, _| tax(session, row).await;
    Ok(session.by_turns(&session.rows(), session.rounds(1), Duration::MAX, measure).await)
}

/// A row, by test runs with 16 claims and 4 addresses; takes a second.
///
/// # Errors
/// A program cannot be loaded or run.
pub(crate) async fn tax(session: &Session, row: &str) -> anyhow::Result<Sample> {
    let path = match row {
        "kernel-xdp-tax" => Path::XdpNative,
        "kernel-packet-tax" => Path::Packet,
        _ => bail!("no such row: {row}"),
    };
    test_runs_on(session.cpus[1], move || Ok(test_runs(path, &traffic::table()?)?)).await
}

/// The same for segments of the kernel's connections where workers have connections too: at a port of theirs, or at another one.
pub(crate) async fn tcp_tax(session: &Session, claimed: bool) -> anyhow::Result<Sample> {
    let runs = move || Ok(test_runs_with_connections(&traffic::table()?, claimed)?);
    test_runs_on(session.cpus[1], runs).await
}

async fn test_runs_on(
    cpu: usize,
    runs: impl FnOnce() -> anyhow::Result<Vec<FrameCost>> + Send + 'static,
) -> anyhow::Result<Sample> {
    let runs = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
        // On a thread of its own, so that no other thread is pinned.
        let pinned = std::thread::spawn(move || -> anyhow::Result<_> {
            affinity::pin_current_thread(cpu)?;
            runs()
        });
        pinned.join().map_err(|_| anyhow::anyhow!("the test runs panicked"))?
    });
    Ok(costliest(&runs.await?.context("running the steering programs for a test")?))
}

/// The most expensive kind of frame, summed over all programs of the path.
fn costliest(costs: &[FrameCost]) -> Sample {
    let sum = |cost: &FrameCost, of: fn(&twinpath_clients::fallback::ProgramCost) -> f64| {
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
