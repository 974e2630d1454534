//! A configuration as workers use it: checked, immutable, and with the ports of every VLAN listed in advance.

use std::collections::{HashMap, HashSet};

use twinpath_time::Duration;

use crate::learning::config::{
    AGEING_MAX, AGEING_MIN, ConfigError, LoopGuard, Mode, PORT_MAX, PortConfig, StaticEntry, SwitchConfig,
};
use crate::learning::storm::Limit;
use crate::learning::table::Ageing;
use crate::learning::vlan::{VLAN_MAX, VlanSet};

/// No port has this number: a frame that a controller sends came by none.
pub const NO_PORT: u16 = u16::MAX;

/// The VLAN of all frames of a switch without VLANs.
pub(crate) const NO_VLAN: u16 = 0;

/// A checked configuration, shared by all workers. A change is a new snapshot.
#[derive(Debug)]
pub struct Snapshot {
    config: SwitchConfig,
    /// The ports, each at its number.
    ports: Box<[Option<Port>]>,
    /// What is flooded in each VLAN, by index into `floods`.
    flood_of: Box<[u16; 4096]>,
    /// There are few of these, as most VLANs have the same ports as others.
    floods: Box<[Flood]>,
    has_mirrors: bool,
    has_tunnels: bool,
    pub(crate) ageing: Ageing,
}

/// What a worker has to know of a port.
#[derive(Debug)]
pub(crate) struct Port {
    /// Its VLANs, the untagged one included.
    vlans: VlanSet,
    /// The VLAN of frames that come without a tag, and that is sent without one; [`NO_VLAN`]: none.
    pub(crate) untagged: u16,
    /// Whether frames may come with a tag.
    pub(crate) takes_tags: bool,
    /// Whether it has any VLAN. A port that only monitors has none, and any other has one, configured or not.
    has_vlan: bool,
    pub(crate) mac_limit: u32,
    /// By [`Kind`](crate::learning::storm::Kind).
    pub(crate) storm: [Option<Limit>; 3],
    /// [`NO_PORT`]: none.
    pub(crate) mirror_ingress: u16,
    pub(crate) mirror_egress: u16,
    tunnel_id: u32,
}

impl Port {
    fn new(config: &PortConfig, vlans: bool) -> Self {
        let (mut set, untagged, takes_tags) = match &config.mode {
            Mode::Access { vlan } => (VlanSet::none(), *vlan, false),
            Mode::Trunk { native, vlans } => (vlans.clone(), native.unwrap_or(NO_VLAN), true),
            Mode::Monitor => (VlanSet::none(), NO_VLAN, false),
        };
        set.insert(untagged);
        let storm = &config.storm;
        let rates = [storm.broadcast_per_s, storm.unknown_per_s, storm.multicast_per_s];
        Self {
            has_vlan: !set.is_empty(),
            vlans: set,
            untagged: if vlans { untagged } else { NO_VLAN },
            takes_tags,
            mac_limit: config.mac_limit.unwrap_or(u32::MAX),
            storm: rates.map(|rate| rate.map(Limit::new)),
            mirror_ingress: config.mirror_ingress.unwrap_or(NO_PORT),
            mirror_egress: config.mirror_egress.unwrap_or(NO_PORT),
            tunnel_id: config.tunnel_id,
        }
    }

    /// Whether it sends and receives frames of this VLAN.
    #[inline]
    pub(crate) fn is_member(&self, vlan: u16) -> bool {
        self.vlans.contains(vlan)
    }
}

/// A port that gets what is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) port: u16,
    /// The VLAN that it sends without a tag.
    pub(crate) untagged: u16,
    pub(crate) mirror_egress: u16,
}

/// The ports that get what is flooded in a VLAN, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Flood {
    /// Of broadcast and multicast.
    pub(crate) group: Box<[Member]>,
    /// Of unknown unicast.
    pub(crate) unknown: Box<[Member]>,
}

impl Snapshot {
    /// Checks a configuration and prepares it for workers. The time and memory that this takes grow with the number of
    /// ports, and with that of different combinations of ports that VLANs have.
    ///
    /// # Errors
    /// [`ConfigError`] says what is wrong with which port or entry.
    pub fn compile(config: SwitchConfig) -> Result<Self, ConfigError> {
        if !(AGEING_MIN..=AGEING_MAX).contains(&config.ageing) {
            return Err(ConfigError::Ageing(config.ageing));
        }
        if let Some(guard) = config.loop_guard
            && !(1..=LoopGuard::MOVES_MAX).contains(&guard.moves_per_s)
        {
            return Err(ConfigError::LoopMoves(guard.moves_per_s));
        }
        let places = config.ports.iter().map(|port| usize::from(port.number) + 1).max().unwrap_or(0);
        let mut ports: Vec<Option<Port>> = Vec::new();
        ports.resize_with(places.min(usize::from(PORT_MAX) + 1), || None);
        for port in &config.ports {
            check_port(port, &config)?;
            let place =
                ports.get_mut(usize::from(port.number)).ok_or(ConfigError::PortNumber(port.number))?;
            if place.replace(Port::new(port, config.vlans)).is_some() {
                return Err(ConfigError::PortTwice(port.number));
            }
        }
        let (flood_of, floods) = list_floods(&config, &ports);
        let ageing = Ageing::new(config.ageing);
        let has_mirrors =
            config.ports.iter().any(|port| port.mirror_ingress.or(port.mirror_egress).is_some());
        let has_tunnels = config.ports.iter().any(|port| port.tunnel_id != 0);
        let ports = ports.into_boxed_slice();
        let snapshot = Self { config, ports, flood_of, floods, has_mirrors, has_tunnels, ageing };
        snapshot.check_statics()?;
        Ok(snapshot)
    }

