//! Reads driver, link and offloads of an interface, for `show` and metrics: the values that `ethtool` would
//! show.

use twinpath_observe::report::{Device, Offload};
use twinpath_sys::ethtool as ioctl;

use crate::path::ethtool;
use crate::path::facts::{InterfaceFacts, XdpFeatures};

/// The offloads reported here: the name in `ethtool -k`, and the kernel features of which one is enough to
/// count as on.
const OFFLOADS: [(&str, &[&str]); 11] = [
    ("rx-checksumming", &["rx-checksum"]),
    ("tx-checksumming", &["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"]),
    ("tcp-segmentation-offload", &["tx-tcp-segmentation", "tx-tcp6-segmentation"]),
    ("tx-udp-segmentation", &["tx-udp-segmentation"]),
    ("generic-segmentation-offload", &["tx-generic-segmentation"]),
    ("generic-receive-offload", &["rx-gro"]),
    ("rx-gro-hw", &["rx-gro-hw"]),
    ("large-receive-offload", &["rx-lro"]),
    ("rx-vlan-offload", &["rx-vlan-hw-parse"]),
    ("tx-vlan-offload", &["tx-vlan-hw-insert"]),
    ("ntuple-filters", &["rx-ntuple-filter"]),
];

/// Asks the kernel. Values that it does not report are left empty.
pub fn look(name: &str) -> Device {
    let driver = ioctl::driver(name).unwrap_or_default();
    let (rx_queues, tx_queues) = ethtool::queues(name).unwrap_or_default();
    Device {
        driver: driver.name,
        bus: driver.bus,
        firmware: driver.firmware,
        speed_mbps: ethtool::speed(name),
        rx_queues,
        tx_queues,
        offloads: ethtool::active_features(name).map(|active| offloads(&active)).unwrap_or_default(),
        ..Device::default()
    }
}

/// Adds the facts collected for the choice of a path to `device`.
#[must_use]
pub fn with_facts(device: Device, facts: &InterfaceFacts, carrier: bool) -> Device {
    let (rx_queues, tx_queues) = match device.rx_queues {
        0 => (facts.rx_queues, facts.tx_queues),
        known => (known, device.tx_queues),
    };
    Device {
        carrier,
        rx_queues,
        tx_queues,
        xdp_features: facts.xdp_features.map(names),
        foreign_xdp: facts.foreign_xdp.as_ref().map(ToString::to_string),
        ..device
    }
}

fn offloads(active: &[String]) -> Vec<Offload> {
    let on = |features: &[&str]| active.iter().any(|name| features.contains(&name.as_str()));
    OFFLOADS.into_iter().map(|(name, features)| Offload { name: name.to_owned(), on: on(features) }).collect()
}

fn names(features: XdpFeatures) -> Vec<String> {
    let XdpFeatures { basic, redirect, transmit, zero_copy, multi_buffer, zero_copy_segments: _ } = features;
    [
        (basic, "basic"),
        (redirect, "redirect"),
        (transmit, "transmit"),
        (zero_copy, "zero-copy"),
        (multi_buffer, "multi-buffer"),
    ]
    .into_iter()
    .filter(|(can, _)| *can)
    .map(|(_, name)| name.to_owned())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offload_is_on_if_any_of_its_features_is() {
        let active = ["rx-gro", "tx-checksum-ipv6", "tx-scatter-gather"].map(str::to_owned);
        let on = |wanted: &str| offloads(&active).iter().find(|offload| offload.name == wanted).map(|o| o.on);
        assert_eq!(on("generic-receive-offload"), Some(true));
        assert_eq!(on("tx-checksumming"), Some(true));
        assert_eq!(on("tcp-segmentation-offload"), Some(false));
    }
}
