//! The mirrored tables of links, addresses and neighbours, as values to which changes are applied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use twinpath_claims::Prefix;
use twinpath_port::LinkState;
use twinpath_wire::Mac;

/// How deep the kernel lets devices be stacked (`MAX_NEST_DEV`, linux/netdevice.h).
const NESTED_MAX: usize = 8;

/// One interface, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Kernel index; survives a rename.
    pub ifindex: u32,
    /// Current name.
    pub name: String,
    /// Our address on that link; `None` on links without Ethernet addresses.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether frames may wait in a queueing discipline, as the link said last: a change of the discipline alone is not taken over.
    pub has_queue: bool,
    /// Set up by the administrator.
    pub up: bool,
    /// Has carrier.
    pub running: bool,
    /// Carries Ethernet frames (`ARPHRD_ETHER`).
    pub ethernet: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// Kind of a software device (`veth`, `vlan`, `bridge`, ...); empty on hardware.
    pub kind: String,
    /// Bridge, bond or VRF that it is a port of.
    pub master: Option<u32>,
    /// Kind of `master`, as the port sees it (`bridge`, `bond`, `vrf`); empty without one.
    pub port_kind: String,
    /// Interface it is stacked on (VLAN, macvlan), when in this namespace.
    pub lower: Option<u32>,
    /// Id of the XDP program on it.
    pub xdp_program: Option<u32>,
    /// Receive queues allocated (not all need be in use).
    pub rx_queues: u32,
    /// Transmit queues allocated.
    pub tx_queues: u32,
    /// The longest packet that its segments are gathered to on arrival (GRO), bytes, of both families; 0: not said.
    pub gro_max: u32,
}

/// The longest packet without "BIG TCP", which has a jumbo option, or a length of 0 in the header of IPv4.
const GRO_MAX: u32 = 65_536;

impl Link {
    /// `up`, `down` (administratively, or without carrier), for `show`.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        if self.up && self.running { "up" } else { "down" }
    }

    /// Whether datagrams may leave by this link as super-frames. A veth passes them on to its peer whole, or cuts them if
    /// that one has an XDP program (`veth_xdp_set`, drivers/net/veth.c). A queueing discipline would hold them, and
    /// frames that leave on their own, which bypass it, would overtake them.
    #[must_use]
    fn takes_super_frames(&self) -> bool {
        self.kind == "veth" && !self.has_queue
    }

    /// The state of the link for the ports on it.
    #[must_use]
    pub fn for_ports(&self) -> LinkState {
        LinkState { mtu: self.mtu, takes_super_frames: self.takes_super_frames() }
    }

    /// Whether a change from `self` to `now` can change the egress of replies.
    fn leads_elsewhere(&self, now: &Self) -> bool {
        (self.mac, self.mtu, self.up, self.running, self.master)
            != (now.mac, now.mtu, now.up, now.running, now.master)
    }
}

/// State of a neighbour entry: `NUD_*` of linux/neighbour.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NeighbourState {
    /// Being resolved.
    Incomplete,
    /// Confirmed recently.
    Reachable,
    /// Not confirmed recently; usable, and confirmed when used.
    Stale,
    /// Used while stale; a confirmation may still come by itself.
    Delay,
    /// Being confirmed.
    Probe,
    /// Did not answer.
    Failed,
    /// Needs no resolution.
    NoArp,
    /// Set by hand.
    Permanent,
    /// No state.
    None,
}

impl NeighbourState {
    /// Whether frames may be sent to the known address.
    #[must_use]
    pub const fn usable(self) -> bool {
        matches!(
            self,
            Self::Reachable | Self::Stale | Self::Delay | Self::Probe | Self::Permanent | Self::NoArp
        )
    }

    /// The name in lower case, as in `ip neigh`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Delay => "delay",
            Self::Probe => "probe",
            Self::Failed => "failed",
            Self::NoArp => "noarp",
            Self::Permanent => "permanent",
            Self::None => "none",
        }
    }
}

/// A neighbour's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its link-layer address.
    pub mac: Option<Mac>,
    /// State of the entry.
    pub state: NeighbourState,
    /// Another program keeps the entry (`NTF_EXT_LEARNED`, `NTF_EXT_MANAGED`): resolving it would remove that mark.
    pub kept_by_other: bool,
}

/// One change that the kernel reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A link exists, or changed.
    Link(Link),
    /// A link is gone.
    LinkGone(u32),
    /// An address is usable on a link.
    Address {
        /// The link.
        ifindex: u32,
        /// The address.
        address: IpAddr,
        /// Length of its prefix.
        prefix: u8,
    },
    /// An address is gone, or not usable yet (tentative) or any more (duplicate).
    AddressGone {
        /// The link.
        ifindex: u32,
        /// The address.
        address: IpAddr,
        /// Length of its prefix.
        prefix: u8,
    },
    /// A neighbour is known, or its state changed.
    Neighbour {
        /// The link.
        ifindex: u32,
        /// Its address.
        address: IpAddr,
        /// Its entry.
        neighbour: Neighbour,
    },
    /// A neighbour entry is gone.
    NeighbourGone {
        /// The link.
        ifindex: u32,
        /// Its address.
        address: IpAddr,
    },
    /// A route, a rule or a next-hop object changed.
    Routes,
    /// The strictness of the source check (`rp_filter`) changed.
    SourceCheck {
        /// The link; `None`: of all links.
        ifindex: Option<u32>,
    },
    /// A filter or a queueing discipline changed.
    TrafficControl {
        /// The link.
        ifindex: u32,
    },
}

