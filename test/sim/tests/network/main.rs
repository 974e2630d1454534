//! Runs the simulated networks. `TWINPATH_SIM_SEEDS=1000` runs more seeds; `TWINPATH_SIM_SEED=7` only that one.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod echo;
mod egress;
mod fault;

/// The seeds to run.
fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("TWINPATH_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("TWINPATH_SIM_SEEDS").unwrap_or(40)).collect(),
    }
}
