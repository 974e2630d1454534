//! `lab rpc`: NULL and GETATTR calls to twinpath, nfs-ganesha and bare servers.
//!
//! Every row has a server on one CPU and a client on the other, both started for it; only ganesha is started once. Rows
//! of the same ratio are measured one after another; the order of all others follows from the seed.

mod burden;
pub(crate) mod cases;
pub(crate) mod measure;
pub(crate) mod peers;

use std::time::Duration;

use fastrand::Rng;

use self::cases::{IDLE, NEVER_READS, SPIN_PAIR, TOGETHER, case_of, needs_rates};
use self::measure::Stage;
use crate::lab::model::Sample;
use crate::lab::session::{Session, lab};

/// The ratio whose interval is judged, and one of those beside burdens, by whose pairs the rounds of these are counted.
const SPIN: &str = "null-tcp-1-vs-spin";
const BURDEN: &str = "never-reads";
/// Most pairs without `--check`.
const QUICK_PAIRS: usize = 5;
/// Without a requested number of rounds, no round begins that would end later than this.
const QUICK_BUDGET: Duration = Duration::from_secs(120);
const QUICK_TIME: Duration = Duration::from_millis(300);
const CHECK_TIME: Duration = Duration::from_millis(800);

lab!("rpc", "ONC RPC, NULL and GETATTR: twinpath against nfs-ganesha and bare servers", run);

/// The number of rounds of each kind.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    all: usize,
    /// Rounds of [`SPIN_PAIR`]; those beyond `all` have nothing else.
    spin: usize,
    /// This many first rounds have burdens.
    burden: usize,
}

impl Rounds {
    fn of(session: &Session) -> Self {
        let all = session.rounds(QUICK_PAIRS);
        let pairs = |ratio| LAB.table.pairs(ratio);
        if session.check {
            Self { all, spin: all.max(pairs(SPIN)), burden: pairs(BURDEN) }
        } else {
            Self { all, spin: all, burden: session.repeat.unwrap_or(1) }
        }
    }

    fn count(&self) -> usize {
        self.all.max(self.spin)
    }

    fn has(&self, round: usize, row: &str) -> bool {
        match row {
            _ if SPIN_PAIR.contains(&row) => round < self.spin,
            _ if IDLE.contains(&row) || row == NEVER_READS => round < self.burden.min(self.all),
            _ => round < self.all,
        }
    }
}

/// The rows of a round, in order: rows of one group stay together, and are reversed in odd rounds.
fn plan(seed: u64, round: usize, wanted: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut random = Rng::with_seed(seed.wrapping_add(round as u64));
    let mut groups: Vec<Vec<&'static str>> = TOGETHER.iter().map(|rows| rows.to_vec()).collect();
    random.shuffle(&mut groups);
    // Their offered rates depend on rates of the same run.
    groups.sort_by_key(|rows| round == 0 && rows.iter().any(|row| needs_rates(row)));
    if round % 2 == 1 {
        groups.iter_mut().for_each(|rows| rows.reverse());
    }
    groups.into_iter().flatten().filter(|row| wanted(row)).collect()
}

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = Rounds::of(session);
    let mut plans: Vec<_> = (0..rounds.count())
        .map(|round| plan(session.seed, round, |row| session.wants(row) && rounds.has(round, row)))
        .collect();
    session.progress.line(&format!("seed {}: --seed {0} draws the same order again", session.seed));
    session.progress.expect(plans.iter().map(Vec::len).sum());
    let mut stage = Stage::new(session, session.either(CHECK_TIME, QUICK_TIME));
    let round = async |round: usize| {
        for row in std::mem::take(&mut plans[round]) {
            step(&mut stage, round, row).await;
        }
    };
    let done = session.in_rounds(rounds.count(), QUICK_BUDGET, round).await;
    stage.end().await?;
    Ok(done.min(rounds.all))
}

/// Measures a row, or both rows of [`IDLE`].
async fn step(stage: &mut Stage<'_>, round: usize, row: &'static str) {
    let session = stage.session;
    if !IDLE.contains(&row) {
        return session.step(row, round, measured(stage, row)).await;
    }
    // The other row of the pair may have measured it.
    if session.record.borrow().has(row, round) || session.record.borrow().is_hopeless(row) {
        return;
    }
    match burden::idle(stage, row == IDLE[0]).await {
        Ok(samples) => {
            IDLE.iter().zip(samples).for_each(|(row, sample)| session.note(row, round, Ok(sample)))
        }
        Err(error) => session.fail(IDLE, &error),
    }
}

async fn measured(stage: &mut Stage<'_>, row: &str) -> anyhow::Result<Sample> {
    match case_of(row) {
        Some(case) => stage.measure(&case).await,
        None => burden::never_reads(stage).await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::cases::COSTS;
    use super::*;

    #[test]
    fn every_row_has_its_place_and_pairs_stay_together() {
        let placed: Vec<_> = TOGETHER.iter().copied().flatten().collect();
        let rows: BTreeSet<_> = LAB.table.rows.iter().map(|row| row.id).collect();
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
        assert_eq!(of(0).len(), LAB.table.rows.len());
    }
}
