//! Runs every parser on a committed corpus and a bounded number of random inputs.
//!
//! Each module has one parser's fuzz targets, as ordinary tests on stable Rust; `docs/testing.md` says how to fuzz
//! for longer. [`seed`] makes valid inputs, which targets then corrupt: random bytes rarely pass the first check.

pub mod seed;

#[cfg(test)]
mod command;
#[cfg(test)]
mod config;
#[cfg(test)]
mod load;
#[cfg(test)]
pub mod nfs;
#[cfg(test)]
mod offload;
#[cfg(test)]
mod openflow;
#[cfg(test)]
mod openflow_switch;
#[cfg(test)]
mod pipeline;
#[cfg(test)]
mod rds;
#[cfg(test)]
mod reflex;
#[cfg(test)]
mod rpc;
#[cfg(test)]
mod steer;
#[cfg(test)]
mod switch;
#[cfg(test)]
mod tcp;
#[cfg(test)]
mod vxlan;
#[cfg(test)]
mod wire;

/// Random inputs per target, after its corpus: others in each run. `BOLERO_RANDOM_ITERATIONS` sets another number.
#[cfg(test)]
fn iterations() -> usize {
    twinpath_test_rig::few_or_all(3_000, 10_000)
}

/// Longest random input, in bytes.
#[cfg(test)]
const INPUT_LEN_MAX: usize = 2048;

/// Runs `check` on the inputs of `corpus` (`<module>__<target>`) and on random ones.
///
/// bolero finds the corpus by the file and name of the test that calls it, and reports no error if there is none, so
/// this macro checks that it exists.
#[cfg(test)]
macro_rules! fuzz {
    ($corpus:literal, $check:expr) => {{
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/__fuzz__")
            .join($corpus)
            .join("corpus");
        let inputs = std::fs::read_dir(&folder).map_or(0, Iterator::count);
        assert!(inputs > 0, "no corpus in {}", folder.display());
        bolero::check!()
            .with_iterations($crate::iterations())
            .with_max_len($crate::INPUT_LEN_MAX)
            .for_each($check);
    }};
}
#[cfg(test)]
use fuzz;
