//! The rows and ratios of `lab reflex`. Ids are stable; docs/measuring.md explains each.

use crate::lab::asking::CPU as CPU_PER_QUERY;
use crate::lab::model::{Better, Compared, Formula, Group, RatioSpec, RowSpec, row};

const P50: &str = "p50_us";
const P99: &str = "p99_us";
const RATE: &str = "requests_per_s";
/// Replies that a CPU gives a second, by that time.
pub(super) const SAVED: &str = "replies_per_cpu_s";
/// CPU time of the whole machine for a reply, without that of the request.
pub(super) const CPU_PER_REPLY: &str = "cpu_us_per_reply";
const SPINNING: &[&str] = &["kernel-spinning"];
const PACED: &[&str] = &["paced-kernel-sleeping"];
const PLAIN_RATES: &[&str] = &[
    "rate-kernel-batch",
    "rate-kernel-segments",
    "rate-kernel-batch-spinning",
    "rate-kernel-segments-spinning",
];
const PLAIN_COSTS: &[&str] = &["cpu-kernel-batch", "cpu-kernel-segments"];

/// Rows in the order of the table.
pub(super) const ROWS: &[RowSpec] = &[
    row("kernel-spinning", Group::Rtt, P50, "kernel, spinning").on("kernel", "poll"),
    row("worker-poll", Group::Rtt, P50, "twinpath's worker, poll").on("auto", "poll").beside(SPINNING),
    row("reflex", Group::Rtt, P50, "reflex, the worker asleep").on("auto", "adaptive").beside(SPINNING),
    row("bare", Group::Rtt, P50, "a bare program of thirty lines").on("tc", "").beside(SPINNING),
    row("null-spinning", Group::NullUdp, P50, "NULL by a bare server, spinning").on("kernel", "poll"),
    row("null-reflex", Group::NullUdp, P50, "NULL from a kept reply")
        .on("packet", "interrupt")
        .beside(&["null-spinning"]),
    row("getattr-reflex", Group::NullUdp, P50, "GETATTR from a kept reply")
        .on("packet", "interrupt")
        .beside(&["null-reflex"]),
    row("load-always-1", Group::NullUdp, RATE, "NULL, 1 in flight: programs answer").on("packet", "adaptive"),
    row("load-off-1", Group::NullUdp, RATE, "NULL, 1 in flight: the worker answers").on("packet", "adaptive"),
    row("load-auto-1", Group::NullUdp, RATE, "NULL, 1 in flight: whichever is better")
        .on("packet", "adaptive")
        .beside(&["load-off-1"]),
    row("load-always-4", Group::NullUdp, RATE, "NULL, 4 in flight: programs answer").on("packet", "adaptive"),
    row("load-off-4", Group::NullUdp, RATE, "NULL, 4 in flight: the worker answers").on("packet", "adaptive"),
    row("load-auto-4", Group::NullUdp, RATE, "NULL, 4 in flight: whichever is better")
        .on("packet", "adaptive")
        .beside(&["load-off-4"]),
    row("load-always-16", Group::NullUdp, RATE, "NULL, 16 in flight: programs answer")
        .on("packet", "adaptive"),
    row("load-off-16", Group::NullUdp, RATE, "NULL, 16 in flight: the worker answers")
        .on("packet", "adaptive"),
    row("load-auto-16", Group::NullUdp, RATE, "NULL, 16 in flight: whichever is better")
        .on("packet", "adaptive")
        .beside(&["load-off-16"]),
    row("load-always-64", Group::NullUdp, RATE, "NULL, 64 in flight: programs answer")
        .on("packet", "adaptive"),
    row("load-off-64", Group::NullUdp, RATE, "NULL, 64 in flight: the worker answers")
        .on("packet", "adaptive"),
    row("load-auto-64", Group::NullUdp, RATE, "NULL, 64 in flight: whichever is better")
        .on("packet", "adaptive")
        .beside(&["load-off-64"]),
    row("load-always-128", Group::NullUdp, RATE, "NULL, 128 in flight: programs answer")
        .on("packet", "adaptive"),
    row("load-off-128", Group::NullUdp, RATE, "NULL, 128 in flight: the worker answers")
        .on("packet", "adaptive"),
    row("load-auto-128", Group::NullUdp, RATE, "NULL, 128 in flight: whichever is better")
        .on("packet", "adaptive")
        .beside(&["load-off-128"]),
    row("rate-kernel-batch", Group::Rate, RATE, "kernel, recvmmsg, sleeping").on("kernel", "interrupt"),
    row("rate-kernel-segments", Group::Rate, RATE, "kernel, UDP_GRO and UDP_SEGMENT, sleeping")
        .on("kernel", "interrupt"),
    row("rate-kernel-batch-spinning", Group::Rate, RATE, "kernel, recvmmsg, spinning").on("kernel", "poll"),
    row("rate-kernel-segments-spinning", Group::Rate, RATE, "kernel, UDP_GRO and UDP_SEGMENT, spinning")
        .on("kernel", "poll"),
    row("rate-bare", Group::Rate, RATE, "a bare program of thirty lines").on("tc", "").beside(PLAIN_RATES),
    row("rate-reflex", Group::Rate, RATE, "reflex, the worker asleep")
        .on("auto", "adaptive")
        .beside(PLAIN_RATES),
    row("cpu-kernel-batch", Group::Cpu, CPU_PER_REPLY, "kernel, recvmmsg, sleeping")
        .on("kernel", "interrupt"),
    row("cpu-kernel-segments", Group::Cpu, CPU_PER_REPLY, "kernel, UDP_GRO and UDP_SEGMENT, sleeping")
        .on("kernel", "interrupt"),
    row("cpu-reflex", Group::Cpu, CPU_PER_REPLY, "reflex, the worker asleep")
        .on("auto", "adaptive")
        .beside(PLAIN_COSTS),
    row("dns-nsd", Group::Cpu, CPU_PER_QUERY, "nsd, at a fixed rate of queries").on("kernel", "interrupt"),
    row("dns-reflex", Group::Cpu, CPU_PER_QUERY, "the example of a name server, at the same rate")
        .on("auto", "adaptive")
        .beside(&["dns-nsd"]),
    row("memcached-alone", Group::Wake, P99, "memcached, a tenth of the requests are sets")
        .on("kernel", "interrupt"),
    row("memcached-reflex", Group::Wake, P99, "the example of a memcached, likewise")
        .on("auto", "adaptive")
        .beside(&["memcached-alone"]),
    row("hammer", Group::Trouble, "read", "gets from a memcached whose keys change all the time")
        .on("auto", "adaptive"),
    row("flood-one", Group::Trouble, P99, "TCP to a worker, beside 20,000 datagrams/s from one source to it")
        .on("auto", "adaptive"),
    row("flood-neighbours", Group::Trouble, P99, "the same from forged addresses of a connected network")
        .on("auto", "adaptive")
        .beside(&["flood-one"]),
    row("flood-remote", Group::Trouble, P99, "the same from forged addresses behind a gateway")
        .on("auto", "adaptive")
        .beside(&["flood-one"]),
    row("paced-kernel-sleeping", Group::Paced, P50, "kernel, sleeping").on("kernel", "interrupt"),
    row("paced-kernel-spinning", Group::Paced, P50, "kernel, spinning").on("kernel", "poll").beside(PACED),
    row("paced-bare", Group::Paced, P50, "a bare program of thirty lines").on("tc", "").beside(PACED),
    row("paced-reflex", Group::Paced, P50, "reflex, the worker asleep").on("auto", "adaptive").beside(PACED),
];

