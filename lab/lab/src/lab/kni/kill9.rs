//! `kill9-ms`: kills a serving twinpath under load with `kill -9`, and measures how long until the kernel answers every
//! flow again.
//!
//! The flows are: the claimed UDP port over both families, which counts as the kernel's from the first ICMP "port
//! unreachable" on; another UDP port and a TCP connection, both served by plain programs over the same interface, which
//! count from the first answer to a request sent after the signal. The TCP connection is the same in all rounds. If it
//! breaks, or either kernel sends a reset, that is counted, and the ratio misses whatever its time.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use twinpath_sys::Namespace;
use twinpath_test_plain::kill_watch::{self, Felt, KillWatch, KillWatchConfig, KillWatchError};

use crate::lab::instance::{Facts, Instance};
use crate::lab::model::Sample;
use crate::lab::peers::{self, Bench, FAST_PORT};
use crate::lab::process::{Launcher, Side};
use crate::lab::session::Session;
use crate::lab::topology::SERVER;

/// The port of the plain UDP server; no other row uses it.
const UDP_PORT: u16 = 7021;
const TCP_PORT: u16 = 7022;

/// Frames on the fast path that show that the load runs: as many as it has in flight, because in an emulated guest they
/// are seconds apart.
const LOADED_FRAMES: u64 = 64;
const LOAD_DEADLINE: Duration = Duration::from_secs(5);

/// Kills twinpath on `path` `rounds` times. Values: `worst_ms` over all rounds and flows, `median_ms` of the rounds,
/// `kills`, and `resets`: kernel connections that broke.
pub(in crate::lab) async fn measure(session: &Session, path: &str, rounds: usize) -> anyhow::Result<Sample> {
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
    let open = || launcher.topology().client.run(|| KillWatch::open(&config));
    let mut watch = open()??;
    let resets_before = resets(session)?;
    let mut sample = Sample::default();
    let (mut felt, mut broken) = (Vec::with_capacity(rounds), 0);
    for round in 0..rounds {
        let killed = kill_once(session, path, watch, round).await?;
        sample.path = Some(killed.path);
        watch = killed.watch;
        match killed.felt {
            Ok(one) => felt.push(one),
            Err(KillWatchError::Broken { flow, source }) => {
                broken += 1;
                sample.notes.push(format!("kill {}: {flow} broke: {source}", round + 1));
                watch = open()??;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let resets = resets(session)?.saturating_sub(resets_before).max(broken);
    drop(watch);
    launcher.stop(udp).await?;
    launcher.stop(tcp).await?;
    summarise(&mut sample, &felt)?;
    sample.values.extend([("kills", rounds as f64), ("resets", resets as f64)]);
    if resets > 0 {
        sample.notes.push(format!("{resets} connections of the kernel's were reset"));
    }
    Ok(sample)
}

/// The result of one kill.
struct Killed {
    watch: KillWatch,
    felt: Result<Felt, KillWatchError>,
    /// The path it was killed on.
    path: String,
}

async fn kill_once(session: &Session, path: &str, watch: KillWatch, round: usize) -> anyhow::Result<Killed> {
    let socket = session.run_dir.path().join(format!("kill9-{round}.sock"));
    let serve = peers::serve(path, session.cpus[1], &socket);
    let instance = Instance::start(&session.launcher, &serve).await?;
    let found = instance.report().await?.path();
    if found == "kernel" {
        bail!("no fast path can be had here, so there is nothing to lose by a kill");
    }
    let load = Bench {
        inflight: LOADED_FRAMES as u32,
        ..Bench::round_trips(FAST_PORT, "kernel", "interrupt", Duration::from_millis(700))
    };
    let load = load.args();
    let loaded = session.launcher.client(Side::Client, &load, LOAD_DEADLINE * 2, None);
    let is_loaded = async |instance: &Instance| {
        let begun = Instant::now();
        while instance.report().await?.frames_in() < LOADED_FRAMES {
            if begun.elapsed() > LOAD_DEADLINE {
                bail!("the load did not reach {found} within {} s", LOAD_DEADLINE.as_secs());
            }
        }
        Ok(())
    };
    // A client whose server is killed always ends with an error.
    let (_, killed) = tokio::join!(loaded, kill(&session.launcher, instance, watch, is_loaded));
    let (watch, felt) = killed?;
    Ok(Killed { watch, felt, path: found })
}

/// Kills an instance once it is loaded. Returns what the flows of `watch` felt: one that stays silent has felt its deadline,
/// since a time this much worse than the target is a result, not a failed measurement.
pub(in crate::lab) async fn kill(
    launcher: &Launcher,
    instance: Instance,
    mut watch: KillWatch,
    is_loaded: impl AsyncFnOnce(&Instance) -> anyhow::Result<()>,
) -> anyhow::Result<(KillWatch, Result<Felt, KillWatchError>)> {
    let killed = match is_loaded(&instance).await {
        Ok(()) => {
            let pid = instance.pid();
            let kill = move || {
                let felt = watch.kill(pid);
                (watch, felt)
            };
            tokio::task::spawn_blocking(kill).await.context("the watch panicked")
        }
        Err(error) => Err(error),
    };
    // The error is ignored: if it was killed, this only waits for it. If not, the next one would find its socket in use.
    let _ = instance.stop(launcher).await;
    let (watch, felt) = killed?;
    let felt = match felt {
        Err(KillWatchError::Silent { flow, when: "after" }) => {
            Ok(Felt { flows: vec![(flow, kill_watch::DEADLINE)] })
        }
        felt => felt,
    };
    Ok((watch, felt))
}

/// Connections that either kernel has reset or refused so far; only a kill causes any here.
fn resets(session: &Session) -> anyhow::Result<u64> {
    let topology = session.launcher.topology();
    let read = |namespace: &Namespace| -> anyhow::Result<u64> {
        // Of the calling thread: the process's other threads are in another namespace.
        let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))??;
        resets_in(&text).context("/proc/net/snmp counts no resets of TCP")
    };
    Ok(read(&topology.client)? + read(&topology.server)?)
}

/// Resets sent (RFC 4022, tcpOutRsts), from the two lines for TCP, names and values.
fn resets_in(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == "OutRsts")?;
    values.split(' ').nth(at)?.parse().ok()
}

