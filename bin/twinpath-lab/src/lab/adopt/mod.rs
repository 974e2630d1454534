//! `lab adopt`: what a program on the library costs to build, and the example of a memcached against memcached.
//!
//! Both sides of a pair have the same client.

mod builds;
mod memcached;
mod tables;

use crate::lab::model::Sample;
use crate::lab::record::Record;
use crate::lab::session::{InGuest, Lab, Session};

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 11;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 3;

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "adopt",
    about: "What a program on the library takes to build, and the example of a memcached against memcached",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: &[],
    together: &[],
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let rounds = match session.check {
        true => session.repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS),
        false => session.repeat.unwrap_or(QUICK_PAIRS),
    };
    let selected = |row: &&'static str| session.selection.rows.contains(row);
    let (builds, programs): (Vec<_>, Vec<_>) =
        tables::ROWS.iter().map(|row| row.id).filter(selected).partition(|row| row.starts_with("build-"));
    session.progress.expect(builds.len() + rounds * programs.len());
    let mut record = Record::default();
    for row in builds {
        step(session, row);
        note(session, &mut record, row, 0, builds::measure(session, row).await);
    }
    for round in 0..rounds {
        session.progress.line(&format!("round {} of {rounds}", round + 1));
        let mut order = programs.clone();
        // Any drift of the machine affects both sides of a pair alike.
        if round % 2 == 1 {
            order.reverse();
        }
        for row in order {
            step(session, row);
            if !record.is_hopeless(row) {
                note(session, &mut record, row, round, memcached::measure(session, row).await);
            }
        }
    }
    Ok((record, rounds))
}

fn step(session: &Session, row: &str) {
    session.progress.step(tables::ROWS.iter().find(|spec| spec.id == row).map_or(row, |spec| spec.label));
}

fn note(
    session: &Session,
    record: &mut Record,
    row: &'static str,
    round: usize,
    measured: anyhow::Result<Sample>,
) {
    match measured {
        Ok(sample) => record.add(row, round, sample),
        Err(error) => {
            let reason = format!("{error:#}");
            session.progress.line(&format!("{row}: {reason}"));
            record.fail(row, reason);
        }
    }
}
