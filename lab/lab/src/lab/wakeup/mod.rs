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
mod ticks;

use std::time::Duration;

use self::cases::{Case, case_of};
use self::measure::Times;
use crate::lab::model::Sample;
use crate::lab::paced::Draw;
use crate::lab::session::{Session, lab};

/// Most pairs without `--check`.
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

lab!(
    "wakeup",
    "One packet every 350 us or so, and other paces, to every way to wait: latency against CPU",
    run
);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let all = session.rounds(QUICK_PAIRS);
    session.progress.line(&format!("seed {}: --seed {0} draws the same again", session.seed));
    session.progress.expect((0..all).map(|round| plan(session, round).len()).sum());
    policy(session).await;
    let in_round = async |round: usize| {
        let draw = draw::draw(session.seed, round);
        session.progress.line(&format!("one packet per {} us", draw.period_us));
        for row in plan(session, round) {
            session.step(row, round, measured(session, row, &draw)).await;
        }
    };
    let done = session.in_rounds(all, QUICK_BUDGET, in_round).await;
    let record = &mut session.record.borrow_mut();
    if session.wants("interrupt-floor") {
        others::interrupt_floor(record);
    }
    if session.wants("tick") {
        others::tick(record);
    }
    Ok(done)
}

/// Measures the policy by itself, before there is other load.
async fn policy(session: &Session) {
    if !replay::ROWS.iter().any(|row| session.wants(row)) {
        return;
    }
    session.progress.line("the policy, replayed");
    match replay::replay(session.seed).await {
        Ok(samples) => {
            replay::ROWS.into_iter().zip(samples).for_each(|(row, sample)| session.note(row, 0, Ok(sample)));
        }
        Err(error) => session.fail(&replay::ROWS, &error),
    }
}

/// The rows of a round, in order.
fn plan(session: &Session, round: usize) -> Vec<&'static str> {
    let is_due = |case: &Case| case.often || round < RARE_ROUNDS || session.repeat.is_some();
    let mut rows: Vec<_> = cases::all().filter(is_due).map(|case| case.row).collect();
    if round < SWITCHING_ROUNDS {
        rows.extend(["mode-kept", "mode-switching"]);
    }
    if round < AFTER_LOAD_ROUNDS {
        rows.push("idle-after-load");
    }
    if round == 0 {
        rows.push("silence");
    }
    rows.retain(|row| session.wants(row));
    draw::order(session.seed, round, rows)
}

async fn measured(session: &Session, row: &str, draw: &Draw) -> anyhow::Result<Sample> {
    let times = session.either(CHECK_TIMES, QUICK_TIMES);
    if let Some(case) = case_of(row) {
        return measure::measure(session, &times, &case, draw).await;
    }
    match row {
        "silence" => others::silence(session, draw, session.either(CHECK_SILENCE, QUICK_SILENCE)).await,
        "idle-after-load" => others::idle_after_load(session, AFTER_LOAD_SILENCE).await,
        "mode-kept" => others::switching(session, draw, times.often, &["adaptive"]).await,
        _ => others::switching(session, draw, times.often, &others::SWITCHED).await,
    }
}
