//! Two hosts, each at a switch of its own, and VXLAN between the switches: twinpath's at both ends, or the kernel's.
//!
//! The hosts run on the first CPU, both switches on the second.

use anyhow::bail;

use super::measure::Bench;
use crate::lab::instance::Instance;
use crate::lab::model::Sample;
use crate::lab::process::{Side, words};
use crate::lab::topology::{SwitchNetwork, UNDERLAY, VNI};
use crate::lab::traffic::Traffic;

impl Bench<'_> {
    /// The kernel's bridges and VXLAN interfaces.
    pub(super) async fn vxlan_by_kernel(&self, row: &str) -> anyhow::Result<Sample> {
        let (network, far) = SwitchNetwork::apart()?;
        network.join_by_kernel(&far)?;
        self.through_tunnel(&network, row).await
    }

    /// A switch of twinpath with a VXLAN port at each end.
    pub(super) async fn vxlan_by_twinpath(&self, row: &str) -> anyhow::Result<Sample> {
        let (network, far) = SwitchNetwork::apart()?;
        let (launcher, cpu) = (&self.session.launcher, self.session.cpus[1]);
        let mut switches = Vec::new();
        let ends = [("near", &network.switch, UNDERLAY[1]), ("far", &far, UNDERLAY[0])];
        for (name, namespace, remote) in ends {
            let mut args = words(&format!(
                "switch {name} --port {} --port vxlan:tunnel,vni={VNI},remotes={} --cpu {cpu} --mode adaptive --socket",
                network.ports[0], remote.ipv4
            ));
            args.push(self.session.run_dir.path().join(format!("{name}.sock")).display().to_string());
            switches
                .push(Instance::start_at(launcher, Side::At(namespace, &self.session.cpus), &args).await?);
        }
        let measured = self.through_tunnel(&network, row).await;
        for switch in switches {
            switch.stop(launcher).await?;
        }
        measured
    }

    async fn through_tunnel(&self, network: &SwitchNetwork, row: &str) -> anyhow::Result<Sample> {
        let traffic = Traffic { session: self.session, network, time: self.time, switch: None };
        if row.starts_with("vxlan-bulk-") {
            return traffic.bulk().await;
        }
        if !row.starts_with("vxlan-rtt-") {
            bail!("{row} is not measured through a tunnel");
        }
        let server = traffic.echo_server("connected").await?;
        let measured = traffic.for_its_time("").await;
        self.session.launcher.stop(server).await?;
        measured
    }
}
