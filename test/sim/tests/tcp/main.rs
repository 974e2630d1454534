//! TCP engines in a simulated network: against each other, and against other stacks. `TWINPATH_SIM_SEEDS=1000` runs
//! another number of seeds, `TWINPATH_SIM_SEEDS=1000..2000` those; `TWINPATH_SIM_SEED=7` only that one, and prints its
//! segments.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod host;
mod kernel;
mod network;
mod other;
mod plan;
mod program;
mod run;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The seeds to run: so many, or those that the environment says.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let text = |name: &str| std::env::var(name).ok();
    if let Some(seed) = text("TWINPATH_SIM_SEED").and_then(|text| text.parse::<u64>().ok()) {
        return seed..seed + 1;
    }
    let many = text("TWINPATH_SIM_SEEDS").unwrap_or_default();
    let (from, to) = many.split_once("..").unwrap_or(("0", &many));
    from.parse().unwrap_or(0)..to.parse().unwrap_or(count)
}

/// Whether segments are printed.
fn traces() -> bool {
    std::env::var_os("TWINPATH_SIM_SEED").is_some()
}

#[test]
fn engines_bring_every_byte_whatever_the_network_does() {
    let (mut failed, mut waited) = (Vec::new(), 0);
    for seed in seeds(5000) {
        let mut simulation = plan::plan(seed);
        if catch_unwind(AssertUnwindSafe(|| simulation.run())).is_err() {
            eprintln!("seed {seed} failed: {}", simulation.describe());
            failed.push(seed);
        }
        waited += simulation.ledger.waited;
    }
    eprintln!("SYNs that waited for a TIME_WAIT of the peer: {waited}");
    assert!(failed.is_empty(), "{} seeds fail, such as {:?}", failed.len(), &failed[..failed.len().min(20)]);
}
