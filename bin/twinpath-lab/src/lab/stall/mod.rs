//! `lab stall`: frames at a pace beside bulk traffic, while controllers and others do what may delay packets; against the same
//! undisturbed, with a controller whose traffic goes into a process that does nothing of it. twinpath, and Open vSwitch.
//!
//! Hosts and controllers run on the first CPU, the thread that carries frames on the second. What is timed is the way
//! between the hosts' interfaces, by the kernel's stamps.

mod cases;
mod disturb;
mod measure;
mod tables;
mod trace;

use std::time::Duration;

use fastrand::Rng;
use twinpath_sys::affinity;

use self::measure::Bench;
use crate::lab::record::Record;
use crate::lab::session::{InGuest, Lab, Session};

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 5;
/// How long frames are timed: 4,000 of them and more.
const CHECK_TIME: Duration = Duration::from_millis(1500);
const QUICK_TIME: Duration = Duration::from_millis(1000);

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "stall",
    about: "Frames through a switch while controllers and others keep it busy: twinpath, Open vSwitch",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: &[],
    together: &[],
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let rounds = match (session.check, session.repeat) {
        (true, repeat) => repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS),
        (false, repeat) => repeat.unwrap_or(1),
    };
    let time = if session.check { CHECK_TIME } else { QUICK_TIME };
    // Its own work must not take the packet thread's CPU.
    affinity::pin_current_thread(session.cpus[0])?;
    let cases: Vec<_> = cases::all().filter(|case| session.selection.rows.contains(case.row)).collect();
    session.progress.expect(rounds * cases.len());
    let mut record = Record::default();
    for round in 0..rounds {
        let mut random = Rng::with_seed(session.seed.wrapping_add(round as u64));
        let bench = Bench::new(session, time, &mut random);
        let mut cases = cases.clone();
        random.shuffle(&mut cases);
        for case in cases {
            session.progress.step(case.row);
            if record.is_hopeless(case.row) {
                continue;
            }
            match bench.measure(&case).await {
                Ok(sample) => record.add(case.row, round, sample),
                Err(error) => {
                    let reason = format!("{error:#}");
                    session.progress.line(&format!("{}: {reason}", case.row));
                    record.fail(case.row, reason);
                }
            }
        }
    }
    Ok((record, rounds))
}
