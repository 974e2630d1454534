//! The clients: of memcached our own, on kernel sockets; of the others the programs that they are measured by.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use twinpath_clients::measure::print;
use twinpath_clients::measure::report::RttUs;
use twinpath_sys::clock;

use super::serve::HOSTS;
use super::{Kind, command, memcached};
use crate::foreign;

const CONNECTIONS: u32 = 4;

#[derive(clap::Args)]
pub(crate) struct AskArgs {
    #[arg(value_enum)]
    kind: Kind,
    /// The server
    target: SocketAddr,
    /// Seconds
    #[arg(long, default_value_t = 1.0)]
    duration: f64,
    /// Seconds before them
    #[arg(long, default_value_t = 0.2)]
    warmup: f64,
    /// Queries per second
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// Names that are asked for, of a name server
    #[arg(long, value_name = "N", default_value_t = HOSTS)]
    names: usize,
    /// Names besides, which the name server does not have
    #[arg(long, value_name = "N", default_value_t = 0)]
    missing: usize,
    /// Of memcached: one request each 250 to 500 us, of which a tenth are sets
    #[arg(long)]
    paced: bool,
    /// Of memcached: over TCP
    #[arg(long, conflicts_with = "paced")]
    tcp: bool,
    /// Of memcached: bytes of a value
    #[arg(long, value_name = "N", default_value_t = 32, conflicts_with = "paced")]
    bytes: usize,
    /// Draws the times and keys of these
    #[arg(long, default_value_t = 18)]
    seed: u64,
}

/// What a client prints.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct AskReport {
    pub(crate) rtt_us: Option<RttUs>,
    pub(crate) answered: u64,
    pub(crate) lost: u64,
    pub(crate) requests_per_s: f64,
    /// When it began and ended, ns of the monotonic clock.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// CPU time that the client spent outside of the kernel meanwhile, s.
    pub(crate) cpu_s: f64,
}

pub(crate) fn ask(args: &AskArgs) -> anyhow::Result<()> {
    ensure!(
        args.duration.is_finite() && args.duration > 0.0 && args.warmup.is_finite() && args.warmup >= 0.0,
        "a client needs a time"
    );
    let from_ns = clock::now().as_nanos();
    let asked = match args.kind {
        Kind::Memcached | Kind::MemcachedThreads | Kind::OwnMemcached => memcached(args)?,
        Kind::Nsd | Kind::OwnDns => dnsperf(args)?,
        Kind::Redis => redis_benchmark(args)?,
    };
    let to_ns = clock::now().as_nanos();
    Ok(print(serde_json::to_value(AskReport { from_ns, to_ns, ..asked })?)?)
}

/// By the client of this program.
fn memcached(args: &AskArgs) -> anyhow::Result<AskReport> {
    let &AskArgs { target, tcp, bytes, .. } = args;
    let paced = args.paced.then_some(args.seed);
    let [warmup, duration] = [args.warmup, args.duration].map(twinpath_time::Duration::from_secs_f64);
    let asks = memcached::Asks { target, tcp, paced, bytes, warmup, duration };
    let memcached::Answered { histogram, lost } = memcached::memcached(&asks)?;
    let answered = histogram.len();
    Ok(AskReport {
        rtt_us: RttUs::of(&histogram),
        answered,
        lost,
        requests_per_s: answered as f64 / args.duration,
        ..AskReport::default()
    })
}

/// Runs a client of Debian to its end: what it printed, and the CPU time that it took, s.
fn run(client: std::process::Command) -> anyhow::Result<(String, f64)> {
    Ok((crate::plain::on_event_loop(foreign::run(client))?, cpu_of_children()?))
}

/// The CPU time that the children of this process have spent outside of the kernel, s, to a clock tick of the kernel (10 ms). What
/// they spend inside is no measure of a client: the kernel's work for the receiver of a datagram is done in the sender's call.
fn cpu_of_children() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    // After the name of the program, which may hold anything.
    let (_, fields) = text.rsplit_once(')').context("/proc/self/stat has no name")?;
    // User time of children that were waited for: field 16 of proc(5).
    let ticks = fields.split_whitespace().nth(13).context("/proc/self/stat is short")?;
    Ok(ticks.parse::<u64>()? as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// At a given rate: how many were answered, and what that took.
fn dnsperf(args: &AskArgs) -> anyhow::Result<AskReport> {
    let folder = tempfile::tempdir()?;
    let queries = folder.path().join("queries");
    let names = (0..args.names + args.missing)
        .fold(String::new(), |all, number| all + &format!("host{number}.example.org A\n"));
    std::fs::write(&queries, names)?;
    let mut client = command("dnsperf")?;
    let line = format!(
        "-s {} -p {} -c 4 -q 64 -t 1 -Q {:.0} -l {:.0}",
        args.target.ip(),
        args.target.port(),
        args.rate,
        args.duration.ceil()
    );
    client.args(line.split(' ')).arg("-d").arg(queries);
    let (said, cpu_s) = run(client)?;
    let number = |what: &str| -> anyhow::Result<u64> {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(what));
        let word = line
            .and_then(|rest| rest.split_whitespace().next())
            .with_context(|| format!("no {what} {said}"))?;
        Ok(word.parse()?)
    };
    let (answered, lost) = (number("Queries completed:")?, number("Queries lost:")?);
    let requests_per_s = answered as f64 / args.duration.ceil();
    Ok(AskReport { answered, lost, requests_per_s, cpu_s, ..AskReport::default() })
}

/// As many as go.
fn redis_benchmark(args: &AskArgs) -> anyhow::Result<AskReport> {
    let mut client = command("redis-benchmark")?;
    // It takes a number of requests, and no time.
    let count = (args.duration * args.rate) as u64;
    let line =
        format!("-h {} -p {} -c {CONNECTIONS} -n {count} -t get --csv", args.target.ip(), args.target.port());
    client.args(line.split(' '));
    let (said, cpu_s) = run(client)?;
    let row = said.lines().find_map(|line| line.strip_prefix("\"GET\",\"")).with_context(|| said.clone())?;
    let requests_per_s = row.split('"').next().unwrap_or_default().parse().with_context(|| said.clone())?;
    Ok(AskReport { answered: count, requests_per_s, cpu_s, ..AskReport::default() })
}
