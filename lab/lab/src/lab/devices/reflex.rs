//! `reflex`, `reflex-xdp`: whether the kernel takes the programs that answer by themselves, kept replies included, and they do. A kernel whose
//! verifier refuses them is served all the same, by workers, so that nothing else here would tell.

use std::time::Duration;

use twinpath_clients::measure::report::BenchReport;

use crate::lab::instance::{Facts as _, Instance};
use crate::lab::model::Sample;
use crate::lab::peers::{FAST_PORT, serve_by_one, server};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;

/// More than the first ones of a peer, which workers answer.
const CALLS: u64 = 200;
const DEADLINE: Duration = Duration::from_secs(60);

/// Calls of NULL to `serve rpc` on a path.
pub(super) async fn measure(session: &Session, path: &str) -> anyhow::Result<Sample> {
    let args = serve_by_one(session, &format!("rpc --udp {FAST_PORT} --path {path} --mode interrupt"));
    let instance = Instance::start(&session.launcher, &args).await?;
    let line = format!(
        "bench rpc {} --udp --path kernel --mode interrupt --inflight 1 --count {CALLS} --warmup 0 --json",
        server(FAST_PORT)
    );
    let asked = session.launcher.client(Side::Client, &words(&line), DEADLINE, None).await;
    let report = instance.report().await;
    instance.stop(&session.launcher).await?;
    let (asked, report) = (asked?, report?);
    let asked: BenchReport = asked.json("bench")?;
    let mut sample = Sample { path: Some(report.path()), ..Sample::default() };
    let programs =
        report.interfaces.first().and_then(|interface| interface.reflexes.clone()).unwrap_or_default();
    let no_kept = programs.kept.map_or_else(|| "there is no memory for them".to_owned(), |kept| kept.off);
    for (what, why) in [("no replies", programs.off), ("no kept replies", no_kept)] {
        if !why.is_empty() {
            sample.notes.push(format!("{what} by the kernel's programs, as {why}"));
        }
    }
    let replies: u64 = report.services.iter().map(|service| service.reflex_replies).sum();
    sample.notes.push(format!("{replies} of {} replies by the kernel's programs", asked.received));
    let answered = if replies > CALLS / 2 { asked.received as f64 / CALLS as f64 } else { 0.0 };
    sample.values.insert("answered", answered);
    Ok(sample)
}
