//! The rows and ratios of `lab quick`. Ids are stable; docs/measuring.md explains each.

use crate::lab::fallback;
use crate::lab::model::{Better, Compared, Formula, Group, Judged, RatioSpec, RowSpec, row};

const P50: &str = "p50_us";
const RATE: &str = "requests_per_s";
const COST: &str = "cpu_us_per_reply";
const BULK: &str = "gbit_per_s";

/// The plain servers under load: `udp-rate` compares with the best of them.
pub(super) const PLAIN_RATES: &[&str] = &[
    "rate-kernel-single",
    "rate-kernel-batch",
    "rate-kernel-segments",
    "rate-kernel-single-spinning",
    "rate-kernel-batch-spinning",
    "rate-kernel-segments-spinning",
];
/// Those of them that sleep.
pub(super) const SLEEPING_RATES: &[&str] =
    &["rate-kernel-single", "rate-kernel-batch", "rate-kernel-segments"];
const PLAIN_COSTS: &[&str] = &["cpu-kernel"];
const SLEEPING: &[&str] = &["kernel-sleeping"];
const SPINNING: &[&str] = &["kernel-spinning"];
const PACED: &[&str] = &["paced-kernel"];
const RR: &[&str] = &["tcp-rr-without"];
const STREAM: &[&str] = &["tcp-bulk-without"];

