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
mod tick;
mod ticks;

use std::time::Duration;

use self::measure::Walks;
use self::modes::{Mode, Stage};
use crate::lab::session::{InGuest, Session, lab};

/// Fewest files of a judged run.
pub(crate) const CHECK_FILES: u32 = 20_000;
/// The ratio whose interval is judged, which needs more pairs, and the modes of it.
const INTERVAL: &str = "walk-attached-idle";
const INTERVAL_MODES: [Mode; 2] = [Mode::Plain, Mode::Attached];
/// The ratios of listings in a guest, and of captures, by which the rounds of these are counted.
const LISTING: &str = "guest-walk-attached";
const CAPTURED: &str = "exception-queue-us";
/// The row of times that wait for a timer tick.
const TICK: &str = "tick";
/// Most rounds without `--check`, and until when one may begin.
const QUICK_PAIRS: usize = 6;
const QUICK_BUDGET: Duration = Duration::from_secs(135);
/// The seed of the order of modes in each round.
const ORDER_SEED: u64 = 2015;

lab!(
    "kni",
    "An NFS walk beside twinpath and through its exception port, against plain veth; kills; stuck workers; fragments",
    run,
    &IN_GUEST
);

/// The files that the guest needs for the kernel's NFS client, and to list and to serve a tree. ganesha reads the
/// mounts from the first link, looks for rpcbind behind the second, and gets the names of transports from the last of
/// the files.
const IN_GUEST: InGuest = InGuest {
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
        let listings = LAB.table.pairs(LISTING);
        let all = session.rounds_of(listings, listings);
        return Rounds { all, interval: all, captures: 0 };
    }
    let all = session.rounds(QUICK_PAIRS);
    let interval = if session.check { all.max(LAB.table.pairs(INTERVAL)) } else { all };
    Rounds { all, interval, captures: session.either(LAB.table.pairs(CAPTURED), 1) }
}

async fn run(session: &Session) -> anyhow::Result<usize> {
    let has = |mode: &Mode| measure::rows(*mode).any(|row| session.wants(row));
    let modes: Vec<_> = Mode::ALL.into_iter().filter(has).collect();
    let walked = modes.iter().any(|mode| measure::walk_rows(*mode).any(|row| session.wants(row)));
    let rounds = rounds(session, walked);
    let more = (rounds.interval - rounds.all) * of_interval(&modes).len();
    session.progress.expect(beside::steps(session) + rounds.all * modes.len() + more);
    // First, while the machine is idle.
    beside::measure(session).await;
    let done = if modes.is_empty() { 1 } else { walks(session, &modes, rounds).await? };
    if session.wants(TICK) {
        ticks::note(&mut session.record.borrow_mut());
    }
    Ok(done)
}

/// Runs the rounds of walks; returns how many.
async fn walks(session: &Session, modes: &[Mode], rounds: Rounds) -> anyhow::Result<usize> {
    let owner = session.launcher.topology().owned()?;
    let stage = Stage { session, owner: &owner };
    let walks = match Walks::start(session, stage).await {
        Ok(walks) => walks,
        Err(error) => {
            let rows = modes.iter().flat_map(|mode| measure::rows(*mode)).filter(|row| session.wants(row));
            session.fail(&rows.collect::<Vec<_>>(), &error);
            return Ok(0);
        }
    };
    let more = of_interval(modes);
    let count = if more.is_empty() { rounds.all } else { rounds.interval };
    let round = async |round: usize| {
        for mode in order(if round < rounds.all { modes } else { &more }, round) {
            walks.measure(mode, round, round < rounds.captures).await;
        }
    };
    let done = session.in_rounds(count, QUICK_BUDGET, round).await;
    walks.stop().await?;
    Ok(done)
}

/// The modes that have additional rounds; none unless both are selected.
fn of_interval(modes: &[Mode]) -> Vec<Mode> {
    let all = INTERVAL_MODES.iter().all(|mode| modes.contains(mode));
    if all { INTERVAL_MODES.to_vec() } else { Vec::new() }
}

/// A different order in every round, so that no mode always follows the same one.
fn order(modes: &[Mode], round: usize) -> Vec<Mode> {
    let mut order = modes.to_vec();
    fastrand::Rng::with_seed(ORDER_SEED + round as u64).shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mode_has_its_rows_in_the_table_and_every_round_all_modes() {
        let ids: BTreeSet<_> = LAB.table.rows.iter().map(|row| row.id).collect();
        for mode in Mode::ALL {
            assert!(ids.contains(mode.row()));
            assert!(measure::rows(mode).all(|row| ids.contains(row)));
        }
        let rounds = LAB.table.check_pairs;
        let orders: BTreeSet<_> = (0..rounds).map(|round| order(&Mode::ALL, round)).collect();
        assert!(orders.len() > rounds / 2);
        for order in orders {
            assert_eq!(BTreeSet::from_iter(order), BTreeSet::from(Mode::ALL));
        }
    }
}
