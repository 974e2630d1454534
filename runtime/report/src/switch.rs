//! The part of the report about a switch.

use serde::{Deserialize, Serialize};

use crate::openflow::OpenFlow;

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// Whether it has VLANs.
    pub vlans: bool,
    /// How long an address is known after its last frame, s.
    pub ageing_s: u64,
    /// Addresses learned that are in the table, some of which may be too old.
    pub addresses: u64,
    /// The most that there can be: the places of the table, of which there are two for each of `switch.mac_entries`.
    pub mac_entries_max: u64,
    /// Addresses learned so far.
    pub learned: u64,
    /// Addresses that moved from one port to another.
    pub moved: u64,
    /// Frames flooded to a VLAN's ports: broadcast, multicast and unknown.
    pub flooded_broadcast: u64,
    /// Multicast frames flooded.
    pub flooded_multicast: u64,
    /// Frames flooded as their destination was not known.
    pub flooded_unknown: u64,
    /// Loops found so far.
    pub loops: u64,
    /// Entries by which the kernel forwards frames between learned addresses.
    pub kernel_entries: u64,
    /// Its OpenFlow, if it has tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openflow: Option<OpenFlow>,
}

/// One port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchPort {
    /// Its name, as configured.
    pub name: String,
    /// Its number, in OpenFlow as well, where the host's own interface is LOCAL.
    pub number: u32,
    /// `interface`, `tap`, `memory` or `local`.
    pub kind: String,
    /// `up`, `down` (its interface is), `gone`, `waiting` (for an application), `refused` or `elsewhere`.
    pub state: String,
    /// What it is on, or why it is not in use: one sentence.
    pub why: String,
    /// `access`, `trunk` or `monitor`.
    pub mode: String,
    /// The VLANs of its frames: `10`, or `10,20-30` with tags.
    pub vlans: String,
    /// The VLAN of frames without a tag on a trunk.
    pub native: Option<u32>,
    /// Addresses learned there, some of which may be too old.
    pub addresses: u64,
    /// The port that gets copies of its frames.
    pub mirror_to: Option<String>,
    /// The other port of a loop, while this one is blocked for it.
    pub blocked_for: Option<String>,
    /// Frames received since the start of the switch, also before its interface went and came back.
    pub frames_in: u64,
    /// Frames sent.
    pub frames_out: u64,
    /// Bytes received, from the Ethernet header.
    pub bytes_in: u64,
    /// Bytes sent, from the Ethernet header.
    pub bytes_out: u64,
    /// Frames of those received that the kernel forwarded, without a worker.
    pub kernel_in: u64,
    /// Frames of those sent that the kernel forwarded.
    pub kernel_out: u64,
    /// Frames dropped that came by it or were to leave by it, for any reason.
    pub dropped: u64,
}

/// An address that a switch knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mac {
    /// The address.
    pub mac: String,
    /// Its VLAN; 0 in a switch without.
    pub vlan: u16,
    /// Its port.
    pub port: String,
    /// Seconds since a frame came from it; `None` for a static entry.
    pub age_s: Option<u64>,
}
