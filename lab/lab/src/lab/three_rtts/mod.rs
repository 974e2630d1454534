//! `lab three-rtts`: round trips of frames of an EtherType that are sent back with swapped addresses: by a service on
//! the worker, by another process over shared memory, by an application on a packet socket.

mod drive;
mod measure;

use std::sync::LazyLock;
use std::time::Duration;

use self::measure::Bench;
use crate::lab::session::{InGuest, Lab, Session, by_turns};
use crate::lab::spec::Table;

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 9;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 6;
/// Without a requested number of rounds, no round begins that would end later than this.
const QUICK_BUDGET: Duration = Duration::from_secs(50);
const QUICK_TIME: Duration = Duration::from_millis(250);
const CHECK_TIME: Duration = Duration::from_millis(600);

/// The rows of an even round, in order; an odd one runs them in reverse. Both sides of a pair are together, and those
/// that sleep nearest, because the cost of a wake-up changes within seconds on a virtual machine.
const ORDER: &[&str] = &[
    "packet-spinning",
    "direct-poll",
    "direct-one-thread",
    "shm-spinning",
    "direct-interrupt",
    "packet-sleeping",
    "floor-eventfd",
    "shm-sleeping",
];

/// The lab's definition.
pub(crate) static LAB: Lab = Lab {
    name: "three-rtts",
    about: "Reflected frames: by a worker, by another process over shared memory, by a packet socket",
    table: LazyLock::new(|| Table::of(include_str!("../../../tables/three-rtts.txt"))),
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(CHECK_PAIRS, QUICK_PAIRS);
    let rows: Vec<_> = ORDER.iter().filter(|row| session.wants(row)).copied().collect();
    session.progress.expect(rounds * rows.len());
    let bench = Bench { session, time: session.either(CHECK_TIME, QUICK_TIME) };
    let round = async |round: usize| {
        for row in by_turns(&rows, round) {
            session.step(row, round, bench.measure(row)).await;
        }
    };
    Ok(session.in_rounds(rounds, QUICK_BUDGET, round).await)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_its_place_and_every_pair_stands_together() {
        let placed: BTreeSet<_> = ORDER.iter().collect();
        assert_eq!(placed, LAB.table.rows.iter().map(|row| &row.id).collect());
        let at = |row: &str| ORDER.iter().position(|placed| *placed == row).expect("placed");
        for (one, other) in [
            ("packet-spinning", "direct-poll"),
            ("direct-one-thread", "shm-spinning"),
            ("floor-eventfd", "shm-sleeping"),
        ] {
            assert_eq!(at(one).abs_diff(at(other)), 1, "{one}, {other}");
        }
    }
}
