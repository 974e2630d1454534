//! Switches of other hosts as a port, by VXLAN.

use twinpath_config::SwitchPort;
use twinpath_time::Duration;
use twinpath_vxlan::VxlanConfig;

use super::kind::{About, Kind, OpenError, Opened, Opening};
use crate::secret::secret;

/// Switches of other hosts.
#[derive(Default)]
pub(crate) struct Vxlan {
    /// The MTU for hosts here, while attached.
    mtu: u32,
}

impl Kind for Vxlan {
    fn open(&mut self, opening: Opening<'_>) -> Result<Opened, OpenError> {
        let SwitchPort { vni, remotes, local, udp_port, .. } = opening.config;
        let config = VxlanConfig {
            id: opening.queue(0),
            vni: vni.unwrap_or_default(),
            remotes: remotes.addresses().to_vec(),
            local: *local,
            udp_port: *udp_port as u16,
            ageing: Duration::from_secs(opening.switch.ageing_s.into()),
            seed: secret(),
        };
        let opened = opening.homes.open_vxlan(opening.home, &config).map_err(OpenError::of)?;
        let queue = opened.map_err(OpenError::of)?;
        self.mtu = queue.inner_mtu();
        Ok(Opened::Queues(vec![Box::new(queue)]))
    }

    fn mtu(&self) -> Option<u32> {
        Some(self.mtu)
    }

    fn why(&self, about: &About<'_>) -> String {
        let SwitchPort { vni, remotes, udp_port, .. } = about.config;
        format!("network {} by VXLAN, UDP port {udp_port}, to {remotes}", vni.unwrap_or_default())
    }
}
