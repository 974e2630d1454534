//! `lab rpc`: NULL and GETATTR calls to twinpath, nfs-ganesha and bare servers, and streams over the same link.
//!
//! Every row has a server on one CPU and a client on the other, both started for it; only ganesha is started once. Rows
//! of the same ratio are measured one after another; the order of all others follows from the seed.

mod burden;
mod cases;
mod measure;
mod peers;
mod streams;
mod tables;

use std::time::{Duration, Instant};

use fastrand::Rng;

use self::cases::{IDLE, INSTRUCTIONS, NEVER_READS, SPIN_PAIR, TOGETHER, case_of};
use self::measure::Stage;
use crate::lab::model::Sample;
use crate::lab::record::Record;
use crate::lab::session::Session;
use crate::lab::session::{InGuest, Lab};

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 7;
/// The same if the end of an interval is judged.
const SPIN_CHECK_PAIRS: usize = 20;
/// Rounds with burdens, and of rows without a ratio, under `--check`.
const BURDEN_CHECK_ROUNDS: usize = 5;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 5;
/// Without a requested number of rounds, no round begins that would end later than this.
const QUICK_BUDGET: Duration = Duration::from_secs(120);
const QUICK_TIME: Duration = Duration::from_millis(300);
const CHECK_TIME: Duration = Duration::from_millis(800);

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "rpc",
    about: "ONC RPC, NULL and GETATTR: twinpath against nfs-ganesha and bare servers",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: &[],
    together: tables::NEEDS,
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

/// The number of rounds of each kind.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    all: usize,
    /// Rounds of [`SPIN_PAIR`]; those beyond `all` have nothing else.
    spin: usize,
    /// This many first rounds have burdens, and streams.
    burden: usize,
}

impl Rounds {
    fn of(session: &Session) -> Self {
        if session.check {
            let all = session.repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS);
            Self { all, spin: all.max(SPIN_CHECK_PAIRS), burden: BURDEN_CHECK_ROUNDS }
        } else {
            let all = session.repeat.unwrap_or(QUICK_PAIRS);
            Self { all, spin: all, burden: session.repeat.unwrap_or(1) }
        }
    }

    fn count(&self) -> usize {
        self.all.max(self.spin)
    }

    fn has(&self, round: usize, row: &str) -> bool {
        match row {
            _ if SPIN_PAIR.contains(&row) => round < self.spin,
            _ if IDLE.contains(&row) || row == NEVER_READS || streams::has(row) => {
                round < self.burden.min(self.all)
            }
            _ => round < self.all,
        }
    }
}

/// The rows of a round, in order: rows of one group stay together, and are reversed in odd rounds.
fn plan(seed: u64, round: usize, wanted: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut random = Rng::with_seed(seed.wrapping_add(round as u64));
    let mut groups: Vec<Vec<&'static str>> =
        TOGETHER.iter().chain(streams::TOGETHER).map(|rows| rows.to_vec()).collect();
    random.shuffle(&mut groups);
    // Their offered rates depend on rates of the same run.
    groups.sort_by_key(|rows| round == 0 && rows.iter().any(|row| tables::needs_rates(row)));
    if round % 2 == 1 {
        groups.iter_mut().for_each(|rows| rows.reverse());
    }
    groups.into_iter().flatten().filter(|row| wanted(row)).collect()
}

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let rounds = Rounds::of(session);
    let selected = |row: &str| session.selection.rows.contains(row);
    let plans: Vec<_> = (0..rounds.count())
        .map(|round| plan(session.seed, round, |row| selected(row) && rounds.has(round, row)))
        .collect();
    session.progress.line(&format!("seed {}: --seed {0} draws the same order again", session.seed));
    session.progress.expect(plans.iter().map(Vec::len).sum());
    let mut stage = Stage::new(session, if session.check { CHECK_TIME } else { QUICK_TIME });
    if selected(INSTRUCTIONS) {
        note(&mut stage, INSTRUCTIONS, 0, measure::instructions());
    }
    let begun = Instant::now();
    let (mut done, mut last) = (0, Duration::ZERO);
    for (round, rows) in plans.into_iter().enumerate() {
        let budgeted = !session.check && session.repeat.is_none();
        if budgeted && round > 1 && begun.elapsed() + last > QUICK_BUDGET {
            session.progress.line(&format!("{round} rounds: another would take too long; --repeat N runs N"));
            break;
        }
        let round_begun = Instant::now();
        session.progress.line(&format!("round {} of {}", round + 1, rounds.count()));
        for row in rows {
            step(&mut stage, round, row).await;
        }
        (done, last) = (round + 1, round_begun.elapsed());
    }
    Ok((stage.end().await?, done.min(rounds.all)))
}

