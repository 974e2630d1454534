//! `lab three-rtts`: round trips of frames of an EtherType that are sent back with swapped addresses: by a service on
//! the worker, by another process over shared memory, by an application on a packet socket.

mod drive;
mod measure;

use std::time::Duration;

use self::measure::Bench;
use crate::lab::session::{Session, lab};

/// Most pairs without `--check`.
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

lab!(
    "three-rtts",
    "Reflected frames: by a worker, by another process over shared memory, by a packet socket",
    run
);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let rows: Vec<_> = ORDER.iter().filter(|row| session.wants(row)).copied().collect();
    session.progress.expect(rounds * rows.len());
    let bench = Bench { session, time: session.either(CHECK_TIME, QUICK_TIME) };
    let measure = async |row: &'static str, _| bench.measure(row).await;
    Ok(session.by_turns(&rows, rounds, QUICK_BUDGET, measure).await)
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
