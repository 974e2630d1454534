//! Starts one switch between two hosts, with a socket for controllers, and measures its rows.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use twinpath_sys::child;

use crate::lab::instance::watched;
use crate::lab::model::Sample;
use crate::lab::process::{Side, words};
use crate::lab::session::Session;
use crate::lab::switches::{Contender, Kind, Running};
use crate::lab::topology::{HOSTS, SwitchNetwork};
use crate::lab::traffic::{Frames, Traffic, frames};

/// Until flows are in and out again, however slow a switch is with them.
const MODS_DEADLINE: Duration = Duration::from_secs(60);
/// Until the tables' times per frame are measured.
const PIPELINE_DEADLINE: Duration = Duration::from_secs(60);
/// Until a switch has calmed down after 10,000 flows, and for how long it is watched.
const IDLE_SETTLE: Duration = Duration::from_secs(2);
const IDLE_TIME: Duration = Duration::from_secs(5);
/// How long traffic is measured.
const CHECK_TIME: Duration = Duration::from_millis(800);
const QUICK_TIME: Duration = Duration::from_millis(400);
const PORTS: usize = 2;
/// Frames of XDP programs, and until they are sent.
const XDP_FRAMES: u32 = 2_000_000;
const XDP_DEADLINE: Duration = Duration::from_secs(20);

/// All of them. One that is measured idle is started for that alone.
/// Without a kind, the row starts what it needs.
pub(super) static CONTENDERS: &[Contender<Option<Kind>>] = &[
    Contender { name: "ovs", kind: Some(Kind::Ovs) },
    Contender { name: "twinpath", kind: Some(Kind::Twinpath) },
    Contender { name: "workers", kind: Some(Kind::TwinpathWorkers) },
    Contender { name: "kernel", kind: Some(Kind::Twinpath) },
    Contender { name: "drivers", kind: Some(Kind::TwinpathXdp) },
    Contender { name: "xdp-redirect", kind: Some(Kind::XdpRedirect) },
    Contender { name: "bridge", kind: Some(Kind::Bridge) },
    Contender { name: "idle", kind: Some(Kind::Twinpath) },
    Contender { name: "alone", kind: None },
];

/// One round.
pub(super) struct Bench<'a> {
    pub(super) session: &'a Session,
    pub(super) round: usize,
}

