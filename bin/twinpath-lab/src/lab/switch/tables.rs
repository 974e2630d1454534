//! The rows and ratios of `lab switch`. Ids are stable; docs/measuring.md explains each.

use crate::lab::model::{self, AxisSpec, Better, Formula, Group, PlotSpec, RatioSpec, RowSpec, Series};
use crate::lab::traffic::BULK;

/// The row that is measured in the first round alone.
pub(super) const KILL9: &str = "kill9-bridge";
pub(super) const FRAMES: &str = "frames_per_s";
/// Frames that the source sends at once.
pub(super) const BATCH: &str = "batch";
pub(super) const LOOKUPS: &str = "lookups_per_s";
const P50: &str = "p50_us";
const P99: &str = "p99_us";
const CPU: &str = "cpu_server";

const fn row(id: &'static str, group: Group, main: &'static str, label: &'static str) -> RowSpec {
    RowSpec { path: Some("kernel"), ..model::row(id, group, main, label) }
}

impl RowSpec {
    /// A row of twinpath in that mode.
    const fn twinpath(self, mode: &'static str) -> Self {
        Self { mode: Some(mode), ..self }
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
    row("rate-twinpath", Group::SwitchRate, FRAMES, "twinpath, forwarded by the kernel")
        .beside(RATE_BRIDGE)
        .twinpath("adaptive"),
    row("rate-thread", Group::SwitchRate, FRAMES, "twinpath, the same, taken by a thread")
        .beside(RATE_BRIDGE)
        .twinpath("adaptive"),
    row("rate-worker", Group::SwitchRate, FRAMES, "twinpath, forwarded by its worker")
        .beside(RATE_BRIDGE)
        .twinpath("adaptive"),
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
    row("rtt-twinpath-kernel", Group::SwitchRtt, P50, "twinpath, forwarded by the kernel")
        .beside(RTT_BRIDGE)
        .twinpath("adaptive"),
    row("rtt-thread", Group::SwitchRtt, P50, "twinpath, the same, taken by a thread")
        .beside(RTT_BRIDGE)
        .twinpath("adaptive"),
    row("paced-bridge", Group::SwitchPaced, P50, "the kernel's bridge"),
    row("paced-ovs-netdev", Group::SwitchPaced, P50, "OVS, packet sockets").beside(PACED_BRIDGE),
    row("paced-twinpath", Group::SwitchPaced, P50, "twinpath, adaptive")
        .beside(PACED_BRIDGE)
        .twinpath("adaptive"),
    row(
        "flood-base",
        Group::SwitchOneWay,
        P50,
        "twinpath, a source that floods at an interface that is no port",
    )
    .twinpath("adaptive"),
    row("flood-limited", Group::SwitchOneWay, P50, "twinpath, at a port with a storm limit")
        .beside(&["flood-base"])
        .twinpath("adaptive"),
    row("flood-unlimited", Group::SwitchOneWay, P50, "twinpath, at a port without a limit")
        .beside(&["flood-base"])
        .twinpath("adaptive"),
    row("bulk-bridge", Group::SwitchBulk, BULK, "the kernel's bridge"),
    row("bulk-ovs-netdev", Group::SwitchBulk, BULK, "OVS, packet sockets").beside(BULK_BRIDGE),
    row("bulk-twinpath", Group::SwitchBulk, BULK, "twinpath, forwarded by its worker")
        .beside(BULK_BRIDGE)
        .twinpath("adaptive"),
    row("bulk-twinpath-kernel", Group::SwitchBulk, BULK, "twinpath, forwarded by the kernel")
        .beside(BULK_BRIDGE)
        .twinpath("adaptive"),
    row("vxlan-bulk-kernel", Group::SwitchBulk, BULK, "the kernel's bridges and VXLAN"),
    row("vxlan-bulk-twinpath", Group::SwitchBulk, BULK, "twinpath at both ends of VXLAN")
        .beside(&["vxlan-bulk-kernel"])
        .twinpath("adaptive"),
    row("vxlan-rtt-kernel", Group::SwitchRtt, P50, "the kernel's bridges and VXLAN"),
    row("vxlan-rtt-twinpath", Group::SwitchRtt, P50, "twinpath at both ends of VXLAN")
        .beside(&["vxlan-rtt-kernel"])
        .twinpath("adaptive"),
    row("idle-ovs-netdev", Group::Idle, CPU, "OVS, packet sockets, 10 ports"),
    row("idle-twinpath", Group::Idle, CPU, "twinpath, 10 ports").twinpath("adaptive"),
    row("ports-10", Group::SwitchRate, FRAMES, "twinpath, 10 ports, 8 of them idle").twinpath("adaptive"),
    row("ports-1000", Group::SwitchRate, FRAMES, "twinpath, 1,000 ports, 998 of them idle")
        .beside(&["ports-10"])
        .twinpath("adaptive"),
    row("loop-1", Group::SwitchLoop, FRAMES, "one loop, one frame per call"),
    row("threads-1", Group::SwitchLoop, FRAMES, "packet thread and control thread, one frame")
        .beside(&["loop-1"]),
    row("loop-64", Group::SwitchLoop, FRAMES, "one loop, up to 64 frames").beside(&["loop-1"]),
    row("threads-64", Group::SwitchLoop, FRAMES, "packet thread and control thread, up to 64")
        .beside(&["loop-1"]),
    row("memory-testpmd", Group::SwitchMemory, FRAMES, "testpmd, memif, without a look-up"),
    row("memory-twinpath", Group::SwitchMemory, FRAMES, "twinpath")
        .beside(&["memory-testpmd"])
        .twinpath("adaptive"),
    row("rate-bridge-1", Group::SwitchBatch, FRAMES, "the kernel's bridge, 1 frame per call"),
    row("rate-ovs-netdev-1", Group::SwitchBatch, FRAMES, "OVS, packet sockets, 1 frame per call"),
    row("rate-ovs-afxdp-1", Group::SwitchBatch, FRAMES, "OVS, AF_XDP, 1 frame per call"),
    row("rate-twinpath-1", Group::SwitchBatch, FRAMES, "twinpath in the kernel, 1 frame per call")
        .twinpath("adaptive"),
    row("rate-thread-1", Group::SwitchBatch, FRAMES, "twinpath in the kernel, a thread, 1 frame per call")
        .twinpath("adaptive"),
    row("rate-worker-1", Group::SwitchBatch, FRAMES, "twinpath's worker, 1 frame per call")
        .twinpath("adaptive"),
    row("rate-bridge-8", Group::SwitchBatch, FRAMES, "the kernel's bridge, 8 frames per call"),
    row("rate-ovs-netdev-8", Group::SwitchBatch, FRAMES, "OVS, packet sockets, 8 frames per call"),
    row("rate-ovs-afxdp-8", Group::SwitchBatch, FRAMES, "OVS, AF_XDP, 8 frames per call"),
    row("rate-twinpath-8", Group::SwitchBatch, FRAMES, "twinpath in the kernel, 8 frames per call")
        .twinpath("adaptive"),
    row("rate-thread-8", Group::SwitchBatch, FRAMES, "twinpath in the kernel, a thread, 8 frames per call")
        .twinpath("adaptive"),
    row("rate-worker-8", Group::SwitchBatch, FRAMES, "twinpath's worker, 8 frames per call")
        .twinpath("adaptive"),
    row("memory-twinpath-1", Group::SwitchBatch, FRAMES, "twinpath, memory ports, 1 at once")
        .twinpath("adaptive"),
    row("memory-twinpath-8", Group::SwitchBatch, FRAMES, "twinpath, memory ports, 8 at once")
        .twinpath("adaptive"),
    row("load-bridge-5k", Group::SwitchLoad, P50, "the kernel's bridge, 5,000/s"),
    row("load-ovs-netdev-5k", Group::SwitchLoad, P50, "OVS, packet sockets, 5,000/s"),
    row("load-ovs-afxdp-5k", Group::SwitchLoad, P50, "OVS, AF_XDP, 5,000/s"),
    row("load-twinpath-5k", Group::SwitchLoad, P50, "twinpath, 5,000/s").twinpath("adaptive"),
    row("load-bridge-20k", Group::SwitchLoad, P50, "the kernel's bridge, 20,000/s"),
    row("load-ovs-netdev-20k", Group::SwitchLoad, P50, "OVS, packet sockets, 20,000/s"),
    row("load-ovs-afxdp-20k", Group::SwitchLoad, P50, "OVS, AF_XDP, 20,000/s"),
    row("load-twinpath-20k", Group::SwitchLoad, P50, "twinpath, 20,000/s").twinpath("adaptive"),
    row("load-bridge-50k", Group::SwitchLoad, P50, "the kernel's bridge, 50,000/s"),
    row("load-ovs-netdev-50k", Group::SwitchLoad, P50, "OVS, packet sockets, 50,000/s"),
    row("load-ovs-afxdp-50k", Group::SwitchLoad, P50, "OVS, AF_XDP, 50,000/s"),
    row("load-twinpath-50k", Group::SwitchLoad, P50, "twinpath, 50,000/s").twinpath("adaptive"),
    row(KILL9, Group::Trouble, "worst_ms", "kill -9, until a kernel bridge passes frames")
        .twinpath("adaptive"),
    RowSpec {
        path: None,
        ..row("l2-lookup", Group::SwitchTable, LOOKUPS, "1,000,000 addresses, bursts of 64")
    },
];

/// Whether a row is measured for a plot alone.
pub(super) fn is_for_a_plot(id: &str) -> bool {
    ROWS.iter().any(|row| row.id == id && matches!(row.group, Group::SwitchBatch | Group::SwitchLoad))
}

const fn ratio(
    id: &'static str,
    formula: Formula,
    target: f64,
    better: Better,
    what: &'static str,
) -> RatioSpec {
    RatioSpec::of_median(id, formula, better, target, what, super::CHECK_PAIRS)
}

/// Without a target.
const fn reported(id: &'static str, formula: Formula, what: &'static str) -> RatioSpec {
    RatioSpec { target: None, ..ratio(id, formula, 0.0, Better::Higher, what) }
}

/// The plots of the report.
pub(super) const PLOTS: &[PlotSpec] = &[
    PlotSpec {
        title: "Rate against batch size",
        across: AxisSpec { value: BATCH, title: "frames that the source sends at once" },
        up: AxisSpec { value: FRAMES, title: "frames/s at the sink" },
        unit: "frames/s",
        up_to: None,
        series: &[
            Series {
                name: "the kernel's bridge",
                ours: false,
                rows: &["rate-bridge-1", "rate-bridge-8", "rate-bridge"],
            },
            Series {
                name: "OVS, packet sockets",
                ours: false,
                rows: &["rate-ovs-netdev-1", "rate-ovs-netdev-8", "rate-ovs-netdev"],
            },
            Series {
                name: "OVS, AF_XDP",
                ours: false,
                rows: &["rate-ovs-afxdp-1", "rate-ovs-afxdp-8", "rate-ovs-afxdp"],
            },
            Series {
                name: "twinpath, in the kernel",
                ours: true,
                rows: &["rate-twinpath-1", "rate-twinpath-8", "rate-twinpath"],
            },
            Series {
                name: "twinpath, in the kernel, by threads",
                ours: true,
                rows: &["rate-thread-1", "rate-thread-8", "rate-thread"],
            },
            Series {
                name: "twinpath, by its worker",
                ours: true,
                rows: &["rate-worker-1", "rate-worker-8", "rate-worker"],
            },
            Series {
                name: "twinpath, memory ports",
                ours: true,
                rows: &["memory-twinpath-1", "memory-twinpath-8", "memory-twinpath"],
            },
        ],
        caption: "Frames of 64 bytes through each switch. The source sends so many with one system call, or, at a memory \
                  port, before it tells the switch. The values are those of 1, 8 and 64 frames (32 at memory ports).",
    },
    PlotSpec {
        title: "Latency against rate",
        across: AxisSpec { value: "requests_per_s", title: "round trips per second" },
        up: AxisSpec { value: P50, title: "round trip p50, us" },
        unit: "us",
        up_to: Some(P99),
        series: &[
            Series {
                name: "the kernel's bridge",
                ours: false,
                rows: &["load-bridge-5k", "load-bridge-20k", "load-bridge-50k"],
            },
            Series {
                name: "OVS, packet sockets",
                ours: false,
                rows: &["load-ovs-netdev-5k", "load-ovs-netdev-20k", "load-ovs-netdev-50k"],
            },
            Series {
                name: "OVS, AF_XDP",
                ours: false,
                rows: &["load-ovs-afxdp-5k", "load-ovs-afxdp-20k", "load-ovs-afxdp-50k"],
            },
            Series {
                name: "twinpath",
                ours: true,
                rows: &["load-twinpath-5k", "load-twinpath-20k", "load-twinpath-50k"],
            },
        ],
        caption: "Kernel UDP between the hosts, with random gaps, at 5,000, 20,000 and 50,000 a second; further left is \
                  what could not be answered in time. The values are the p50 at these three; thin lines go up to p99.",
    },
];

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    ratio(
        "vs-ovs-netdev",
        Formula::over("rate-thread", FRAMES, &[("rate-ovs-netdev", FRAMES)]),
        3.0,
        Better::Higher,
        "frames/s of 64 B between two veths, taken and forwarded by a thread of the kernel, against OVS on packet sockets",
    ),
    ratio(
        "vs-ovs-afxdp",
        Formula::OverBest {
            top: ("rate-thread", FRAMES),
            rows: &["rate-ovs-afxdp", "rate-testpmd-afxdp"],
            by: FRAMES,
            value: FRAMES,
        },
        1.0,
        Better::Higher,
        "the same against the best of OVS and testpmd on AF_XDP",
    ),
    reported(
        "sender-vs-ovs-netdev",
        Formula::over("rate-twinpath", FRAMES, &[("rate-ovs-netdev", FRAMES)]),
        "frames/s of 64 B, taken and forwarded by the kernel in the sender's call, against OVS on packet sockets",
    ),
    reported(
        "sender-vs-ovs-afxdp",
        Formula::OverBest {
            top: ("rate-twinpath", FRAMES),
            rows: &["rate-ovs-afxdp", "rate-testpmd-afxdp"],
            by: FRAMES,
            value: FRAMES,
        },
        "the same against the best of OVS and testpmd on AF_XDP",
    ),
    reported(
        "worker-vs-ovs-netdev",
        Formula::over("rate-worker", FRAMES, &[("rate-ovs-netdev", FRAMES)]),
        "frames/s of 64 B through the worker, packet sockets both, against OVS",
    ),
    reported(
        "worker-vs-ovs-afxdp",
        Formula::OverBest {
            top: ("rate-worker", FRAMES),
            rows: &["rate-ovs-afxdp", "rate-testpmd-afxdp"],
            by: FRAMES,
            value: FRAMES,
        },
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
        Formula::over("rtt-twinpath-interrupt", P50, &[("rtt-ovs-netdev", P50)]),
        0.5,
        Better::Lower,
        "round trip p50 through a worker that sleeps, against OVS on packet sockets",
    ),
    ratio(
        "worker-rtt-paced",
        Formula::over("paced-twinpath", P50, &[("paced-bridge", P50)]),
        1.25,
        Better::Lower,
        "round trip p50, one request every 250 to 500 us, adaptive, against the kernel's bridge",
    ),
    ratio(
        "worker-rtt-paced-p99",
        Formula::over("paced-twinpath", P99, &[("paced-bridge", P99)]),
        1.5,
        Better::Lower,
        "the same, p99",
    ),
    ratio(
        "flood-others-p99",
        Formula::over("flood-limited", P99, &[("flood-base", P99)]),
        1.2,
        Better::Lower,
        "p99 from interface to interface while a third port floods 200,000 frames/s against its storm limit, over that without the port",
    ),
    RatioSpec {
        better: Better::Lower,
        ..reported(
            "flood-unlimited-p99",
            Formula::over("flood-unlimited", P99, &[("flood-base", P99)]),
            "the same without a limit: all is flooded to the others",
        )
    },
    ratio(
        "bulk-worker",
        Formula::over("bulk-twinpath", BULK, &[("bulk-bridge", BULK)]),
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
    RatioSpec {
        check_pairs: super::PORTS_ROUNDS,
        ..ratio(
            "ports-1000",
            Formula::over("ports-1000", "cpu_us_per_frame", &[("ports-10", "cpu_us_per_frame")]),
            1.1,
            Better::Lower,
            "CPU per frame of a switch with 1,000 ports, two in use, against one with 10",
        )
    },
    ratio(
        "l2-lookup",
        Formula::Value(("l2-lookup", LOOKUPS)),
        25e6,
        Better::Higher,
        "look-ups per second in a MAC table of 1,000,000 addresses, in bursts",
    ),
    ratio(
        "memory-ports",
        Formula::over("memory-twinpath", FRAMES, &[("memory-testpmd", FRAMES)]),
        1.5,
        Better::Higher,
        "frames/s of 64 B between two memory ports of other processes, against testpmd between two memif ports",
    ),
    reported(
        "memory-ports-mpps",
        Formula::Value(("memory-twinpath", "mpps")),
        "the same, million frames/s; the aim is 20",
    ),
    reported(
        "vxlan-bulk",
        Formula::over("vxlan-bulk-twinpath", BULK, &[("vxlan-bulk-kernel", BULK)]),
        "kernel TCP bulk between hosts at two switches with VXLAN between them, against the kernel's bridges and VXLAN",
    ),
    RatioSpec {
        better: Better::Lower,
        ..reported(
            "vxlan-rtt",
            Formula::over("vxlan-rtt-twinpath", P50, &[("vxlan-rtt-kernel", P50)]),
            "the same, round trip p50",
        )
    },
    RatioSpec {
        check_pairs: 1,
        ..ratio(
            "switch-fail-open-ms",
            Formula::Value((KILL9, "worst_ms")),
            50.0,
            Better::Lower,
            "kill -9 with --on-exit bridge, until frames pass again, worst of 20, ms",
        )
    },
    reported(
        "loop-to-threads",
        Formula::over("threads-1", FRAMES, &[("loop-1", FRAMES)]),
        "frames/s of a packet thread beside control over those of one loop, one frame per call",
    ),
    reported(
        "loop-to-threads-64",
        Formula::over("threads-64", FRAMES, &[("loop-64", FRAMES)]),
        "the same, up to 64 frames per call",
    ),
];
