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

lab!(
    "three-rtts",
    "Reflected frames: by a worker, by another process over shared memory, by a packet socket",
    run
);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let bench = Bench { session, time: session.either(CHECK_TIME, QUICK_TIME) };
    let measure = async |row: &'static str, _| bench.measure(row).await;
    Ok(session.by_turns(&session.rows(), rounds, QUICK_BUDGET, measure).await)
}
