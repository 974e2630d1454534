//! The rows of `lab wakeup` that measure packets: receiver, arrivals, and other load. Ids are stable.

use crate::lab::model::{Group, RowSpec};

/// The value by which rows are compared.
pub(super) const AVERAGE: &str = "mean_us";

/// Whether a latency request may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// None is held; for twinpath, `--latency-request never`.
    Never,
    /// One is held throughout: by the lab for a kernel server; by twinpath with `--latency-request always`.
    Always,
    /// twinpath decides.
    Auto,
    /// The lab holds one throughout that forbids idle states deeper than this one of the receiver's CPU, where 0 is the
    /// shallowest.
    Cap(usize),
}

/// The receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Receiver {
    /// A plain server on kernel sockets; `fifo`: at real-time priority.
    Kernel { mode: &'static str, request: Request, fifo: bool },
    /// The same, with `epoll_wait` polling the device for this long before it sleeps, while interrupts are suspended.
    KernelBusyPoll { us: u32 },
    /// `twinpath serve echo`.
    Twinpath {
        mode: &'static str,
        request: Request,
        /// The share of a CPU that it may use without traffic.
        cpu_budget: Option<&'static str>,
        /// The priority of its worker; without it, the default.
        priority: Option<&'static str>,
    },
    /// A thread that an eventfd wakes.
    Floor { request: Request },
    /// Only the competing process runs on the receiver's CPU.
    Nobody,
}

/// The arrivals of packets. The mean is that of all packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// One per period, which is drawn from 250 to 500 us in each round; every gap jittered by 3 %.
    Drawn,
    /// One per this many us; every gap jittered by 3 %.
    Every(f64),
    /// Independent of each other, one per 350 us on average.
    Poisson,
    /// Bursts of 16 with 8 us between packets, one packet per 350 us on average.
    Bursts,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) row: RowSpec,
    pub(super) receiver: Receiver,
    pub(super) pace: Pace,
    /// Whether a process that always wants the receiver's CPU runs there too.
    pub(super) competing: bool,
    /// Whether it is measured in every round, because a ratio needs it. The others are measured in the first rounds
    /// only.
    pub(super) often: bool,
    /// Whether a ratio uses its p99.9, which needs many packets.
    pub(super) tail: bool,
}

const fn kernel(mode: &'static str, request: Request) -> Receiver {
    Receiver::Kernel { mode, request, fifo: false }
}

const fn twinpath(mode: &'static str, request: Request) -> Receiver {
    Receiver::Twinpath { mode, request, cpu_budget: None, priority: None }
}

const fn at_priority(mode: &'static str, priority: &'static str) -> Receiver {
    Receiver::Twinpath { mode, request: Request::Auto, cpu_budget: None, priority: Some(priority) }
}

const fn fifo(mode: &'static str) -> Receiver {
    at_priority(mode, "fifo:1")
}

const SLEEPING: Receiver = kernel("interrupt", Request::Never);
const SLEEPING_FIFO: Receiver = Receiver::Kernel { mode: "interrupt", request: Request::Never, fifo: true };
const SPINNING: Receiver = kernel("poll", Request::Never);
const SLEEPING_REQUEST: Receiver = kernel("interrupt", Request::Always);
const INTERRUPT: Receiver = twinpath("interrupt", Request::Never);
const INTERRUPT_REQUEST: Receiver = twinpath("interrupt", Request::Always);
const ADAPTIVE: Receiver = twinpath("adaptive", Request::Auto);
const POLL: Receiver = twinpath("poll", Request::Auto);
const BUDGETED: Receiver =
    Receiver::Twinpath { mode: "adaptive", request: Request::Auto, cpu_budget: Some("15%"), priority: None };

const fn case(id: &'static str, label: &'static str, receiver: Receiver) -> Case {
    let (path, mode) = match receiver {
        Receiver::Kernel { mode, .. } => (Some("kernel"), Some(mode)),
        Receiver::KernelBusyPoll { .. } => (Some("kernel"), Some("interrupt")),
        Receiver::Twinpath { mode, .. } => (Some("auto"), Some(mode)),
        Receiver::Floor { .. } | Receiver::Nobody => (None, None),
    };
    Case {
        row: RowSpec { id, label, group: Group::Wake, path, mode, main: AVERAGE, base: &[] },
        receiver,
        pace: Pace::Drawn,
        competing: false,
        often: true,
        tail: false,
    }
}

impl Case {
    const fn at(self, pace: Pace) -> Self {
        let row = RowSpec { group: Group::Paces, ..self.row };
        Self { row, pace, often: false, ..self }
    }

    const fn capped(self) -> Self {
        let row = RowSpec { group: Group::Caps, base: IDLE_BASE, ..self.row };
        Self { row, often: false, ..self }
    }

    const fn beside(self) -> Self {
        let row = RowSpec { group: Group::Competing, ..self.row };
        Self { row, competing: true, often: false, ..self }
    }

