//! Instances from start to end, in simulated time: the state machine of `service/lifecycle` that the product runs, over a
//! model of the kernel and of the other instances. Between any two actions an instance may crash or be stopped, an
//! answer may be lost, the interface may go and come back, a worker may be stuck, and any action that can fail may fail.
//! After each step, `invariants.rs` says what must hold.
//!
//! `TWINPATH_SIM_SEEDS=100000` runs more seeds. `TWINPATH_SIM_SEED=7` runs only that one, and prints each step.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod faults;
mod instance;
mod invariants;
mod kernel;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::world::World;

/// Seeds of one run.
const SEEDS: u64 = 10_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn no_fault_leaves_a_port_unserved_or_served_twice_or_anything_behind() {
    let one = number("TWINPATH_SIM_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("TWINPATH_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let mut seen = world::Seen::default();
    for seed in seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| World::new(seed, one.is_some()).run()));
        match outcome {
            Ok(Ok(of_seed)) => seen.add(&of_seed),
            Ok(Err(why)) => panic!("seed {seed}: {why}; repeat it with TWINPATH_SIM_SEED={seed}"),
            Err(_) => panic!("seed {seed} panics; repeat it with TWINPATH_SIM_SEED={seed}"),
        }
    }
    println!("{seen:?}");
    if one.is_none() {
        assert_eq!(seen.rare(), Vec::<&str>::new(), "the simulation must reach these: {seen:?}");
    }
}
