//! `lab openflow`: switches that a controller sets the flows of: twinpath's and Open vSwitch.
//!
//! Controllers and hosts run on the first CPU, the thread that carries frames on the second.

mod judged;
mod measure;
mod restart;

use std::time::Duration;

use fastrand::Rng;

use self::measure::{Bench, CONTENDERS};
use crate::lab::session::{Session, lab};
use crate::lab::switches::{self, Contender, Kind};

/// Pairs without `--check`.
const QUICK_PAIRS: usize = 1;

lab!("openflow", "A switch and its OpenFlow controller: twinpath, Open vSwitch", run);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let count = session.expect(&session.rows(), rounds);
    let in_round = async |round: usize| {
        let mut random = Rng::with_seed(session.seed.wrapping_add(round as u64));
        let bench = Bench { session, round };
        let measure = async |contender: &'static Contender<Option<Kind>>, rows: &[&'static str]| {
            bench.rows(contender, rows).await
        };
        switches::in_turns(session, (rounds, round), CONTENDERS, &mut random, measure).await;
    };
    Ok(session.in_rounds(count, Duration::MAX, in_round).await)
}
