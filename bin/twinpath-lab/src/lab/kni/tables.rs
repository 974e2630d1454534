//! The rows and ratios of `lab kni`. Ids are stable; docs/measuring.md explains each.

use crate::lab::fallback;
use crate::lab::model::{Better, Cell, Formula, Group, Judged, RatioSpec, RowSpec, row};

const WALL: &str = "wall_s";
const P99_9: &str = "p99_9_us";

impl RowSpec {
    /// With a program of ours in this mode.
    const fn ours(self, mode: &'static str) -> Self {
        Self { path: Some("auto"), mode: Some(mode), base: PLAIN, ..self }
    }

    const fn kernels(self) -> Self {
        Self { base: PLAIN, ..self }
    }
}

/// The row of a worker that is stopped and runs again.
const fn stuck(id: &'static str, path: &'static str, mode: &'static str, label: &'static str) -> RowSpec {
    RowSpec { path: Some(path), mode: Some(mode), ..row(id, Group::Trouble, "worst_ms", label) }
}

const PLAIN: &[&str] = &["nfs-plain"];

/// Every row, in the order of the table.
pub(super) const ROWS: &[RowSpec] = &[
    row("nfs-plain", Group::Walk, WALL, "plain veth"),
    row("nfs-plain-again", Group::Walk, WALL, "plain veth once more: the noise of the method").kernels(),
    row("nfs-attached", Group::Walk, WALL, "twinpath attached, idle, adaptive").ours("adaptive"),
    row("nfs-busy", Group::Walk, WALL, "twinpath serving 50,000/s, adaptive").ours("adaptive"),
    row("nfs-busy-kernel", Group::Walk, WALL, "a kernel service serving the same").kernels(),
    row("nfs-exception", Group::Walk, WALL, "through the exception port").ours("adaptive"),
    row("nfs-exception-workers", Group::Walk, WALL, "the same, workers carry").ours("interrupt"),
    row(LISTING_PLAIN, Group::Walk, WALL, "in a guest, `ls -last -R`: plain veth"),
    RowSpec {
        base: &[LISTING_PLAIN],
        ..row(LISTING_ATTACHED, Group::Walk, WALL, "the same, twinpath attached, idle").ours("adaptive")
    },
    RowSpec {
        base: &[LISTING_PLAIN],
        ..row(LISTING_EXCEPTION, Group::Walk, WALL, "the same, through the exception port").ours("adaptive")
    },
    row("transit-plain", Group::Transit, P99_9, "plain veth"),
    row("transit-attached", Group::Transit, P99_9, "twinpath attached, idle"),
    row("transit-busy", Group::Transit, P99_9, "twinpath busy"),
    row("transit-busy-kernel", Group::Transit, P99_9, "a kernel service busy"),
    row("transit-exception", Group::Transit, P99_9, "exception port"),
    row(
        "transit-exception-workers",
        Group::Transit,
        P99_9,
        "exception port, workers: our queues and the veth",
    ),
    row("next-call-plain", Group::NextCall, P99_9, "client: plain veth"),
    row("next-call-attached", Group::NextCall, P99_9, "client: twinpath attached, idle"),
    row("next-call-busy", Group::NextCall, P99_9, "client: twinpath busy"),
    row("next-call-busy-kernel", Group::NextCall, P99_9, "client: a kernel service busy"),
    row("next-call-exception", Group::NextCall, P99_9, "client: exception port"),
    row("next-call-exception-workers", Group::NextCall, P99_9, "client: exception port, workers"),
    row("next-call-at-server-plain", Group::NextCall, P99_9, "server: plain veth"),
    row("next-call-at-server-attached", Group::NextCall, P99_9, "server: twinpath attached, idle"),
    row("next-call-at-server-busy", Group::NextCall, P99_9, "server: twinpath busy"),
    row("next-call-at-server-busy-kernel", Group::NextCall, P99_9, "server: a kernel service busy"),
    row("next-call-at-server-exception", Group::NextCall, P99_9, "server: exception port"),
    row("next-call-at-server-exception-workers", Group::NextCall, P99_9, "server: exception port, workers"),
    row("ack-plain", Group::Ack, P99_9, "client: plain veth"),
    row("ack-attached", Group::Ack, P99_9, "client: twinpath attached, idle"),
    row("ack-busy", Group::Ack, P99_9, "client: twinpath busy"),
    row("ack-busy-kernel", Group::Ack, P99_9, "client: a kernel service busy"),
    row("ack-exception", Group::Ack, P99_9, "client: exception port"),
    row("ack-exception-workers", Group::Ack, P99_9, "client: exception port, workers"),
    row("ack-at-server-plain", Group::Ack, P99_9, "server: plain veth"),
    row("ack-at-server-attached", Group::Ack, P99_9, "server: twinpath attached, idle"),
    row("ack-at-server-busy", Group::Ack, P99_9, "server: twinpath busy"),
    row("ack-at-server-busy-kernel", Group::Ack, P99_9, "server: a kernel service busy"),
    row("ack-at-server-exception", Group::Ack, P99_9, "server: exception port"),
    row("ack-at-server-exception-workers", Group::Ack, P99_9, "server: exception port, workers"),
    row(TICK, Group::Tick, "excess_share", "all modes against plain veth"),
    fallback::ROWS[0],
    fallback::ROWS[1],
    fallback::ROWS[2],
    fallback::ROWS[3],
    fallback::ROWS[4],
    fallback::ROWS[5],
    fallback::XDP_TAX_ROW,
    fallback::PACKET_TAX_ROW,
    RowSpec {
        path: Some("auto"),
        ..row(KILL9, Group::Trouble, "worst_ms", "kill -9 until the kernel answers every flow")
    },
    stuck(
        FAIL_OPEN_PACKET,
        "packet",
        "interrupt",
        "a worker stopped, packet socket, until the kernel serves",
    ),
    stuck(FAIL_OPEN_DIRECT, "packet", "poll", "the same, direct ring"),
    stuck(FAIL_OPEN_XDP, "xdp", "interrupt", "the same, AF_XDP"),
    stuck(
        FAIL_OPEN_STANDBY,
        "packet",
        "interrupt",
        "a process stopped, until the instance that stands by serves",
    ),
    RowSpec {
        path: Some("auto"),
        ..row(FRAGMENTS, Group::Trouble, "share", "datagrams of 2 to 45 fragments")
    },
];

