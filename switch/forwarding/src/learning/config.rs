//! What a switch is configured with: its ports, static entries and limits.

use thiserror::Error;
use twinpath_time::Duration;
use twinpath_wire::Mac;

use crate::learning::vlan::{VLAN_DEFAULT, VLAN_MAX, VlanSet};

/// The highest number that a port may have.
pub const PORT_MAX: u16 = 4094;

/// How long an address is kept without a frame from it, unless configured (IEEE 802.1Q, table 8-6).
pub const AGEING: Duration = Duration::from_secs(300);

/// The shortest ageing time (IEEE 802.1Q, table 8-6).
pub const AGEING_MIN: Duration = Duration::from_secs(10);

/// The longest ageing time (IEEE 802.1Q, table 8-6).
pub const AGEING_MAX: Duration = Duration::from_secs(1_000_000);

/// The configuration of a switch, a plain value. [`Snapshot::compile`](crate::learning::Snapshot::compile) checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Whether the switch has VLANs. If not, tags pass unchanged, and the mode of a port matters only if it is
    /// [`Mode::Monitor`].
    pub vlans: bool,
    /// The ports, each number once.
    pub ports: Vec<PortConfig>,
    /// Addresses that are not learned but given.
    pub static_entries: Vec<StaticEntry>,
    /// How long an address is kept without a frame from it: [`AGEING_MIN`] to [`AGEING_MAX`].
    pub ageing: Duration,
    /// Whether and how loops are detected.
    pub loop_guard: Option<LoopGuard>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self {
            vlans: false,
            ports: Vec::new(),
            static_entries: Vec::new(),
            ageing: AGEING,
            loop_guard: Some(LoopGuard::default()),
        }
    }
}

/// The configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Its number, up to [`PORT_MAX`]; stays for as long as the port is attached.
    pub number: u16,
    /// The VLANs of its frames.
    pub mode: Mode,
    /// Maximum number of addresses learned on the port; static entries do not count. Frames from further addresses are
    /// forwarded, but their addresses are not learned.
    pub mac_limit: Option<u32>,
    /// Limits of what it may have flooded.
    pub storm: StormLimits,
    /// The port that gets a copy of each frame received here.
    pub mirror_ingress: Option<u16>,
    /// The port that gets a copy of each frame sent here.
    pub mirror_egress: Option<u16>,
    /// Whether frames to unknown unicast addresses are flooded to this port.
    pub flood: bool,
    /// The network identifier of the tunnel that the port is an end of, as controllers see it; 0: not a tunnel.
    pub tunnel_id: u32,
}

impl PortConfig {
    /// A port without VLAN configuration, limits or mirrors.
    #[must_use]
    pub fn new(number: u16) -> Self {
        Self {
            number,
            mode: Mode::default(),
            mac_limit: None,
            storm: StormLimits::default(),
            mirror_ingress: None,
            mirror_egress: None,
            flood: true,
            tunnel_id: 0,
        }
    }
}

/// The VLANs of a port's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One VLAN, untagged. A frame with a VLAN tag is dropped, even if the tag is behind a priority tag (VLAN 0). A
    /// frame with only a priority tag is not dropped.
    Access {
        /// The VLAN, 1 to 4094.
        vlan: u16,
    },
    /// Several VLANs, tagged.
    Trunk {
        /// The VLAN that untagged frames are in, and that is sent untagged. Without one, untagged frames are dropped.
        native: Option<u16>,
        /// The other VLANs.
        vlans: VlanSet,
    },
    /// None: the port only sends copies of other ports' frames, and what it receives is dropped.
    Monitor,
}

impl Default for Mode {
    fn default() -> Self {
        Self::Access { vlan: VLAN_DEFAULT }
    }
}

/// Maximum packets per second that a port may have flooded, by kind; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits {
    /// To the broadcast address.
    pub broadcast_per_s: Option<u32>,
    /// To unicast addresses that are not known.
    pub unknown_per_s: Option<u32>,
    /// To other group addresses.
    pub multicast_per_s: Option<u32>,
}

/// An address that is on a port whatever frames say: it neither moves nor ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StaticEntry {
    /// The address, unicast.
    pub mac: Mac,
    /// Its VLAN; 0 where the switch has none.
    pub vlan: u16,
    /// The number of the port.
    pub port: u16,
}

/// When two ports are taken for a loop, and for how long one of them is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopGuard {
    /// How often addresses move from one port to the other, and how often back, within a second: 1 to
    /// [`LoopGuard::MOVES_MAX`].
    pub moves_per_s: u32,
    /// For how long the port is blocked: nothing is learned on it, and nothing flooded from it or to it.
    pub block: Duration,
}

impl LoopGuard {
    /// The highest threshold.
    pub const MOVES_MAX: u32 = 4000;
}

impl Default for LoopGuard {
    /// A loop moves addresses as fast as frames go around it, and a station that moves does so once. A loop that is still
    /// there after the block is found again at once.
    fn default() -> Self {
        Self { moves_per_s: 100, block: Duration::from_secs(10) }
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A port's number is too high.
    #[error("port number {0}: the highest is {PORT_MAX}")]
    PortNumber(u16),
    /// A port is there twice.
    #[error("port {0} is configured twice: remove one of the two")]
    PortTwice(u16),
    /// A VLAN is not one.
    #[error("port {port}: VLAN {vlan} does not exist: choose one of 1 to {VLAN_MAX}")]
    Vlan {
        /// The port.
        port: u16,
        /// The number that is not a VLAN.
        vlan: u16,
    },
    /// A trunk has no VLAN.
    #[error("port {0} is a trunk without a VLAN: give it some, or make it an access port")]
    EmptyTrunk(u16),
    /// A mirror's target is not a port, or the port itself.
    #[error("port {port} is mirrored to port {target}, which must be another port of the switch")]
    Mirror {
        /// The mirrored port.
        port: u16,
        /// The target.
        target: u16,
    },
    /// A static entry's address is no unicast address.
    #[error("static entry {0}: only a unicast address is on one port")]
    StaticAddress(Mac),
    /// A static entry's port is not there, or not in its VLAN.
    #[error("static entry {mac} in VLAN {vlan}: port {port} does not exist or is not in that VLAN")]
    StaticPort {
        /// The address.
        mac: Mac,
        /// Its VLAN.
        vlan: u16,
        /// The port.
        port: u16,
    },
    /// Two static entries have the same address and VLAN.
    #[error("static entry {mac} in VLAN {vlan} is there twice: an address is on one port")]
    StaticTwice {
        /// The address.
        mac: Mac,
        /// Its VLAN.
        vlan: u16,
    },
    /// The ageing time is out of range.
    #[error("an ageing time of {} s: choose 10 to 1,000,000 s", .0.as_secs())]
    Ageing(Duration),
    /// The loop guard's threshold is out of range.
    #[error("loop guard: {0} moves a second: choose 1 to {max}", max = LoopGuard::MOVES_MAX)]
    LoopMoves(u32),
}