/// The effect of a change on the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A new link, or one whose properties changed.
    Link(Link),
    /// A link has another name.
    Renamed {
        /// The link.
        ifindex: u32,
        /// Name before.
        from: String,
        /// Name now.
        to: String,
    },
    /// A link is gone, with its addresses and neighbours.
    LinkGone {
        /// Its index.
        ifindex: u32,
        /// Its last name.
        name: String,
    },
    /// The addresses of a link changed.
    Addresses(u32),
    /// A neighbour appeared, changed or is gone.
    Neighbour(u32, IpAddr),
    /// All earlier answers about routes may be wrong now.
    Routes,
    /// The strictness of the source check of a link changed; `None`: that of all links.
    SourceCheck(Option<u32>),
    /// A filter or a queueing discipline of a link changed.
    TrafficControl(u32),
}

/// Addresses with their prefix lengths.
pub type Addresses = BTreeSet<(IpAddr, u8)>;

/// The mirrored tables. They hold all links and addresses of the host. Neighbours are limited: further ones
/// are left out and counted, and their peers are served through the kernel's sockets.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    links: BTreeMap<u32, Link>,
    addresses: BTreeMap<u32, Addresses>,
    neighbours: HashMap<(u32, IpAddr), Neighbour>,
    neighbours_max: usize,
    neighbours_refused: u64,
}

impl Tables {
    /// Empty tables holding at most `neighbours_max` neighbours.
    #[must_use]
    pub fn new(neighbours_max: usize) -> Self {
        Self { neighbours_max, ..Self::default() }
    }

    /// The link of that index.
    #[must_use]
    pub fn link(&self, ifindex: u32) -> Option<&Link> {
        self.links.get(&ifindex)
    }

