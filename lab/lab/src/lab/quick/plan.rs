//! Decides the order in which the rows of a round are measured. Pure.
//!
//! A round has two phases: without twinpath on the interface, and with it. Odd rounds run in reverse order, so that any
//! drift (clock frequency, other machines on the host) affects both sides of a pair alike; and the rows nearest to the
//! change of phase, in both directions, are those whose ratio has the tightest target.

use std::collections::BTreeSet;

/// Without twinpath, in the order of an even round.
const WITHOUT: &[&str] = &[
    "rate-kernel-single",
    "rate-kernel-batch",
    "rate-kernel-segments",
    "rate-kernel-single-spinning",
    "rate-kernel-batch-spinning",
    "rate-kernel-segments-spinning",
    "cpu-kernel",
    "kernel-sleeping-request",
    "kernel-spinning",
    "tcp-bulk-without",
    "paced-kernel",
    "kernel-sleeping",
    "tcp-rr-without",
];
/// With twinpath attached, in the order of an even round. Rows that sleep are nearest to their other side: the cost of
/// a wake-up changes within seconds on a virtual machine, that of spinning does not.
const WITH: &[&str] = &[
    "tcp-rr-with",
    "twinpath-interrupt",
    "floor-eventfd",
    "paced-twinpath",
    "tcp-bulk-with",
    "twinpath-poll",
    "twinpath-adaptive",
    "cpu-twinpath",
    "rate-twinpath",
    "idle-adaptive",
];
/// The other paths, which are the ends of their rows' ids.
const OTHER_PATHS: &[&str] = &["xdp-native", "xdp-generic", "packet"];

/// One step of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Attach by the path that `auto` chooses.
    Attach,
    /// Attach by another path; its rows begin with this.
    AttachOther(&'static str),
    Detach,
    Measure(&'static str),
}

/// The number of rounds of each kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    /// Rounds with both sides of every ratio.
    pub(super) all: usize,
    /// Rounds of the TCP request/response pair; those beyond `all` have nothing else.
    pub(super) tcp_rr: usize,
    /// This many first rounds also measure an idle server.
    pub(super) idle: usize,
    /// This many first rounds also measure the other paths.
    pub(super) other: usize,
}

impl Rounds {
    pub(super) fn count(&self) -> usize {
        self.all.max(self.tcp_rr)
    }

    fn of(&self, row: &str) -> usize {
        match row {
            "tcp-rr-without" | "tcp-rr-with" => self.tcp_rr,
            "idle-adaptive" => self.idle.min(self.all),
            _ if other_path(row).is_some() => self.other.min(self.all),
            _ => self.all,
        }
    }
}

/// The path of this row, if it is one of the other paths.
pub(super) fn other_path(row: &str) -> Option<&'static str> {
    OTHER_PATHS
        .iter()
        .find(|path| row.strip_prefix(**path).is_some_and(|rest| rest.starts_with('-')))
        .copied()
}

/// The steps of a round, for those of `wanted` that are measured in it.
pub(super) fn round(round: usize, wanted: &BTreeSet<&'static str>, rounds: &Rounds) -> Vec<Step> {
    let due = |rows: &[&'static str]| -> Vec<Step> {
        let due = rows.iter().filter(|row| wanted.contains(*row) && round < rounds.of(row));
        due.map(|row| Step::Measure(row)).collect()
    };
    let mut steps = due(WITHOUT);
    let with = due(WITH);
    if !with.is_empty() {
        steps.push(Step::Attach);
        steps.extend(with);
        steps.push(Step::Detach);
    }
    if round % 2 == 1 {
        steps = mirrored(steps);
    }
    for path in OTHER_PATHS {
        let rows: Vec<_> = wanted.iter().filter(|row| other_path(row) == Some(*path)).copied().collect();
        let rows = due(&rows);
        if !rows.is_empty() {
            steps.push(Step::AttachOther(path));
            steps.extend(rows);
            steps.push(Step::Detach);
        }
    }
    steps
}

/// The steps in reverse order, with the attaching moved to the new beginning.
fn mirrored(steps: Vec<Step>) -> Vec<Step> {
    let turned = steps.into_iter().rev().map(|step| match step {
        Step::Attach => Step::Detach,
        Step::Detach => Step::Attach,
        other => other,
    });
    turned.collect()
}

#[cfg(test)]
mod tests {
    use super::super::LAB;
    use super::*;

    const ROUNDS: Rounds = Rounds { all: 2, tcp_rr: 3, idle: 1, other: 1 };

    #[test]
    fn odd_rounds_are_even_rounds_backwards() {
        let wanted = BTreeSet::from(["kernel-spinning", "twinpath-poll", "tcp-rr-without", "tcp-rr-with"]);
        use Step::{Attach, Detach, Measure};
        let [without, with] = [Measure("tcp-rr-without"), Measure("tcp-rr-with")];
        let [kernel, poll] = [Measure("kernel-spinning"), Measure("twinpath-poll")];
        assert_eq!(round(0, &wanted, &ROUNDS), [kernel, without, Attach, with, poll, Detach]);
        assert_eq!(round(1, &wanted, &ROUNDS), [Attach, poll, with, Detach, without, kernel]);
        assert_eq!(round(2, &wanted, &ROUNDS), [without, Attach, with, Detach]);
        assert_eq!(round(3, &wanted, &ROUNDS), []);
    }

    #[test]
    fn nothing_is_attached_for_nothing() {
        let wanted = BTreeSet::from(["kernel-spinning", "packet-poll"]);
        use Step::{AttachOther, Detach, Measure};
        let other = [AttachOther("packet"), Measure("packet-poll"), Detach];
        assert_eq!(round(0, &wanted, &ROUNDS), [&[Measure("kernel-spinning")], &other[..]].concat());
        assert_eq!(round(1, &wanted, &ROUNDS), [Measure("kernel-spinning")]);
    }

    #[test]
    fn every_row_of_the_table_has_its_place() {
        let wanted: BTreeSet<_> = LAB.table.rows.iter().map(|row| row.id).collect();
        let measured: BTreeSet<_> = round(0, &wanted, &ROUNDS)
            .into_iter()
            .filter_map(|step| if let Step::Measure(row) = step { Some(row) } else { None })
            .collect();
        // The bystander is not measured in rounds: it runs during all of them. Test runs of the programs come first.
        let unplaced: Vec<_> = wanted.difference(&measured).collect();
        assert_eq!(unplaced, [&"kernel-packet-tax", &"kernel-xdp-tax", &"tcp-service"]);
    }
}
