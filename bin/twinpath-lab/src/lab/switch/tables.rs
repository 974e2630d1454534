//! The rows and ratios of `lab switch`. Ids are stable; docs/measuring.md explains each.

use crate::lab::model::{Better, Formula, Group, Judged, RatioSpec, RowSpec};

pub(super) const FRAMES: &str = "frames_per_s";
pub(super) const LOOKUPS: &str = "lookups_per_s";
pub(super) const BULK: &str = "gbit_per_s";
const P50: &str = "p50_us";
const P99: &str = "p99_us";
const CPU: &str = "cpu_server";

const fn row(id: &'static str, group: Group, main: &'static str, label: &'static str) -> RowSpec {
    RowSpec { id, label, group, path: Some("kernel"), mode: None, main, base: &[] }
}

impl RowSpec {
    /// A row of twinpath in that mode.
    const fn twinpath(self, mode: &'static str) -> Self {
        Self { mode: Some(mode), ..self }
    }

    const fn beside(self, base: &'static [&'static str]) -> Self {
        Self { base, ..self }
    }
}

const RATE_BRIDGE: &[&str] = &["rate-bridge"];
const RTT_BRIDGE: &[&str] = &["rtt-bridge"];
const PACED_BRIDGE: &[&str] = &["paced-bridge"];
const BULK_BRIDGE: &[&str] = &["bulk-bridge"];

/// Every row, in the order of the table.
pub(super) const ROWS: &[RowSpec] = &[
    row("rate-bridge", Group::SwitchRate, FRAMES, "the kernel's bridge"),
    row("rate-ovs-netdev", Group::SwitchRate, FRAMES, "OVS, packet sockets").beside(RATE_BRIDGE),
    row("rate-ovs-afxdp", Group::SwitchRate, FRAMES, "OVS, AF_XDP").beside(RATE_BRIDGE),
    row("rate-testpmd-packet", Group::SwitchRate, FRAMES, "testpmd, packet sockets").beside(RATE_BRIDGE),
    row("rate-testpmd-afxdp", Group::SwitchRate, FRAMES, "testpmd, AF_XDP").beside(RATE_BRIDGE),
    row("rate-xdp-redirect", Group::SwitchRate, FRAMES, "bare XDP redirect").beside(RATE_BRIDGE),
    row("rate-twinpath", Group::SwitchRate, FRAMES, "twinpath").beside(RATE_BRIDGE).twinpath("adaptive"),
    row("rtt-bridge", Group::SwitchRtt, P50, "the kernel's bridge"),
    row("rtt-ovs-netdev", Group::SwitchRtt, P50, "OVS, packet sockets, sleeping").beside(RTT_BRIDGE),
    row("rtt-ovs-afxdp", Group::SwitchRtt, P50, "OVS, AF_XDP, polling").beside(RTT_BRIDGE),
    row("rtt-testpmd-packet", Group::SwitchRtt, P50, "testpmd, packet sockets, polling").beside(RTT_BRIDGE),
    row("rtt-testpmd-afxdp", Group::SwitchRtt, P50, "testpmd, AF_XDP, polling").beside(RTT_BRIDGE),
    row("rtt-xdp-redirect", Group::SwitchRtt, P50, "bare XDP redirect").beside(RTT_BRIDGE),
    row("rtt-twinpath-poll", Group::SwitchRtt, P50, "twinpath, polling").beside(RTT_BRIDGE).twinpath("poll"),
    row("rtt-twinpath-interrupt", Group::SwitchRtt, P50, "twinpath, sleeping")
        .beside(RTT_BRIDGE)
        .twinpath("interrupt"),
    row("paced-bridge", Group::SwitchPaced, P50, "the kernel's bridge"),
    row("paced-ovs-netdev", Group::SwitchPaced, P50, "OVS, packet sockets").beside(PACED_BRIDGE),
    row("paced-twinpath", Group::SwitchPaced, P50, "twinpath, adaptive")
        .beside(PACED_BRIDGE)
        .twinpath("adaptive"),
    row("bulk-bridge", Group::SwitchBulk, BULK, "the kernel's bridge"),
    row("bulk-ovs-netdev", Group::SwitchBulk, BULK, "OVS, packet sockets").beside(BULK_BRIDGE),
    row("bulk-twinpath", Group::SwitchBulk, BULK, "twinpath").beside(BULK_BRIDGE).twinpath("adaptive"),
    row("idle-ovs-netdev", Group::Idle, CPU, "OVS, packet sockets, 10 ports"),
    row("idle-twinpath", Group::Idle, CPU, "twinpath, 10 ports").twinpath("adaptive"),
    RowSpec {
        path: None,
        ..row("l2-lookup", Group::SwitchTable, LOOKUPS, "1,000,000 addresses, bursts of 64")
    },
];