    const fn rarely(self) -> Self {
        Self { often: false, ..self }
    }

    const fn often(self) -> Self {
        Self { often: true, ..self }
    }

    const fn tail(self) -> Self {
        Self { tail: true, ..self }
    }

    const fn over(self, base: &'static [&'static str]) -> Self {
        Self { row: RowSpec { base, ..self.row }, ..self }
    }
}

/// All receivers, with the same arrivals.
macro_rules! at_pace {
    ($id:literal, $said:literal, $pace:expr) => {{
        const BASE: &[&str] = &[concat!("kernel-sleeping-", $id)];
        [
            case(concat!("kernel-sleeping-", $id), concat!("kernel, sleeping, ", $said), SLEEPING).at($pace),
            case(concat!("kernel-spinning-", $id), concat!("kernel, spinning, ", $said), SPINNING)
                .at($pace)
                .over(BASE),
            case(
                concat!("kernel-request-", $id),
                concat!("kernel, sleeping, request held, ", $said),
                SLEEPING_REQUEST,
            )
            .at($pace)
            .over(BASE),
            case(concat!("twinpath-interrupt-", $id), concat!("twinpath, interrupt, ", $said), INTERRUPT)
                .at($pace)
                .over(BASE),
            case(
                concat!("twinpath-interrupt-request-", $id),
                concat!("twinpath, interrupt, request held, ", $said),
                INTERRUPT_REQUEST,
            )
            .at($pace)
            .over(BASE),
            case(concat!("twinpath-adaptive-", $id), concat!("twinpath, adaptive, ", $said), ADAPTIVE)
                .at($pace)
                .over(BASE),
            case(concat!("twinpath-poll-", $id), concat!("twinpath, poll, ", $said), POLL)
                .at($pace)
                .over(BASE),
        ]
    }};
}

/// Longer than any gap of [`Pace::Drawn`].
const GAP_MAX_US: u32 = 1_000;

const IDLE_BASE: &[&str] = &["kernel-sleeping"];
const COMPETING_BASE: &[&str] = &["kernel-sleeping-neighbour"];

/// Rows with the limits of the machine's idle states by their order, the shallowest first.
macro_rules! capped {
    ($($place:literal),*) => {
        [$(case(
            concat!("twinpath-interrupt-cap-", $place),
            concat!("twinpath, interrupt, no idle state deeper than number ", $place),
            twinpath("interrupt", Request::Cap($place)),
        )
        .capped()),*]
    };
}

/// Linux has at most ten idle states (CPUIDLE_STATE_MAX); without a limit even the deepest may be entered.
const CAPPED: [Case; 9] = capped!(0, 1, 2, 3, 4, 5, 6, 7, 8);

const LONE: [Case; 15] = [
    case("kernel-sleeping", "kernel, sleeping", SLEEPING).tail(),
    case("kernel-sleeping-fifo", "kernel, sleeping, SCHED_FIFO", SLEEPING_FIFO).over(IDLE_BASE),
    case("kernel-request", "kernel, sleeping, request held", SLEEPING_REQUEST).over(IDLE_BASE),
    case("kernel-busy-poll", "kernel, epoll busy polling for 50 us", Receiver::KernelBusyPoll { us: 50 })
        .rarely()
        .over(IDLE_BASE),
    case(
        "kernel-busy-poll-through",
        "kernel, epoll busy polling through every gap",
        Receiver::KernelBusyPoll { us: GAP_MAX_US },
    )
    .rarely()
    .over(IDLE_BASE),
    case("kernel-spinning", "kernel, spinning", SPINNING).over(IDLE_BASE),
    case("twinpath-interrupt", "twinpath, interrupt", INTERRUPT).over(IDLE_BASE),
    case("twinpath-interrupt-request", "twinpath, interrupt, request held", INTERRUPT_REQUEST)
        .over(IDLE_BASE),
    case("twinpath-adaptive", "twinpath, adaptive", ADAPTIVE).tail().over(IDLE_BASE),
    case("twinpath-adaptive-fifo", "twinpath, adaptive, SCHED_FIFO", fifo("adaptive"))
        .rarely()
        .over(IDLE_BASE),
    case("twinpath-adaptive-slice", "twinpath, adaptive, short slices", at_priority("adaptive", "slice:100"))
        .tail()
        .over(IDLE_BASE),
    case(
        "twinpath-adaptive-normal",
        "twinpath, adaptive, normal priority",
        at_priority("adaptive", "normal"),
    )
    .rarely()
    .over(IDLE_BASE),
    case("twinpath-poll", "twinpath, poll", POLL).tail().over(IDLE_BASE),
    case("floor-eventfd", "floor: one eventfd wake-up", Receiver::Floor { request: Request::Never }),
    case(
        "floor-eventfd-request",
        "floor: one eventfd wake-up, request held",
        Receiver::Floor { request: Request::Always },
    ),
];

