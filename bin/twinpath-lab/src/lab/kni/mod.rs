//! `lab kni`: the cost of twinpath for the kernel's own traffic, beside it and through it, with the NFS walk of the KNI
//! report.
//!
//! nfs-ganesha and its client share the first CPU: with one call outstanding they run alternately. twinpath, and all
//! load beside the walk, use the second.

mod beside;
mod fail_open;
pub(super) mod fragments;
mod hops;
pub(super) mod kill9;
mod measure;
mod modes;
mod tables;
mod tick;
mod ticks;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use self::measure::Walks;
use self::modes::{Mode, Stage};
use crate::lab::record::Record;
use crate::lab::session::Session;
use crate::lab::session::{InGuest, Lab};

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 10;
/// Fewest files of a judged run.
pub(crate) const CHECK_FILES: u32 = 20_000;
/// Pairs under `--check` if the end of an interval is judged: with fewer it would be noise of the machine.
const INTERVAL_CHECK_PAIRS: usize = 30;
/// The modes of that ratio.
const INTERVAL_MODES: [Mode; 2] = [Mode::Plain, Mode::Attached];
/// Fewest pairs of listings in a guest under `--check`: with counted instructions they differ by one percent.
const LISTING_CHECK_PAIRS: usize = 3;
/// Fewest rounds with captures under `--check`.
const CAPTURE_CHECK_ROUNDS: usize = 3;
/// Most rounds otherwise, and until when one may begin.
const QUICK_PAIRS: usize = 6;
const QUICK_BUDGET: Duration = Duration::from_secs(135);
/// The seed of the order of modes in each round.
const ORDER_SEED: u64 = 2015;

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "kni",
    about: "An NFS walk beside twinpath and through its exception port, against plain veth; kills; stuck workers; fragments",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: &[],
    together: tables::TOGETHER,
    in_guest: &IN_GUEST,
    run: |session| Box::pin(run(session)),
};

/// The files that the guest needs for the kernel's NFS client, and to list and to serve a tree. ganesha reads the
/// mounts from the first link, looks for rpcbind behind the second, and gets the names of transports from the last of
/// the files.
const IN_GUEST: InGuest = InGuest {
    rows: &[tables::LISTING_PLAIN, tables::LISTING_ATTACHED, tables::LISTING_EXCEPTION],
    modules: &["nfs", "nfsv3"],
    programs: &["ls", "ganesha.nfsd"],
    files: &["/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so", "/etc/netconfig"],
    links: &[("/etc/mtab", "/proc/self/mounts"), ("/var/run", "/run")],
};

/// The number of rounds of each kind.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rounds {
    all: usize,
    /// Rounds of [`INTERVAL_MODES`], including `all`.
    interval: usize,
    /// In this many first rounds each mode also has a walk with captures.
    captures: usize,
}

/// `walked`: whether there are other walks than those of a guest, whose times vary like the machine's.
fn rounds(session: &Session, walked: bool) -> Rounds {
    if !walked {
        let repeat = session.repeat.unwrap_or(LISTING_CHECK_PAIRS);
        let all = if session.check { repeat.max(LISTING_CHECK_PAIRS) } else { repeat };
        return Rounds { all, interval: all, captures: 0 };
    }
    let all = match (session.check, session.repeat) {
        (true, repeat) => repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS),
        (false, repeat) => repeat.unwrap_or(QUICK_PAIRS),
    };
    let (interval, captures) =
        if session.check { (all.max(INTERVAL_CHECK_PAIRS), CAPTURE_CHECK_ROUNDS) } else { (all, 1) };
    Rounds { all, interval, captures }
}

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let selected = &session.selection.rows;
    let modes: Vec<_> =
        Mode::ALL.into_iter().filter(|mode| measure::rows(*mode).any(|row| selected.contains(row))).collect();
    let walked = modes.iter().any(|mode| measure::walk_rows(*mode).any(|row| selected.contains(row)));
    let rounds = rounds(session, walked);
    let mut record = Record::default();
    let more = (rounds.interval - rounds.all) * of_interval(&modes).len();
    session.progress.expect(beside::steps(session) + rounds.all * modes.len() + more);
    // First, while the machine is idle.
    beside::measure(session, &mut record).await;
    let done = if modes.is_empty() { 1 } else { walks(session, &modes, rounds, &mut record).await? };
    if selected.contains(tables::TICK) {
        ticks::note(&mut record);
    }
    Ok((record, done))
}

/// Runs the rounds of walks; returns how many.
async fn walks(
    session: &Session,
    modes: &[Mode],
    rounds: Rounds,
    record: &mut Record,
) -> anyhow::Result<usize> {
    let owner = session.launcher.topology().owned()?;
    let stage = Stage { session, owner: &owner };
    let walks = match Walks::start(session, stage).await {
        Ok(walks) => walks,
        Err(error) => {
            let reason = format!("{error:#}");
            session.progress.line(&reason);
            for row in selected_rows(session, modes) {
                record.fail(row, reason.clone());
            }
            return Ok(0);
        }
    };
    let (begun, mut last, mut done) = (Instant::now(), Duration::ZERO, 0);
    for round in 0..rounds.interval {
        let modes = if round < rounds.all { modes.to_vec() } else { of_interval(modes) };
        if modes.is_empty() {
            break;
        }
        let budgeted = !session.check && session.repeat.is_none();
        if budgeted && round > 0 && begun.elapsed() + last > QUICK_BUDGET {
            session.progress.line(&format!("{round} rounds: another would take too long; --repeat N runs N"));
            break;
        }
        let round_begun = Instant::now();
        session.progress.line(&format!("round {} of {}", round + 1, rounds.interval));
        for mode in order(&modes, round) {
            walks.measure(mode, round, round < rounds.captures, record).await;
        }
        (done, last) = (round + 1, round_begun.elapsed());
    }
    walks.stop().await?;
    Ok(done)
}

/// The modes that have additional rounds; none unless both are selected.
fn of_interval(modes: &[Mode]) -> Vec<Mode> {
    let all = INTERVAL_MODES.iter().all(|mode| modes.contains(mode));
    if all { INTERVAL_MODES.to_vec() } else { Vec::new() }
}

fn selected_rows(session: &Session, modes: &[Mode]) -> BTreeSet<&'static str> {
    let rows = modes.iter().flat_map(|mode| measure::rows(*mode));
    rows.filter(|row| session.selection.rows.contains(row)).collect()
}

/// A different order in every round, so that no mode always follows the same one.
fn order(modes: &[Mode], round: usize) -> Vec<Mode> {
    let mut order = modes.to_vec();
    fastrand::Rng::with_seed(ORDER_SEED + round as u64).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_has_its_rows_in_the_table_and_every_round_all_modes() {
        let ids: BTreeSet<_> = tables::ROWS.iter().map(|row| row.id).collect();
        for mode in Mode::ALL {
            assert!(ids.contains(mode.row()));
            assert!(measure::rows(mode).all(|row| ids.contains(row)));
        }
        let orders: BTreeSet<_> = (0..CHECK_PAIRS).map(|round| order(&Mode::ALL, round)).collect();
        assert!(orders.len() > CHECK_PAIRS / 2);
        for order in orders {
            assert_eq!(BTreeSet::from_iter(order), BTreeSet::from(Mode::ALL));
        }
    }
}