    /// What it was made from.
    #[must_use]
    pub const fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// How long an address is kept without a frame from it.
    #[must_use]
    pub const fn ageing(&self) -> Duration {
        self.config.ageing
    }

    /// The port that gets a copy of what comes by this one.
    #[inline]
    #[must_use]
    pub fn mirror_ingress(&self, number: u16) -> Option<u16> {
        self.mirror(number, |port| port.mirror_ingress)
    }

    /// The port that gets a copy of what leaves by this one.
    #[inline]
    #[must_use]
    pub fn mirror_egress(&self, number: u16) -> Option<u16> {
        self.mirror(number, |port| port.mirror_egress)
    }

    /// The network of the tunnel that frames of this port come out of; 0: none.
    #[inline]
    #[must_use]
    pub fn tunnel_id(&self, number: u16) -> u32 {
        if !self.has_tunnels {
            return 0;
        }
        self.port(number).map_or(0, |port| port.tunnel_id)
    }

    #[inline]
    fn mirror(&self, number: u16, of: impl Fn(&Port) -> u16) -> Option<u16> {
        if !self.has_mirrors {
            return None;
        }
        self.port(number).map(of).filter(|target| *target != NO_PORT)
    }

    #[inline]
    pub(crate) fn port(&self, number: u16) -> Option<&Port> {
        self.ports.get(usize::from(number))?.as_ref()
    }

    /// Whether a frame of this VLAN may leave by this port.
    #[inline]
    pub(crate) fn member(&self, number: u16, vlan: u16) -> Option<Member> {
        let port = self.port(number)?;
        let may = if self.config.vlans { port.is_member(vlan) } else { self.takes_part(number) };
        let (untagged, mirror_egress) = (port.untagged, port.mirror_egress);
        may.then_some(Member { port: number, untagged, mirror_egress })
    }

    /// Whether a port of a switch without VLANs forwards: all do but those that only monitor.
    #[inline]
    pub(crate) fn takes_part(&self, number: u16) -> bool {
        self.port(number).is_some_and(|port| port.has_vlan)
    }

    #[inline]
    pub(crate) fn flood(&self, vlan: u16) -> &Flood {
        &self.floods[usize::from(self.flood_of[usize::from(vlan & 0xfff)])]
    }

    fn check_statics(&self) -> Result<(), ConfigError> {
        let mut seen = HashSet::new();
        for StaticEntry { mac, vlan, port } in self.config.static_entries.iter().copied() {
            if mac.is_group() || mac.0 == [0; 6] {
                return Err(ConfigError::StaticAddress(mac));
            }
            if self.config.vlans == (vlan == NO_VLAN) || self.member(port, vlan).is_none() {
                return Err(ConfigError::StaticPort { mac, vlan, port });
            }
            if !seen.insert((mac, vlan)) {
                return Err(ConfigError::StaticTwice { mac, vlan });
            }
        }
        Ok(())
    }
}

fn check_port(port: &PortConfig, config: &SwitchConfig) -> Result<(), ConfigError> {
    let number = port.number;
    let untagged = match &port.mode {
        Mode::Access { vlan } => Some(*vlan),
        Mode::Trunk { native: None, vlans } if vlans.is_empty() => {
            return Err(ConfigError::EmptyTrunk(number));
        }
        Mode::Trunk { native, .. } => *native,
        Mode::Monitor => None,
    };
    if let Some(vlan) = untagged.filter(|vlan| !(1..=VLAN_MAX).contains(vlan)) {
        return Err(ConfigError::Vlan { port: number, vlan });
    }
    for target in [port.mirror_ingress, port.mirror_egress].into_iter().flatten() {
        if target == number || !config.ports.iter().any(|other| other.number == target) {
            return Err(ConfigError::Mirror { port: number, target });
        }
    }
    Ok(())
}

/// The list of what is flooded in each VLAN, and the different ones among them.
fn list_floods(config: &SwitchConfig, ports: &[Option<Port>]) -> (Box<[u16; 4096]>, Box<[Flood]>) {
    let mut flood_of = Box::new([0; 4096]);
    // The first one is of VLANs without ports.
    let mut floods = vec![Flood::default()];
    let mut known: HashMap<Vec<u16>, u16> = HashMap::from([(Vec::new(), 0)]);
    let floods_unknown: HashSet<u16> =
        config.ports.iter().filter(|port| port.flood).map(|port| port.number).collect();
    let present =
        || ports.iter().enumerate().filter_map(|(number, port)| Some((number as u16, port.as_ref()?)));
    let vlans = if config.vlans { 1..=VLAN_MAX } else { NO_VLAN..=NO_VLAN };
    for vlan in vlans {
        let is_member =
            |port: &Port| if config.vlans { port.is_member(vlan) } else { !port.vlans.is_empty() };
        let members: Vec<u16> =
            present().filter(|(_, port)| is_member(port)).map(|(number, _)| number).collect();
        flood_of[usize::from(vlan)] = *known.entry(members).or_insert_with_key(|members| {
            let member = |number: &u16| {
                let port = ports[usize::from(*number)].as_ref()?;
                Some(Member { port: *number, untagged: port.untagged, mirror_egress: port.mirror_egress })
            };
            let group: Box<[Member]> = members.iter().filter_map(member).collect();
            let unknown =
                group.iter().copied().filter(|member| floods_unknown.contains(&member.port)).collect();
            floods.push(Flood { group, unknown });
            (floods.len() - 1) as u16
        });
    }
    (flood_of, floods.into_boxed_slice())
}

#[cfg(test)]
mod tests;
