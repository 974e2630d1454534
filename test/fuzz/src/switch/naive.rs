//! A switch as one would write it first: maps, lists, and the rules in words.

use std::collections::{HashMap, HashSet};

use twinpath_forwarding::learning::{Mode, PortConfig, SwitchConfig, VLAN_MAX};
use twinpath_inspect::Reason;
use twinpath_time::Instant;
use twinpath_wire::Mac;

use super::Sent;

/// A frame by its parts.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) port: u16,
    pub(super) destination: Mac,
    pub(super) source: Mac,
    /// The outer one first.
    pub(super) tags: Vec<u16>,
    /// Whether the outer tag is beside the bytes.
    pub(super) beside: bool,
    pub(super) packets: u32,
    /// Its length, if it is cut within its head.
    pub(super) cut: Option<usize>,
}

impl Frame {
    /// Its bytes, and the tag beside them.
    pub(super) fn bytes(&self) -> (Vec<u8>, Option<u16>) {
        let beside = self.tags.first().copied().filter(|_| self.beside);
        let inside = &self.tags[usize::from(beside.is_some())..];
        let mut bytes = [self.destination.0, self.source.0].concat();
        inside.iter().for_each(|tag| bytes.extend([0x81, 0, (tag >> 8) as u8, *tag as u8]));
        bytes.extend([8, 0, 1, 2, 3, 4]);
        bytes.truncate(self.cut.unwrap_or(usize::MAX));
        (bytes, beside)
    }

    fn is_runt(&self) -> bool {
        // Only the outer tag is looked at.
        let outer_inside = !self.beside && !self.tags.is_empty();
        self.bytes().0.len() < if outer_inside { 18 } else { 14 }
    }
}

/// A second, as the switch counts time for ages and loops.
const TICK_NS: u64 = 1 << 30;

fn tick(now: Instant) -> u64 {
    now.as_nanos() / TICK_NS
}

type Key = (Mac, u16);

#[derive(Clone, Copy, Debug)]
struct Known {
    port: u16,
    /// The tick of the last renewal; `None`: a static entry.
    since: Option<u64>,
}

/// The tokens of a bucket, as time that they are worth.
struct Tokens {
    ns: i128,
    filled_at: Instant,
}

pub(super) struct Naive {
    config: SwitchConfig,
    known: HashMap<Key, Known>,
    /// By port and kind.
    storm: HashMap<(u16, usize), Tokens>,
    /// By pair of ports, the lower one first: the window, the moves up and down.
    moves: HashMap<[u16; 2], (u64, [u32; 2])>,
    /// Pairs of ports that may have been taken for a loop.
    pub(super) suspected: HashSet<[u16; 2]>,
    blocked_until: HashMap<u16, Instant>,
}

impl Naive {
    pub(super) fn new(config: SwitchConfig) -> Self {
        let mut naive = Self {
            config: SwitchConfig::default(),
            known: HashMap::new(),
            storm: HashMap::new(),
            moves: HashMap::new(),
            suspected: HashSet::new(),
            blocked_until: HashMap::new(),
        };
        naive.adopt(config);
        naive
    }

    /// Goes on with another configuration.
    pub(super) fn adopt(&mut self, config: SwitchConfig) {
        let former = std::mem::replace(&mut self.config, config);
        for port in former.ports {
            let same = self.config.ports.iter().any(|now| now.number == port.number && now.mode == port.mode);
            if !same || former.vlans != self.config.vlans {
                self.forget(|_, on| on == port.number);
                self.blocked_until.remove(&port.number);
            }
        }
        self.known.retain(|_, known| known.since.is_some());
        for entry in &self.config.static_entries {
            self.known.insert((entry.mac, entry.vlan), Known { port: entry.port, since: None });
        }
    }

    /// Forgets learned addresses.
    pub(super) fn forget(&mut self, which: impl Fn(Key, u16) -> bool) {
        self.known.retain(|key, known| known.since.is_none() || !which(*key, known.port));
    }

    /// The ageing time in ticks, rounded up, and how old an age is renewed.
    fn ageing(&self) -> (u64, u64) {
        let ticks = self.config.ageing.as_nanos() as u64 / TICK_NS + 1;
        let renew = (ticks / 32).max(1);
        (ticks + renew, renew)
    }