const fn lower(id: &'static str, formula: Formula, target: f64, what: &'static str) -> RatioSpec {
    RatioSpec::of_median(id, formula, Better::Lower, target, what, super::CHECK_PAIRS)
}

const fn higher(id: &'static str, formula: Formula, target: f64, what: &'static str) -> RatioSpec {
    RatioSpec::of_median(id, formula, Better::Higher, target, what, super::CHECK_PAIRS)
}

/// The decision against the better one of its alternatives.
const fn by_load(id: &'static str, auto: &'static str, others: &'static [&'static str]) -> RatioSpec {
    let formula = Formula::OverBest { top: (auto, RATE), rows: others, by: RATE, value: RATE };
    higher(
        id,
        formula,
        0.95,
        "calls per second where `auto` decides who answers, against the better of `always` and `off`",
    )
}

/// What must not be, in one round.
const fn none(id: &'static str, formula: Formula, what: &'static str) -> RatioSpec {
    RatioSpec { check_pairs: 1, ..lower(id, formula, 0.0, what) }
}

/// A ratio without a target, for scale.
const fn for_scale(id: &'static str, formula: Formula, what: &'static str) -> RatioSpec {
    RatioSpec { target: None, ..lower(id, formula, 0.0, what) }
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
    lower(
        "reflex-null",
        Formula::over("null-reflex", P50, &[("null-spinning", P50)]),
        0.45,
        "round trip p50: NULL over UDP from a kept reply, against a bare server, spinning",
    ),
    lower(
        "reflex-getattr-vs-null",
        Formula::over("getattr-reflex", P50, &[("null-reflex", P50)]),
        1.15,
        "round trip p50: GETATTR from a kept reply, against NULL from one",
    ),
    lower(
        "reflex-dns",
        Formula::over("dns-reflex", CPU_PER_QUERY, &[("dns-nsd", CPU_PER_QUERY)]),
        0.5,
        "CPU time of the machine per query, without the client's outside of the kernel: a name server, against nsd",
    ),
    lower(
        "reflex-memcached",
        Formula::over("memcached-reflex", P99, &[("memcached-alone", P99)]),
        0.3,
        "p99, one request every 250 to 500 us, a tenth of them sets: the example of a memcached, against memcached",
    ),
    higher(
        "reflex-rate-vs-bare",
        Formula::over("rate-reflex", RATE, &[("rate-bare", RATE)]),
        0.85,
        "replies per second, 128 in flight, against a bare program of thirty lines",
    ),
    higher(
        "reflex-rate",
        Formula::OverBest { top: ("rate-reflex", RATE), rows: PLAIN_RATES, by: RATE, value: RATE },
        1.5,
        "the same, against the best plain server",
    ),
    by_load("reflex-load-1", "load-auto-1", &["load-always-1", "load-off-1"]),
    by_load("reflex-load-4", "load-auto-4", &["load-always-4", "load-off-4"]),
    by_load("reflex-load-16", "load-auto-16", &["load-always-16", "load-off-16"]),
    by_load("reflex-load-64", "load-auto-64", &["load-always-64", "load-off-64"]),
    by_load("reflex-load-128", "load-auto-128", &["load-always-128", "load-off-128"]),
    lower(
        "reflex-cpu-per-reply",
        Formula::OverBest {
            top: ("cpu-reflex", CPU_PER_REPLY),
            rows: PLAIN_COSTS,
            by: SAVED,
            value: CPU_PER_REPLY,
        },
        0.4,
        "CPU time of the machine per reply, without that of the request, against the best plain server that sleeps",
    ),
    lower(
        "reflex-flood-neighbours",
        Formula::over("flood-neighbours", P99, &[("flood-one", P99)]),
        1.2,
        "p99 of a worker's TCP beside a flood from forged addresses of a connected network, against one from one source",
    ),
    lower(
        "reflex-flood-remote",
        Formula::over("flood-remote", P99, &[("flood-one", P99)]),
        1.2,
        "the same, the forged addresses behind a gateway",
    ),
    none(
        "reflex-stale",
        Formula::Value(("hammer", "stale")),
        "replies older than what was acknowledged before their requests, in a minute of changes over both transports",
    ),
    none("reflex-twice", Formula::Value(("hammer", "twice")), "replies to requests that had one before"),
    none("reflex-never", Formula::Value(("hammer", "never")), "requests without a reply"),
    for_scale(
        "bare-rtt",
        Formula::over("bare", P50, &[("kernel-spinning", P50)]),
        "what a bare program of thirty lines reaches where reflex-rtt is measured",
    ),
    for_scale(
        "bare-paced-p50",
        Formula::over("paced-bare", P50, &[("paced-kernel-spinning", P50)]),
        "the same, where reflex-paced-p50 is measured",
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
