//! The rows and ratios of `lab wakeup`. Ids are stable; docs/measuring.md explains each.

use super::cases::{AVERAGE, CASES};
use crate::lab::model::{Better, Formula, Group, Judged, RatioSpec, RowSpec, row};

/// Rows that are computed from others, or do not measure the latency of packets.
const OTHERS: [RowSpec; 8] = [
    row(
        "interrupt-floor",
        Group::Wake,
        "worst",
        "interrupt over its floor, the worse with and without request",
    ),
    RowSpec {
        path: Some("auto"),
        mode: Some("adaptive"),
        ..row("silence", Group::Idle, "cpu_server", "twinpath, adaptive, silence")
    },
    RowSpec {
        path: Some("auto"),
        mode: Some("adaptive"),
        ..row(
            "idle-after-load",
            Group::Idle,
            "cpu_worker",
            "twinpath, adaptive, silence after 20,000 packets/s, a busy process on each CPU",
        )
    },
    RowSpec {
        path: Some("auto"),
        ..row(
            "mode-kept",
            Group::Switching,
            "lost",
            "100,000 packets/s, the mode that is in force set again and again",
        )
    },
    RowSpec {
        path: Some("auto"),
        ..row("mode-switching", Group::Switching, "lost", "100,000 packets/s, modes switched with `set`")
    },
    row("tick", Group::Tick, "excess_low", "wake-ups near a multiple of 1/HZ, beyond chance, worst row"),
    row("policy-fixed", Group::Policy, "worst", "cost against the best fixed setting, worst trace"),
    row("policy-oracle", Group::Policy, "worst", "cost against an oracle, worst regular trace"),
];

/// Rows in the order of the table.
pub(super) const ROWS: &[RowSpec] = &{
    let mut rows = [OTHERS[0]; CASES.len() + OTHERS.len()];
    let mut at = 0;
    while at < rows.len() {
        rows[at] = if at < CASES.len() { CASES[at].row } else { OTHERS[at - CASES.len()] };
        at += 1;
    }
    rows
};

/// Rows whose worst value is `tick`: their receiver sleeps, and cannot be delayed by a competing process.
pub(super) const TICK_ROWS: &[&str] = &[
    "twinpath-interrupt",
    "twinpath-interrupt-request",
    "twinpath-adaptive",
    "twinpath-adaptive-fifo",
    "twinpath-interrupt-1ms",
    "twinpath-interrupt-request-1ms",
    "twinpath-adaptive-1ms",
    "twinpath-interrupt-10ms",
    "twinpath-interrupt-request-10ms",
    "twinpath-adaptive-10ms",
    "twinpath-interrupt-poisson",
    "twinpath-adaptive-poisson",
    "twinpath-adaptive-budget-poisson",
    "twinpath-interrupt-bursts",
    "twinpath-adaptive-bursts",
    "twinpath-adaptive-fifo-neighbour",
];

/// The rows of `interrupt-floor`.
pub(super) const FLOOR_ROWS: &[&str] = &[
    "twinpath-interrupt",
    "twinpath-interrupt-request",
    "floor-eventfd",
    "floor-eventfd-request",
    "twinpath-poll",
];

/// Rows that need others measured before them.
pub(super) const TOGETHER: &[(&str, &[&str])] = &[("interrupt-floor", FLOOR_ROWS), ("tick", TICK_ROWS)];

const fn ratio(
    id: &'static str,
    formula: Formula,
    better: Better,
    target: f64,
    what: &'static str,
) -> RatioSpec {
    let (judged, check_pairs) = (Judged::Median, super::CHECK_PAIRS);
    RatioSpec {
        id,
        what,
        formula,
        target: Some(target),
        better,
        judged,
        check_pairs,
        also: &[],
        steady: None,
    }
}

impl RatioSpec {
    const fn of_pairs(self, check_pairs: usize) -> Self {
        Self { check_pairs, ..self }
    }
}

