//! Two hosts, each at a switch of its own, and VXLAN between the switches: twinpath's at both ends, or the kernel's.
//!
//! The hosts run on the first CPU, both switches on the second.

use anyhow::bail;

use super::measure::Bench;
use crate::lab::model::Sample;
use crate::lab::process::words;
use crate::lab::switches;
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
        let mut running = Vec::new();
        let ends = [("near", &network.switch, UNDERLAY[1]), ("far", &far, UNDERLAY[0])];
        for (name, namespace, remote) in ends {
            let tunnel = format!("vxlan:tunnel,vni={VNI},remotes={}", remote.ipv4);
            let ports = [network.ports[0].to_owned(), tunnel];
            let options = words(&format!("--mode adaptive --socket {}", self.session.socket(name)));
            running.push(switches::twinpath(self.session, namespace, name, &ports, &options, None).await?);
        }
        let measured = self.through_tunnel(&network, row).await;
        for switch in running {
            switch.stop(&self.session.launcher).await?;
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
        traffic.round_trips_of_one().await
    }
}
