//! One loop that does control's work too, against a packet thread beside a thread for control: the same ports and calls.

use anyhow::Context;

use super::measure::{BATCH, Bench, IDLE_PORTS};
use crate::lab::model::Sample;
use crate::lab::process::{Side, words};
use crate::lab::switches::directory;
use crate::lab::topology::SwitchNetwork;
use crate::lab::traffic::{ECHO_PORT, PROBES, SLACK, address};
use crate::plain::forward::Counts;

/// Until the forwarder has opened its ports.
const STARTING: std::time::Duration = std::time::Duration::from_millis(200);

impl Bench<'_> {
    /// `row`: `loop-BURST` or `threads-BURST`. The switch has ten ports, two of which carry frames.
    pub(super) async fn forwarder(&self, row: &str) -> anyhow::Result<Sample> {
        let (who, burst) = row.split_once('-').context("it names no burst")?;
        let shape = if who == "loop" { "one-loop" } else { "two-threads" };
        let network = SwitchNetwork::build(IDLE_PORTS)?;
        network.whole_checksums()?;
        let launcher = &self.session.launcher;
        let mut args = words(&format!(
            "plain forward {shape} --burst {burst} --ports {} --log",
            network.ports.join(",")
        ));
        args.push(directory(self.session, who)?.join("log").display().to_string());
        let forwarder = launcher.background(Side::At(&network.switch, &self.session.cpus[1..]), &args)?;
        tokio::time::sleep(STARTING).await;
        let echo = words(&format!("plain udp-echo --listen {} --mode interrupt", address(ECHO_PORT)));
        let hosts_cpu = &self.session.cpus[..1];
        let echo = launcher.server(Side::At(&network.hosts[1], hosts_cpu), &echo).await?;
        let probe = words(&format!(
            "bench echo {} --udp --path kernel --mode interrupt --size 64 --inflight 1 --count {PROBES} --warmup 0 --json",
            address(ECHO_PORT)
        ));
        let side = Side::At(&network.hosts[0], hosts_cpu);
        let known = launcher.client(side, &probe, SLACK, None).await;
        let measured = match known {
            Ok(_) => self.rate(&network, Some(forwarder.pid), BATCH).await,
            Err(error) => Err(error.context("no frame passes")),
        };
        launcher.stop(echo).await?;
        let counts = launcher.finish(forwarder).await?;
        let mut sample = measured?;
        let counts: Counts =
            serde_json::from_str(&counts).context("cannot read the result of plain forward")?;
        let frames = counts.frames.max(1) as f64;
        sample.values.insert("packet_calls_per_frame", counts.packet_calls as f64 / frames);
        sample.values.insert("control_calls_per_frame", counts.control_calls as f64 / frames);
        Ok(sample)
    }
}
