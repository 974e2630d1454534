//! The rows and ratios of `lab sockets`. Ids are stable; docs/measuring.md explains each.

use crate::lab::model::{self, Better, Formula, Group, Judged, RatioSpec, RowSpec};

const P50: &str = "p50_us";

const fn row(id: &'static str, mode: &'static str, label: &'static str) -> RowSpec {
    RowSpec { mode: Some(mode), ..model::row(id, Group::Rtt, P50, label) }
}

/// Rows in the order of the table.
pub(super) const ROWS: &[RowSpec] = &[
    row("service-spinning", "poll", "a service on a worker, spinning").beside(&["kernel-spinning"]),
    row("own-spinning", "poll", "our socket in an application's thread, spinning")
        .beside(&["kernel-spinning"]),
    row("kernel-spinning", "poll", "a kernel socket in an application's thread, spinning"),
    row("own-loop-sleeping", "interrupt", "a loop with our socket, a pipe and a timer, sleeping")
        .beside(&["kernel-loop-sleeping"]),
    row("kernel-loop-sleeping", "interrupt", "the same loop with a kernel socket"),
];

const fn ratio(
    id: &'static str,
    [top, bottom]: [&'static str; 2],
    target: f64,
    what: &'static str,
) -> RatioSpec {
    // A reference to a constant must be one itself.
    let bottom: &[(&str, &str)] = match bottom.as_bytes() {
        b"service-spinning" => &[("service-spinning", P50)],
        b"kernel-spinning" => &[("kernel-spinning", P50)],
        _ => &[("kernel-loop-sleeping", P50)],
    };
    RatioSpec {
        id,
        what,
        formula: Formula::Over { top: (top, P50), bottom },
        target: Some(target),
        better: Better::Lower,
        judged: Judged::Median,
        check_pairs: super::CHECK_PAIRS,
        also: &[],
        steady: None,
    }
}

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    ratio(
        "sock-own-loop",
        ["own-spinning", "service-spinning"],
        1.15,
        "round trip p50: UDP echo by our socket in an application's thread, spinning, against a service on a worker",
    ),
    ratio(
        "sock-vs-kernel",
        ["own-spinning", "kernel-spinning"],
        0.75,
        "round trip p50: the same against a kernel socket, spinning",
    ),
    ratio(
        "sock-epoll-sleep",
        ["own-loop-sleeping", "kernel-loop-sleeping"],
        1.05,
        "round trip p50: a sleeping loop with our socket, a pipe and a timer, against the same with a kernel socket",
    ),
];