/// The original report's command, with the kernel's own NFS client.
pub(super) const LISTING_PLAIN: &str = "guest-nfs-plain";
pub(super) const LISTING_ATTACHED: &str = "guest-nfs-attached";
pub(super) const LISTING_EXCEPTION: &str = "guest-nfs-exception";
/// The row of times that wait for a timer tick.
pub(super) const TICK: &str = "tick";
/// The row of a killed instance.
pub(super) const KILL9: &str = "kill9";
/// The rows of a stuck worker, by the path of its frames.
pub(super) const FAIL_OPEN_PACKET: &str = "fail-open-packet";
pub(super) const FAIL_OPEN_DIRECT: &str = "fail-open-direct";
pub(super) const FAIL_OPEN_XDP: &str = "fail-open-xdp";
pub(super) const FAIL_OPEN_STANDBY: &str = "fail-open-standby";
/// The row of fragmented datagrams.
pub(super) const FRAGMENTS: &str = "fragments";

/// Rows that must be measured in the same rounds.
pub(super) const TOGETHER: &[(&str, &[&str])] = &[(
    TICK,
    &[
        "nfs-plain",
        "nfs-plain-again",
        "nfs-attached",
        "nfs-busy",
        "nfs-busy-kernel",
        "nfs-exception",
        "nfs-exception-workers",
    ],
)];

const fn ratio(id: &'static str, formula: Formula, target: Option<f64>, what: &'static str) -> RatioSpec {
    RatioSpec {
        id,
        what,
        formula,
        target,
        better: Better::Lower,
        judged: Judged::Median,
        check_pairs: super::CHECK_PAIRS,
        also: &[],
        steady: None,
    }
}

const fn wall_over(top: &'static str, bottom: &'static [(&'static str, &'static str)]) -> Formula {
    Formula::Over { top: (top, WALL), bottom }
}

/// A time in a stuck worker's row. No request may be answered twice.
const fn felt(
    id: &'static str,
    time: Cell,
    twice: &'static [(Cell, f64)],
    target_ms: f64,
    what: &'static str,
) -> RatioSpec {
    RatioSpec { check_pairs: 1, also: twice, ..ratio(id, Formula::Value(time), Some(target_ms), what) }
}

const TWICE: &str = "twice";
const PACKET_TWICE: &[(Cell, f64)] = &[((FAIL_OPEN_PACKET, TWICE), 0.5)];
const DIRECT_TWICE: &[(Cell, f64)] = &[((FAIL_OPEN_DIRECT, TWICE), 0.5)];
const XDP_TWICE: &[(Cell, f64)] = &[((FAIL_OPEN_XDP, TWICE), 0.5)];
const STANDBY_TWICE: &[(Cell, f64)] = &[((FAIL_OPEN_STANDBY, TWICE), 0.5)];

