//! `lab adopt`: what a program on the library costs to build, and the example of a memcached against memcached.
//!
//! Both sides of a pair have the same client.

mod builds;
mod memcached;

use std::time::Duration;

use crate::lab::session::{Session, lab};

/// Most pairs without `--check`.
const QUICK_PAIRS: usize = 3;
/// The row that is measured once.
const BUILD: &str = "build-empty";

lab!(
    "adopt",
    "What a program on the library takes to build, and the example of a memcached against memcached",
    run
);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let programs: Vec<_> = session.rows().into_iter().filter(|row| *row != BUILD).collect();
    let is_built = session.wants(BUILD);
    session.progress.expect(usize::from(is_built) + rounds * programs.len());
    if is_built {
        session.step(BUILD, 0, builds::empty(session)).await;
    }
    let measure = async |row: &'static str, _| memcached::measure(session, row).await;
    Ok(session.by_turns(&programs, rounds, Duration::MAX, measure).await)
}
