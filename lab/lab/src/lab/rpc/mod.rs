//! `lab rpc`: NULL and GETATTR calls to twinpath, nfs-ganesha and bare servers.
//!
//! Every row has a server on one CPU and a client on the other, both started for it; only ganesha is started once.

pub(crate) mod burden;
pub(crate) mod measure;
pub(crate) mod peers;

use std::time::Duration;

use self::measure::Stage;
use crate::lab::session::{Session, lab};

/// Most pairs without `--check`.
const QUICK_PAIRS: usize = 5;
/// Without a requested number of rounds, no round begins that would end later than this.
const QUICK_BUDGET: Duration = Duration::from_secs(120);
const QUICK_TIME: Duration = Duration::from_millis(300);
const CHECK_TIME: Duration = Duration::from_millis(800);

lab!("rpc", "ONC RPC, NULL and GETATTR: twinpath against nfs-ganesha and bare servers", run);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let mut stage = Stage::new(session, session.either(CHECK_TIME, QUICK_TIME));
    let mut other = None;
    let measure = async |row: &'static str, _| match LAB.table.row(row).map(|row| row.how.0) {
        Some("idle") => burden::idle(&stage, row, &mut other).await,
        Some("never-reads") => burden::never_reads(&stage).await,
        _ => stage.measure(row).await,
    };
    let done = session.by_turns(&session.rows(), rounds, QUICK_BUDGET, measure).await;
    stage.end().await?;
    Ok(done)
}
