//! `lab reflex`: services answered by the kernel's programs, against the kernel's own sockets, our worker, and a program that does
//! nothing but reply.
//!
//! Both sides of a pair have the same client.

mod echo;
mod flood;
mod loads;
mod rates;
mod services;

use std::time::Duration;

use crate::lab::model::Sample;
use crate::lab::paced::{Draw, PERIOD_US};
use crate::lab::session::{Session, by_turns, lab};

/// Most pairs without `--check`.
const QUICK_PAIRS: usize = 4;

lab!(
    "reflex",
    "Services whose replies the kernel gives while the worker sleeps, against kernel sockets and other servers",
    run
);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let rows = session.rows();
    session.progress.expect(rounds * rows.len());
    let mut random = fastrand::Rng::with_seed(session.seed);
    let in_round = async |at: usize| {
        let round =
            Round { session, draw: Draw::of(&mut random, PERIOD_US), capacity: loads::Capacity::default() };
        session.progress.line(&format!("one request per {:.0} us", round.draw.period_us));
        // A minute of the hammer is enough.
        for row in by_turns(&rows, at).into_iter().filter(|row| *row != "hammer" || at == 0) {
            session.step(row, at, measure(&round, row)).await;
        }
    };
    Ok(session.in_rounds(rounds, Duration::MAX, in_round).await)
}

/// A round of measurements.
struct Round<'a> {
    session: &'a Session,
    /// What differs by chance, the same for all rows.
    draw: Draw,
    /// Of the worker, for the rows of open loops.
    capacity: loads::Capacity,
}

async fn measure(round: &Round<'_>, row: &str) -> anyhow::Result<Sample> {
    match row {
        _ if row.starts_with("rate-") || row.starts_with("cpu-") => rates::measure(round.session, row).await,
        _ if ["load-", "open-", "step-"].iter().any(|kind| row.starts_with(kind)) => {
            loads::measure(round, row).await
        }
        _ if row.starts_with("flood-") => flood::measure(round.session, row).await,
        _ if row.starts_with("null-") || row.starts_with("getattr-") => {
            services::round_trips(round.session, row).await
        }
        _ if row == "hammer" || row.starts_with("dns-") || row.starts_with("memcached-") => {
            services::programs(round, row).await
        }
        _ => echo::measure(round, row).await,
    }
}
