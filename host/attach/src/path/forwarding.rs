//! Decides whether the driver of a switch's port forwards frames, by an XDP program: the facts about the
//! interface, and the choice of `auto` (docs/decisions/0011-flows-at-xdp.md).

use twinpath_sys::ethtool;

use crate::mirror::table::Link;
use crate::path::ethtool::{active_features, takes_tags_off};
use crate::path::facts::{PARAVIRTUAL, XdpFeatures};
use crate::path::xdp_features;

/// The facts on which the choice depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardingFacts {
    /// Kind of software device (`veth`, ...) or name of the driver; may be empty.
    pub kind: String,
    /// Whether it is a software device: the kernel reports a kind for it.
    pub software: bool,
    /// The driver's XDP features; `None` if the kernel does not report them (before 6.3).
    pub xdp_features: Option<XdpFeatures>,
    /// Whether VLAN tags of received frames are removed from the frame; `None` if unknown.
    pub vlan_rx_offload: Option<bool>,
}

impl ForwardingFacts {
    /// The facts of a link in the calling thread's network namespace. A fact that cannot be read is
    /// unknown.
    #[must_use]
    pub fn of(link: &Link) -> Self {
        let driver = || ethtool::driver(&link.name).map(|driver| driver.name).unwrap_or_default();
        Self {
            kind: if link.kind.is_empty() { driver() } else { link.kind.clone() },
            software: !link.kind.is_empty(),
            xdp_features: xdp_features::query(link.ifindex),
            vlan_rx_offload: active_features(&link.name)
                .map(|on| takes_tags_off(&on))
                .or_else(|| ethtool::takes_tags_off(&link.name).ok()),
        }
    }

    /// Why frames are not forwarded in the driver unless requested.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        let kind = if self.kind.is_empty() { "this device" } else { &self.kind };
        if self.software || PARAVIRTUAL.contains(&kind) {
            return Some(format!(
                "behind a {kind} there is another network stack, which may leave checksums and tags beside the frame, where XDP does \
                 not see them (offload=xdp says that it does not)"
            ));
        }
        match self.xdp_features {
            None => Some(format!("this kernel does not say whether {kind} runs XDP in its driver")),
            Some(XdpFeatures { basic: true, redirect: true, .. }) => None,
            Some(_) => Some(format!("{kind} runs no XDP in its driver")),
        }
        .or_else(|| match self.vlan_rx_offload {
            Some(false) => None,
            Some(true) => Some(format!(
                "{kind} takes VLAN tags off the frames, where XDP does not see them (ethtool -K IFACE rxvlan off \
                 rx-vlan-stag-hw-parse off changes that)"
            )),
            None => Some(format!("the kernel does not say whether {kind} takes VLAN tags off the frames")),
        })
    }
}

/// Whether an interface accepts frames that programs of other interfaces send to it. A veth does while its
/// other end has GRO or an XDP program, most other devices while they have an XDP program themselves.
/// `None` if the kernel does not tell (before 6.3).
#[must_use]
pub fn takes_redirected(ifindex: u32) -> Option<bool> {
    xdp_features::query(ifindex).map(|features| features.transmit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hardware() -> ForwardingFacts {
        let features = XdpFeatures { basic: true, redirect: true, transmit: true, ..XdpFeatures::default() };
        ForwardingFacts {
            kind: "ice".to_owned(),
            software: false,
            xdp_features: Some(features),
            vlan_rx_offload: Some(false),
        }
    }

    #[test]
    fn only_a_device_with_nothing_beside_its_frames_forwards_in_its_driver() {
        assert_eq!(hardware().obstacle(), None);
        let veth = ForwardingFacts { kind: "veth".to_owned(), software: true, ..hardware() };
        assert!(veth.obstacle().unwrap().contains("behind a veth"));
        let virtio = ForwardingFacts { kind: "virtio_net".to_owned(), ..hardware() };
        assert!(virtio.obstacle().unwrap().contains("checksums"));
        let none = ForwardingFacts { xdp_features: Some(XdpFeatures::default()), ..hardware() };
        assert!(none.obstacle().unwrap().contains("runs no XDP"));
        let unknown = ForwardingFacts { xdp_features: None, ..hardware() };
        assert!(unknown.obstacle().unwrap().contains("does not say whether ice runs XDP"));
        let tags = ForwardingFacts { vlan_rx_offload: Some(true), ..hardware() };
        assert!(tags.obstacle().unwrap().contains("rxvlan off"));
        let tags = ForwardingFacts { vlan_rx_offload: None, ..hardware() };
        assert!(tags.obstacle().is_some());
    }
}