const fn average(top: &'static str, bottom: &'static [(&'static str, &'static str)]) -> Formula {
    Formula::Over { top: (top, AVERAGE), bottom }
}

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    ratio(
        "wake350-avg-vs-spin",
        average("twinpath-adaptive", &[("kernel-spinning", AVERAGE)]),
        Better::Lower,
        1.25,
        "average, one packet per 250 to 500 us: adaptive against kernel sockets spinning",
    ),
    ratio(
        "wake350-interrupt-floor",
        Formula::Value(("interrupt-floor", "worst")),
        Better::Lower,
        1.15,
        "p50: interrupt against one eventfd wake-up at the same pace plus poll; the worse with and without request",
    ),
    ratio(
        "wake350-poisson",
        average("twinpath-adaptive-budget-poisson", &[("twinpath-interrupt-poisson", AVERAGE)]),
        Better::Lower,
        0.95,
        "average, Poisson arrivals: adaptive with cpu = 15% against interrupt without request",
    ),
    ratio(
        "wake350-p999-vs-poll",
        Formula::Over { top: ("twinpath-adaptive", "p99_9_us"), bottom: &[("twinpath-poll", "p99_9_us")] },
        Better::Lower,
        1.5,
        "p99.9: adaptive against poll",
    ),
    ratio(
        "wake350-cpu",
        Formula::Value(("twinpath-adaptive", "cpu_server")),
        Better::Lower,
        0.12,
        "share of a core that adaptive uses",
    ),
    ratio(
        "wake350-p99-vs-sleep",
        Formula::Over { top: ("twinpath-adaptive", "p99_us"), bottom: &[("kernel-sleeping", "p99_us")] },
        Better::Lower,
        1.0,
        "p99: adaptive against kernel sockets sleeping, at normal priority",
    ),
    ratio(
        "wake350-p999-vs-sleep",
        Formula::Over { top: ("twinpath-adaptive", "p99_9_us"), bottom: &[("kernel-sleeping", "p99_9_us")] },
        Better::Lower,
        1.0,
        "p99.9: adaptive against kernel sockets sleeping, at normal priority",
    ),
    ratio(
        "wake350-p99-vs-sleep-fifo",
        Formula::Over { top: ("twinpath-adaptive", "p99_us"), bottom: &[("kernel-sleeping-fifo", "p99_us")] },
        Better::Lower,
        1.5,
        "p99: adaptive against kernel sockets sleeping, at the priority that adaptive may have",
    ),
    ratio(
        "slice-p99-vs-sleep",
        Formula::Over {
            top: ("twinpath-adaptive-slice", "p99_us"),
            bottom: &[("kernel-sleeping", "p99_us")],
        },
        Better::Lower,
        1.0,
        "p99: adaptive without the privilege against kernel sockets sleeping, at normal priority",
    ),
    ratio(
        "slice-p999-vs-sleep",
        Formula::Over {
            top: ("twinpath-adaptive-slice", "p99_9_us"),
            bottom: &[("kernel-sleeping", "p99_9_us")],
        },
        Better::Lower,
        1.0,
        "p99.9 of the same",
    ),
    ratio(
        "slice-neighbour-p99-vs-sleep",
        Formula::Over {
            top: ("twinpath-adaptive-slice-neighbour", "p99_us"),
            bottom: &[("kernel-sleeping-neighbour", "p99_us")],
        },
        Better::Lower,
        1.0,
        "p99 of the same, both beside a process that wants the CPU",
    ),
    ratio(
        "slice-neighbour-p999-vs-sleep",
        Formula::Over {
            top: ("twinpath-adaptive-slice-neighbour", "p99_9_us"),
            bottom: &[("kernel-sleeping-neighbour", "p99_9_us")],
        },
        Better::Lower,
        1.0,
        "p99.9 of the same, both beside a process that wants the CPU",
    ),
    ratio(
        "interrupt-vs-kernel-sleeping",
        Formula::Over { top: ("twinpath-interrupt", "p50_us"), bottom: &[("kernel-sleeping", "p50_us")] },
        Better::Lower,
        1.05,
        "p50: interrupt against kernel sockets sleeping, neither with a latency request",
    ),
    ratio(
        "wake350-avg-vs-request",
        average("twinpath-adaptive", &[("kernel-request", AVERAGE)]),
        Better::Lower,
        0.9,
        "average: adaptive against kernel sockets sleeping with a latency request held",
    ),
    ratio(
        "wake10-avg-vs-poll",
        average("twinpath-adaptive-10us", &[("twinpath-poll-10us", AVERAGE)]),
        Better::Lower,
        1.05,
        "average, one packet per 10 us: adaptive against poll",
    ),
    RatioSpec {
        judged: Judged::MedianStrictly,
        also: &[(("silence", "wakeups_per_s"), 2.0), (("silence", "request_held"), 0.5)],
        ..ratio(
            "silent-cpu",
            Formula::Value(("silence", "cpu_server")),
            Better::Lower,
            0.002,
            "share of a core in silence; also < 2 wake-ups/s, no request held",
        )
        .of_pairs(1)
    },
    ratio(
        "idle-after-load-cpu",
        Formula::Value(("idle-after-load", "cpu_worker")),
        Better::Lower,
        0.002,
        "share of a core that the worker takes from 2 s after 20,000 packets/s ended, beside busy processes",
    )
    .of_pairs(1),
    ratio(
        "neighbour-avg",
        average("twinpath-adaptive-neighbour", &[("twinpath-adaptive", AVERAGE)]),
        Better::Lower,
        1.5,
        "average: adaptive beside a process that wants the CPU against without it",
    ),
    ratio(
        "neighbour-work",
        Formula::Over {
            top: ("twinpath-adaptive-neighbour", "neighbour_per_s"),
            bottom: &[("neighbour-alone", "neighbour_per_s")],
        },
        Better::Higher,
        0.80,
        "work that process gets done beside adaptive against its work alone on that CPU",
    ),
    ratio(
        "mode-switch-lost",
        Formula::Value(("mode-switching", "lost")),
        Better::Lower,
        0.0,
        "packets lost while modes are switched at 100,000 packets/s",
    )
    .of_pairs(3),
    ratio(
        "policy-vs-fixed",
        Formula::Value(("policy-fixed", "worst")),
        Better::Lower,
        1.05,
        "replay: cost of the learnt policy against the best fixed setting, worst over traces and weights",
    )
    .of_pairs(1),
    ratio(
        "policy-vs-oracle",
        Formula::Value(("policy-oracle", "worst")),
        Better::Lower,
        1.3,
        "replay: cost against an oracle, worst over regular traces and weights",
    )
    .of_pairs(1),
    ratio(
        "tick-mode",
        Formula::Value(("tick", "excess_low")),
        Better::Lower,
        0.0,
        "share of wake-ups within 5 % of k/HZ beyond chance: lower end of its 95 % interval, worst row",
    )
    .of_pairs(1),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::cases::case_of;
    use super::*;

    #[test]
    fn ratios_are_made_of_rows_of_every_round() {
        let rows: BTreeSet<_> = ROWS.iter().map(|row| row.id).collect();
        assert_eq!(rows.len(), ROWS.len());
        let derived = [FLOOR_ROWS];
        let needed = RATIOS.iter().flat_map(|ratio| ratio.formula.rows());
        for id in needed.chain(derived.into_iter().flatten().copied()) {
            assert!(rows.contains(id), "{id}");
            assert!(case_of(id).is_none_or(|case| case.often), "{id}");
        }
        assert!(TICK_ROWS.iter().all(|id| rows.contains(id)));
    }

    #[test]
    fn the_documentation_has_every_id() {
        let text = include_str!("../../../../../docs/measuring.md");
        let ratios = RATIOS.iter().map(|ratio| ratio.id);
        // The documentation describes rows with other arrivals and beside a competing process by the ends of their
        // names.
        let plain = ROWS
            .iter()
            .map(|row| row.id)
            .filter(|id| case_of(id).is_none_or(|case| matches!(case.row.group, Group::Wake)));
        for id in ratios.chain(plain) {
            assert!(text.contains(&format!("`{id}`")), "{id}");
        }
    }
}