/// The targets.
pub(super) const RATIOS: &[RatioSpec] = &[
    RatioSpec {
        judged: Judged::IntervalEnd,
        check_pairs: super::INTERVAL_CHECK_PAIRS,
        ..ratio(
            "walk-attached-idle",
            wall_over("nfs-attached", &[("nfs-plain", WALL)]),
            Some(1.05),
            "NFS walk, twinpath attached and idle, against plain veth",
        )
    },
    ratio(
        "walk-attached-busy",
        wall_over("nfs-busy", &[("nfs-busy-kernel", WALL)]),
        Some(1.0),
        "NFS walk beside twinpath serving 50,000/s, against a kernel service doing the same",
    ),
    ratio(
        "walk-exception",
        wall_over("nfs-exception", &[("nfs-plain", WALL)]),
        Some(1.25),
        "NFS walk through the exception port, against plain veth (KNI: 7.3)",
    ),
    ratio(
        "walk-exception-workers",
        wall_over("nfs-exception-workers", &[("nfs-plain", WALL)]),
        None,
        "the same where workers carry the frames, through our queues",
    ),
    ratio(
        "walk-noise",
        wall_over("nfs-plain-again", &[("nfs-plain", WALL)]),
        None,
        "two walks over the same plain veth: what the method cannot tell apart",
    ),
    RatioSpec {
        check_pairs: super::LISTING_CHECK_PAIRS,
        ..ratio(
            "guest-walk-attached",
            wall_over(LISTING_ATTACHED, &[(LISTING_PLAIN, WALL)]),
            Some(1.05),
            "in a guest: a kernel client's `ls -last -R`, twinpath attached and idle, against plain veth",
        )
    },
    RatioSpec {
        check_pairs: super::LISTING_CHECK_PAIRS,
        ..ratio(
            "guest-walk-exception",
            wall_over(LISTING_EXCEPTION, &[(LISTING_PLAIN, WALL)]),
            Some(1.25),
            "in a guest: a kernel client's `ls -last -R` through the exception port, against plain veth (KNI: 7.3)",
        )
    },
    RatioSpec {
        check_pairs: 1,
        ..ratio(
            "walk-tick",
            Formula::Value((TICK, "excess_share")),
            Some(0.0),
            "share of calls and gaps near a multiple of 1/HZ beyond what plain veth shows",
        )
    },
    RatioSpec {
        check_pairs: super::CAPTURE_CHECK_ROUNDS,
        ..ratio(
            "exception-queue-us",
            Formula::Value(("transit-exception-workers", P99_9)),
            Some(120.0),
            "time a frame spends in our queues where workers carry it, p99.9, us (seeds/000: 120)",
        )
    },
    fallback::XDP_TAX,
    RatioSpec {
        check_pairs: 1,
        also: &[((KILL9, "resets"), 0.5)],
        ..ratio(
            "kill9-ms",
            Formula::Value((KILL9, "worst_ms")),
            Some(50.0),
            "kill -9 under load until the kernel answers every flow again, worst of all kills, ms; no connection reset",
        )
    },
    felt(
        "fail-open-ms",
        (FAIL_OPEN_PACKET, "worst_ms"),
        PACKET_TWICE,
        150.0,
        "a worker stopped under load until clients have answers, packet socket, worst of all stops, ms; none answered twice",
    ),
    felt(
        "fail-open-direct-ms",
        (FAIL_OPEN_DIRECT, "worst_ms"),
        DIRECT_TWICE,
        150.0,
        "the same where frames come by the direct ring",
    ),
    felt(
        "fail-open-xdp-ms",
        (FAIL_OPEN_XDP, "worst_ms"),
        XDP_TWICE,
        150.0,
        "the same where frames come by AF_XDP",
    ),
    felt(
        "fail-open-standby-ms",
        (FAIL_OPEN_STANDBY, "worst_ms"),
        STANDBY_TWICE,
        150.0,
        "a process stopped under load until clients have answers from the instance that stands by, packet socket, worst, ms",
    ),
    felt(
        "fail-open-back-ms",
        (FAIL_OPEN_PACKET, "back_worst_ms"),
        PACKET_TWICE,
        50.0,
        "from the end of the stop until the fast path answers again, packet socket, worst of all stops, ms",
    ),
    felt(
        "fail-open-direct-back-ms",
        (FAIL_OPEN_DIRECT, "back_worst_ms"),
        DIRECT_TWICE,
        50.0,
        "the same where frames come by the direct ring",
    ),
    felt(
        "fail-open-xdp-back-ms",
        (FAIL_OPEN_XDP, "back_worst_ms"),
        XDP_TWICE,
        50.0,
        "the same where frames come by AF_XDP",
    ),
    RatioSpec {
        check_pairs: 1,
        better: Better::Higher,
        ..ratio(
            "fragments",
            Formula::Value((FRAGMENTS, "share")),
            Some(1.0),
            "share of datagrams in 2 to 45 fragments, any order, duplicates, answered exactly once",
        )
    },
];
