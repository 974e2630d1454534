//! The rows and ratios of `lab reflex`. Ids are stable; docs/measuring.md explains each.

use crate::lab::model::{Better, Compared, Formula, Group, RatioSpec, RowSpec, row};

const P50: &str = "p50_us";
const SPINNING: &[&str] = &["kernel-spinning"];
const PACED: &[&str] = &["paced-kernel-sleeping"];

/// Rows in the order of the table.
pub(super) const ROWS: &[RowSpec] = &[
    row("kernel-spinning", Group::Rtt, P50, "kernel, spinning").on("kernel", "poll"),
    row("worker-poll", Group::Rtt, P50, "twinpath's worker, poll").on("auto", "poll").beside(SPINNING),
    row("reflex", Group::Rtt, P50, "reflex, the worker asleep").on("auto", "adaptive").beside(SPINNING),
    row("paced-kernel-sleeping", Group::Paced, P50, "kernel, sleeping").on("kernel", "interrupt"),
    row("paced-kernel-spinning", Group::Paced, P50, "kernel, spinning").on("kernel", "poll").beside(PACED),
    row("paced-reflex", Group::Paced, P50, "reflex, the worker asleep").on("auto", "adaptive").beside(PACED),
];

const fn lower(id: &'static str, formula: Formula, target: f64, what: &'static str) -> RatioSpec {
    RatioSpec::of_median(id, formula, Better::Lower, target, what, super::CHECK_PAIRS)
}

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    lower(
        "reflex-rtt",
        Formula::over("reflex", P50, &[("kernel-spinning", P50)]),
        0.40,
        "round trip p50, back to back, against a kernel server that spins",
    ),
    lower(
        "reflex-paced-p50",
        Formula::over("paced-reflex", P50, &[("paced-kernel-spinning", P50)]),
        0.35,
        "one request per 250 to 500 us: p50 against a kernel server that spins",
    ),
    lower(
        "reflex-paced-p999",
        Formula::over("paced-reflex", "p99_9_us", &[("paced-kernel-sleeping", "p99_9_us")]),
        0.2,
        "the same: p99.9 against a kernel server that sleeps",
    ),
    lower(
        "reflex-paced-cpu",
        Formula::Value(("paced-reflex", "cpu_server")),
        0.002,
        "the same: CPU of our process, canaries included",
    ),
];

const fn compared(
    what: &'static str,
    kernel: &'static [&'static str],
    twinpath: &'static str,
    value: &'static str,
) -> Compared {
    Compared { what, kernel, twinpath, value, better: Better::Lower }
}

/// What a user sees of each, side by side.
pub(super) const SUMMARY: &[Compared] = &[
    compared("round trip, the kernel's server spins", SPINNING, "reflex", P50),
    compared("paced, the kernel's server sleeps", PACED, "paced-reflex", P50),
    compared("    the slowest of 1,000", PACED, "paced-reflex", "p99_9_us"),
    compared("    the server's CPU", PACED, "paced-reflex", "cpu_server"),
];
