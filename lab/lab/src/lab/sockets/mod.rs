//! `lab sockets`: UDP echo by sockets of the library in an application's own loop, against a service on a worker and against
//! kernel sockets.

mod measure;
mod owner;
mod programs;

use std::time::Duration;

use self::measure::Bench;
use crate::lab::session::{Session, lab};

/// Pairs without `--check`.
const QUICK_PAIRS: usize = 5;
const CHECK_TIME: Duration = Duration::from_millis(600);
const QUICK_TIME: Duration = Duration::from_millis(250);

lab!("sockets", "Sockets in an application's own loop: ours, the kernel's, and a service on a worker", run);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let measure = async |row: &'static str, round| {
        Bench::new(session, session.either(CHECK_TIME, QUICK_TIME), round).measure(row).await
    };
    Ok(session.by_turns(&session.rows(), rounds, Duration::MAX, measure).await)
}
