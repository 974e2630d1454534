//! Services that keep their replies: calls of RPC, and the library's examples of a name server and of a memcached.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use twinpath_observe::report::Report;

use super::Round;
use crate::lab::asking::{asked, cpu_of_asking, cpu_of_queries};
use crate::lab::client;
use crate::lab::instance::{Facts as _, Instance};
use crate::lab::model::Sample;
use crate::lab::peers::{LINGER_MS, PLAIN_PORT, serve_by_one, server};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;
use crate::plain::program::HammerReport;

/// The port of our services, and of the programs they are compared with.
pub(super) const PORT: u16 = 7018;
/// Time for start-up, attaching, warm-up and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(20);
/// Time until peers are known and replies are kept.
const WARMUP: Duration = Duration::from_millis(400);
/// Duration of a row of round trips.
const CALLS: Duration = Duration::from_millis(500);
/// The least share of replies by reflex, of one request that is repeated, of names that are each asked for again and again, and
/// of values that change all the time.
const SHARE_OF_ONE: f64 = 0.98;
const SHARE_OF_MANY: f64 = 0.5;
const SHARE_OF_HAMMER: f64 = 0.1;
/// Duration of the hammering under `--check`, and otherwise.
const HAMMER_CHECK: Duration = Duration::from_secs(60);
const HAMMER: Duration = Duration::from_secs(10);
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
            session.launcher.beside(Side::Server, &args, async |_| calls(session, PLAIN_PORT, "").await).await
        }
        _ => bail!("no such row: {row}"),
    }
}

/// `twinpath serve rpc`, whose worker sleeps. One source asks at full speed: the budget of the host would bound it.
async fn ours(session: &Session, what: &str) -> anyhow::Result<Sample> {
    let args = serve_by_one(
        session,
        &format!(
            "rpc --udp {PORT} --path packet --mode interrupt --linger-ms {LINGER_MS} --reflex always --reflex-rate 10000000"
        ),
    );
    let instance = Instance::start(&session.launcher, &args).await?;
    let result = calls(session, PORT, what).await;
    let report = instance.report().await;
    instance.stop(&session.launcher).await?;
    let (mut sample, report) = (result?, report?);
    sample.values.insert("reflex_share", by_reflex(&report, SHARE_OF_ONE)?);
    Ok(sample)
}

/// The share of requests that the kernel's programs replied to; a failure if it is less than `least`: the row would measure
/// something else.
pub(super) fn by_reflex(report: &Report, least: f64) -> anyhow::Result<f64> {
    let all =
        report.services.iter().map(|service| service.serve.fast_requests + service.serve.kernel_requests);
    let reflex: u64 = report.services.iter().map(|service| service.reflex_replies).sum();
    let share = reflex as f64 / (reflex + all.sum::<u64>()).max(1) as f64;
    ensure!(share >= least, "{:.1} % of the replies came by reflex", share * 100.0);
    Ok(share)
}

/// Starts an example of the library.
async fn start(session: &Session, kind: &str, service: &str, more: &str) -> anyhow::Result<Instance> {
    let interface = SERVER.interface;
    let args = words(&format!("plain program {kind} --listen {} --on {interface} {more}", server(PORT)));
    Instance::of_program(session.launcher.server(Side::Server, &args).await?, service, interface)
}

/// Stops it, and says what it said of itself before.
async fn stop(session: &Session, instance: Instance) -> anyhow::Result<Report> {
    let report = instance.report().await;
    instance.stop(&session.launcher).await?;
    report
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
    match row {
        "dns-reflex" => own_dns(round.session).await,
        "dns-nsd" => nsd(round.session).await,
        "memcached-reflex" => own_memcached(round).await,
        "memcached-alone" => memcached_alone(round).await,
        "hammer" => hammer(round).await,
        _ => bail!("no such row: {row}"),
    }
}

fn ask_names(kind: &str) -> Vec<String> {
    words(&format!(
        "plain ask {kind} {} --duration {:.3} --rate {QUERIES_PER_S} --names {NAMES} --missing {MISSING}",
        server(PORT),
        QUERIES.as_secs_f64()
    ))
}

async fn nsd(session: &Session) -> anyhow::Result<Sample> {
    let serves = format!("plain program nsd --listen {} --names {NAMES}", server(PORT));
    cpu_of_queries(session, &serves, &ask_names("nsd"), QUERIES + SLACK).await
}

async fn own_dns(session: &Session) -> anyhow::Result<Sample> {
    let instance = start(session, "own-dns", "dns", &format!("--names {NAMES}")).await?;
    let measured = cpu_of_asking(session, &ask_names("own-dns"), QUERIES + SLACK).await;
    let report = stop(session, instance).await;
    let (mut sample, report) = (measured?, report?);
    sample.values.insert("reflex_share", by_reflex(&report, SHARE_OF_MANY)?);
    Ok(sample)
}

async fn own_memcached(round: &Round<'_>) -> anyhow::Result<Sample> {
    let instance = start(round.session, "own-memcached", "memcached", "").await?;
    let measured = paced_gets(round, "own-memcached").await;
    let report = stop(round.session, instance).await;
    let (mut sample, report) = (measured?, report?);
    // A tenth are sets, and each value is asked for once before it is kept.
    sample.values.insert("reflex_share", by_reflex(&report, 0.0)?);
    Ok(sample)
}

async fn memcached_alone(round: &Round<'_>) -> anyhow::Result<Sample> {
    let launcher = &round.session.launcher;
    let serves = words(&format!("plain program memcached --listen {}", server(PORT)));
    launcher.beside(Side::Server, &serves, async |_| paced_gets(round, "memcached").await).await
}

async fn paced_gets(round: &Round<'_>, kind: &str) -> anyhow::Result<Sample> {
    let args = words(&format!(
        "plain ask {kind} {} --paced --duration {:.3} --warmup {:.3} --seed {}",
        server(PORT),
        PACED.as_secs_f64(),
        WARMUP.as_secs_f64(),
        round.draw.seed
    ));
    let client = round.session.launcher.client(Side::Client, &args, PACED + SLACK, None).await?;
    let asked = asked(&client.stdout)?;
    let mut values = asked.rtt_us.context("no round trip")?.values();
    values.insert("lost", asked.lost as f64);
    Ok(Sample { values, ..Sample::default() })
}

/// The example of a memcached, changed and read for as long as it can be waited for. Its worker has a direct ring while it is
/// awake and a socket while it sleeps.
async fn hammer(round: &Round<'_>) -> anyhow::Result<Sample> {
    let time = if round.session.check { HAMMER_CHECK } else { HAMMER };
    let instance = start(round.session, "own-memcached", "memcached", "").await?;
    let args = words(&format!(
        "plain hammer {} --duration {:.3} --seed {}",
        server(PORT),
        time.as_secs_f64(),
        round.draw.seed
    ));
    let client = round.session.launcher.client(Side::Client, &args, time + SLACK, None).await;
    let report = stop(round.session, instance).await;
    let (client, report) = (client?, report?);
    let seen: HammerReport = client.json("plain hammer")?;
    let mut sample = Sample { path: Some(report.path()), ..Sample::default() };
    sample.values.insert("reflex_share", by_reflex(&report, SHARE_OF_HAMMER)?);
    let HammerReport { read, changed, stale, twice, never } = seen;
    let counts = [("read", read), ("changed", changed), ("stale", stale), ("twice", twice), ("never", never)];
    sample.values.extend(counts.map(|(name, count)| (name, count as f64)));
    Ok(sample)
}
