//! `lab stall`: frames at a pace beside bulk traffic, while controllers and others do what may delay packets; against the same
//! undisturbed, with a controller whose traffic goes into a process that does nothing of it.
//!
//! Hosts and controllers run on the first CPU, the thread that carries frames on the second. What is timed is the way
//! between the hosts' interfaces, by the kernel's stamps.

mod cases;
mod disturb;
mod measure;
mod trace;

use std::time::Duration;

use fastrand::Rng;
use twinpath_sys::affinity;

use self::measure::Bench;
use crate::lab::session::{Session, lab};

/// How long frames are timed: 4,000 of them and more.
const CHECK_TIME: Duration = Duration::from_millis(1500);
const QUICK_TIME: Duration = Duration::from_millis(1000);

lab!("stall", "Frames through a switch while controllers and others keep it busy", run);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(1);
    // Its own work must not take the packet thread's CPU.
    affinity::pin_current_thread(session.cpus[0])?;
    let cases: Vec<_> = cases::all().filter(|case| session.wants(case.row)).collect();
    session.progress.expect(rounds * cases.len());
    let round = async |round: usize| {
        let mut random = Rng::with_seed(session.seed.wrapping_add(round as u64));
        let bench = Bench::new(session, session.either(CHECK_TIME, QUICK_TIME), &mut random);
        let mut cases = cases.clone();
        random.shuffle(&mut cases);
        for case in cases {
            session.step(case.row, round, bench.measure(&case)).await;
        }
    };
    Ok(session.in_rounds(rounds, Duration::MAX, round).await)
}