/// Measures a row; a failure is recorded as its reason, and the round continues.
async fn step(stage: &mut Stage<'_>, round: usize, row: &'static str) {
    let label = tables::ROWS.iter().find(|spec| spec.id == row).map_or(row, |spec| spec.label);
    stage.session.progress.step(label);
    if stage.record.is_hopeless(row) {
        return;
    }
    if let Some(case) = case_of(row) {
        let result = stage.measure(case).await;
        note(stage, row, round, result);
    } else if row == NEVER_READS {
        let result = burden::never_reads(stage).await;
        note(stage, row, round, result);
    } else if streams::has(row) {
        let result = streams::measure(stage, row).await;
        note(stage, row, round, result);
    } else if stage.record.by_round(row, cases::RATE).contains_key(&round) {
        // The other row of the pair has measured it.
    } else {
        match burden::idle(stage, row == IDLE[0]).await {
            Ok(samples) => {
                for (row, sample) in IDLE.iter().zip(samples) {
                    note(stage, row, round, Ok(sample));
                }
            }
            Err(error) => {
                let reason = format!("{error:#}");
                IDLE.iter().for_each(|row| stage.record.fail(row, reason.clone()));
                stage.session.progress.line(&format!("{}: {reason}", IDLE.join(", ")));
            }
        }
    }
}

fn note(stage: &mut Stage<'_>, row: &'static str, round: usize, result: anyhow::Result<Sample>) {
    match result {
        Ok(sample) => stage.record.add(row, round, sample),
        Err(error) => {
            let reason = format!("{error:#}");
            stage.session.progress.line(&format!("{row}: {reason}"));
            stage.record.fail(row, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::cases::COSTS;
    use super::*;

    #[test]
    fn every_row_has_its_place_and_pairs_stay_together() {
        let placed: Vec<_> = TOGETHER.iter().chain(streams::TOGETHER).copied().flatten().collect();
        let rows: BTreeSet<_> =
            tables::ROWS.iter().map(|row| row.id).filter(|id| *id != INSTRUCTIONS).collect();
        assert_eq!(placed.len(), rows.len());
        assert_eq!(placed.into_iter().copied().collect::<BTreeSet<_>>(), rows);
        for round in 0..4 {
            let order = plan(7, round, |_| true);
            assert_eq!(order, plan(7, round, |_| true));
            let at = |row: &str| order.iter().position(|placed| *placed == row).unwrap();
            for pair in [SPIN_PAIR, COSTS, IDLE] {
                assert_eq!(
                    at(pair[1]).wrapping_sub(at(pair[0])),
                    if round % 2 == 0 { 1 } else { usize::MAX }
                );
            }
            assert!(round > 0 || order[order.len() - 2 * COSTS.len()..].contains(&COSTS[1]));
        }
        assert_ne!(plan(7, 0, |_| true), plan(8, 0, |_| true));
    }

    #[test]
    fn more_rounds_than_the_others_are_of_one_pair_alone() {
        let rounds = Rounds { all: 7, spin: 20, burden: 5 };
        let of = |round: usize| plan(1, round, |row| rounds.has(round, row));
        assert_eq!(of(7).len(), SPIN_PAIR.len());
        assert!(of(4).contains(&NEVER_READS) && !of(5).contains(&NEVER_READS));
        assert_eq!(of(0).len(), tables::ROWS.len() - 1);
    }
}
