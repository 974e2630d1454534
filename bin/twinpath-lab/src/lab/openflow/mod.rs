//! `lab openflow`: switches that a controller sets the flows of: twinpath's and Open vSwitch.
//!
//! Controllers and hosts run on the first CPU, the thread that carries frames on the second.

mod judged;
mod measure;
mod restart;
pub(crate) mod switches;
mod tables;

use fastrand::Rng;

use self::measure::Bench;
use crate::lab::record::Record;
use crate::lab::session::{InGuest, Lab, Session};

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 5;
/// Pairs otherwise.
const QUICK_PAIRS: usize = 1;

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "openflow",
    about: "A switch and its OpenFlow controller: twinpath, Open vSwitch",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: &[],
    together: &[],
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let fewest = if session.check { CHECK_PAIRS } else { QUICK_PAIRS };
    let rounds = session.repeat.unwrap_or(fewest).max(if session.check { fewest } else { 1 });
    let contenders: Vec<_> = measure::CONTENDERS
        .iter()
        .filter(|contender| contender.rows.iter().any(|row| session.selection.rows.contains(row)))
        .collect();
    session.progress.expect(rounds * contenders.len());
    let mut record = Record::default();
    for round in 0..rounds {
        let mut random = Rng::with_seed(session.seed.wrapping_add(round as u64));
        let mut contenders = contenders.clone();
        random.shuffle(&mut contenders);
        for contender in contenders {
            session.progress.step(contender.name);
            Bench { session, round }.measure(contender, &mut record).await;
        }
    }
    Ok((record, rounds))
}