/// The worst and the median of kills, in ms, and which flow was the slowest.
pub(in crate::lab) fn summarise(sample: &mut Sample, felt: &[Felt]) -> anyhow::Result<()> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut rounds: Vec<_> = felt.iter().map(Felt::worst).collect();
    rounds.sort();
    let worst = *rounds.last().context("the connection broke at every kill: nothing could be timed")?;
    sample.values.insert("worst_ms", ms(worst));
    sample.values.insert("median_ms", ms(rounds[rounds.len() / 2]));
    let slowest = felt.iter().flat_map(|felt| &felt.flows).max_by_key(|flow| flow.1);
    if let Some((flow, time)) = slowest {
        sample.notes.push(format!("slowest of {} kills: {flow}, {:.1} ms", felt.len(), ms(*time)));
    }
    Ok(())
}

/// Disables the kernel's rate limit for ICMP: its answers are what is measured, and the load on the dead port would use
/// up the limit.
fn unlimited_icmp(session: &Session) -> anyhow::Result<()> {
    let limits = ["/proc/sys/net/ipv4/icmp_ratelimit", "/proc/sys/net/ipv6/icmp/ratelimit"];
    let write = || limits.iter().try_for_each(|limit| std::fs::write(limit, "0"));
    session.launcher.topology().server.run(write)?.context("cannot lift the limit of ICMP answers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_read_by_name() {
        let text = "Ip: Forwarding OutRsts\nIp: 1 99\nTcp: RtoAlgorithm EstabResets OutRsts InCsumErrors\n\
                    Tcp: 1 4 7 0\nUdp: InDatagrams\n";
        assert_eq!(resets_in(text), Some(7));
        assert_eq!(resets_in("Tcp: RtoAlgorithm\nTcp: 1\n"), None);
    }
}
