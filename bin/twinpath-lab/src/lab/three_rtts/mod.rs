//! `lab three-rtts`: round trips of frames of an EtherType that are sent back with swapped addresses: by a service on
//! the worker, by another process over shared memory, by an application on a packet socket; and kernel UDP for scale.

mod drive;
mod measure;
mod tables;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Context;

use self::measure::Bench;
use crate::lab::fallback;
use crate::lab::peers;
use crate::lab::process::Side;
use crate::lab::record::Record;
use crate::lab::session::Session;
use crate::lab::session::{InGuest, Lab};

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
pub(crate) const LAB: Lab = Lab {
    name: "three-rtts",
    about: "Reflected frames: by a worker, by another process over shared memory, by a packet socket",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: &[],
    together: &[],
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let (all, loaded) = if session.check {
        (session.repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS), CHECK_LOADED)
    } else {
        (session.repeat.unwrap_or(QUICK_PAIRS), QUICK_LOADED)
    };
    let wanted = |order: &[&'static str]| -> Vec<&'static str> {
        order.iter().filter(|row| session.selection.rows.contains(*row)).copied().collect()
    };
    let (idle_rows, loaded_rows) = (wanted(ORDER), wanted(ORDER_LOADED));
    let loaded = loaded.min(all);
    session.progress.expect(fallback::steps(session) + all * idle_rows.len() + loaded * loaded_rows.len());
    let mut record = Record::default();
    // The cost of (a)'s path for the kernel's own traffic.
    fallback::round(session, &mut record, 0).await;
    let record = RefCell::new(record);
    let echo = session.launcher.server(Side::Server, &peers::udp_echo("single", "interrupt")).await;
    let echo = echo.context("the plain UDP echo that the other traffic goes to")?;
    let bench = Bench { session, time: if session.check { CHECK_TIME } else { QUICK_TIME } };
    let begun = Instant::now();
    let (mut done, mut last) = (0, Duration::ZERO);
    for round in 0..all {
        let budgeted = !session.check && session.repeat.is_none();
        if budgeted && round > 1 && begun.elapsed() + last > QUICK_BUDGET {
            session.progress.line(&format!("{round} rounds: another would take too long; --repeat N runs N"));
            break;
        }
        let round_begun = Instant::now();
        session.progress.line(&format!("round {} of {all}", round + 1));
        run_rows(&bench, &record, round, &idle_rows).await;
        last = round_begun.elapsed();
        if round < loaded && !loaded_rows.is_empty() {
            beside_traffic(&bench, &record, round, &loaded_rows).await;
        }
        done = round + 1;
    }
    session.launcher.stop(echo).await?;
    Ok((record.into_inner(), done))
}

/// Measures rows; a failure is recorded as the row's reason, and the round continues.
async fn run_rows(bench: &Bench<'_>, record: &RefCell<Record>, round: usize, rows: &[&'static str]) {
    let mut rows = rows.to_vec();
    if round % 2 == 1 {
        rows.reverse();
    }
    for row in rows {
        let label = tables::ROWS.iter().find(|spec| spec.id == row).map_or(row, |spec| spec.label);
        bench.session.progress.step(label);
        if record.borrow().is_hopeless(row) {
            continue;
        }
        match bench.measure(row).await {
            Ok(sample) => record.borrow_mut().add(row, round, sample),
            Err(error) => {
                let reason = format!("{error:#}");
                bench.session.progress.line(&format!("{row}: {reason}"));
                record.borrow_mut().fail(row, reason);
            }
        }
    }
}

/// The same while a kernel client and server use the interface.
async fn beside_traffic(bench: &Bench<'_>, record: &RefCell<Record>, round: usize, rows: &[&'static str]) {
    let why = tokio::select! {
        () = run_rows(bench, record, round, rows) => return,
        ended = bench.traffic() => match ended {
            Ok(()) => "the other traffic ended before the row did".to_owned(),
            Err(error) => format!("there was no other traffic: {error:#}"),
        },
    };
    bench.session.progress.line(&why);
    for row in rows {
        record.borrow_mut().fail(row, why.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::lab::model::Group;

    #[test]
    fn every_row_has_its_place_and_every_pair_stands_together() {
        let placed: BTreeSet<_> = ORDER.iter().chain(ORDER_LOADED).collect();
        let rows = tables::ROWS.iter().filter(|row| row.group != Group::Beside);
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
