//! Services that keep their replies: calls of RPC, and the library's examples of a name server and of a memcached.

use std::time::Duration;

use anyhow::{Context, bail};

use super::Round;
use crate::lab::asking::{asked, cpu_of_queries};
use crate::lab::client;
use crate::lab::instance::Instance;
use crate::lab::model::Sample;
use crate::lab::peers::{LINGER_MS, PLAIN_PORT, server};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;

/// The port of our services, and of the programs they are compared with.
const PORT: u16 = 7018;
/// Time for start-up, attaching, warm-up and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(20);
/// Time until peers are known and replies are kept.
const WARMUP: Duration = Duration::from_millis(400);
/// Duration of a row of round trips.
const CALLS: Duration = Duration::from_millis(500);
/// The client of name servers takes whole seconds.
const QUERIES: Duration = Duration::from_secs(1);
const PACED: Duration = Duration::from_secs(3);
/// Names of the zone, and names that are asked for and are not in it: a tenth of the queries.
const NAMES: usize = 2000;
const MISSING: usize = 222;
/// Queries a second: about half of what nsd answers here.
const QUERIES_PER_S: u32 = 40_000;

/// One RPC call in flight, from a kernel socket that spins: the same client for both sides.
pub(super) async fn round_trips(session: &Session, row: &str) -> anyhow::Result<Sample> {
    match row {
        "null-reflex" => ours(session, "").await,
        "getattr-reflex" => ours(session, "--proc getattr --export /").await,
        "null-spinning" => {
            let listen = server(PLAIN_PORT);
            let args = words(&format!("plain udp-null --listen {listen} --method single --mode poll"));
            let running = session.launcher.server(Side::Server, &args).await?;
            let result = calls(session, PLAIN_PORT, "").await;
            session.launcher.stop(running).await?;
            result
        }
        _ => bail!("no such row: {row}"),
    }
}

/// `twinpath serve rpc`, whose worker sleeps. One source asks at full speed: the budget of the host would bound it.
async fn ours(session: &Session, what: &str) -> anyhow::Result<Sample> {
    let mut args = words(&format!(
        "serve rpc --on {} --udp {PORT} --path packet --mode interrupt --workers 1 --cpu {} --linger-ms {LINGER_MS} \
         --reflex-rate 10000000 --socket",
        SERVER.interface, session.cpus[1]
    ));
    args.push(session.run_dir.path().join("reflex.sock").display().to_string());
    let instance = Instance::start(&session.launcher, &args).await?;
    let result = calls(session, PORT, what).await;
    let report = instance.report().await;
    instance.stop(&session.launcher).await?;
    let (mut sample, report) = (result?, report?);
    let all = report.services.iter().map(|service| service.fast_requests + service.kernel_requests);
    let reflex: u64 = report.services.iter().map(|service| service.reflex_replies).sum();
    sample.values.insert("reflex_share", reflex as f64 / (reflex + all.sum::<u64>()).max(1) as f64);
    Ok(sample)
}

async fn calls(session: &Session, port: u16, what: &str) -> anyhow::Result<Sample> {
    let line = format!(
        "bench rpc {} --udp --path kernel --mode poll --inflight 1 {what} --duration {:.3} --warmup {:.3} --json",
        server(port),
        CALLS.as_secs_f64(),
        WARMUP.as_secs_f64()
    );
    let finished = session.launcher.client(Side::Client, &words(&line), WARMUP + CALLS + SLACK, None).await?;
    client::sample_of(&finished)
}

/// The library's examples, and the programs of Debian that do the same.
pub(super) async fn programs(round: &Round<'_>, row: &str) -> anyhow::Result<Sample> {
    let on = format!("--on {}", SERVER.interface);
    match row {
        "dns-reflex" => dns(round.session, "own-dns", &on).await,
        "dns-nsd" => dns(round.session, "nsd", "").await,
        "memcached-reflex" => memcached(round, "own-memcached", &on).await,
        "memcached-alone" => memcached(round, "memcached", "").await,
        _ => bail!("no such row: {row}"),
    }
}

async fn dns(session: &Session, kind: &str, more: &str) -> anyhow::Result<Sample> {
    let listen = server(PORT);
    let serves = format!("plain program {kind} --listen {listen} --names {NAMES} {more}");
    let ask = format!(
        "plain ask {kind} {listen} --duration {:.3} --rate {QUERIES_PER_S} --names {NAMES} --missing {MISSING}",
        QUERIES.as_secs_f64()
    );
    cpu_of_queries(session, &serves, &words(&ask), QUERIES + SLACK).await
}

async fn memcached(round: &Round<'_>, kind: &str, more: &str) -> anyhow::Result<Sample> {
    let launcher = &round.session.launcher;
    let listen = server(PORT);
    let serves = words(&format!("plain program {kind} --listen {listen} {more}"));
    let running = launcher.server(Side::Server, &serves).await?;
    let args = words(&format!(
        "plain ask {kind} {listen} --paced --duration {:.3} --warmup {:.3} --seed {}",
        PACED.as_secs_f64(),
        WARMUP.as_secs_f64(),
        round.seed
    ));
    let client = launcher.client(Side::Client, &args, PACED + SLACK, None).await;
    launcher.stop(running).await?;
    let asked = asked(&client?.stdout)?;
    let mut values = asked.rtt_us.context("no round trip")?.values();
    values.insert("lost", asked.lost as f64);
    Ok(Sample { values, ..Sample::default() })
}
