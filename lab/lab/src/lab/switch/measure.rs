//! Starts one switch between two hosts, and measures its rows.

use std::time::Duration;

use anyhow::{Context, bail};
use fastrand::Rng;
use twinpath_observe::report::SwitchPort;
use twinpath_sys::child;

use crate::lab::instance::{Instance, watched};
use crate::lab::model::Sample;
use crate::lab::paced::{Draw, Load, PERIOD_US};
use crate::lab::process::words;
use crate::lab::session::Session;
use crate::lab::switches::{self, Contender, Running};
use crate::lab::topology::{HOSTS, SwitchNetwork};
use crate::lab::traffic::{Frames, SLACK, Traffic, frames};

/// Ports of an idle switch.
const IDLE_PORTS: usize = 10;
/// Until an idle switch has calmed down after its start.
const IDLE_SETTLE: Duration = Duration::from_millis(1500);
/// Frames per system call of the source.
const BATCH: usize = 64;
/// Frames that come through in a second.
pub(super) const FRAMES: &str = "frames_per_s";

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// As `plain switch` names it.
    Plain(&'static str),
    /// twinpath with these options, whose ports have these.
    Twinpath(&'static str, &'static str),
    /// twinpath whose worker forwards, with so many ports, of which two are in use.
    Ports(usize),
    /// Without hosts: each row is a process of its own.
    Alone,
}

/// All of them; a switch that is measured idle has more ports, so it is started for that alone.
pub(super) static CONTENDERS: &[Contender<Kind>] = &[
    Contender { name: "bridge", kind: Kind::Plain("bridge") },
    Contender { name: "ovs-netdev", kind: Kind::Plain("ovs-netdev") },
    Contender { name: "ovs-afxdp", kind: Kind::Plain("ovs-afxdp") },
    Contender { name: "testpmd-afxdp", kind: Kind::Plain("testpmd-afxdp") },
    // As it is by default: the kernel forwards between learned addresses.
    Contender { name: "twinpath", kind: Kind::Twinpath("--mode adaptive", "") },
    // The same, and a thread of the kernel takes the frames of each port.
    Contender { name: "thread", kind: Kind::Twinpath("--mode adaptive", ",receive=thread") },
    Contender { name: "worker", kind: Kind::Twinpath("--mode adaptive --offload off", "") },
    Contender { name: "poll", kind: Kind::Twinpath("--mode poll --offload off", "") },
    Contender { name: "interrupt", kind: Kind::Twinpath("--mode interrupt --offload off", "") },
    Contender { name: "ports-10", kind: Kind::Ports(10) },
    Contender { name: "ports-1000", kind: Kind::Ports(1000) },
    Contender { name: "alone", kind: Kind::Alone },
    Contender { name: "idle", kind: Kind::Twinpath("--mode adaptive", "") },
];

