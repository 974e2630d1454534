//! What the rows of `lab wakeup` that measure packets have: receiver, arrivals, and other load, as its table says.

use super::LAB;
use crate::lab::model::RowSpec;

/// Whether a latency request may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// None is held; for twinpath, `--latency-request never`.
    Never,
    /// One is held throughout: by the lab for a kernel server; by twinpath with `--latency-request always`.
    Always,
    /// twinpath decides.
    Auto,
}

/// The receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Receiver {
    /// A plain server on kernel sockets.
    Kernel { mode: &'static str, request: Request, priority: Option<&'static str> },
    /// The same, with `epoll_wait` polling the device for this long before it sleeps, while interrupts are suspended.
    KernelBusyPoll { us: &'static str },
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

impl Receiver {
    /// twinpath as it is by default.
    pub(super) const ADAPTIVE: Self =
        Self::Twinpath { mode: "adaptive", request: Request::Auto, cpu_budget: None, priority: None };
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
    pub(super) row: &'static str,
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

impl Case {
    fn of(row: &RowSpec) -> Option<Self> {
        let how = row.how;
        let (mode, priority) = (row.mode.unwrap_or_default(), how.get("priority"));
        let request = match how.get("request") {
            Some("always") => Request::Always,
            Some("auto") => Request::Auto,
            Some("never") | None => Request::Never,
            Some(_) => return None,
        };
        let receiver = match how.first() {
            ("kernel", None) => Receiver::Kernel { mode, request, priority },
            ("busy-poll", Some(us)) => Receiver::KernelBusyPoll { us },
            ("twinpath", None) => {
                Receiver::Twinpath { mode, request, cpu_budget: how.get("budget"), priority }
            }
            ("floor", None) => Receiver::Floor { request },
            ("nobody", None) => Receiver::Nobody,
            _ => return None,
        };
        let pace = match how.get("pace") {
            None => Pace::Drawn,
            Some("poisson") => Pace::Poisson,
            Some("bursts") => Pace::Bursts,
            Some(us) => Pace::Every(us.parse().ok()?),
        };
        let (competing, often, tail) = (how.has("beside"), how.has("often"), how.has("tail"));
        Some(Self { row: row.id, receiver, pace, competing, often, tail })
    }
}

/// All cases, in the order of the table.
pub(super) fn all() -> impl Iterator<Item = Case> {
    LAB.table.rows.iter().filter_map(Case::of)
}

/// The case of a row, if the row measures packets.
pub(super) fn case_of(row: &str) -> Option<Case> {
    LAB.table.row(row).and_then(Case::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_table_says_of_a_row_is_understood_and_ratios_are_made_of_rows_of_every_round() {
        for row in LAB.table.rows {
            assert_eq!(Case::of(row).is_some(), !row.how.0.is_empty(), "{}", row.id);
        }
        let needed = LAB.table.ratios.iter().flat_map(|ratio| ratio.formula.rows());
        let floor = LAB.table.needs.iter().filter(|(row, _)| *row == "interrupt-floor");
        for id in needed.chain(floor.flat_map(|(_, rows)| rows.iter().copied())) {
            assert!(case_of(id).is_none_or(|case| case.often), "{id}");
        }
        assert_eq!(case_of("twinpath-interrupt-request").unwrap().receiver, {
            let (request, mode) = (Request::Always, "interrupt");
            Receiver::Twinpath { mode, request, cpu_budget: None, priority: None }
        });
    }
}
