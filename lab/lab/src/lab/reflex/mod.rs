//! `lab reflex`: services answered by the kernel's programs, against the kernel's own sockets, our worker, and a program that does
//! nothing but reply.
//!
//! Both sides of a pair have the same client.

mod echo;
mod flood;
mod loads;
mod rates;
mod services;

use std::sync::LazyLock;
use std::time::Duration;

use crate::lab::model::Sample;
use crate::lab::session::{InGuest, Lab, Session, by_turns};
use crate::lab::spec::Table;

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 9;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 4;
/// The period of requests is drawn between these, us.
const PERIOD_US: [f64; 2] = [250.0, 500.0];

/// The lab's definition.
pub(crate) static LAB: Lab = Lab {
    name: "reflex",
    about: "Services whose replies the kernel gives while the worker sleeps, against kernel sockets and other servers",
    table: LazyLock::new(|| Table::of(include_str!("../../../tables/reflex.txt"))),
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(CHECK_PAIRS, QUICK_PAIRS);
    let rows = session.rows();
    session.progress.expect(rounds * rows.len());
    let mut random = fastrand::Rng::with_seed(session.seed);
    let in_round = async |at: usize| {
        let [least, most] = PERIOD_US;
        let round =
            Round { session, period_us: least + random.f64() * (most - least), seed: random.u64(..1 << 32) };
        session.progress.line(&format!("one request per {:.0} us", round.period_us));
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
