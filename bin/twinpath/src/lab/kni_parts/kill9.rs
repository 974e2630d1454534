//! `kill9-ms`: `kill -9` of a serving twinpath under load, and how long until the kernel answers every flow again.
//!
//! Watched: the claimed UDP port over both families, which counts as the kernel's from the first ICMP "port unreachable"
//! on; another UDP port and a TCP connection, both served by plain programs over the same interface, which count from
//! the first answer to a request sent after the signal. The TCP connection is the same through all rounds: a reset ends
//! the measurement as failed.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use twinpath_plain::kill_watch::{Felt, KillWatch, KillWatchConfig};

use super::super::instance::{Facts, Instance};
use super::super::model::Sample;
use super::super::peers::{self, Bench, FAST_PORT};
use super::super::process::Side;
use super::super::session::Session;
use super::super::topology::SERVER;

/// Ports of the plain servers watched; no other row uses them.
const UDP_PORT: u16 = 7021;
const TCP_PORT: u16 = 7022;

/// Frames on the fast path that show that the load runs.
const LOADED_FRAMES: u64 = 1000;
const LOAD_DEADLINE: Duration = Duration::from_secs(5);

/// Kills twinpath on `path` `rounds` times. Values: `worst_ms` over all rounds and flows, `median_ms` of the rounds.
pub(crate) async fn measure(session: &Session, path: &str, rounds: usize) -> anyhow::Result<Sample> {
    let launcher = &session.launcher;
    unlimited_icmp(session)?;
    let plain = |service: &str, port: u16| -> Vec<String> {
        let listen = peers::server(port).to_string();
        ["plain", service, "--listen", &listen, "--mode", "interrupt"].map(str::to_owned).to_vec()
    };
    let udp = launcher.server(Side::Server, &plain("udp-echo", UDP_PORT)).await?;
    let tcp = launcher.server(Side::Server, &plain("tcp-echo", TCP_PORT)).await?;
    let claimed = [IpAddr::V4(SERVER.ipv4), IpAddr::V6(SERVER.ipv6)].map(|ip| SocketAddr::new(ip, FAST_PORT));
    let config = KillWatchConfig {
        claimed: claimed.to_vec(),
        udp: peers::server(UDP_PORT),
        tcp: peers::server(TCP_PORT),
    };
    let mut watch = launcher.topology().client.run(|| KillWatch::open(&config))??;
    let mut sample = Sample::default();
    let mut felt = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let (former, one, path) = kill_once(session, path, watch, round).await?;
        watch = former;
        sample.path = Some(path);
        felt.push(one);
    }
    drop(watch);
    launcher.stop(udp).await?;
    launcher.stop(tcp).await?;
    summarise(&mut sample, &felt)?;
    Ok(sample)
}

async fn kill_once(
    session: &Session,
    path: &str,
    mut watch: KillWatch,
    round: usize,
) -> anyhow::Result<(KillWatch, Felt, String)> {
    let socket = session.run_dir.path().join(format!("kill9-{round}.sock"));
    let serve = peers::serve(path, session.cpus[1], &socket);
    let instance = Instance::start(&session.launcher, &serve).await?;
    let found = instance.report().await?.path();
    if found == "kernel" {
        bail!("no fast path can be had here, so there is nothing to lose by a kill");
    }
    let load = Bench {
        inflight: 64,
        ..Bench::round_trips(FAST_PORT, "kernel", "interrupt", Duration::from_millis(700))
    };
    let load = load.args();
    let loaded = session.launcher.client(Side::Client, &load, LOAD_DEADLINE * 2, None);
    let killed = async {
        let begun = Instant::now();
        while instance.report().await?.frames_in() < LOADED_FRAMES {
            if begun.elapsed() > LOAD_DEADLINE {
                bail!("the load did not reach {found} within {} s", LOAD_DEADLINE.as_secs());
            }
        }
        let pid = instance.pid();
        let kill = move || watch.kill(pid).map(|felt| (watch, felt));
        tokio::task::spawn_blocking(kill).await.context("the watch panicked")?.map_err(Into::into)
    };
    // That a client whose server is killed ends with an error is no news.
    let (_, killed) = tokio::join!(loaded, killed);
    // Nor that the killed one did not end by SIGINT: this only waits for it.
    let _ = instance.stop(&session.launcher).await;
    let (watch, felt) = killed?;
    Ok((watch, felt, found))
}

fn summarise(sample: &mut Sample, felt: &[Felt]) -> anyhow::Result<()> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut rounds: Vec<_> = felt.iter().map(Felt::worst).collect();
    rounds.sort();
    let worst = *rounds.last().context("no round")?;
    sample.values.insert("worst_ms", ms(worst));
    sample.values.insert("median_ms", ms(rounds[rounds.len() / 2]));
    let slowest = felt.iter().flat_map(|felt| &felt.flows).max_by_key(|flow| flow.1);
    if let Some((flow, time)) = slowest {
        sample.notes.push(format!("slowest of {} kills: {flow}, {:.1} ms", felt.len(), ms(*time)));
    }
    Ok(())
}

/// The kernel's answers are what is waited for, so their rate is not to be limited: the load on the dead port would use
/// it up.
fn unlimited_icmp(session: &Session) -> anyhow::Result<()> {
    let limits = ["/proc/sys/net/ipv4/icmp_ratelimit", "/proc/sys/net/ipv6/icmp/ratelimit"];
    let write = || limits.iter().try_for_each(|limit| std::fs::write(limit, "0"));
    session.launcher.topology().server.run(write)?.context("cannot lift the limit of ICMP answers")
}
