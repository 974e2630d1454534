//! Reads a driver's XDP features from the `netdev` generic netlink family (Linux 6.3,
//! Documentation/netlink/specs/netdev.yaml), without attaching anything.

use twinpath_netlink::generic::{Family, command};

// linux/netdev.h
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_XDP_ACT_BASIC: u64 = 1;
const NETDEV_XDP_ACT_REDIRECT: u64 = 2;
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;
const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 8;
const NETDEV_XDP_ACT_RX_SG: u64 = 32;

/// XDP features of a device, as its driver reports them (`netdev` family, `enum netdev_xdp_act`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// `XDP_PASS`, `XDP_DROP`, `XDP_TX` in the driver.
    pub basic: bool,
    /// `XDP_REDIRECT` in the driver.
    pub redirect: bool,
    /// Takes frames redirected to it.
    pub transmit: bool,
    /// AF_XDP zero-copy.
    pub zero_copy: bool,
    /// Frames in several buffers on receive.
    pub multi_buffer: bool,
    /// Maximum number of buffers per frame in zero-copy mode.
    pub zero_copy_segments: u32,
}

/// The features that the driver of an interface reports; `None` if the kernel has no such family or interface.
pub(crate) fn query(ifindex: u32) -> Option<XdpFeatures> {
    let netdev = Family::find("netdev").ok()?;
    let body = command(NETDEV_CMD_DEV_GET).u32(NETDEV_A_DEV_IFINDEX, ifindex);
    let answers = netdev.ask("tell about the interface", &body).ok()?;
    let device = answers.first()?;
    let bits = device.unsigned(NETDEV_A_DEV_XDP_FEATURES).unwrap_or(0);
    let segments =
        device.unsigned(NETDEV_A_DEV_XDP_ZC_MAX_SEGS).and_then(|segments| segments.try_into().ok());
    Some(XdpFeatures {
        basic: bits & NETDEV_XDP_ACT_BASIC != 0,
        redirect: bits & NETDEV_XDP_ACT_REDIRECT != 0,
        transmit: bits & NETDEV_XDP_ACT_NDO_XMIT != 0,
        zero_copy: bits & NETDEV_XDP_ACT_XSK_ZEROCOPY != 0,
        multi_buffer: bits & NETDEV_XDP_ACT_RX_SG != 0,
        zero_copy_segments: segments.unwrap_or(0),
    })
}
