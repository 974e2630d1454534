//! The part of the report about a switch.

use serde::{Deserialize, Serialize};
use twinpath_inspect::SwitchCounts;
use twinpath_inspect::counts;

use crate::report::openflow::OpenFlow;

counts! {
    /// A switch.
    pub struct Switch {
        /// Its name.
        pub name: String,
        /// Whether it has VLANs.
        pub vlans: bool,
        /// How long an address is known after its last frame, s.
        pub ageing_s: u64,
        /// Addresses in the table, some of which may have expired.
        pub addresses: u64,
        /// Maximum number of addresses: the table has two places for each of `switch.mac_entries`.
        pub mac_entries_max: u64,
        /// The counters of its workers.
        #[serde(flatten)]
        pub counts: SwitchCounts,
        /// Its OpenFlow, if it has tables.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub openflow: Option<OpenFlow>,
    } and {
        /// Entries by which the kernel forwards frames between two learned addresses.
        kernel_entries: u64 => gauge("twinpath_switch_kernel_entries");
    }
}

counts! {
    /// One port of a switch.
    #[derive(PartialEq, Eq)]
    pub struct SwitchPort {
        /// Its name, as configured.
        pub name: String,
        /// Its number, also in OpenFlow, where the host's own interface is LOCAL.
        pub number: u32,
        /// `interface`, `tap`, `memory` or `local`.
        pub kind: String,
        /// `up`, `down` (its interface is), `gone`, `waiting` (for an application), `refused` or `elsewhere`.
        pub state: String,
        /// What it is attached to, or why it is not in use: one sentence.
        pub why: String,
        /// `access`, `trunk` or `monitor`.
        pub mode: String,
        /// The VLANs of its frames: `10`, or `10,20-30` with tags.
        pub vlans: String,
        /// The VLAN of frames without a tag on a trunk.
        pub native: Option<u32>,
        /// The port that gets copies of its frames.
        pub mirror_to: Option<String>,
        /// The other port of a loop, while this one is blocked for it.
        pub blocked_for: Option<String>,
    } and {
        /// Addresses learned at the port.
        addresses: u64 => gauge("twinpath_switch_port_addresses"), column("addresses");
        /// Frames received since the start of the switch, also before its interface went and came back.
        frames_in: u64 => counter("twinpath_switch_port_frames"), about(FRAMES), label("direction", "in"),
            column("frames in");
        /// Frames sent.
        frames_out: u64 => counter("twinpath_switch_port_frames"), about(FRAMES), label("direction", "out"),
            column("frames out");
        /// Bytes received, from the Ethernet header.
        bytes_in: u64 => counter("twinpath_switch_port_bytes"), about(BYTES), label("direction", "in"),
            column("bytes in");
        /// Bytes sent, from the Ethernet header.
        bytes_out: u64 => counter("twinpath_switch_port_bytes"), about(BYTES), label("direction", "out"),
            column("bytes out");
        /// Frames of those received that the kernel forwarded, without a worker.
        kernel_in: u64 => counter("twinpath_switch_port_kernel_frames"), about(BY_KERNEL), label("direction", "in");
        /// Frames of those sent that the kernel forwarded.
        kernel_out: u64 => counter("twinpath_switch_port_kernel_frames"), about(BY_KERNEL), label("direction", "out");
        /// Frames dropped that came by it or were to leave by it, for any reason.
        dropped: u64 => column("dropped");
    }
}

const FRAMES: &str = "Frames of the port, by direction, including those that the kernel forwards.";
const BYTES: &str = "Bytes of the port from the Ethernet header, by direction.";
const BY_KERNEL: &str = "Frames of the port that the kernel forwarded, without a worker, by direction.";

/// An address that a switch knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mac {
    /// The address.
    pub mac: String,
    /// Its VLAN; 0 in a switch without VLANs.
    pub vlan: u16,
    /// Its port.
    pub port: String,
    /// Seconds since a frame came from it; `None` for a static entry.
    pub age_s: Option<u64>,
}
