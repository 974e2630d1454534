//! An Ethernet switch as a value: which frame goes to which ports, and what is learned from it.
//!
//! [`Snapshot`] is the configuration, compiled and immutable; [`Shared`] is what the workers of a switch share, above all
//! the [`MacTable`]; [`Switch`] is one worker's end. [`Switch::judge`] is a function of snapshot, shared state, time, and
//! what [`Arrival::read`] found in a frame's head. It gives a [`Judgement`]: a reason to drop the frame, or the ports that it
//! is sent through, each with what to do with its VLAN tag.
//!
//! A frame passes these steps, in this order (`judge.rs`):
//!
//! 1. Dropped: shorter than its headers (`truncated`), port not in the snapshot (`port_down`), source a group address or
//!    zero (`martian_source`).
//! 2. Its VLAN, by port and outer 802.1Q tag. Dropped: a tag on an access port, or behind a priority tag (`vlan_tag`), a VLAN
//!    that the port is not in (`vlan_not_member`), a destination that no bridge forwards (`reserved_address`).
//! 3. Dropped: it is a probe of the switch's own that has come back (`looped`). Its source is learned, unless the loop guard
//!    blocks the port.
//! 4. Its destination is looked up. On the port that it came by: dropped (`same_port`). On another one: that is the output.
//! 5. Else, and for group addresses: all other ports of the VLAN. Dropped: the port is blocked (`looped`), there is no other
//!    port (`no_output_port`), or it has had too many flooded (`storm_limit`).
//!
//! Where OpenFlow's tables judge frames, [`Switch::normal`] takes a frame through these steps for the output NORMAL, and
//! [`Switch::flood`] through 1, 2 and 5 for FLOOD.
//!
//! A switch without VLANs (`SwitchConfig::vlans`) looks at no tag: its frames pass with the tags they have. In one with
//! VLANs, a port without VLAN configuration is an access port of VLAN 1.
//!
//! Never here: frames, ports, threads. The caller copies frames, changes tags, sends what [`Switch::take_probe`] has, and
//! passes on what [`Switch::take_notice`] has for control.

mod arrival;
mod config;
mod guard;
mod judge;
mod outputs;
mod runs;
mod shared;
mod snapshot;
mod storm;
mod switch;
mod sync;
mod table;
mod vlan;
mod way;

pub use arrival::Arrival;
pub use config::{
    AGEING, AGEING_MAX, AGEING_MIN, ConfigError, LoopGuard, Mode, PORT_MAX, PortConfig, StaticEntry,
    StormLimits, SwitchConfig,
};
pub use guard::Loop;
pub use outputs::{Judgement, Output, Outputs, Tagging};
pub use runs::{FRAMES_MAX, Runs};
pub use shared::{OnMove, Shared};
pub use snapshot::{NO_PORT, Snapshot};
pub use storm::Limit;
pub use switch::{Notice, Probe, Switch};
pub use table::{CAPACITY, CAPACITY_MAX, Entry, MacTable, NoMemory, NoPlace};
pub use vlan::{VLAN_DEFAULT, VLAN_MAX, VlanSet};
pub use way::{Stations, Way};