    /// The link of that name.
    #[must_use]
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// All links, by index.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// The usable addresses of a link with their prefix lengths, in order.
    pub fn addresses(&self, ifindex: u32) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
        self.addresses.get(&ifindex).into_iter().flatten().copied()
    }

    /// All usable addresses of this host, except those of the loopback interface.
    pub fn host_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses
            .iter()
            .filter(|(ifindex, _)| !self.links.get(ifindex).is_some_and(|link| link.loopback))
            .flat_map(|(_, addresses)| addresses.iter().map(|(address, _)| *address))
    }

    /// The addresses at which the kernel accepts packets that arrive on a link, sorted: those of the link,
    /// and this host's others in the same routing domain (VRF). Not included: loopback addresses,
    /// link-local addresses of other links (IPv6), and IPv6 addresses of links that are down, because the
    /// kernel has removed their routes. Addresses that exist only as a local route are in no table.
    #[must_use]
    pub fn addresses_taken_on(&self, ifindex: u32) -> Vec<IpAddr> {
        let domain = self.domain(ifindex);
        let is_taken = |link: &Link, address: IpAddr| match address {
            _ if link.ifindex == ifindex => true,
            _ if address.is_loopback() => false,
            IpAddr::V4(_) => true,
            IpAddr::V6(v6) => link.up && !v6.is_unicast_link_local(),
        };
        let links = self.links.values().filter(|link| self.domain(link.ifindex) == domain);
        let taken = links.flat_map(|link| {
            let addresses = self.addresses(link.ifindex).map(|(address, _)| address);
            addresses.filter(move |address| is_taken(link, *address))
        });
        taken.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The index of the VRF that a link is in, directly or as a port of a bridge or bond there.
    #[must_use]
    pub fn vrf_of(&self, ifindex: u32) -> Option<u32> {
        Some(self.domain(ifindex)).filter(|vrf| *vrf != 0)
    }

    /// Whether packets of more than 64 KiB may arrive at a link, as its administrator has allowed: at itself, or at the one that it
    /// is stacked on.
    #[must_use]
    pub fn gathers_big_packets(&self, ifindex: u32) -> bool {
        let below = |link: &&Link| self.links.get(&link.lower?);
        let stack = std::iter::successors(self.links.get(&ifindex), below);
        stack.take(NESTED_MAX).any(|link| link.gro_max > GRO_MAX)
    }

    /// The same; 0: none.
    fn domain(&self, ifindex: u32) -> u32 {
        let mut at = ifindex;
        for _ in 0..NESTED_MAX {
            match self.links.get(&at) {
                Some(link) if link.kind == "vrf" => return at,
                Some(Link { master: Some(master), .. }) => at = *master,
                _ => break,
            }
        }
        0
    }

    /// A neighbour's entry.
    #[must_use]
    pub fn neighbour(&self, ifindex: u32, address: IpAddr) -> Option<&Neighbour> {
        self.neighbours.get(&(ifindex, address))
    }

    /// All neighbours, by link and address.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr, &Neighbour)> {
        self.neighbours.iter().map(|(&(ifindex, address), neighbour)| (ifindex, address, neighbour))
    }

    /// The connected network of an address on a link: the longest prefix of the link's own addresses.
    #[must_use]
    pub fn connected_network(&self, ifindex: u32, address: IpAddr) -> Option<Prefix> {
        self.addresses(ifindex)
            .filter_map(|(own, len)| Prefix::new(own, len).ok())
            .filter(|network| network.contains(address))
            .max_by_key(Prefix::len)
    }

    /// The number of neighbours.
    #[must_use]
    pub fn neighbours_len(&self) -> usize {
        self.neighbours.len()
    }

    /// Neighbours left out because the table was full.
    #[must_use]
    pub const fn neighbours_refused(&self) -> u64 {
        self.neighbours_refused
    }

    /// Applies one change; appends its effects to `effects`.
    pub fn apply(&mut self, change: Change, effects: &mut Vec<Effect>) {
        match change {
            Change::Link(link) => self.link_says(link, effects),
            Change::LinkGone(ifindex) => self.link_gone(ifindex, effects),
            Change::Address { ifindex, address, prefix } => {
                if self.addresses.entry(ifindex).or_default().insert((address, prefix)) {
                    effects.extend([Effect::Addresses(ifindex), Effect::Routes]);
                }
            }
            Change::AddressGone { ifindex, address, prefix } => {
                if self.addresses.get_mut(&ifindex).is_some_and(|held| held.remove(&(address, prefix))) {
                    effects.extend([Effect::Addresses(ifindex), Effect::Routes]);
                }
            }
            Change::Neighbour { ifindex, address, neighbour } => {
                let key = (ifindex, address);
                if self.neighbours.len() >= self.neighbours_max && !self.neighbours.contains_key(&key) {
                    self.neighbours_refused += 1;
                } else if self.neighbours.insert(key, neighbour) != Some(neighbour) {
                    effects.push(Effect::Neighbour(ifindex, address));
                }
            }
            Change::NeighbourGone { ifindex, address } => {
                if self.neighbours.remove(&(ifindex, address)).is_some() {
                    effects.push(Effect::Neighbour(ifindex, address));
                }
            }
            Change::Routes => effects.push(Effect::Routes),
            Change::SourceCheck { ifindex } => effects.push(Effect::SourceCheck(ifindex)),
            Change::TrafficControl { ifindex } => effects.push(Effect::TrafficControl(ifindex)),
        }
    }

    /// Replaces everything by a new dump; appends the differences. Routes are not stored, so they count as changed.
    pub fn replace(&mut self, dump: Vec<Change>, effects: &mut Vec<Effect>) {
        let mut fresh = Self::new(self.neighbours_max);
        let mut unused = Vec::new();
        for change in dump {
            fresh.apply(change, &mut unused);
        }
        let gone: Vec<u32> =
            self.links.keys().filter(|held| !fresh.links.contains_key(held)).copied().collect();
        for ifindex in gone {
            self.link_gone(ifindex, effects);
        }
        for link in fresh.links.values() {
            self.link_says(link.clone(), effects);
        }
        for ifindex in self.links.keys() {
            if self.addresses.get(ifindex).is_some_and(|held| !held.is_empty())
                != fresh.addresses.get(ifindex).is_some_and(|held| !held.is_empty())
                || self.addresses.get(ifindex).zip(fresh.addresses.get(ifindex)).is_some_and(|(a, b)| a != b)
            {
                effects.push(Effect::Addresses(*ifindex));
            }
        }
        for (key, before) in &self.neighbours {
            if fresh.neighbours.get(key) != Some(before) {
                effects.push(Effect::Neighbour(key.0, key.1));
            }
        }
        for key in fresh.neighbours.keys() {
            if !self.neighbours.contains_key(key) {
                effects.push(Effect::Neighbour(key.0, key.1));
            }
        }
        self.addresses = fresh.addresses;
        self.neighbours = fresh.neighbours;
        self.neighbours_refused += fresh.neighbours_refused;
        effects.push(Effect::Routes);
    }

    fn link_says(&mut self, link: Link, effects: &mut Vec<Effect>) {
        let before = self.links.insert(link.ifindex, link.clone());
        let Some(before) = before else {
            effects.extend([Effect::Link(link), Effect::Routes]);
            return;
        };
        if before.name != link.name {
            effects.push(Effect::Renamed {
                ifindex: link.ifindex,
                from: before.name.clone(),
                to: link.name.clone(),
            });
        }
        if before.leads_elsewhere(&link) {
            effects.push(Effect::Routes);
        }
        if (Link { name: link.name.clone(), ..before }) != link {
            effects.push(Effect::Link(link));
        }
    }

    fn link_gone(&mut self, ifindex: u32, effects: &mut Vec<Effect>) {
        let Some(link) = self.links.remove(&ifindex) else { return };
        self.addresses.remove(&ifindex);
        self.neighbours.retain(|(held, _), _| *held != ifindex);
        effects.extend([Effect::LinkGone { ifindex, name: link.name }, Effect::Routes]);
    }
}

#[cfg(test)]
mod tests;
