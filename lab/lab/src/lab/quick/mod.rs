//! `lab quick`: an echo service through twinpath, against the kernel's own sockets, in one run.

mod measure;

use std::time::Duration;

use anyhow::Context;

use self::measure::Quick;
use crate::lab::fallback;
use crate::lab::peers;
use crate::lab::process::Side;
use crate::lab::session::{Session, lab};

/// Rows that compare with the best of the plain servers, and that have an offered rate of their own.
const RATE: &str = "rate-twinpath";
const COST: &str = "cpu-kernel";
/// Most pairs without `--check`.
const QUICK_PAIRS: usize = 6;
/// Without a requested number of rounds, no round begins that would end later than this.
const QUICK_BUDGET: Duration = Duration::from_secs(46);
/// From this round on, except under `--check`, plain servers that were clearly slower so far are left out.
const CONTENDERS_FROM: usize = 2;
/// Clearly slower: below this share of the best median.
const CONTENDER: f64 = 0.85;

lab!(
    "quick",
    "An echo service in two network namespaces of this machine: by the kernel's own sockets, and by twinpath",
    run
);

/// Durations of measurements.
#[derive(Clone, Copy, Debug)]
struct Times {
    rtt: Duration,
    rate: Duration,
    cost: Duration,
    floor: Duration,
    paced: Duration,
    tcp_rr: Duration,
    tcp_bulk: Duration,
    idle: Duration,
}

const QUICK_TIMES: Times = Times {
    rtt: Duration::from_millis(250),
    rate: Duration::from_millis(250),
    cost: Duration::from_millis(400),
    floor: Duration::from_millis(150),
    paced: Duration::from_millis(400),
    tcp_rr: Duration::from_millis(250),
    tcp_bulk: Duration::from_millis(300),
    idle: Duration::from_secs(2),
};
const CHECK_TIMES: Times = Times {
    rtt: Duration::from_millis(600),
    rate: Duration::from_millis(600),
    cost: Duration::from_secs(1),
    floor: Duration::from_millis(400),
    paced: Duration::from_secs(1),
    tcp_rr: Duration::from_millis(600),
    tcp_bulk: Duration::from_millis(800),
    idle: Duration::from_secs(5),
};

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let is_in_rounds = |row: &&str| LAB.table.row(row).is_some_and(|row| !row.how.0.is_empty());
    let rows: Vec<_> = session.rows().into_iter().filter(is_in_rounds).collect();
    let count = session.expect(&rows, rounds);
    let tcp_echo =
        session.launcher.server(Side::Server, &peers::tcp_echo()).await.context("the plain TCP echo")?;
    let tcp_sink =
        session.launcher.server(Side::Server, &peers::tcp_sink()).await.context("the plain TCP sink")?;
    let times = session.either(CHECK_TIMES, QUICK_TIMES);
    let mut quick = Quick::new(session, times, [tcp_echo.pid, tcp_sink.pid]);
    // Once, while the machine is idle.
    for row in fallback::TAXES.into_iter().filter(|row| session.wants(row)) {
        session.step(row, 0, fallback::tax(session, row)).await;
    }
    let round = async |round: usize| {
        let rows = session.due(&rows, rounds, round);
        for row in rows.into_iter().filter(|row| !is_beaten(session, round, row)) {
            session.step(row, round, quick.measure(row)).await;
        }
        if let Err(error) = quick.detach().await {
            session.progress.line(&format!("detaching: {error:#}"));
        }
    };
    let done = session.in_rounds(count, QUICK_BUDGET, round).await;
    session.launcher.stop(tcp_echo).await?;
    session.launcher.stop(tcp_sink).await?;
    Ok(done.min(rounds))
}

/// Whether this plain server need not be measured again, because `udp-rate` compares with the best one.
fn is_beaten(session: &Session, round: usize, row: &str) -> bool {
    let plain = LAB.table.against(RATE);
    if session.check || round < CONTENDERS_FROM || !plain.contains(&row) {
        return false;
    }
    let record = session.record.borrow();
    let rate = |row: &str| record.median(row, "requests_per_s");
    let best = record.best(plain, "requests_per_s").and_then(rate);
    rate(row).zip(best).is_some_and(|(rate, best)| rate < CONTENDER * best)
}
