//! `lab wakeup`: latency against CPU for every mode of waiting, with one packet every 350 us or so, and with other arrivals.
//!
//! The sender is an open loop that spins on a CPU of its own: the time of each request is drawn from a seed, a late reply
//! delays no later request, and latency counts from the time when a request was due. So no stall hides later packets.
//!
//! The table says of each row that measures packets:
//!
//! - the receiver: `kernel`, a plain server on kernel sockets; `busy-poll=US`, the same, whose `epoll_wait` polls the device that long
//!   before it sleeps; `twinpath`; `floor`, a thread that an eventfd wakes; `nobody`, where only the competing process runs;
//! - `request=never`, `always` or `auto`: whether a latency request is held, by the lab for a kernel server; twinpath may decide;
//! - `priority=` of the thread that receives, and `budget=`, the share of a CPU that twinpath may use without traffic;
//! - `pace=US`, `poisson` or `bursts`: the arrivals. Without it, one per period, which is drawn in each round;
//! - `beside`: a process that always wants the receiver's CPU runs there too;
//! - `often`: it is measured in every round, because a ratio needs it; `tail`: a ratio uses its p99.9, which needs many packets.

mod draw;
mod measure;
mod others;
mod polled;
mod replay;
mod scene;
mod ticks;

use std::time::Duration;

use anyhow::Context;

use self::measure::Times;
use crate::lab::model::{RowSpec, Sample};
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
    let is_due = |row: &&RowSpec| {
        let is_often = row.how.has("often") || round < RARE_ROUNDS || session.repeat.is_some();
        !row.how.0.is_empty() && is_often
    };
    let mut rows: Vec<_> = LAB.table.rows.iter().filter(is_due).map(|row| row.id).collect();
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
    let spec = LAB.table.row(row).with_context(|| format!("no such row: {row}"))?;
    if !spec.how.0.is_empty() {
        return measure::measure(session, &times, spec, draw).await;
    }
    match row {
        "silence" => others::silence(session, draw, session.either(CHECK_SILENCE, QUICK_SILENCE)).await,
        "idle-after-load" => others::idle_after_load(session, AFTER_LOAD_SILENCE).await,
        "mode-kept" => others::switching(session, draw, times.often, &["adaptive"]).await,
        _ => others::switching(session, draw, times.often, &others::SWITCHED).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_known_and_ratios_are_made_of_rows_of_every_round() {
        for row in LAB.table.rows {
            let receivers = ["", "kernel", "busy-poll", "twinpath", "floor", "nobody"];
            assert!(receivers.contains(&row.how.first().0), "{}", row.id);
        }
        let needed = LAB.table.ratios.iter().flat_map(|ratio| ratio.formula.rows());
        let floor = LAB.table.needs.iter().filter(|(row, _)| *row == "interrupt-floor");
        for id in needed.chain(floor.flat_map(|(_, rows)| rows.iter().copied())) {
            let how = LAB.table.row(id).unwrap().how;
            assert!(how.0.is_empty() || how.has("often"), "{id}");
        }
    }
}
