//! Counted instructions, as they are committed.

use anyhow::Context;

/// The last counts of `cargo run -p xtask -- instructions`; CI compares them with the present build.
const COMMITTED: &str = include_str!("../../../../test/instructions/committed.toml");

/// What a row says of them.
pub(crate) const NOTE: &str =
    "instructions as counted under valgrind and committed: `make instructions` counts again";

/// Instructions per call of a case.
pub(crate) fn counted(case: &str) -> anyhow::Result<f64> {
    let line = COMMITTED.lines().find_map(|line| line.strip_prefix(case)?.trim_start().strip_prefix('='));
    let count = line.and_then(|count| count.trim().parse::<f64>().ok());
    count.with_context(|| format!("test/instructions/committed.toml has no {case}"))
}
