//! `lab three-rtts`: round trips of frames of an EtherType that are sent back with swapped addresses: by a service on
//! the worker, by another process over shared memory, by an application on a packet socket; and kernel UDP for scale.

mod drive;
mod measure;

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Context;

use self::measure::Bench;
use crate::lab::fallback;
use crate::lab::peers;
use crate::lab::process::Side;
use crate::lab::session::{InGuest, Lab, Session, by_turns};
use crate::lab::spec::Table;

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 9;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 6;
/// Rounds that are also measured beside other traffic, under `--check` and otherwise.
const CHECK_LOADED: usize = 3;
const QUICK_LOADED: usize = 1;
/// Without a requested number of rounds, no round begins that would end later than this.
const QUICK_BUDGET: Duration = Duration::from_secs(50);
const QUICK_TIME: Duration = Duration::from_millis(250);
const CHECK_TIME: Duration = Duration::from_millis(600);

/// The rows of an even round, in order; an odd one runs them in reverse. Both sides of a pair are together, and those
/// that sleep nearest, because the cost of a wake-up changes within seconds on a virtual machine.
const ORDER: &[&str] = &[
    "udp-spinning",
    "packet-spinning",
    "direct-poll",
    "direct-one-thread",
    "shm-spinning",
    "direct-interrupt",
    "packet-sleeping",
    "udp-sleeping",
    "floor-eventfd",
    "shm-sleeping",
];
/// The rows beside other traffic.
const ORDER_LOADED: &[&str] = &[
    "udp-spinning-loaded",
    "packet-spinning-loaded",
    "direct-poll-loaded",
    "direct-one-thread-loaded",
    "shm-spinning-loaded",
    "shm-sleeping-loaded",
    "packet-sleeping-loaded",
];

/// The lab's definition.
pub(crate) static LAB: Lab = Lab {
    name: "three-rtts",
    about: "Reflected frames: by a worker, by another process over shared memory, by a packet socket",
    table: LazyLock::new(|| Table::of(include_str!("../../../tables/three-rtts.txt"))),
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<usize> {
    let all = session.rounds(CHECK_PAIRS, QUICK_PAIRS);
    let loaded = session.either(CHECK_LOADED, QUICK_LOADED).min(all);
    let wanted = |order: &[&'static str]| -> Vec<&'static str> {
        order.iter().filter(|row| session.wants(row)).copied().collect()
    };
    let (idle_rows, loaded_rows) = (wanted(ORDER), wanted(ORDER_LOADED));
    session.progress.expect(fallback::steps(session) + all * idle_rows.len() + loaded * loaded_rows.len());
    // The cost of (a)'s path for the kernel's own traffic.
    fallback::round(session, 0).await;
    let echo = session.launcher.server(Side::Server, &peers::udp_echo("single", "interrupt")).await;
    let echo = echo.context("the plain UDP echo that the other traffic goes to")?;
    let bench = Bench { session, time: session.either(CHECK_TIME, QUICK_TIME) };
    let round = async |round: usize| {
        run_rows(&bench, round, &idle_rows).await;
        if round < loaded && !loaded_rows.is_empty() {
            beside_traffic(&bench, round, &loaded_rows).await;
        }
    };
    let done = session.in_rounds(all, QUICK_BUDGET, round).await;
    session.launcher.stop(echo).await?;
    Ok(done)
}

async fn run_rows(bench: &Bench<'_>, round: usize, rows: &[&'static str]) {
    for row in by_turns(rows, round) {
        bench.session.step(row, round, bench.measure(row)).await;
    }
}

/// The same while a kernel client and server use the interface.
async fn beside_traffic(bench: &Bench<'_>, round: usize, rows: &[&'static str]) {
    let why = tokio::select! {
        () = run_rows(bench, round, rows) => return,
        ended = bench.traffic() => match ended {
            Ok(()) => anyhow::anyhow!("the other traffic ended before the row did"),
            Err(error) => error.context("there was no other traffic"),
        },
    };
    bench.session.fail(rows, &why);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::lab::model::Group;

    #[test]
    fn every_row_has_its_place_and_every_pair_stands_together() {
        let placed: BTreeSet<_> = ORDER.iter().chain(ORDER_LOADED).collect();
        let rows = LAB.table.rows.iter().filter(|row| row.group != Group::Beside);
        assert_eq!(placed, rows.map(|row| &row.id).collect());
        let at = |row: &str| ORDER.iter().position(|placed| *placed == row).expect("placed");
        for (one, other) in [
            ("packet-spinning", "direct-poll"),
            ("direct-one-thread", "shm-spinning"),
            ("floor-eventfd", "shm-sleeping"),
        ] {
            assert_eq!(at(one).abs_diff(at(other)), 1, "{one}, {other}");
        }
    }
}