const PACED: [[Case; 7]; 6] = [
    at_pace!("10us", "10 us", Pace::Every(10.0)),
    at_pace!("100us", "100 us", Pace::Every(100.0)),
    at_pace!("1ms", "1 ms", Pace::Every(1_000.0)),
    at_pace!("10ms", "10 ms", Pace::Every(10_000.0)),
    at_pace!("poisson", "Poisson", Pace::Poisson),
    at_pace!("bursts", "bursts of 16", Pace::Bursts),
];

const BUDGET: Case =
    case("twinpath-adaptive-budget-poisson", "twinpath, adaptive, cpu = 15%, Poisson", BUDGETED)
        .at(Pace::Poisson)
        .often()
        .over(&["kernel-sleeping-poisson"]);

const BESIDE: [Case; 13] = [
    case("neighbour-alone", "only the competing process", Receiver::Nobody).beside().often(),
    case("kernel-sleeping-neighbour", "kernel, sleeping", SLEEPING).beside().often().tail(),
    case("kernel-request-neighbour", "kernel, sleeping, request held", SLEEPING_REQUEST)
        .beside()
        .over(COMPETING_BASE),
    case("kernel-spinning-neighbour", "kernel, spinning", SPINNING).beside().over(COMPETING_BASE),
    case("twinpath-interrupt-neighbour", "twinpath, interrupt", INTERRUPT).beside().over(COMPETING_BASE),
    case("twinpath-interrupt-request-neighbour", "twinpath, interrupt, request held", INTERRUPT_REQUEST)
        .beside()
        .over(COMPETING_BASE),
    case("twinpath-adaptive-neighbour", "twinpath, adaptive", ADAPTIVE).beside().often().over(COMPETING_BASE),
    case(
        "twinpath-adaptive-slice-neighbour",
        "twinpath, adaptive, short slices",
        at_priority("adaptive", "slice:100"),
    )
    .beside()
    .often()
    .tail()
    .over(COMPETING_BASE),
    case(
        "twinpath-adaptive-normal-neighbour",
        "twinpath, adaptive, normal priority",
        at_priority("adaptive", "normal"),
    )
    .beside()
    .over(COMPETING_BASE),
    case("twinpath-poll-neighbour", "twinpath, poll", POLL).beside().over(COMPETING_BASE),
    case("twinpath-interrupt-fifo-neighbour", "twinpath, interrupt, SCHED_FIFO", fifo("interrupt"))
        .beside()
        .over(COMPETING_BASE),
    case("twinpath-adaptive-fifo-neighbour", "twinpath, adaptive, SCHED_FIFO", fifo("adaptive"))
        .beside()
        .over(COMPETING_BASE),
    case("twinpath-poll-fifo-neighbour", "twinpath, poll, SCHED_FIFO", fifo("poll"))
        .beside()
        .over(COMPETING_BASE),
];

/// Rows with other arrivals that ratios use.
const OFTEN: [&str; 3] = ["twinpath-adaptive-10us", "twinpath-poll-10us", "twinpath-interrupt-poisson"];

const COUNT: usize = LONE.len() + CAPPED.len() + PACED.len() * PACED[0].len() + 1 + BESIDE.len();

/// All cases, in the order of the table.
pub(super) const CASES: [Case; COUNT] = {
    let mut all = [BUDGET; COUNT];
    let mut next = 0;
    while next < LONE.len() {
        all[next] = LONE[next];
        next += 1;
    }
    let mut cap = 0;
    while cap < CAPPED.len() {
        all[next] = CAPPED[cap];
        next += 1;
        cap += 1;
    }
    let mut pace = 0;
    while pace < PACED.len() {
        let mut at = 0;
        while at < PACED[pace].len() {
            all[next] = PACED[pace][at];
            next += 1;
            at += 1;
        }
        pace += 1;
    }
    all[next] = BUDGET;
    next += 1;
    let mut at = 0;
    while at < BESIDE.len() {
        all[next] = BESIDE[at];
        next += 1;
        at += 1;
    }
    all
};

/// The case of a row, if the row measures packets.
pub(super) fn case_of(row: &str) -> Option<Case> {
    CASES.iter().find(|case| case.row.id == row).copied().map(|case| {
        let often = case.often || OFTEN.contains(&case.row.id);
        Case { often, ..case }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_id_is_there_once_and_so_is_what_it_is_compared_with() {
        let ids: BTreeSet<_> = CASES.iter().map(|case| case.row.id).collect();
        assert_eq!(ids.len(), CASES.len());
        for case in &CASES {
            assert!(case.row.base.iter().all(|base| ids.contains(base)), "{}", case.row.id);
        }
        assert!(OFTEN.iter().all(|id| case_of(id).unwrap().often));
        assert!(!case_of("kernel-sleeping-10us").unwrap().often);
    }
}
