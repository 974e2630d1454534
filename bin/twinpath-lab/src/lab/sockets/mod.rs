//! `lab sockets`: UDP echo by sockets of the library in an application's own loop, against a service on a worker and against
//! kernel sockets.

mod measure;
mod owner;
mod programs;
mod tables;

use std::time::Duration;

use self::measure::Bench;
use crate::lab::record::Record;
use crate::lab::session::{InGuest, Lab, Session};

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 9;
/// Pairs otherwise.
const QUICK_PAIRS: usize = 5;
const CHECK_TIME: Duration = Duration::from_millis(600);
const QUICK_TIME: Duration = Duration::from_millis(250);

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "sockets",
    about: "Sockets in an application's own loop: ours, the kernel's, and a service on a worker",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: &[],
    together: &[],
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let rounds = match (session.check, session.repeat) {
        (true, repeat) => repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS),
        (false, repeat) => repeat.unwrap_or(QUICK_PAIRS),
    };
    let mut rows: Vec<_> =
        tables::ROWS.iter().filter(|row| session.selection.rows.contains(row.id)).collect();
    session.progress.expect(rounds * rows.len());
    let time = if session.check { CHECK_TIME } else { QUICK_TIME };
    let mut record = Record::default();
    for round in 0..rounds {
        let bench = Bench::new(session, time, round);
        for row in &rows {
            session.progress.step(row.label);
            if record.is_hopeless(row.id) {
                continue;
            }
            match bench.measure(row.id).await {
                Ok(sample) => record.add(row.id, round, sample),
                Err(error) => {
                    let reason = format!("{error:#}");
                    session.progress.line(&format!("{}: {reason}", row.id));
                    record.fail(row.id, reason);
                }
            }
        }
        // Both sides of a pair come first in turns.
        rows.reverse();
    }
    Ok((record, rounds))
}
