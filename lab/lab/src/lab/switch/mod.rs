//! `lab switch`: frames and round trips of two hosts through a switch: twinpath's, the kernel's bridge, Open vSwitch and
//! testpmd.
//!
//! Both hosts run on the first CPU, so that with one request in flight they take turns; the switch has the second. Only
//! in the rows of bulk TCP the receiving host shares the second CPU with the switch.

mod alone;
mod flood;
mod kills;
mod measure;
mod memory;

use std::time::Duration;

use fastrand::Rng;

use self::measure::{Bench, CONTENDERS, Kind};
use crate::lab::session::{Session, lab};
use crate::lab::switches::{self, Contender};

/// Most pairs without `--check`, and until when a round may begin.
const QUICK_PAIRS: usize = 5;
const QUICK_BUDGET: Duration = Duration::from_secs(50);
const QUICK_TIME: Duration = Duration::from_millis(400);
const CHECK_TIME: Duration = Duration::from_millis(800);
const QUICK_IDLE: Duration = Duration::from_secs(1);
const CHECK_IDLE: Duration = Duration::from_secs(5);

lab!(
    "switch",
    "Frames and round trips through a switch: twinpath, the kernel's bridge, Open vSwitch, testpmd",
    run
);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let count = session.expect(&session.rows(), rounds);
    session
        .progress
        .line(&format!("--seed {} draws the paces, and the orders of the switches", session.seed));
    let in_round = async |round: usize| {
        let mut random = Rng::with_seed(session.seed.wrapping_add(round as u64));
        let (time, idle_time) = session.either((CHECK_TIME, CHECK_IDLE), (QUICK_TIME, QUICK_IDLE));
        let bench = Bench::new(session, round, time, idle_time, &mut random);
        let measure = async |contender: &'static Contender<Kind>, rows: &[&'static str]| {
            bench.rows(contender, rows).await
        };
        switches::in_turns(session, (rounds, round), CONTENDERS, &mut random, measure).await;
    };
    Ok(session.in_rounds(count, QUICK_BUDGET, in_round).await)
}
