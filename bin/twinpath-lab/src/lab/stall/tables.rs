//! The rows and ratios of `lab stall`. Ids are stable; docs/measuring.md explains each.

use crate::lab::model::{self, Better, Formula, Group, RatioSpec, RowSpec};

const P999: &str = "p99_9_us";
/// Frames per second that the bulk traffic had, of those that the switch can carry.
pub(super) const BULK: &str = "bulk_per_s";

const fn row(id: &'static str, label: &'static str) -> RowSpec {
    model::row(id, Group::Stall, P999, label)
}

/// Every row, in the order of the table.
pub(super) const ROWS: &[RowSpec] = &[
    row("base-mods", "twinpath beside it: 100,000 flow-mods, over and over"),
    row("stall-mods", "twinpath: 100,000 flow-mods, over and over").beside(&["base-mods"]),
    row("ovs-base-mods", "OVS beside it: 100,000 flow-mods, over and over"),
    row("ovs-mods", "OVS: 100,000 flow-mods, over and over").beside(&["ovs-base-mods"]),
    row("base-replace", "twinpath beside it: 100,000 flows replaced each second"),
    row("stall-replace", "twinpath: 100,000 flows replaced each second").beside(&["base-replace"]),
    row("ovs-base-replace", "OVS beside it: 100,000 flows replaced each second"),
    row("ovs-replace", "OVS: 100,000 flows replaced each second").beside(&["ovs-base-replace"]),
    row("base-dump", "twinpath beside it: 100,000 flows asked for each second"),
    row("stall-dump", "twinpath: 100,000 flows asked for each second").beside(&["base-dump"]),
    row("ovs-base-dump", "OVS beside it: 100,000 flows asked for each second"),
    row("ovs-dump", "OVS: 100,000 flows asked for each second").beside(&["ovs-base-dump"]),
    row("base-barriers", "twinpath beside it: a barrier after each flow-mod"),
    row("stall-barriers", "twinpath: a barrier after each flow-mod").beside(&["base-barriers"]),
    row("ovs-base-barriers", "OVS beside it: a barrier after each flow-mod"),
    row("ovs-barriers", "OVS: a barrier after each flow-mod").beside(&["ovs-base-barriers"]),
    row("base-silent", "twinpath beside it: a controller that reads nothing, behind a flood of packet-ins"),
    row("stall-silent", "twinpath: a controller that reads nothing, behind a flood of packet-ins")
        .beside(&["base-silent"]),
    row("ovs-base-silent", "OVS beside it: a controller that reads nothing, behind a flood of packet-ins"),
    row("ovs-silent", "OVS: a controller that reads nothing, behind a flood of packet-ins")
        .beside(&["ovs-base-silent"]),
];

const fn ratio(id: &'static str, formula: Formula, what: &'static str) -> RatioSpec {
    RatioSpec::of_median(id, formula, Better::Lower, 1.2, what, super::CHECK_PAIRS)
}

/// Of Open vSwitch, without a target.
const fn theirs(id: &'static str, formula: Formula, what: &'static str) -> RatioSpec {
    RatioSpec { target: None, ..ratio(id, formula, what) }
}

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    ratio(
        "stall-p999-mods",
        Formula::over("stall-mods", P999, &[("base-mods", P999)]),
        "p99.9 of paced round trips, against the same beside a controller of nobody: 100,000 flow-mods, over and over",
    ),
    theirs("ovs-p999-mods", Formula::over("ovs-mods", P999, &[("ovs-base-mods", P999)]), "the same of OVS"),
    ratio(
        "stall-p999-replace",
        Formula::over("stall-replace", P999, &[("base-replace", P999)]),
        "p99.9 of paced round trips, against the same beside a controller of nobody: 100,000 flows replaced each second",
    ),
    theirs(
        "ovs-p999-replace",
        Formula::over("ovs-replace", P999, &[("ovs-base-replace", P999)]),
        "the same of OVS",
    ),
    ratio(
        "stall-p999-dump",
        Formula::over("stall-dump", P999, &[("base-dump", P999)]),
        "p99.9 of paced round trips, against the same beside a controller of nobody: 100,000 flows asked for each second",
    ),
    theirs("ovs-p999-dump", Formula::over("ovs-dump", P999, &[("ovs-base-dump", P999)]), "the same of OVS"),
    ratio(
        "stall-p999-barriers",
        Formula::over("stall-barriers", P999, &[("base-barriers", P999)]),
        "p99.9 of paced round trips, against the same beside a controller of nobody: a barrier after each flow-mod",
    ),
    theirs(
        "ovs-p999-barriers",
        Formula::over("ovs-barriers", P999, &[("ovs-base-barriers", P999)]),
        "the same of OVS",
    ),
    ratio(
        "stall-p999-silent",
        Formula::over("stall-silent", P999, &[("base-silent", P999)]),
        "p99.9 of paced round trips, against the same beside a controller of nobody: a controller that reads nothing, behind a flood of packet-ins",
    ),
    theirs(
        "ovs-p999-silent",
        Formula::over("ovs-silent", P999, &[("ovs-base-silent", P999)]),
        "the same of OVS",
    ),
];
