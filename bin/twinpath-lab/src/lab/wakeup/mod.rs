//! `lab wakeup`: latency against CPU for every mode of waiting, with one packet every 350 us or so, and with other arrivals.
//!
//! The sender is an open loop that spins on a CPU of its own: the time of each request is drawn from a seed, a late reply
//! delays no later request, and latency counts from the time when a request was due. So no stall hides later packets.

mod cases;
mod draw;
mod measure;
mod others;
mod polled;
mod replay;
mod scene;
mod tables;
mod ticks;

use std::time::{Duration, Instant};

use self::cases::{CASES, case_of};
use self::draw::Draw;
use self::measure::Times;
use crate::lab::record::Record;
use crate::lab::session::Session;
use crate::lab::session::{InGuest, Lab};

/// Fewest pairs per ratio under `--check`. In an average, one stall of a virtual machine's host outweighs a hundred
/// good round trips, so many short rounds tell more than few long ones.
const CHECK_PAIRS: usize = 15;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 4;
/// Rounds that include the rows without a ratio.
const RARE_ROUNDS: usize = 1;
/// Rounds that switch modes.
const SWITCHING_ROUNDS: usize = 3;
/// Without a requested number of rounds, no round begins that would end later than this.
const QUICK_BUDGET: Duration = Duration::from_secs(150);

const QUICK_TIMES: Times = Times {
    warmup: Duration::from_millis(300),
    often: Duration::from_millis(800),
    rarely: Duration::from_millis(400),
    tail: Duration::from_millis(800),
};
const CHECK_TIMES: Times = Times {
    warmup: Duration::from_millis(500),
    often: Duration::from_millis(1000),
    rarely: Duration::from_millis(1000),
    // At least one packet per 500 us.
    tail: Duration::from_millis(5000),
};
const QUICK_SILENCE: Duration = Duration::from_secs(8);
const CHECK_SILENCE: Duration = Duration::from_secs(60);
/// Rounds that measure how idle a worker is after load, and for how long: it may learn something wrong in only some of
/// them.
const AFTER_LOAD_ROUNDS: usize = 3;
const AFTER_LOAD_SILENCE: Duration = Duration::from_secs(5);

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "wakeup",
    about: "One packet every 350 us or so, and other paces, to every way to wait: latency against CPU",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: &[],
    together: tables::TOGETHER,
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let all = if session.check {
        session.repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS)
    } else {
        session.repeat.unwrap_or(QUICK_PAIRS)
    };
    let mut record = Record::default();
    session.progress.line(&format!("seed {}: --seed {0} draws the same again", session.seed));
    session.progress.expect((0..all).map(|round| plan(session, round).len()).sum());
    policy(session, &mut record).await;
    let begun = Instant::now();
    let (mut done, mut last) = (0, Duration::ZERO);
    for round in 0..all {
        let budgeted = !session.check && session.repeat.is_none();
        // The first round is the longest.
        if budgeted && round > 1 && begun.elapsed() + last > QUICK_BUDGET {
            session.progress.line(&format!("{round} rounds: another would take too long; --repeat N runs N"));
            break;
        }
        let round_begun = Instant::now();
        let draw = Draw::new(session.seed, round);
        session.progress.line(&format!("round {} of {all}: one packet per {} us", round + 1, draw.period_us));
        for row in plan(session, round) {
            step(session, &mut record, round, row, &draw).await;
        }
        (done, last) = (round + 1, round_begun.elapsed());
    }
    let wanted = |row: &str| session.selection.rows.contains(row);
    if wanted("interrupt-floor") {
        others::interrupt_floor(&mut record);
    }
    if wanted("tick") {
        others::tick(&mut record);
    }
    Ok((record, done))
}

/// Measures the policy by itself, before there is other load.
async fn policy(session: &Session, record: &mut Record) {
    if !replay::ROWS.iter().any(|row| session.selection.rows.contains(row)) {
        return;
    }
    session.progress.line("the policy, replayed");
    match replay::replay(session.seed).await {
        Ok(samples) => {
            for (row, sample) in replay::ROWS.into_iter().zip(samples) {
                record.add(row, 0, sample);
            }
        }
        Err(error) => replay::ROWS.iter().for_each(|row| record.fail(row, format!("{error:#}"))),
    }
}

/// The rows of a round, in order.
fn plan(session: &Session, round: usize) -> Vec<&'static str> {
    let mut rows: Vec<_> = CASES
        .iter()
        .filter_map(|case| case_of(case.row.id))
        .filter(|case| case.often || round < RARE_ROUNDS || session.repeat.is_some())
        .map(|case| case.row.id)
        .collect();
    if round < SWITCHING_ROUNDS {
        rows.extend(["mode-kept", "mode-switching"]);
    }
    if round < AFTER_LOAD_ROUNDS {
        rows.push("idle-after-load");
    }
    if round == 0 {
        rows.push("silence");
    }
    rows.retain(|row| session.selection.rows.contains(row));
    draw::order(session.seed, round, rows)
}

/// Measures a row; a failure is recorded as its reason, and the round continues.
async fn step(session: &Session, record: &mut Record, round: usize, row: &'static str, draw: &Draw) {
    let label = tables::ROWS.iter().find(|spec| spec.id == row).map_or(row, |spec| spec.label);
    session.progress.step(label);
    if record.is_hopeless(row) {
        return;
    }
    let times = if session.check { CHECK_TIMES } else { QUICK_TIMES };
    let result = match (case_of(row), row) {
        (Some(case), _) => measure::measure(session, &times, &case, draw).await,
        (None, "silence") => {
            let length = if session.check { CHECK_SILENCE } else { QUICK_SILENCE };
            others::silence(session, draw, length).await
        }
        (None, "idle-after-load") => others::idle_after_load(session, AFTER_LOAD_SILENCE).await,
        (None, "mode-kept") => others::switching(session, draw, times.often, &["adaptive"]).await,
        (None, _) => others::switching(session, draw, times.often, &others::SWITCHED).await,
    };
    match result {
        Ok(sample) => record.add(row, round, sample),
        Err(error) => {
            let reason = format!("{error:#}");
            session.progress.line(&format!("{row}: {reason}"));
            record.fail(row, reason);
        }
    }
}
