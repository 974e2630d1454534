//! The rows and ratios of `lab adopt`. Ids are stable; docs/measuring.md explains each.

use crate::lab::model::{Better, Formula, Group, RatioSpec, RowSpec, row};

const P50: &str = "p50_us";
const P99: &str = "p99_us";
/// Time of a build, s.
pub(super) const WALL: &str = "wall_s";
/// Packages that it compiled.
pub(super) const CRATES: &str = "crates";
/// The program that it made.
pub(super) const BINARY: &str = "binary_mib";

/// Rows in the order of the table.
pub(super) const ROWS: &[RowSpec] = &[
    row("build-empty", Group::Build, WALL, "an empty main on the library, unoptimised"),
    row("build-service", Group::Build, WALL, "docs/examples/service, optimised"),
    row("mc-udp-alone", Group::Memcached, P50, "memcached, UDP").on("kernel", "interrupt"),
    row("mc-udp", Group::Memcached, P50, "the library's example, UDP")
        .on("auto", "adaptive")
        .beside(&["mc-udp-alone"]),
    row("mc-tcp-alone", Group::Memcached, P50, "memcached, TCP").on("kernel", "interrupt"),
    row("mc-tcp", Group::Memcached, P50, "the library's example, TCP")
        .on("kernel", "adaptive")
        .beside(&["mc-tcp-alone"]),
    row("mc-100k-alone", Group::Memcached, P50, "memcached, TCP, values of 100 kB").on("kernel", "interrupt"),
    row("mc-100k", Group::Memcached, P50, "the library's example, TCP, values of 100 kB")
        .on("kernel", "adaptive")
        .beside(&["mc-100k-alone"]),
    row("mc-busy-alone", Group::Memcached, P99, "memcached, UDP, a busy process on each CPU")
        .on("kernel", "interrupt"),
    row("mc-busy", Group::Memcached, P99, "the library's example, UDP, likewise")
        .on("auto", "adaptive")
        .beside(&["mc-busy-alone"]),
];

const fn memcached(
    id: &'static str,
    (row, value): (&'static str, &'static str),
    alone: &'static [(&'static str, &'static str)],
    target: f64,
    what: &'static str,
) -> RatioSpec {
    let formula = Formula::over(row, value, alone);
    RatioSpec::of_median(id, formula, Better::Lower, target, what, super::CHECK_PAIRS)
}

/// A value of a build, which is made once in a run.
const fn build(id: &'static str, value: &'static str, target: f64, what: &'static str) -> RatioSpec {
    RatioSpec::of_median(id, Formula::Value(("build-empty", value)), Better::Lower, target, what, 1)
}

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    build("build-seconds", WALL, 60.0, "an empty main on the library, nothing built before, 2 jobs: seconds"),
    build("build-crates", CRATES, 60.0, "the same: crates"),
    memcached(
        "mc-udp-get",
        ("mc-udp", P50),
        &[("mc-udp-alone", P50)],
        0.65,
        "get of 100 bytes over UDP, one after the other: p50 of the example over memcached's",
    ),
    memcached("mc-udp-get-p99", ("mc-udp", P99), &[("mc-udp-alone", P99)], 0.9, "the same: p99"),
    memcached("mc-tcp-get", ("mc-tcp", P50), &[("mc-tcp-alone", P50)], 0.95, "the same over TCP: p50"),
    memcached("mc-tcp-get-p99", ("mc-tcp", P99), &[("mc-tcp-alone", P99)], 1.0, "the same over TCP: p99"),
    memcached(
        "mc-tcp-get-100k",
        ("mc-100k", P50),
        &[("mc-100k-alone", P50)],
        1.0,
        "get of 100 kB over TCP: p50",
    ),
    memcached(
        "mc-busy",
        ("mc-busy", P99),
        &[("mc-busy-alone", P99)],
        1.0,
        "get of 100 bytes over UDP beside a busy process on each CPU: p99",
    ),
];