    /// Forgets what is too old.
    pub(super) fn age(&mut self, now: Instant) {
        let (most, _) = self.ageing();
        self.known.retain(|_, known| known.since.is_none_or(|since| tick(now) - since <= most));
    }

    fn port(&self, number: u16) -> Option<&PortConfig> {
        self.config.ports.iter().find(|port| port.number == number)
    }

    /// The VLAN that a port sends without a tag.
    fn untagged(port: &PortConfig) -> Option<u16> {
        match &port.mode {
            Mode::Access { vlan } => Some(*vlan),
            Mode::Trunk { native, .. } => *native,
            Mode::Monitor => None,
        }
    }

    fn is_member(&self, port: &PortConfig, vlan: u16) -> bool {
        match &port.mode {
            Mode::Monitor => false,
            _ if !self.config.vlans => true,
            Mode::Trunk { vlans, .. } if vlans.contains(vlan) => true,
            _ => Self::untagged(port) == Some(vlan),
        }
    }

    fn vlan(&self, frame: &Frame) -> Result<u16, Reason> {
        if frame.is_runt() {
            return Err(Reason::Truncated);
        }
        let port = self.port(frame.port).ok_or(Reason::PortDown)?;
        if frame.source.is_group() || frame.source == Mac([0; 6]) {
            return Err(Reason::MartianSource);
        }
        let vlan = match frame.tags.first().map_or(0, |tag| tag & 0xfff) {
            _ if !self.config.vlans => 0,
            0 if frame.tags.len() > 1 => return Err(Reason::VlanTag),
            0 => Self::untagged(port).ok_or(Reason::VlanNotMember)?,
            _ if !matches!(port.mode, Mode::Trunk { .. }) => return Err(Reason::VlanTag),
            vlan => vlan,
        };
        if vlan > VLAN_MAX || !self.is_member(port, vlan) {
            return Err(Reason::VlanNotMember);
        }
        // Flow control comes from no station.
        if frame.destination == Mac([1, 0x80, 0xc2, 0, 0, 1]) {
            return Err(Reason::ReservedAddress);
        }
        Ok(vlan)
    }

    fn is_blocked(&self, port: u16, now: Instant) -> bool {
        self.blocked_until.get(&port).is_some_and(|until| now < *until)
    }

    fn learn(&mut self, now: Instant, frame: &Frame, vlan: u16) {
        if self.is_blocked(frame.port, now) {
            return;
        }
        let (_, renew) = self.ageing();
        let limit = self.port(frame.port).and_then(|port| port.mac_limit).unwrap_or(u32::MAX) as usize;
        let learned = self.known.values().filter(|known| known.since.is_some() && known.port == frame.port);
        let room = learned.count() < limit;
        let key = (frame.source, vlan);
        let fresh = Known { port: frame.port, since: Some(tick(now)) };
        match self.known.get(&key).copied() {
            Some(Known { since: None, .. }) => {}
            Some(Known { port, since: Some(since) }) if port == frame.port && tick(now) - since < renew => {}
            Some(Known { port, .. }) if port == frame.port => {
                self.known.insert(key, fresh);
            }
            Some(Known { port, .. }) if room => {
                self.known.insert(key, fresh);
                self.moved(now, port, frame.port);
            }
            None if room => {
                self.known.insert(key, fresh);
            }
            _ => {}
        }
    }

    fn moved(&mut self, now: Instant, from: u16, to: u16) {
        let Some(guard) = self.config.loop_guard else { return };
        let ports = [from.min(to), from.max(to)];
        let moves = self.moves.entry(ports).or_default();
        if moves.0 != tick(now) {
            *moves = (tick(now), [0; 2]);
        }
        moves.1[usize::from(from > to)] += 1;
        if moves.1.iter().all(|count| *count >= guard.moves_per_s) {
            moves.1 = [0; 2];
            self.suspected.insert(ports);
        }
    }

    /// What becomes of a probe that was sent by one port and comes in by another one.
    pub(super) fn probe(&mut self, now: Instant, sent_by: u16, frame: &Frame) -> Reason {
        let on = frame.port;
        match (self.vlan(frame), self.config.loop_guard) {
            (Err(reason), _) => reason,
            (Ok(_), Some(guard)) if on >= sent_by && !self.is_blocked(on, now) => {
                self.blocked_until.insert(on, now + guard.block);
                Reason::Looped
            }
            (Ok(_), _) => Reason::Looped,
        }
    }

