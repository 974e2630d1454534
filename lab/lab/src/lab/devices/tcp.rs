//! `tcp`: whether connections of the kernel's client are the fast path's, and their calls are answered. A kernel that refuses the
//! programs for them, or leaves the SYNs to itself, serves them all the same, so that nothing else here would tell.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, ensure};
use twinpath_clients::measure::report::BenchReport;
use twinpath_observe::report::Report;

use crate::lab::instance::{Facts as _, Instance};
use crate::lab::model::Sample;
use crate::lab::peers::{FAST_PORT, serve_by_one};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;
use crate::lab::tcp::path::all_on;
use crate::lab::topology::SERVER;

/// Connections of each family, one after the other, and calls of each.
const CONNECTIONS: u64 = 10;
const CALLS: u64 = 10;
const DEADLINE: Duration = Duration::from_secs(60);

/// Calls of NULL to `serve rpc` over TCP.
pub(super) async fn measure(session: &Session) -> anyhow::Result<Sample> {
    let line = format!("rpc --tcp {FAST_PORT} --path packet --tcp-path fast --mode interrupt");
    let instance = Instance::start(&session.launcher, &serve_by_one(session, &line)).await?;
    let asked = ask(session).await;
    let report = instance.report().await;
    instance.stop(&session.launcher).await?;
    let (received, report) = (asked?, report?);
    let mut sample = Sample { path: Some(report.path()), ..Sample::default() };
    let judged = judge(&report);
    sample.notes.push(match &judged {
        Ok(accepted) => format!("{accepted} connections accepted on the fast path"),
        Err(error) => format!("{error:#}"),
    });
    let share = received as f64 / (2 * CONNECTIONS * CALLS) as f64;
    sample.values.insert("answered", if judged.is_ok() { share } else { 0.0 });
    Ok(sample)
}

/// The number of calls that were answered.
async fn ask(session: &Session) -> anyhow::Result<u64> {
    let mut received = 0;
    for ip in [IpAddr::V4(SERVER.ipv4), IpAddr::V6(SERVER.ipv6)] {
        let target = SocketAddr::new(ip, FAST_PORT);
        let line = format!(
            "bench rpc {target} --tcp --path kernel --mode interrupt --inflight 1 --count {CALLS} --warmup 0 --json"
        );
        for _ in 0..CONNECTIONS {
            let asked = session.launcher.client(Side::Client, &words(&line), DEADLINE, None).await?;
            received += asked.json::<BenchReport>("bench")?.received;
        }
    }
    Ok(received)
}

/// How many connections were accepted, all of them on the fast path, which ended none before its time.
fn judge(report: &Report) -> anyhow::Result<u64> {
    all_on(report, "fast")?;
    let fast = report.services.first().context("the report has no service")?.fast_tcp;
    let (declined, resets, moved) = (fast.fast_declined, fast.fast_resets, fast.fast_moved);
    ensure!(
        fast.fast_accepted == 2 * CONNECTIONS && declined + resets + moved == 0,
        "of {} connections {} were accepted on the fast path; {declined} were left to the kernel, {resets} reset, {moved} moved",
        2 * CONNECTIONS,
        fast.fast_accepted
    );
    Ok(fast.fast_accepted)
}
