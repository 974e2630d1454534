//! `lab switch`: frames and round trips of two hosts through a switch: twinpath's, the kernel's bridge, Open vSwitch and
//! testpmd.
//!
//! Both hosts run on the first CPU, so that with one request in flight they take turns; the switch has the second. Only
//! in the rows of bulk TCP the receiving host shares the second CPU with the switch.

mod alone;
mod flood;
mod kills;
mod loops;
mod measure;
mod memory;
mod tables;
mod vxlan;

use std::time::{Duration, Instant};

use fastrand::Rng;

use self::measure::{Bench, Contender};
use crate::lab::record::Record;
use crate::lab::session::{InGuest, Lab, Session};

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 6;
/// An idle switch is watched for a long time, so three such times are enough.
const IDLE_CHECK_ROUNDS: usize = 3;
/// Switches of many ports are measured in so many rounds: making and removing a thousand interfaces takes seconds.
const PORTS_ROUNDS: usize = 3;
/// Points of plots that no ratio needs are measured in so many rounds.
const PLOT_ROUNDS: usize = 3;
/// Most pairs otherwise, and until when a round may begin.
const QUICK_PAIRS: usize = 5;
const QUICK_BUDGET: Duration = Duration::from_secs(50);
const QUICK_TIME: Duration = Duration::from_millis(400);
const CHECK_TIME: Duration = Duration::from_millis(800);
const QUICK_IDLE: Duration = Duration::from_secs(1);
const CHECK_IDLE: Duration = Duration::from_secs(5);

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "switch",
    about: "Frames and round trips through a switch: twinpath, the kernel's bridge, Open vSwitch, testpmd",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: tables::PLOTS,
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
    let selected =
        |contender: &Contender| contender.rows.iter().any(|row| session.selection.rows.contains(row));
    let contenders: Vec<_> = measure::CONTENDERS.iter().filter(|contender| selected(contender)).collect();
    session.progress.expect(rounds * contenders.len());
    session
        .progress
        .line(&format!("--seed {} draws the paces, and the orders of the switches", session.seed));
    let (time, idle_time) = if session.check { (CHECK_TIME, CHECK_IDLE) } else { (QUICK_TIME, QUICK_IDLE) };
    let mut record = Record::default();
    let (begun, mut last, mut done) = (Instant::now(), Duration::ZERO, 0);
    for round in 0..rounds {
        if !session.check && session.repeat.is_none() && round > 0 && begun.elapsed() + last > QUICK_BUDGET {
            session.progress.line(&format!("{round} rounds: another would take too long; --repeat N runs N"));
            break;
        }
        let round_begun = Instant::now();
        let mut random = Rng::with_seed(session.seed.wrapping_add(round as u64));
        let bench = Bench::new(session, round, time, idle_time, &mut random);
        let mut contenders = contenders.clone();
        random.shuffle(&mut contenders);
        for contender in contenders {
            session.progress.step(contender.name);
            bench.measure(contender, &mut record).await;
        }
        (done, last) = (round + 1, round_begun.elapsed());
    }
    Ok((record, done))
}
