//! Kills a switch whose interfaces are also in a kernel bridge, and measures how long until frames pass again.

use anyhow::ensure;
use twinpath_test_plain::kill_watch::{Felt, KillWatch, KillWatchConfig, KillWatchError};

use super::measure::Bench;
use crate::lab::instance::Instance;
use crate::lab::kni::kill9;
use crate::lab::model::Sample;
use crate::lab::process::{Side, words};
use crate::lab::switches::directory;
use crate::lab::topology::{HOSTS, SwitchNetwork};
use crate::lab::traffic::{ECHO_PORT, PROBES, Traffic, address};

/// Kills of one measurement: the worst of them counts.
const KILLS: usize = 20;
/// The port of the second host's TCP server.
const TCP_PORT: u16 = 7005;

impl Bench<'_> {
    /// `kill -9` while two flows of the hosts pass, UDP and one TCP connection that all kills have to leave alone. Values:
    /// `worst_ms` and `median_ms` of UDP, `tcp_worst_ms`, `kills`.
    pub(super) async fn kills(&self) -> anyhow::Result<Sample> {
        let launcher = &self.session.launcher;
        let network = SwitchNetwork::build(HOSTS.len())?;
        let mut bridge =
            words(&format!("plain switch bridge --ports {} --directory", network.ports.join(",")));
        bridge.push(directory(self.session, "bridge")?.display().to_string());
        let bridge = launcher.server(Side::At(&network.switch, &self.session.cpus), &bridge).await?;
        let host = Side::At(&network.hosts[1], &self.session.cpus[..1]);
        let echo = |service: &str, port| {
            words(&format!("plain {service} --mode interrupt --listen {}", address(port)))
        };
        let udp = launcher.server(host, &echo("udp-echo", ECHO_PORT)).await?;
        let host = Side::At(&network.hosts[1], &self.session.cpus[..1]);
        let tcp = launcher.server(host, &echo("tcp-echo", TCP_PORT)).await?;
        let config = KillWatchConfig { claimed: Vec::new(), udp: address(ECHO_PORT), tcp: address(TCP_PORT) };
        let mut watch = network.hosts[0].run(|| KillWatch::open(&config))??;
        let (mut sample, mut felt) = (Sample::default(), Vec::with_capacity(KILLS));
        for _ in 0..KILLS {
            let killed;
            (watch, killed) = self.kill(&network, watch).await?;
            felt.push(killed?);
        }
        drop(watch);
        for server in [tcp, udp, bridge] {
            launcher.stop(server).await?;
        }
        // A segment of the connection that was lost comes again by its sender's timer, 200 ms later at least.
        let (udp, tcp): (Vec<_>, Vec<_>) =
            felt.into_iter().flat_map(|felt| felt.flows).partition(|(flow, _)| flow.starts_with("udp"));
        let udp: Vec<_> = udp.into_iter().map(|flow| Felt { flows: vec![flow] }).collect();
        kill9::summarise(&mut sample, &udp)?;
        let slowest = tcp.iter().map(|flow| flow.1).max().unwrap_or_default();
        sample.values.insert("tcp_worst_ms", slowest.as_secs_f64() * 1e3);
        sample.values.insert("kills", KILLS as f64);
        Ok(sample)
    }

    async fn kill(
        &self,
        network: &SwitchNetwork,
        watch: KillWatch,
    ) -> anyhow::Result<(KillWatch, Result<Felt, KillWatchError>)> {
        let instance = self.twinpath(network, &network.ports, "--on-exit bridge").await?;
        let traffic = Traffic { session: self.session, network, time: self.time, switch: None };
        let probed = async |instance: &Instance| {
            traffic.probe().await?;
            // By workers, and by the kernel's entries.
            let carried: u64 = instance.report().await?.ports.iter().map(|port| port.frames_in).sum();
            ensure!(carried >= u64::from(PROBES), "the switch carried {carried} of {PROBES} requests");
            Ok(())
        };
        kill9::kill(&self.session.launcher, instance, watch, probed).await
    }
}
