//! Reads driver, link and offloads of an interface, for `show` and metrics: what an operator would ask `ethtool` for.

use ethtool::{EthtoolAttr, EthtoolFeatureAttr, EthtoolLinkModeAttr};
use futures_util::stream::StreamExt as _;
use tokio::time::timeout;
use twinpath_report::{Device, Offload};
use twinpath_sys::ethtool as ioctl;
use twinpath_time::Duration;

use crate::facts::{InterfaceFacts, XdpFeatures, queues};

/// The kernel answers at once, but an answer that the library cannot decode never arrives.
const PATIENCE: Duration = Duration::from_secs(1);

/// `SPEED_UNKNOWN` of linux/ethtool.h.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// The offloads reported here: the name in `ethtool -k`, and the kernel's features any of which counts as on.
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
pub async fn look(name: &str) -> Device {
    let driver = ioctl::driver(name).unwrap_or_default();
    let (queues, speed, active) = tokio::join!(queues(name), speed(name), active(name));
    let (rx_queues, tx_queues) = queues.unwrap_or_default();
    Device {
        driver: driver.name,
        bus: driver.bus,
        firmware: driver.firmware,
        speed_mbps: speed,
        rx_queues,
        tx_queues,
        offloads: active.map(|active| offloads(&active)).unwrap_or_default(),
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

/// Names of the features that are on.
async fn active(name: &str) -> Option<Vec<String>> {
    let (connection, mut handle, _) = ethtool::new_connection().ok()?;
    let connection = tokio::spawn(connection);
    let answer = async { handle.feature().get(Some(name)).execute().await.ok()?.next().await?.ok() };
    let answer = timeout(PATIENCE, answer).await.ok().flatten();
    connection.abort();
    answer?.payload.nlas.into_iter().find_map(|attribute| match attribute {
        EthtoolAttr::Feature(EthtoolFeatureAttr::Active(bits)) => {
            Some(bits.into_iter().filter(|bit| bit.value).map(|bit| bit.name).collect())
        }
        _ => None,
    })
}

fn offloads(active: &[String]) -> Vec<Offload> {
    let on = |features: &[&str]| active.iter().any(|name| features.contains(&name.as_str()));
    OFFLOADS.into_iter().map(|(name, features)| Offload { name: name.to_owned(), on: on(features) }).collect()
}

/// Speed of the link, Mbit/s.
async fn speed(name: &str) -> Option<u32> {
    let (connection, mut handle, _) = ethtool::new_connection().ok()?;
    let connection = tokio::spawn(connection);
    let answer = async { handle.link_mode().get(Some(name)).execute().await.ok()?.next().await?.ok() };
    let answer = timeout(PATIENCE, answer).await.ok().flatten();
    connection.abort();
    answer?.payload.nlas.iter().find_map(|attribute| match attribute {
        EthtoolAttr::LinkMode(EthtoolLinkModeAttr::Speed(speed)) if *speed != SPEED_UNKNOWN => Some(*speed),
        _ => None,
    })
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