/// One round.
pub(super) struct Bench<'a> {
    pub(super) session: &'a Session,
    round: usize,
    pub(super) time: Duration,
    idle_time: Duration,
    /// The pace, the same for all switches of a round.
    pub(super) load: Load,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        session: &'a Session,
        round: usize,
        time: Duration,
        idle_time: Duration,
        random: &mut Rng,
    ) -> Self {
        Self { session, round, time, idle_time, load: Draw::of(random, PERIOD_US).load() }
    }

    /// Measures these rows of a switch.
    pub(super) async fn rows(
        &self,
        contender: &Contender<Kind>,
        rows: &[&'static str],
    ) -> anyhow::Result<()> {
        if let Kind::Alone = contender.kind {
            for row in rows {
                self.session.step(row, self.round, self.alone(row)).await;
            }
            return Ok(());
        }
        let ports = match contender.kind {
            Kind::Ports(ports) => ports,
            _ if rows.iter().any(|row| row.starts_with("idle-")) => IDLE_PORTS,
            _ => HOSTS.len(),
        };
        let network = SwitchNetwork::build(ports)?;
        let running = self.start(contender, &network).await?;
        if let Kind::Ports(_) = contender.kind {
            // What the kernel says of a thousand interfaces is read for a second after the start, by control.
            tokio::time::sleep(IDLE_SETTLE).await;
        }
        for row in rows {
            let measured = async {
                let mut sample = self.row(row, &network, &running).await?;
                if let Some(instance) = running.instance() {
                    sample.values.insert("kernel_share", kernel_share(instance).await?);
                }
                sample.notes.extend(running.note.clone());
                Ok(sample)
            };
            self.session.step(row, self.round, measured).await;
        }
        running.stop(self.session).await
    }

    async fn start(&self, contender: &Contender<Kind>, network: &SwitchNetwork) -> anyhow::Result<Running> {
        let (options, of_ports) = match contender.kind {
            Kind::Alone => bail!("{} is no switch", contender.name),
            Kind::Plain(kind) => {
                let mut running = switches::start_plain(self.session, network, kind).await?;
                if let (Some(note), true) = (&mut running.note, kind != "bridge") {
                    note.push_str("; the hosts compute checksums, which it does not pass on");
                }
                return Ok(running);
            }
            Kind::Twinpath(options, of_ports) => (options, of_ports),
            Kind::Ports(_) => ("--mode adaptive --offload off", ""),
        };
        let ports: Vec<_> = network.ports.iter().map(|port| format!("{port}{of_ports}")).collect();
        let ports: Vec<_> = ports.iter().map(String::as_str).collect();
        Ok(Running::of_twinpath(self.twinpath(network, &ports, options).await?))
    }

    /// twinpath's switch with these ports.
    pub(super) async fn twinpath(
        &self,
        network: &SwitchNetwork,
        ports: &[&str],
        options: &str,
    ) -> anyhow::Result<Instance> {
        let ports: Vec<_> = ports.iter().map(|port| (*port).to_owned()).collect();
        let options = words(&format!("{options} --socket {}", self.session.socket("switch")));
        switches::twinpath(self.session, &network.switch, "lab", &ports, &options, None).await
    }

    async fn row(&self, row: &str, network: &SwitchNetwork, running: &Running) -> anyhow::Result<Sample> {
        if row.starts_with("idle-") {
            return self.idle(running).await;
        }
        let traffic = Traffic { session: self.session, network, time: self.time, switch: running.pid };
        if row.starts_with("bulk-") {
            return traffic.bulk().await;
        }
        let server = traffic.echo_server("connected").await?;
        let measured = async {
            if row.starts_with("rate-") || row.starts_with("ports-") {
                traffic.probe().await?;
                return self.rate(network, running.pid).await;
            }
            let options = if row.starts_with("paced-") { self.load.options() } else { String::new() };
            traffic.for_its_time(&options).await
        };
        let measured = measured.await;
        self.session.launcher.stop(server).await?;
        measured
    }

    /// Frames of 64 bytes, as many as the first host's interface takes, counted by the second host's.
    async fn rate(&self, network: &SwitchNetwork, switch: Option<u32>) -> anyhow::Result<Sample> {
        let options = format!("--batch {BATCH} --duration {:.3}", self.time.as_secs_f64());
        let used = || switch.map(child::cpu_time).transpose();
        let before = used()?;
        let cpus = &self.session.cpus[..1];
        let Frames { sent, arrived, finished } =
            frames(self.session, network, cpus, &options, self.time + SLACK, switch).await?;
        let after = used()?;
        let mut sample = Sample::default();
        sample.values.insert(FRAMES, arrived as f64 / sent.duration_s);
        sample.values.insert("offered_per_s", sent.frames as f64 / sent.duration_s);
        if let (Some(before), Some(after)) = (before, after) {
            let used = after.saturating_sub(before).as_secs_f64();
            sample.values.insert("cpu_us_per_frame", used * 1e6 / arrived as f64);
        }
        if let Some(cpu) = finished.cpu_share(self.time) {
            sample.values.insert("cpu_server", cpu);
        }
        Ok(sample)
    }

    /// The CPU that a switch takes while nothing comes.
    async fn idle(&self, running: &Running) -> anyhow::Result<Sample> {
        let pid = running.pid.context("no process to watch")?;
        tokio::time::sleep(IDLE_SETTLE).await;
        Ok(Sample { values: watched(pid, self.idle_time).await?, ..Sample::default() })
    }
}

/// The share of the frames received so far that the kernel has forwarded without a worker.
async fn kernel_share(instance: &Instance) -> anyhow::Result<f64> {
    let report = instance.report().await?;
    let sum = |of: fn(&SwitchPort) -> u64| report.ports.iter().map(of).sum::<u64>() as f64;
    Ok(sum(|port| port.kernel_in) / sum(|port| port.frames_in).max(1.0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::LAB;
    use super::*;

    #[test]
    fn every_row_is_measured_on_one_switch() {
        let measured: Vec<_> = CONTENDERS.iter().flat_map(|contender| contender.rows(&LAB)).collect();
        let rows: BTreeSet<_> = LAB.table.rows.iter().map(|row| row.id).collect();
        assert_eq!(measured.len(), rows.len());
        assert_eq!(measured.into_iter().collect::<BTreeSet<_>>(), rows);
    }
}