/// Rows in the order of the table.
pub(super) const ROWS: &[RowSpec] = &[
    row("kernel-sleeping", Group::Rtt, P50, "kernel, sleeping").on("kernel", "interrupt"),
    row("kernel-sleeping-request", Group::Rtt, P50, "kernel, sleeping, request held")
        .on("kernel", "interrupt")
        .beside(SLEEPING),
    row("kernel-spinning", Group::Rtt, P50, "kernel, spinning").on("kernel", "poll").beside(SLEEPING),
    row("twinpath-interrupt", Group::Rtt, P50, "twinpath, interrupt")
        .on("auto", "interrupt")
        .beside(SLEEPING),
    row("twinpath-adaptive", Group::Rtt, P50, "twinpath, adaptive").on("auto", "adaptive").beside(SLEEPING),
    row("twinpath-poll", Group::Rtt, P50, "twinpath, poll").on("auto", "poll").beside(SLEEPING),
    row("floor-eventfd", Group::Rtt, P50, "floor: eventfd ping-pong"),
    row("rate-kernel-single", Group::Rate, RATE, "kernel, single calls, sleeping").on("kernel", "interrupt"),
    row("rate-kernel-batch", Group::Rate, RATE, "kernel, recvmmsg, sleeping").on("kernel", "interrupt"),
    row("rate-kernel-segments", Group::Rate, RATE, "kernel, UDP_GRO and UDP_SEGMENT, sleeping")
        .on("kernel", "interrupt"),
    row("rate-kernel-single-spinning", Group::Rate, RATE, "kernel, single calls, spinning")
        .on("kernel", "poll"),
    row("rate-kernel-batch-spinning", Group::Rate, RATE, "kernel, recvmmsg, spinning").on("kernel", "poll"),
    row("rate-kernel-segments-spinning", Group::Rate, RATE, "kernel, UDP_GRO and UDP_SEGMENT, spinning")
        .on("kernel", "poll"),
    row("rate-twinpath", Group::Rate, RATE, "twinpath, poll").on("auto", "poll").beside(PLAIN_RATES),
    row("cpu-kernel", Group::Cpu, COST, "kernel: the best server that sleeps").on("kernel", "interrupt"),
    row("cpu-twinpath", Group::Cpu, COST, "twinpath, interrupt").on("auto", "interrupt").beside(PLAIN_COSTS),
    row("paced-kernel", Group::Paced, P50, "kernel, sleeping").on("kernel", "interrupt"),
    row("paced-twinpath", Group::Paced, P50, "twinpath, adaptive").on("auto", "adaptive").beside(PACED),
    row("tcp-rr-without", Group::Beside, P50, "TCP request/response, alone").on("kernel", "interrupt"),
    row("tcp-rr-with", Group::Beside, P50, "the same, twinpath attached")
        .on("kernel", "interrupt")
        .beside(RR),
    row("tcp-bulk-without", Group::Beside, BULK, "TCP bulk, alone").on("kernel", "interrupt"),
    row("tcp-bulk-with", Group::Beside, BULK, "the same, twinpath attached")
        .on("kernel", "interrupt")
        .beside(STREAM),
    row("tcp-service", Group::Beside, "failed", "TCP service used all the time").on("kernel", "interrupt"),
    row("idle-adaptive", Group::Idle, "cpu_server", "twinpath, adaptive, idle").on("auto", "adaptive"),
    row("xdp-native-poll", Group::Other, P50, "AF_XDP native, round trip").on("xdp", "poll").beside(SPINNING),
    row("xdp-native-adaptive", Group::Other, P50, "AF_XDP native, round trip")
        .on("xdp", "adaptive")
        .beside(SLEEPING),
    row("xdp-native-interrupt", Group::Other, P50, "AF_XDP native, round trip")
        .on("xdp", "interrupt")
        .beside(SLEEPING),
    row("xdp-native-rate", Group::Other, RATE, "AF_XDP native, rate").on("xdp", "poll").beside(PLAIN_RATES),
    row("xdp-native-tcp-rr", Group::Other, P50, "TCP request/response beside AF_XDP native").beside(RR),
    row("xdp-native-tcp-bulk", Group::Other, BULK, "TCP bulk beside AF_XDP native").beside(STREAM),
    row("xdp-generic-poll", Group::Other, P50, "AF_XDP generic, round trip")
        .on("xdp-generic", "poll")
        .beside(SPINNING),
    row("xdp-generic-adaptive", Group::Other, P50, "AF_XDP generic, round trip")
        .on("xdp-generic", "adaptive")
        .beside(SLEEPING),
    row("xdp-generic-interrupt", Group::Other, P50, "AF_XDP generic, round trip")
        .on("xdp-generic", "interrupt")
        .beside(SLEEPING),
    row("xdp-generic-rate", Group::Other, RATE, "AF_XDP generic, rate")
        .on("xdp-generic", "poll")
        .beside(PLAIN_RATES),
    row("xdp-generic-tcp-rr", Group::Other, P50, "TCP request/response beside AF_XDP generic").beside(RR),
    row("xdp-generic-tcp-bulk", Group::Other, BULK, "TCP bulk beside AF_XDP generic").beside(STREAM),
    row("packet-poll", Group::Other, P50, "packet ring, round trip").on("packet", "poll").beside(SPINNING),
    row("packet-adaptive", Group::Other, P50, "packet ring, round trip")
        .on("packet", "adaptive")
        .beside(SLEEPING),
    row("packet-interrupt", Group::Other, P50, "packet ring, round trip")
        .on("packet", "interrupt")
        .beside(SLEEPING),
    row("packet-rate", Group::Other, RATE, "packet ring, rate").on("packet", "poll").beside(PLAIN_RATES),
    row("packet-tcp-rr", Group::Other, P50, "TCP request/response beside the packet ring").beside(RR),
    row("packet-tcp-bulk", Group::Other, BULK, "TCP bulk beside the packet ring").beside(STREAM),
    fallback::XDP_TAX_ROW,
    fallback::PACKET_TAX_ROW,
];

const fn compared(
    what: &'static str,
    kernel: &'static [&'static str],
    twinpath: &'static str,
    value: &'static str,
    better: Better,
) -> Compared {
    Compared { what, kernel, twinpath, value, better }
}

/// What a user sees of each, side by side.
pub(super) const SUMMARY: &[Compared] = &[
    compared("round trip, both ends spin", SPINNING, "twinpath-poll", P50, Better::Lower),
    compared("round trip, both ends sleep", SLEEPING, "twinpath-interrupt", P50, Better::Lower),
    compared("3,000 requests/s, median", PACED, "paced-twinpath", P50, Better::Lower),
    compared("    the slowest of 100", PACED, "paced-twinpath", "p99_us", Better::Lower),
    compared("    the server's CPU", PACED, "paced-twinpath", "cpu_server", Better::Lower),
    compared("replies per second, at most", PLAIN_RATES, "rate-twinpath", RATE, Better::Higher),
    compared("CPU per reply, at half of that", PLAIN_COSTS, "cpu-twinpath", COST, Better::Lower),
    compared("CPU without requests", &[], "idle-adaptive", "cpu_server", Better::Lower),
    compared("the kernel's TCP: round trip", RR, "tcp-rr-with", P50, Better::Lower),
    compared("the kernel's TCP: bulk", STREAM, "tcp-bulk-with", BULK, Better::Higher),
];

