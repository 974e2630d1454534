//! `lab sockets`: UDP echo by sockets of the library in an application's own loop, against a service on a worker and against
//! kernel sockets.

mod measure;
mod owner;
mod programs;

use std::sync::LazyLock;
use std::time::Duration;

use self::measure::Bench;
use crate::lab::session::{InGuest, Lab, Session, by_turns};
use crate::lab::spec::Table;

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 9;
/// Pairs otherwise.
const QUICK_PAIRS: usize = 5;
const CHECK_TIME: Duration = Duration::from_millis(600);
const QUICK_TIME: Duration = Duration::from_millis(250);

/// The lab's definition.
pub(crate) static LAB: Lab = Lab {
    name: "sockets",
    about: "Sockets in an application's own loop: ours, the kernel's, and a service on a worker",
    table: LazyLock::new(|| Table::of(include_str!("../../../tables/sockets.txt"))),
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(CHECK_PAIRS, QUICK_PAIRS);
    let rows = session.rows();
    session.progress.expect(rounds * rows.len());
    let round = async |round: usize| {
        let bench = Bench::new(session, session.either(CHECK_TIME, QUICK_TIME), round);
        for row in by_turns(&rows, round) {
            session.step(row, round, bench.measure(row)).await;
        }
    };
    Ok(session.in_rounds(rounds, Duration::MAX, round).await)
}