    /// Takes tokens for a frame of this kind.
    fn has_tokens(&mut self, now: Instant, frame: &Frame, kind: usize) -> bool {
        let storm = self.port(frame.port).map(|port| port.storm).unwrap_or_default();
        let limit = [storm.broadcast_per_s, storm.unknown_per_s, storm.multicast_per_s][kind];
        let Some(per_s) = limit else { return true };
        let Some(each_ns) = 1_000_000_000_u64.checked_div(u64::from(per_s)) else { return false };
        let most = i128::from(each_ns) * i128::from((per_s / 10).max(1));
        let full = || Tokens { ns: most, filled_at: now };
        let tokens = self.storm.entry((frame.port, kind)).or_insert_with(full);
        tokens.ns = most.min(tokens.ns + i128::from(now.nanos_since(tokens.filled_at)));
        tokens.filled_at = now;
        let enough = tokens.ns >= i128::from(each_ns);
        if enough {
            tokens.ns -= i128::from(each_ns) * i128::from(frame.packets);
        }
        enough
    }

    fn tags_towards(&self, frame: &Frame, vlan: u16, port: &PortConfig) -> Vec<u16> {
        let mut tags = frame.tags.clone();
        if !self.config.vlans {
            return tags;
        }
        // The outer tag is the frame's VLAN, or its priority.
        let outer = if tags.is_empty() { 0 } else { tags.remove(0) };
        if Self::untagged(port) != Some(vlan) {
            tags.insert(0, outer & 0xf000 | vlan);
        }
        tags
    }

    /// The ports that a frame goes to.
    fn outputs(&mut self, now: Instant, frame: &Frame) -> Result<Vec<u16>, Reason> {
        let vlan = self.vlan(frame)?;
        self.learn(now, frame, vlan);
        let Mac(to) = frame.destination;
        if to[..5] == [1, 0x80, 0xc2, 0, 0] && to[5] < 16 {
            return Err(Reason::ReservedAddress);
        }
        let known = self.known.get(&(frame.destination, vlan)).map(|known| known.port);
        if !frame.destination.is_group() {
            if known == Some(frame.port) {
                return Err(Reason::SamePort);
            }
            if let Some(port) =
                known.and_then(|port| self.port(port)).filter(|port| self.is_member(port, vlan))
            {
                return Ok(vec![port.number]);
            }
        }
        let kind = match frame.destination {
            Mac::BROADCAST => 0,
            group if group.is_group() => 2,
            _ => 1,
        };
        if self.is_blocked(frame.port, now) {
            return Err(Reason::Looped);
        }
        let gets = |port: &&PortConfig| {
            let takes = port.flood || kind != 1;
            takes
                && self.is_member(port, vlan)
                && port.number != frame.port
                && !self.is_blocked(port.number, now)
        };
        let ports: Vec<u16> = self.config.ports.iter().filter(gets).map(|port| port.number).collect();
        if ports.is_empty() {
            return Err(Reason::NoOutputPort);
        }
        if !self.has_tokens(now, frame, kind) {
            return Err(Reason::StormLimit);
        }
        Ok(ports)
    }

    /// What becomes of a frame: the reason to drop it, and what leaves.
    pub(super) fn judge(&mut self, now: Instant, frame: &Frame) -> (Option<Reason>, Vec<Sent>) {
        let outputs = self.outputs(now, frame);
        let vlan = self.vlan(frame).unwrap_or(0);
        let mut sent = Vec::new();
        for number in outputs.iter().flatten() {
            let Some(port) = self.port(*number) else { continue };
            let tags = self.tags_towards(frame, vlan, port);
            sent.extend(port.mirror_egress.map(|target| (target, tags.clone(), true)));
            sent.push((*number, tags, false));
        }
        let mirror = self.port(frame.port).and_then(|port| port.mirror_ingress);
        sent.extend(mirror.map(|target| (target, frame.tags.clone(), true)));
        (outputs.err(), sent)
    }
}