const fn ratio(
    id: &'static str,
    formula: Formula,
    target: f64,
    better: Better,
    what: &'static str,
) -> RatioSpec {
    RatioSpec {
        id,
        what,
        formula,
        target: Some(target),
        better,
        judged: Judged::Median,
        check_pairs: super::CHECK_PAIRS,
        also: &[],
    }
}

const fn over(
    row: &'static str,
    bottom: &'static [(&'static str, &'static str)],
    value: &'static str,
) -> Formula {
    Formula::Over { top: (row, value), bottom }
}

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    ratio(
        "vs-ovs-netdev",
        over("rate-twinpath", &[("rate-ovs-netdev", FRAMES)], FRAMES),
        3.0,
        Better::Higher,
        "frames/s of 64 B between two veths, against OVS on packet sockets",
    ),
    ratio(
        "vs-ovs-afxdp",
        Formula::OverBest {
            top: ("rate-twinpath", FRAMES),
            rows: &["rate-ovs-afxdp", "rate-testpmd-afxdp"],
            by: FRAMES,
            value: FRAMES,
        },
        1.0,
        Better::Higher,
        "the same against the best of OVS and testpmd on AF_XDP",
    ),
    ratio(
        "worker-rtt-poll",
        Formula::OverBest {
            top: ("rtt-twinpath-poll", P50),
            rows: &["rtt-ovs-afxdp", "rtt-testpmd-afxdp"],
            by: "requests_per_s",
            value: P50,
        },
        1.0,
        Better::Lower,
        "round trip p50 through a worker that polls, against the best of OVS and testpmd on AF_XDP",
    ),
    ratio(
        "worker-rtt-sleep",
        over("rtt-twinpath-interrupt", &[("rtt-ovs-netdev", P50)], P50),
        0.5,
        Better::Lower,
        "round trip p50 through a worker that sleeps, against OVS on packet sockets",
    ),
    ratio(
        "worker-rtt-paced",
        over("paced-twinpath", &[("paced-bridge", P50)], P50),
        1.25,
        Better::Lower,
        "round trip p50, one request every 250 to 500 us, adaptive, against the kernel's bridge",
    ),
    ratio(
        "worker-rtt-paced-p99",
        over("paced-twinpath", &[("paced-bridge", P99)], P99),
        1.5,
        Better::Lower,
        "the same, p99",
    ),
    ratio(
        "bulk-worker",
        over("bulk-twinpath", &[("bulk-bridge", BULK)], BULK),
        0.5,
        Better::Higher,
        "kernel TCP bulk through the worker, against the kernel's bridge",
    ),
    RatioSpec {
        check_pairs: super::IDLE_CHECK_ROUNDS,
        ..ratio(
            "idle-cpu",
            Formula::Value(("idle-twinpath", CPU)),
            0.002,
            Better::Lower,
            "an idle switch with 10 ports, share of a core",
        )
    },
    ratio(
        "l2-lookup",
        Formula::Value(("l2-lookup", LOOKUPS)),
        25e6,
        Better::Higher,
        "look-ups per second in a MAC table of 1,000,000 addresses, in bursts",
    ),
];
