//! The part of the report about a switch's OpenFlow.

use serde::{Deserialize, Serialize};
use twinpath_inspect::counts;

counts! {
    /// OpenFlow in a switch that has tables.
    #[derive(PartialEq, Eq)]
    pub struct OpenFlow {
        /// The number by which controllers know the switch: 16 hexadecimal digits.
        pub datapath_id: String,
        /// `secure` or `standalone`.
        pub fail_mode: String,
        /// What decides where frames go: `flows`, or `addresses` while no controller is connected.
        pub forwarding: String,
        /// Flows in all tables.
        pub flows: u64,
        /// Maximum number of flows.
        pub flows_max: u64,
        /// Entries of a former process of the switch in the kernel that no flow has confirmed yet
        /// (`on_exit`).
        pub kept: u64,
        /// The tables that have flows, or in which packets were looked up.
        pub tables: Vec<FlowTable>,
        /// The version of the tables that workers were last told of.
        pub version: u64,
        /// Workers that have not taken a version for over a second: changes continue without them.
        pub waiting_for: Vec<u32>,
    } and {
        /// Controllers connected to a switch.
        connected: u64 => gauge("twinpath_openflow_controllers");
        /// Groups of a switch.
        groups: u64 => gauge("twinpath_openflow_groups");
        /// Meters of a switch.
        meters: u64 => gauge("twinpath_openflow_meters");
        /// Frames from workers for controllers.
        packet_ins: u64 => counter("twinpath_openflow_packet_ins");
        /// Frames sent for controllers.
        packet_outs: u64 => counter("twinpath_openflow_packet_outs");
    }
}

counts! {
    /// A table.
    #[derive(PartialEq, Eq)]
    pub struct FlowTable {
        /// Its number.
        pub table: u8,
    } and {
        /// Flows of a table.
        flows: u64 => gauge("twinpath_openflow_flows");
        /// Packets looked up in a table.
        lookups: u64 => counter("twinpath_openflow_lookups");
        /// Packets that matched a flow of a table.
        matched: u64 => counter("twinpath_openflow_matched");
    }
}

/// A flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flow {
    /// Its table.
    pub table: u8,
    /// Its priority; the highest wins.
    pub priority: u16,
    /// What it matches: `in_port=1,eth_type=0x0800`; `any` for every frame.
    pub matches: String,
    /// Its instructions: `output:2`; `drop` for none.
    pub instructions: String,
    /// The controller's mark.
    pub cookie: u64,
    /// Packets that it took.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds since it was added.
    pub age_s: u64,
    /// It is removed when it has taken no packet for this time, s; 0: never.
    pub idle_timeout_s: u16,
    /// It is removed after this time, s; 0: never.
    pub hard_timeout_s: u16,
    /// Whether the kernel or a worker forwards its frames now: `kernel` or `worker`.
    pub place: String,
    /// Where the kernel forwards them: `tc`, `xdp` or `tc and xdp`, depending on the input port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Why the kernel left the last of its frames that was checked to workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// Its number.
    pub group: u32,
    /// `all`, `select`, `indirect` or `fast_failover`.
    pub kind: String,
    /// Flows that send to it.
    pub flows: u32,
    /// Packets that came to it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its buckets, in order.
    pub buckets: Vec<Bucket>,
}

/// A bucket of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bucket {
    /// What it does: `set_field:vlan_vid=7,output:2`.
    pub actions: String,
    /// Its share in a group that selects.
    pub weight: u16,
    /// The port that it watches.
    pub watch_port: Option<u32>,
    /// The group that it watches.
    pub watch_group: Option<u32>,
    /// Packets that went through it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A meter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meter {
    /// Its number.
    pub meter: u32,
    /// The unit of rates: `kbit/s` or `packets/s`.
    pub unit: String,
    /// Flows that name it.
    pub flows: u32,
    /// Packets that came to it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its bands, in order.
    pub bands: Vec<Band>,
}

/// A band of a meter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Band {
    /// Its action and the rate above which it applies: `drop rate=1000`.
    pub band: String,
    /// Packets that exceeded it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A controller, or an address at which controllers may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Controller {
    /// The address as configured; for a controller that connected to us, the address where it did.
    pub address: String,
    /// The other end, while connected.
    pub peer: String,
    /// `connected`, `connecting`, `waiting` (until it is tried again), `listening`.
    pub state: String,
    /// `master`, `equal` or `slave`.
    pub role: Option<String>,
    /// Whether it connected to us.
    pub came: bool,
    /// Seconds since its HELLO, or until the next attempt.
    pub seconds: Option<u64>,
    /// Why it was last lost, or not reached.
    pub last_error: Option<String>,
}
