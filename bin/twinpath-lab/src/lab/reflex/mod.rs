//! `lab reflex`: services answered by the kernel's programs, against the kernel's own sockets, our worker, and a program that does
//! nothing but reply.
//!
//! Both sides of a pair have the same client.

mod echo;
mod flood;
mod loads;
mod rates;
mod services;
mod tables;

use crate::lab::model::Sample;
use crate::lab::record::Record;
use crate::lab::session::{InGuest, Lab, Session};

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 9;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 4;
/// The period of requests is drawn between these, us.
const PERIOD_US: [f64; 2] = [250.0, 500.0];

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "reflex",
    about: "Services whose replies the kernel gives while the worker sleeps, against kernel sockets and other servers",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: tables::SUMMARY,
    together: &[],
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let rounds = match session.check {
        true => session.repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS),
        false => session.repeat.unwrap_or(QUICK_PAIRS),
    };
    let rows: Vec<&'static str> =
        tables::ROWS.iter().map(|row| row.id).filter(|row| session.selection.rows.contains(row)).collect();
    session.progress.expect(rounds * rows.len());
    let mut record = Record::default();
    let mut random = fastrand::Rng::with_seed(session.seed);
    for round in 0..rounds {
        let [least, most] = PERIOD_US;
        let period_us = least + random.f64() * (most - least);
        let seed = random.u64(..1 << 32);
        session.progress.line(&format!("round {} of {rounds}: one request per {period_us:.0} us", round + 1));
        let mut order = rows.clone();
        // Any drift of the machine affects both sides of a pair alike.
        if round % 2 == 1 {
            order.reverse();
        }
        for row in order {
            let label = tables::ROWS.iter().find(|spec| spec.id == row).map_or(row, |spec| spec.label);
            session.progress.step(label);
            // A minute of it is enough.
            if record.is_hopeless(row) || (row == "hammer" && round > 0) {
                continue;
            }
            match measure(&Round { session, period_us, seed }, row).await {
                Ok(sample) => record.add(row, round, sample),
                Err(error) => {
                    let reason = format!("{error:#}");
                    session.progress.line(&format!("{row}: {reason}"));
                    record.fail(row, reason);
                }
            }
        }
    }
    Ok((record, rounds))
}

/// A round of measurements.
struct Round<'a> {
    session: &'a Session,
    /// The period of paced requests, us, and the seed of what differs by chance: the same for all rows.
    period_us: f64,
    seed: u64,
}

async fn measure(round: &Round<'_>, row: &str) -> anyhow::Result<Sample> {
    match row {
        _ if row.starts_with("rate-") || row.starts_with("cpu-") => rates::measure(round.session, row).await,
        _ if row.starts_with("load-") => loads::measure(round.session, row).await,
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
