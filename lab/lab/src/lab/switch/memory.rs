//! Frames between two ports of a switch that are other processes' memory: one process has the other ends of both.

use anyhow::Context;

use super::measure::{Bench, FRAMES};
use crate::lab::model::Sample;
use crate::lab::process::{Side, words};
use crate::lab::switches::directory;
use crate::lab::topology::SwitchNetwork;
use crate::lab::traffic::SLACK;

/// Frames that the source sends at once: as many as testpmd.
const BURST: usize = 32;

impl Bench<'_> {
    /// Two memory ports of twinpath's switch.
    pub(super) async fn memory_twinpath(&self) -> anyhow::Result<Sample> {
        let network = SwitchNetwork::build(0)?;
        let instance = self.twinpath(&network, &["memory:one", "memory:other"], "--mode adaptive").await?;
        let folder = self.session.run_dir.path().join("ports");
        let mut args = words(&format!(
            "plain memory-ports --cpu {} --duration {:.3} --batch {BURST} --sockets",
            self.session.cpus[0],
            self.time.as_secs_f64()
        ));
        args.push(
            ["one", "other"].map(|port| folder.join(format!("lab-{port}")).display().to_string()).join(","),
        );
        let moved = self.moved(&network, &args, instance.pid()).await;
        instance.stop(&self.session.launcher).await?;
        moved
    }

    /// Two memif ports of testpmd, which passes frames on without looking at them.
    pub(super) async fn memory_testpmd(&self) -> anyhow::Result<Sample> {
        let network = SwitchNetwork::build(0)?;
        let (launcher, [source, switch]) = (&self.session.launcher, self.session.cpus);
        let directory = directory(self.session, "testpmd-memif")?.display().to_string();
        let mut args = words(&format!("plain switch testpmd-memif --cpu {switch} --directory"));
        args.push(directory.clone());
        let server = launcher.server(Side::At(&network.switch, &[switch]), &args).await?;
        let pid = server.process("switch_pid");
        let what = server.ready["what"].as_str().unwrap_or("testpmd").to_owned();
        let mut args = words(&format!(
            "plain memif-source --cpu {source} --duration {:.3} --directory",
            self.time.as_secs_f64()
        ));
        args.push(directory);
        let moved = self.moved(&network, &args, pid.context("testpmd has no process")?).await;
        launcher.stop(server).await?;
        let mut moved = moved?;
        moved.notes.push(what);
        Ok(moved)
    }

    async fn moved(&self, network: &SwitchNetwork, args: &[String], switch: u32) -> anyhow::Result<Sample> {
        let side = Side::At(&network.hosts[0], &self.session.cpus[..1]);
        let deadline = self.time + 2 * SLACK;
        let finished = self.session.launcher.client(side, args, deadline, Some(switch)).await?;
        let mut values = finished.values("the source")?;
        let frames_per_s = *values.get(FRAMES).context("the source has counted no frames")?;
        values.insert("mpps", frames_per_s / 1e6);
        if let Some(cpu) = finished.cpu_share(self.time) {
            values.extend([("cpu_server", cpu), ("cpu_us_per_frame", cpu * 1e6 / frames_per_s)]);
        }
        Ok(Sample { values, ..Sample::default() })
    }
}
