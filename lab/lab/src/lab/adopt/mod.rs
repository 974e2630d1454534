//! `lab adopt`: what a program on the library costs to build, and the example of a memcached against memcached.
//!
//! Both sides of a pair have the same client.

mod builds;
mod memcached;

use std::time::Duration;

use crate::lab::session::{Session, lab};

/// Most pairs without `--check`.
const QUICK_PAIRS: usize = 3;

lab!(
    "adopt",
    "What a program on the library takes to build, and the example of a memcached against memcached",
    run
);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let measure = async |row: &'static str, _| match row {
        "build-empty" => builds::empty(session).await,
        _ => memcached::measure(session, row).await,
    };
    Ok(session.by_turns(&session.rows(), rounds, Duration::MAX, measure).await)
}
