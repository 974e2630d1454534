//! The rows and ratios of `lab stall`. Ids are stable; docs/measuring.md explains each.

use crate::lab::model::{self, Better, Formula, Group, RatioSpec, RowSpec};

const P999: &str = "p99_9_us";
/// Frames per second that the bulk traffic had, of those that the switch can carry.
pub(super) const BULK: &str = "bulk_per_s";
/// The longest turn of a worker by its thread's CPU time.
pub(super) const TURN: &str = "turn_max_us";
/// System calls of a worker that are none of the packet path.
pub(super) const OTHER_CALLS: &str = "other_calls";
/// By how much two undisturbed runs may differ where a row is decided.
const STEADY: f64 = 1.1;

const fn row(id: &'static str, label: &'static str) -> RowSpec {
    model::row(id, Group::Stall, P999, label)
}

const fn ratio(id: &'static str, formula: Formula, what: &'static str) -> RatioSpec {
    RatioSpec::of_median(id, formula, Better::Lower, 1.2, what, super::CHECK_PAIRS)
}

/// The rows and ratios of each disturbance: undisturbed, undisturbed once more, disturbed, and of Open vSwitch.
macro_rules! disturbances {
    ($(($name:literal, $label:literal)),* $(,)?) => {
        /// Every row, in the order of the table.
        pub(super) const ROWS: &[RowSpec] = &[$(
            row(concat!("base-", $name), concat!("undisturbed: ", $label)),
            row(concat!("again-", $name), concat!("undisturbed once more: ", $label))
                .beside(&[concat!("base-", $name)]),
            row(concat!("stall-", $name), concat!("twinpath: ", $label)).beside(&[concat!("base-", $name)]),
            row(concat!("ovs-", $name), concat!("OVS: ", $label)).beside(&[concat!("stall-", $name)]),
        )*];

        /// The targets.
        pub(super) const RATIOS: &[RatioSpec] = &[$(
            RatioSpec {
                also: &[((concat!("stall-", $name), OTHER_CALLS), 0.5)],
                ..ratio(
                    concat!("stall-turn-", $name),
                    Formula::over(
                        concat!("stall-", $name),
                        TURN,
                        &[(concat!("base-", $name), TURN)],
                    ),
                    concat!("longest turn of the worker by CPU time, against undisturbed: ", $label),
                )
            },
            RatioSpec {
                steady: Some((
                    Formula::over(
                        concat!("again-", $name),
                        P999,
                        &[(concat!("base-", $name), P999)],
                    ),
                    STEADY,
                )),
                ..ratio(
                    concat!("stall-p999-", $name),
                    Formula::over(
                        concat!("stall-", $name),
                        P999,
                        &[(concat!("base-", $name), P999)],
                    ),
                    concat!("p99.9 of paced frames, against undisturbed: ", $label),
                )
            },
        )*];
    };
}

disturbances![
    ("mods", "100,000 flow-mods, over and over"),
    ("priorities", "65,500 flows of one match and as many priorities, over and over"),
    ("replace", "100,000 flows replaced each second"),
    ("dump", "100,000 flows asked for each second"),
    ("barriers", "a barrier after each flow-mod"),
    ("silent", "a controller that reads nothing, behind a flood of packet-ins"),
    ("log", "1,000 lines a second for a log that nobody reads"),
    ("resolver", "a controller's name that no resolver answers"),
    ("ports", "100 ports added and removed, over and over"),
    ("macs", "65,536 source addresses"),
    ("hostile", "1,024 masks, and headers that search them (tuple-space explosion)"),
];
