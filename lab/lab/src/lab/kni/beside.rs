//! Measurements besides the walks: of a killed instance, of a stuck worker; and fragmented datagrams.

use super::{fail_open, fragments, kill9};
use crate::lab::session::Session;

/// Kills in a judged run, and in others; a worker is stopped as often.
const CHECK_KILLS: usize = 20;
const QUICK_KILLS: usize = 5;
/// Fragmented datagrams over each family.
const CHECK_DATAGRAMS: u64 = 400;
const QUICK_DATAGRAMS: u64 = 100;
/// The seed of the sizes, order and repetitions of fragments.
const FRAGMENTS_SEED: u64 = 45;
/// The rows of fragmented datagrams and of a killed instance.
const FRAGMENTS: &str = "fragments";
const KILL9: &str = "kill9";

/// Number of steps, for the progress bar.
pub(super) fn steps(session: &Session) -> usize {
    let all = [FRAGMENTS, KILL9].into_iter().chain(fail_open::PATHS.iter().map(|way| way.row));
    all.filter(|row| session.wants(row)).count()
}

/// Measures the selected rows once. A failure is recorded as the row's reason.
pub(super) async fn measure(session: &Session) {
    let kills = session.either(CHECK_KILLS, QUICK_KILLS);
    let datagrams = session.either(CHECK_DATAGRAMS, QUICK_DATAGRAMS);
    if session.wants(FRAGMENTS) {
        session.step(FRAGMENTS, 0, fragments::measure(session, "auto", datagrams, FRAGMENTS_SEED)).await;
    }
    if session.wants(KILL9) {
        session.step(KILL9, 0, kill9::measure(session, "auto", kills)).await;
    }
    for way in fail_open::PATHS.iter().filter(|way| session.wants(way.row)) {
        session.step(way.row, 0, fail_open::measure(session, way, kills)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::LAB;
    use super::*;
    use crate::lab::process::Launcher;
    use crate::lab::programs::Programs;
    use crate::lab::progress::Progress;
    use crate::lab::session::{self, Selection};
    use crate::lab::topology::Topology;

    fn session() -> Session {
        let cpus = session::cpus().unwrap();
        // The test's own binary is in a directory below that of the programs.
        let mut directory = std::env::current_exe().unwrap();
        directory.pop();
        directory.pop();
        let programs = Programs { product: directory.join("twinpath"), own: directory.join("twinpath-lab") };
        Session {
            lab: &LAB,
            record: RefCell::default(),
            launcher: Launcher::new(programs, Topology::build().unwrap(), cpus),
            cpus,
            run_dir: session::run_dir().unwrap(),
            selection: Selection::new(&LAB, &[]).unwrap(),
            repeat: None,
            files: None,
            seed: 0,
            check: false,
            progress: Progress::new(),
        }
    }

    #[test]
    fn every_row_measures() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let session = session();
            let killed = kill9::measure(&session, "auto", 2).await.unwrap();
            assert!(killed.values["worst_ms"] > 0.0 && killed.values["worst_ms"] < 2_000.0, "{killed:?}");
            assert_eq!((killed.values["resets"], killed.values["kills"]), (0.0, 2.0), "{killed:?}");
            let pieces = fragments::measure(&session, "auto", 20, 7).await.unwrap();
            assert_eq!(pieces.values["share"], 1.0, "{pieces:?}");
            for way in &fail_open::PATHS {
                let stuck = fail_open::measure(&session, way, 2).await.unwrap();
                assert_eq!((stuck.values["stops"], stuck.values["twice"]), (2.0, 0.0), "{stuck:?}");
                // Not before the time after which a worker counts as stuck.
                assert!(stuck.values["worst_ms"] > 90.0 && stuck.values["worst_ms"] < 5_000.0, "{stuck:?}");
                assert!(stuck.values["back_worst_ms"] > 0.0, "{stuck:?}");
            }
        });
    }
}