impl Bench<'_> {
    /// Measures these rows of a switch.
    pub(super) async fn rows(
        &self,
        contender: &Contender<Option<Kind>>,
        rows: &[&'static str],
    ) -> anyhow::Result<()> {
        let Some(kind) = contender.kind else {
            for row in rows {
                self.session.step(row, self.round, self.alone(row)).await;
            }
            return Ok(());
        };
        let network = SwitchNetwork::build(PORTS)?;
        let running = kind.start(self.session, &network).await?;
        for row in rows {
            let measured = async {
                let mut sample = self.row(row, &network, &running).await?;
                sample.notes.extend(running.note.clone());
                Ok(sample)
            };
            self.session.step(row, self.round, measured).await;
        }
        running.stop(self.session).await
    }

    async fn alone(&self, row: &str) -> anyhow::Result<Sample> {
        match row {
            "pipeline" => self.pipeline().await,
            _ => super::restart::lost(self.session, &SwitchNetwork::build(PORTS)?).await,
        }
    }

    async fn row(&self, row: &str, network: &SwitchNetwork, running: &Running) -> anyhow::Result<Sample> {
        match row.split('-').next() {
            Some("mods") => self.mods(network, running).await,
            Some("barrier") if row == "barrier-offloaded" => {
                super::judged::after_barriers_in_kernel(network, running).await
            }
            Some("barrier") => super::judged::after_barriers(network, &running.socket),
            Some("counters") => super::judged::counters(network, &running.socket).await,
            Some("idle") => self.idle(network, running).await,
            Some("xdp") => self.xdp(network, running).await,
            Some(what @ ("rtt" | "bulk")) => self.traffic(what == "bulk", network, running).await,
            _ => bail!("{row} is no row of a switch"),
        }
    }

    async fn mods(&self, network: &SwitchNetwork, running: &Running) -> anyhow::Result<Sample> {
        let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        let args = running.controller("flow-mods");
        let pid = running.pid.context("no process to watch")?;
        let used = child::cpu_time(pid)?;
        let finished = self.session.launcher.client(side, &args, MODS_DEADLINE, None).await?;
        let used = child::cpu_time(pid)?.saturating_sub(used);
        let mut values = finished.values("plain openflow")?;
        values.insert("cpu_s", used.as_secs_f64());
        Ok(Sample { values, ..Sample::default() })
    }

    /// Kernel UDP, one request in flight, or kernel TCP, by flows between the two ports.
    async fn traffic(
        &self,
        is_bulk: bool,
        network: &SwitchNetwork,
        running: &Running,
    ) -> anyhow::Result<Sample> {
        let launcher = &self.session.launcher;
        if running.has_flows {
            let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
            launcher.client(side, &running.controller("two-ports"), MODS_DEADLINE, None).await?;
        }
        let traffic = Traffic {
            session: self.session,
            network,
            time: if self.session.check { CHECK_TIME } else { QUICK_TIME },
            switch: running.pid,
        };
        if is_bulk {
            return traffic.bulk().await;
        }
        traffic.round_trips_of_one().await
    }

    /// Frames of XDP programs from one host to the other: these programs and those of the switch have one CPU.
    async fn xdp(&self, network: &SwitchNetwork, running: &Running) -> anyhow::Result<Sample> {
        let (launcher, cpu) = (&self.session.launcher, &self.session.cpus[1..]);
        if running.has_flows {
            let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
            launcher.client(side, &running.controller("two-ports"), MODS_DEADLINE, None).await?;
        }
        let sink = words(&format!("plain xdp-sink --on {}", HOSTS[1].interface));
        let sink = launcher.server(Side::At(&network.hosts[1], cpu), &sink).await?;
        let measured = async {
            // The kernel has the flows after the first ones.
            self.xdp_frames(network, XDP_FRAMES / 10).await?;
            self.xdp_frames(network, XDP_FRAMES).await
        };
        let measured = measured.await;
        launcher.stop(sink).await?;
        let (per_s, lost) = measured?;
        ensure!(
            lost <= XDP_FRAMES / 1000,
            "{lost} of {XDP_FRAMES} frames did not arrive: flows are not in drivers"
        );
        let mut sample = Sample::default();
        sample.values.insert("frames_per_s", per_s);
        sample.values.insert("lost", f64::from(lost));
        Ok(sample)
    }

    /// Frames per second that arrive of so many, and how many do not.
    async fn xdp_frames(&self, network: &SwitchNetwork, count: u32) -> anyhow::Result<(f64, u32)> {
        let (options, cpus) = (format!("--xdp {count}"), &self.session.cpus[1..]);
        let Frames { sent, arrived, .. } =
            frames(self.session, network, cpus, &options, XDP_DEADLINE, None).await?;
        let arrived = arrived.min(count.into()) as u32;
        Ok((f64::from(arrived) / sent.duration_s, count - arrived))
    }

    /// The CPU that a switch takes while its flows wait for their timeouts.
    async fn idle(&self, network: &SwitchNetwork, running: &Running) -> anyhow::Result<Sample> {
        let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        let controller = self.session.launcher.server(side, &running.controller("hold")).await?;
        tokio::time::sleep(IDLE_SETTLE).await;
        let pid = running.pid.context("no process to watch")?;
        let values = watched(pid, IDLE_TIME).await;
        self.session.launcher.stop(controller).await?;
        Ok(Sample { values: values?, ..Sample::default() })
    }

    async fn pipeline(&self) -> anyhow::Result<Sample> {
        let args = format!("plain pipeline --cpu {}", self.session.cpus[1]);
        let launcher = &self.session.launcher;
        let finished = launcher.client(Side::Server, &words(&args), PIPELINE_DEADLINE, None).await?;
        Ok(Sample { values: finished.values("plain pipeline")?, ..Sample::default() })
    }
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