const fn ratio(
    id: &'static str,
    formula: Formula,
    better: Better,
    target: f64,
    what: &'static str,
) -> RatioSpec {
    RatioSpec::of_median(id, formula, better, target, what, super::CHECK_PAIRS)
}

const fn p50_over(top: &'static str, bottom: &'static [(&'static str, &'static str)]) -> Formula {
    Formula::Over { top: (top, P50), bottom }
}

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    ratio(
        "udp-rtt-poll",
        p50_over("twinpath-poll", &[("kernel-spinning", P50)]),
        Better::Lower,
        0.65,
        "round trip p50, poll, against kernel sockets spinning",
    ),
    ratio(
        "udp-rtt-adaptive",
        p50_over("twinpath-adaptive", &[("twinpath-poll", P50)]),
        Better::Lower,
        1.10,
        "round trip p50, adaptive back to back, against poll",
    ),
    ratio(
        "udp-rtt-interrupt",
        p50_over("twinpath-interrupt", &[("floor-eventfd", P50), ("twinpath-poll", P50)]),
        Better::Lower,
        1.25,
        "round trip p50, interrupt, against the eventfd floor plus poll",
    ),
    ratio(
        "udp-rtt-interrupt-vs-kernel",
        p50_over("twinpath-interrupt", &[("kernel-sleeping", P50)]),
        Better::Lower,
        0.95,
        "round trip p50, interrupt, against kernel sockets sleeping",
    ),
    ratio(
        "udp-rate",
        Formula::OverBest { top: ("rate-twinpath", RATE), rows: PLAIN_RATES, by: RATE, value: RATE },
        Better::Higher,
        1.5,
        "replies per second of one worker, against the best plain server",
    ),
    ratio(
        "udp-cpu-per-reply",
        Formula::Over { top: ("cpu-twinpath", COST), bottom: &[("cpu-kernel", COST)] },
        Better::Lower,
        0.65,
        "server CPU per reply at the same offered rate, interrupt, against the best plain server that sleeps",
    ),
    RatioSpec {
        judged: Judged::MedianStrictly,
        check_pairs: super::IDLE_CHECK_ROUNDS,
        also: &[(("idle-adaptive", "wakeups_per_s"), 10.0), (("idle-adaptive", "request_held"), 0.5)],
        ..ratio(
            "idle-cpu",
            Formula::Value(("idle-adaptive", "cpu_server")),
            Better::Lower,
            0.005,
            "share of a core of an idle adaptive server; also < 10 wake-ups/s, no request held",
        )
    },
    RatioSpec {
        judged: Judged::IntervalEnd,
        check_pairs: super::RR_CHECK_PAIRS,
        ..ratio(
            "tcp-rr-beside",
            p50_over("tcp-rr-with", &[("tcp-rr-without", P50)]),
            Better::Lower,
            1.05,
            "kernel TCP round trip p50, twinpath attached and idle, against without it",
        )
    },
    ratio(
        "tcp-bulk-beside",
        Formula::Over { top: ("tcp-bulk-with", BULK), bottom: &[("tcp-bulk-without", BULK)] },
        Better::Higher,
        0.90,
        "kernel TCP bulk, twinpath attached and idle, against without it",
    ),
    ratio(
        "allocations",
        Formula::Value(("twinpath-poll", "allocations_per_packet")),
        Better::Lower,
        0.0,
        "heap allocations per packet in steady state",
    ),
    ratio(
        "pool-mib",
        Formula::Value(("twinpath-poll", "pool_mib_per_queue")),
        Better::Lower,
        16.0,
        "frame memory per queue, MiB",
    ),
    fallback::XDP_TAX,
];
