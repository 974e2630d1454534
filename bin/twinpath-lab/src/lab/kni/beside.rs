//! Measurements besides the walks: the cost of attaching for the kernel's own traffic, of a killed instance, of a stuck
//! worker; and fragmented datagrams.

use super::{fail_open, fragments, kill9, tables};
use crate::lab::fallback;
use crate::lab::model::Sample;
use crate::lab::record::Record;
use crate::lab::session::Session;

/// Kills in a judged run, and in others; a worker is stopped as often.
const CHECK_KILLS: usize = 20;
const QUICK_KILLS: usize = 5;
/// Fragmented datagrams over each family.
const CHECK_DATAGRAMS: u64 = 400;
const QUICK_DATAGRAMS: u64 = 100;
/// The seed of the sizes, order and repetitions of fragments.
const FRAGMENTS_SEED: u64 = 45;

/// Number of steps, for the progress bar.
pub(super) fn steps(session: &Session) -> usize {
    let of_fail_open = fail_open::PATHS.iter().map(|way| way.row);
    let parts = [tables::KILL9, tables::FRAGMENTS].into_iter().chain(of_fail_open);
    fallback::steps(session) + parts.filter(|row| session.selection.rows.contains(row)).count()
}

/// Measures the selected rows once. A failure is recorded as the row's reason.
pub(super) async fn measure(session: &Session, record: &mut Record) {
    fallback::round(session, record, 0).await;
    let (kills, datagrams) =
        if session.check { (CHECK_KILLS, CHECK_DATAGRAMS) } else { (QUICK_KILLS, QUICK_DATAGRAMS) };
    if begin(session, tables::FRAGMENTS) {
        let measured = fragments::measure(session, "auto", datagrams, FRAGMENTS_SEED).await;
        note(session, record, tables::FRAGMENTS, measured);
    }
    if begin(session, tables::KILL9) {
        note(session, record, tables::KILL9, kill9::measure(session, "auto", kills).await);
    }
    for way in &fail_open::PATHS {
        if begin(session, way.row) {
            note(session, record, way.row, fail_open::measure(session, way, kills).await);
        }
    }
}

fn begin(session: &Session, row: &str) -> bool {
    let wanted = session.selection.rows.contains(row);
    if wanted {
        session.progress.step(row);
    }
    wanted
}

fn note(session: &Session, record: &mut Record, row: &'static str, measured: anyhow::Result<Sample>) {
    match measured {
        Ok(sample) => record.add(row, 0, sample),
        Err(error) => {
            let reason = format!("{error:#}");
            session.progress.line(&format!("{row}: {reason}"));
            record.fail(row, reason);
        }
    }
}

#[cfg(test)]
mod tests {
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
            launcher: Launcher::new(programs, Topology::build().unwrap(), cpus),
            cpus,
            run_dir: session::run_dir().unwrap(),
            selection: Selection::new(LAB.rows, LAB.ratios, LAB.together, &[]).unwrap(),
            repeat: None,
            files: None,
            seed: 0,
            check: false,
            progress: Progress::new(),
        }
    }

    #[test]
    fn every_row_measures() {
        if !twinpath_test_skip::root_or_skip() {
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
