//! `lab nfs`: `twinpath serve nfs` against nfs-ganesha, over equal trees in memory, asked by one client.
//!
//! Both servers run through the lab, each confined to the server's CPU. The one that is not asked sleeps.

mod measure;

use std::time::Duration;

use self::measure::Stage;
use crate::lab::session::{InGuest, Session, lab};

/// Most pairs without `--check`.
const QUICK_PAIRS: usize = 3;
const QUICK_TIME: Duration = Duration::from_millis(400);
const CHECK_TIME: Duration = Duration::from_millis(1000);

lab!("nfs", "An NFS server over files in memory: twinpath against nfs-ganesha", run, &IN_GUEST);

/// For the kernel's client, and for nfs-ganesha, which finds its file system by /etc/mtab.
const IN_GUEST: InGuest = InGuest {
    modules: &["nfs", "nfsv3"],
    programs: &["ganesha.nfsd"],
    files: &["/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so", "/etc/netconfig"],
    links: &[("/etc/mtab", "/proc/self/mounts"), ("/var/run", "/run")],
};

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let mut stage = Stage::new(session, session.either(CHECK_TIME, QUICK_TIME));
    let measure = async |row: &'static str, _| stage.measure(row).await;
    let done = session.by_turns(&session.rows(), rounds, Duration::MAX, measure).await;
    stage.end().await?;
    Ok(done)
}
