//! The rows and ratios of `lab openflow`. Ids are stable; docs/measuring.md explains each.

use crate::lab::model::{self, Better, Formula, Group, RatioSpec, RowSpec};
use crate::lab::traffic::BULK;

pub(super) const MODS: &str = "mods_per_s";
pub(super) const DUMP: &str = "dump_s";
pub(super) const LIES: &str = "old_rule";
pub(super) const OFF: &str = "off";
pub(super) const LOST: &str = "lost";
pub(super) const CPU: &str = "cpu_server";
const P50: &str = "p50_us";
pub(super) const FRAMES: &str = "frames_per_s";
pub(super) const EXACT: &str = "exact_ns";
pub(super) const MASKS: &str = "masks_ns";
pub(super) const HOSTILE: &str = "hostile_ns";

const fn row(id: &'static str, group: Group, main: &'static str, label: &'static str) -> RowSpec {
    model::row(id, group, main, label)
}

/// Every row, in the order of the table.
pub(super) const ROWS: &[RowSpec] = &[
    row("mods-ovs", Group::FlowMods, MODS, "OVS, 100,000 flows"),
    row("mods-twinpath", Group::FlowMods, MODS, "twinpath, 100,000 flows").beside(&["mods-ovs"]),
    row("barrier-ovs", Group::Barrier, LIES, "OVS, of 10,000 packets"),
    row("barrier-twinpath", Group::Barrier, LIES, "twinpath, of 10,000 packets"),
    row("barrier-offloaded", Group::Barrier, LIES, "twinpath, of 10,000 packets, flows in the kernel"),
    row("counters-ovs", Group::FlowCounters, OFF, "OVS, 20,000 packets"),
    row("counters-twinpath", Group::FlowCounters, OFF, "twinpath, 20,000 packets"),
    row("counters-workers", Group::FlowCounters, OFF, "twinpath, 20,000 packets, none in the kernel"),
    row(
        "restart-twinpath",
        Group::Trouble,
        LOST,
        "kill -9 and a new start, 10 times, while the kernel forwards",
    ),
    row("rtt-bridge", Group::SwitchRtt, P50, "the kernel's bridge"),
    row("rtt-offloaded", Group::SwitchRtt, P50, "twinpath, flows in the kernel").beside(&["rtt-bridge"]),
    row("rtt-workers", Group::SwitchRtt, P50, "twinpath, flows in workers").beside(&["rtt-bridge"]),
    row("bulk-bridge", Group::SwitchBulk, BULK, "the kernel's bridge"),
    row("bulk-offloaded", Group::SwitchBulk, BULK, "twinpath, flows in the kernel").beside(&["bulk-bridge"]),
    row("bulk-workers", Group::SwitchBulk, BULK, "twinpath, flows in workers").beside(&["bulk-bridge"]),
    row("xdp-bare", Group::SwitchRate, FRAMES, "XDP frames, bare redirect by a map of devices"),
    row("xdp-offloaded", Group::SwitchRate, FRAMES, "XDP frames, twinpath, flows in drivers")
        .beside(&["xdp-bare"]),
    row("idle-of-ovs", Group::Idle, CPU, "OVS, 10,000 flows with timeouts"),
    row("idle-of-twinpath", Group::Idle, CPU, "twinpath, 10,000 flows with timeouts"),
    row("pipeline", Group::Pipeline, EXACT, "look-up and output of one frame, one thread"),
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

const fn value(row: &'static str, value: &'static str) -> Formula {
    Formula::Value((row, value))
}

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    ratio(
        "flow-mods",
        Formula::over("mods-twinpath", MODS, &[("mods-ovs", MODS)]),
        Better::Higher,
        3.0,
        "flow-mods/s over one connection, acknowledged by a barrier, against OVS",
    ),
    ratio("flow-dump", value("mods-twinpath", DUMP), Better::Lower, 1.0, "statistics of 100,000 flows, s"),
    ratio(
        "barrier-lies",
        value("barrier-twinpath", LIES),
        Better::Lower,
        0.0,
        "packets judged by the former rule after a barrier's reply, of 10,000",
    ),
    ratio(
        "barrier-lies-offloaded",
        value("barrier-offloaded", LIES),
        Better::Lower,
        0.0,
        "the same while the kernel forwards the flow that is changed",
    ),
    ratio(
        "counters-off",
        value("counters-twinpath", OFF),
        Better::Lower,
        0.0,
        "packets by which counters of flows, table and ports differ from those of the hosts",
    ),
    ratio(
        "counters-off-workers",
        value("counters-workers", OFF),
        Better::Lower,
        0.0,
        "the same while no flow is in the kernel",
    ),
    ratio(
        "restart-lost",
        value("restart-twinpath", LOST),
        Better::Lower,
        0.0,
        "packets of flows in the kernel that are lost while the process is killed and started anew, 10 times",
    ),
    ratio(
        "vs-bridge-rtt",
        Formula::over("rtt-offloaded", P50, &[("rtt-bridge", P50)]),
        Better::Lower,
        0.9,
        "round trip p50 of kernel UDP through flows in the kernel, against the kernel's bridge",
    ),
    ratio(
        "bulk-offloaded",
        Formula::over("bulk-offloaded", BULK, &[("bulk-bridge", BULK)]),
        Better::Higher,
        1.0,
        "kernel TCP bulk through flows in the kernel, against the kernel's bridge",
    ),
    ratio(
        "offload-xdp",
        Formula::over("xdp-offloaded", FRAMES, &[("xdp-bare", FRAMES)]),
        Better::Higher,
        0.85,
        "frames/s of XDP frames through flows in drivers, against a bare redirect by a map of devices",
    ),
    ratio(
        "idle-cpu-of",
        value("idle-of-twinpath", CPU),
        Better::Lower,
        0.002,
        "an idle switch with a controller and 10,000 flows with timeouts, share of a core",
    ),
    ratio(
        "pipeline-ns-exact",
        value("pipeline", EXACT),
        Better::Lower,
        60.0,
        "a frame in one exact table, ns",
    ),
    ratio("pipeline-ns-masks", value("pipeline", MASKS), Better::Lower, 180.0, "the same with 8 masks, ns"),
    ratio(
        "pipeline-hostile",
        Formula::over("pipeline", HOSTILE, &[("pipeline", MASKS)]),
        Better::Lower,
        3.0,
        "hostile headers (tuple-space explosion) against 8 masks",
    ),
];
