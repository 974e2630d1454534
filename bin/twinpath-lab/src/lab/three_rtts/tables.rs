//! The rows and ratios of `lab three-rtts`. Ids are stable; docs/measuring.md explains each.

use crate::lab::fallback;
use crate::lab::model::{self, Better, Formula, Group, Judged, RatioSpec, RowSpec};

const P50: &str = "p50_us";

const fn row(id: &'static str, group: Group, mode: &'static str, label: &'static str) -> RowSpec {
    RowSpec { mode: Some(mode), ..model::row(id, group, P50, label) }
}

const IDLE: Group = Group::Frames;
const LOADED: Group = Group::FramesLoaded;

/// Rows in the order of the table. "One thread": generator and worker share a thread, so that the application has the
/// other CPU to itself, because three spinning threads do not fit on two CPUs.
pub(super) const ROWS: &[RowSpec] = &[
    row("direct-poll", IDLE, "poll", "(a) direct: worker on the other CPU, spinning")
        .beside(&["packet-spinning"]),
    row("direct-interrupt", IDLE, "interrupt", "(a) direct: worker on the other CPU, sleeping")
        .beside(&["packet-sleeping"]),
    row("direct-one-thread", IDLE, "poll", "(a) direct: generator and worker in one thread"),
    row("shm-spinning", IDLE, "poll", "(b) shared memory, one thread + application, spinning")
        .beside(&["packet-spinning"]),
    row("shm-sleeping", IDLE, "interrupt", "(b) shared memory, one thread + application, sleeping")
        .beside(&["packet-sleeping"]),
    row("packet-spinning", IDLE, "poll", "(c) packet socket on the other CPU, spinning"),
    row("packet-sleeping", IDLE, "interrupt", "(c) packet socket on the other CPU, sleeping"),
    row("udp-spinning", IDLE, "poll", "(d) kernel UDP, spinning").beside(&["packet-spinning"]),
    row("udp-sleeping", IDLE, "interrupt", "(d) kernel UDP, sleeping").beside(&["packet-sleeping"]),
    row("floor-eventfd", IDLE, "interrupt", "floor: eventfd ping-pong"),
    row("direct-poll-loaded", LOADED, "poll", "(a) direct: worker on the other CPU, spinning")
        .beside(&["packet-spinning-loaded"]),
    row("direct-one-thread-loaded", LOADED, "poll", "(a) direct: generator and worker in one thread"),
    row("shm-spinning-loaded", LOADED, "poll", "(b) shared memory, one thread + application, spinning")
        .beside(&["packet-spinning-loaded"]),
    row("shm-sleeping-loaded", LOADED, "interrupt", "(b) shared memory, one thread + application, sleeping")
        .beside(&["packet-sleeping-loaded"]),
    row("packet-spinning-loaded", LOADED, "poll", "(c) packet socket on the other CPU, spinning"),
    row("packet-sleeping-loaded", LOADED, "interrupt", "(c) packet socket on the other CPU, sleeping"),
    row("udp-spinning-loaded", LOADED, "poll", "(d) kernel UDP, spinning")
        .beside(&["packet-spinning-loaded"]),
    fallback::ROWS[0],
    fallback::ROWS[1],
    fallback::ROWS[2],
];

const fn ratio(id: &'static str, formula: Formula, target: f64, what: &'static str) -> RatioSpec {
    RatioSpec {
        id,
        what,
        formula,
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
        "direct-vs-packet",
        Formula::Over { top: ("direct-poll", P50), bottom: &[("packet-spinning", P50)] },
        0.75,
        "round trip p50: service on a worker, poll, against a packet-socket application spinning",
    ),
    ratio(
        "shm-spin-extra-us",
        Formula::Difference { from: ("shm-spinning", P50), less: ("direct-one-thread", P50) },
        1.0,
        "round trip p50, us: what the way to another process and back adds, both sides spinning",
    ),
    ratio(
        "shm-sleep-vs-floor",
        Formula::Over {
            top: ("shm-sleeping", P50),
            bottom: &[("direct-one-thread", P50), ("floor-eventfd", P50)],
        },
        1.25,
        "round trip p50: another process, both sides sleeping, against direct plus one eventfd ping-pong",
    ),
];
