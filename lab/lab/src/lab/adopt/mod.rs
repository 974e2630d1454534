//! `lab adopt`: what a program on the library costs to build, and the example of a memcached against memcached.
//!
//! Both sides of a pair have the same client.

mod builds;
mod memcached;

use std::sync::LazyLock;
use std::time::Duration;

use crate::lab::session::{InGuest, Lab, Session, by_turns};
use crate::lab::spec::Table;

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 11;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 3;
/// The row that is measured once.
const BUILD: &str = "build-empty";

/// The lab's definition.
pub(crate) static LAB: Lab = Lab {
    name: "adopt",
    about: "What a program on the library takes to build, and the example of a memcached against memcached",
    table: LazyLock::new(|| Table::of(include_str!("../../../tables/adopt.txt"))),
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(CHECK_PAIRS, QUICK_PAIRS);
    let programs: Vec<_> = session.rows().into_iter().filter(|row| *row != BUILD).collect();
    let is_built = session.wants(BUILD);
    session.progress.expect(usize::from(is_built) + rounds * programs.len());
    if is_built {
        session.step(BUILD, 0, builds::empty(session)).await;
    }
    let round = async |round: usize| {
        for row in by_turns(&programs, round) {
            session.step(row, round, memcached::measure(session, row)).await;
        }
    };
    Ok(session.in_rounds(rounds, Duration::MAX, round).await)
}
