//! Paced frames from one host to the other while a third port floods: frames to an unknown address, which go to both.
//!
//! The kernel times the paced frames between the hosts' interfaces (`probe`), so that the time holds what the switch needs, and
//! not how the source and the hosts' processes share their CPU. In the base row the source sends as much at an interface that is
//! no port of the switch.

use std::time::Duration;

use anyhow::ensure;
use twinpath_sys::child;

use super::measure::Bench;
use crate::lab::model::Sample;
use crate::lab::probe::Probe;
use crate::lab::process::{self, Side, words};
use crate::lab::topology::SwitchNetwork;
use crate::lab::traffic::SLACK;
use crate::plain::switch::Sent;

/// Both hosts', and the source's.
const PORTS: usize = 3;
/// What the source sends: a share of its CPU that leaves the hosts theirs.
const FRAMES_PER_S: u32 = 200_000;
const BATCH: usize = 16;
/// Its storm limit, frames per second.
const LIMIT: u32 = 1_000;
/// From the start of the source to the first round trip.
const SETTLE: Duration = Duration::from_millis(100);
const FROM: &str = "02:74:70:05:00:01";
const TO_NOBODY: &str = "02:74:70:05:00:02";

impl Bench<'_> {
    /// `is_port`: whether the source is at a port, with a storm limit.
    pub(super) async fn flooded(&self, is_port: bool) -> anyhow::Result<Sample> {
        let network = SwitchNetwork::build(PORTS)?;
        let flooding = network.ports[PORTS - 1];
        let limited = format!("{flooding},unknown_limit={LIMIT}");
        let mut ports = network.ports[..PORTS - 1].to_vec();
        if is_port {
            ports.push(&limited);
        }
        let instance = self.twinpath(&network, &ports, "--mode adaptive --offload off").await?;
        let measured = self.beside_flood(&network, instance.pid(), flooding).await;
        instance.stop(&self.session.launcher).await?;
        measured
    }

    async fn beside_flood(
        &self,
        network: &SwitchNetwork,
        switch: u32,
        interface: &str,
    ) -> anyhow::Result<Sample> {
        let launcher = &self.session.launcher;
        let probe = Probe::open(network)?;
        let args = words(&format!(
            "plain frame-source --on {interface} --from {FROM} --to {TO_NOBODY} --batch {BATCH} \
             --rate {FRAMES_PER_S} --priority fifo:2 --duration {:.3}",
            (self.time + SLACK).as_secs_f64()
        ));
        let source = Side::At(&network.nowhere, &self.session.cpus[..1]);
        let source = launcher.background(source, &args)?;
        tokio::time::sleep(SETTLE).await;
        let before = child::cpu_time(switch)?;
        let measured = probe.run(self.session.cpus[0], self.load.pace(self.time)).await;
        let used = child::cpu_time(switch)?.saturating_sub(before);
        let sent: Sent = process::json(&launcher.finish(source).await?, "plain frame-source")?;
        let mut measured = measured?;
        let offered = sent.frames as f64 / sent.duration_s;
        ensure!(offered > f64::from(FRAMES_PER_S) / 2.0, "the source sent {offered:.0} frames/s only");
        measured.values.insert("offered_per_s", offered);
        measured.values.insert("cpu_server", used.as_secs_f64() / self.time.as_secs_f64());
        Ok(measured)
    }
}
