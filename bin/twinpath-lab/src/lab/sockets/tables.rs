//! The rows and ratios of `lab sockets`. Ids are stable; docs/measuring.md explains each.

use super::owner;
use super::programs;
use crate::lab::model::{self, Better, Formula, Group, Judged, RatioSpec, RowSpec};

const P50: &str = "p50_us";
const P99: &str = "p99_us";
const CPU: &str = "cpu_server";
/// What did not come as it should.
const WRONG: &str = "wrong";

const fn row(id: &'static str, mode: &'static str, label: &'static str) -> RowSpec {
    RowSpec { mode: Some(mode), ..model::row(id, Group::Rtt, P50, label) }
}

const fn paced(id: &'static str, mode: &'static str, label: &'static str) -> RowSpec {
    RowSpec { mode: Some(mode), ..model::row(id, Group::Wake, P50, label) }
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
    paced("own-loop-paced", "adaptive", "a loop with our socket, a pipe and a timer")
        .beside(&["kernel-loop-paced"]),
    paced("kernel-loop-paced", "interrupt", "the same loop with a kernel socket"),
    model::row(
        "numbered",
        Group::Trouble,
        WRONG,
        "numbered datagrams, while leases flap and the processes that hold them fork and die",
    ),
    owner::OWNED,
    owner::OWN,
    owner::IDLING,
    programs::MEMCACHED_RUN,
    programs::MEMCACHED,
    programs::THREADS_RUN,
    programs::THREADS,
    programs::NSD_RUN,
    programs::NSD,
    programs::REDIS_RUN,
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
        "sock-own-loop",
        Formula::over("own-spinning", P50, &[("service-spinning", P50)]),
        1.15,
        "round trip p50: UDP echo by our socket in an application's thread, spinning, against a service on a worker",
    ),
    ratio(
        "sock-vs-kernel",
        Formula::over("own-spinning", P50, &[("kernel-spinning", P50)]),
        0.75,
        "round trip p50: the same against a kernel socket, spinning",
    ),
    ratio(
        "sock-epoll-sleep",
        Formula::over("own-loop-sleeping", P50, &[("kernel-loop-sleeping", P50)]),
        1.05,
        "round trip p50: a sleeping loop with our socket, a pipe and a timer, against the same with a kernel socket",
    ),
    ratio(
        "sock-epoll-paced",
        Formula::over("own-loop-paced", P50, &[("kernel-loop-paced", P50)]),
        0.5,
        "p50, one packet every 250 to 500 us: the same loop with our waiting, against a kernel socket",
    ),
    ratio(
        "sock-epoll-paced-p99",
        Formula::over("own-loop-paced", P99, &[("kernel-loop-paced", P99)]),
        1.0,
        "p99 of the same",
    ),
    ratio(
        "sock-epoll-paced-cpu",
        Formula::Value(("own-loop-paced", CPU)),
        0.12,
        "share of a core that the loop with our waiting uses there",
    ),
    ratio(
        "sock-exactly-once",
        Formula::Value(("numbered", WRONG)),
        0.0,
        "datagrams lost, doubled, out of order per sender, or given to another socket, while leases flap and holders die",
    ),
    ratio(
        "sock-owner-extra-us",
        owner::EXTRA,
        1.0,
        "round trip p50, us: what it adds that the owner of the interface has given the ring, both spinning",
    ),
    ratio(
        "run-idle",
        owner::IDLE_CPU,
        0.002,
        "share of a core that memcached under twinpath run and the owner use with nothing to do",
    ),
    programs::RUN_MEMCACHED,
    programs::RUN_MEMCACHED_P99,
    programs::RUN_THREADS,
    programs::RUN_THREADS_P99,
    programs::RUN_DNS,
    programs::RUN_OTHER_COST,
];
