//! Rows of the policy alone: its cost on simulated machines and traffic from new seeds, against the best fixed setting
//! in hindsight and against an oracle. Without packets and clocks, so it only takes computing time.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use twinpath_idle::replay::machine::Simulated;
use twinpath_idle::replay::table::{Row, rows};
use twinpath_idle::replay::traces::Trace;

use crate::lab::model::Sample;
use crate::lab::stats;

/// The row against fixed settings, and the one against the oracle.
pub(super) const ROWS: [&str; 2] = ["policy-fixed", "policy-oracle"];
/// A stand-in for infinity, which JSON lacks.
const BEYOND: f64 = 1e6;

/// The samples of [`ROWS`], from traces of `seed`.
pub(super) async fn replay(seed: u64) -> anyhow::Result<[Sample; 2]> {
    let all = tokio::task::spawn_blocking(move || everything(seed)).await.context("the replay")??;
    let against = |row: fn(&Row) -> f64, of: &[&Row]| judge(seed, row, of);
    let regular: Vec<&Row> = all.iter().filter(|row| row.regular).collect();
    Ok([against(Row::vs_fixed, &all.iter().collect::<Vec<_>>())?, against(Row::vs_oracle, &regular)?])
}

/// Replays every trace on every machine, with a thread per machine.
fn everything(seed: u64) -> anyhow::Result<Vec<Row>> {
    let traces = Trace::all(seed);
    let machines = Simulated::all();
    std::thread::scope(|scope| {
        let on = |machine| {
            let traces = &traces;
            scope.spawn(move || traces.iter().flat_map(|trace| rows(trace, machine)).collect::<Vec<_>>())
        };
        let threads: Vec<_> = machines.iter().map(on).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow!("a replay panicked"))?);
        }
        Ok(all)
    })
}

fn judge(seed: u64, over: fn(&Row) -> f64, rows: &[&Row]) -> anyhow::Result<Sample> {
    let ratios: Vec<f64> = rows.iter().map(|row| over(row).min(BEYOND)).collect();
    let summary = stats::summary(&ratios).context("no trace was replayed")?;
    let worst = rows.iter().max_by(|a, b| over(a).total_cmp(&over(b))).context("no trace was replayed")?;
    let values = BTreeMap::from([
        ("worst", summary.max),
        ("median", summary.median),
        ("seed", seed as f64),
        ("traces", ratios.len() as f64),
    ]);
    let note = format!(
        "seed {seed}, worst: {} on the machine \"{}\" at w = {}: {:.3} us per packet",
        worst.trace, worst.machine, worst.weight, worst.policy
    );
    Ok(Sample { values, notes: vec![note], ..Sample::default() })
}
