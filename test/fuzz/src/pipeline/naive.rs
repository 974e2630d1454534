//! An OpenFlow switch as the specification's text has it, without any thought of speed: each table is searched from its first
//! flow to its last, each field is read anew, and each frame is a vector of bytes as on a wire, tags included. Section
//! numbers are those of OpenFlow 1.3.5.
//!
//! After each change, all checksums that can be found are computed anew.

use std::collections::HashMap;

use twinpath_forwarding::openflow::pipeline::{
    Destination, GroupConfig, Ingress, MeterConfig, PacketIn, PacketInReason, Port,
};
use twinpath_openflow_wire::number::port;
use twinpath_openflow_wire::{Action, Band, Field, GroupType, Instruction, Match};
use twinpath_time::Instant;

use super::checksums::{complete, complete_ipv4};
use super::fields::{behind, behind_tags, get, ip, mpls, number, pbb, place, tag, wire_mask};

/// A flow, and what it has counted.
pub(super) struct Flow {
    pub(super) table: u8,
    pub(super) priority: u16,
    pub(super) fields: Match,
    pub(super) instructions: Vec<Instruction>,
    pub(super) cookie: u64,
    pub(super) counted: (u64, u64),
    /// When it matched last.
    pub(super) used: Instant,
}

#[derive(Default)]
pub(super) struct Naive {
    pub(super) flows: Vec<Flow>,
    pub(super) groups: HashMap<u32, GroupConfig>,
    pub(super) meters: HashMap<u32, MeterConfig>,
    pub(super) ports: Vec<Port>,
    pub(super) drop_fragments: bool,
    /// Per table: frames looked up, and those that matched.
    pub(super) lookups: [(u64, u64); 8],
    pub(super) group_counts: HashMap<u32, (u64, u64)>,
    pub(super) sent: Vec<(Destination, Vec<u8>)>,
    pub(super) now: Instant,
}

/// A frame on its way.
#[derive(Clone)]
struct Frame {
    bytes: Vec<u8>,
    ingress: Ingress,
    metadata: u64,
    table: u8,
    cookie: u64,
    is_miss: bool,
    /// Packets and bytes that it counts as.
    count: (u64, u64),
}

/// It goes no further.
struct Stopped;

fn set(frame: &mut Frame, field: Field, value: u128) {
    if field == Field::TunnelId {
        frame.ingress.tunnel_id = value as u64;
    }
    let Some((at, len, shift)) = place(&frame.bytes, field) else { return };
    let own = number(&frame.bytes, at, len).unwrap_or(0);
    let mask = wire_mask(field) << shift;
    let new = own & !mask | value << shift & mask;
    frame.bytes[at..at + len].copy_from_slice(&new.to_be_bytes()[16 - len..]);
    complete(&mut frame.bytes);
}

fn insert(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    bytes.splice(at..at, new.iter().copied());
}

/// Where the TTL of the two outermost headers with one is, and where the inner one begins if it is IPv4.
fn ttls(bytes: &[u8]) -> Option<(usize, usize, Option<usize>)> {
    let of_ip = |at: usize| match bytes.get(at)? >> 4 {
        4 if bytes.len() >= at + 20 => Some((at + 8, Some(at))),
        6 if bytes.len() >= at + 40 => Some((at + 7, None)),
        _ => None,
    };
    if let Some(at) = mpls(bytes) {
        if bytes[at + 2] & 1 == 0 {
            return (bytes.len() >= at + 8).then_some((at + 3, at + 7, None));
        }
        let (inner, ipv4_at) = of_ip(at + 4)?;
        return Some((at + 3, inner, ipv4_at));
    }
    let (at, version) = ip(bytes)?;
    let behind = behind(bytes)?;
    let is_plain = behind.extensions.is_empty() && !behind.is_fragment && matches!(behind.protocol, 4 | 41);
    let (inner, ipv4_at) = of_ip(behind.at.filter(|_| is_plain)?)?;
    Some((at + if version == 4 { 8 } else { 7 }, inner, ipv4_at))
}

fn ip_ttl_at(bytes: &[u8]) -> Option<usize> {
    ip(bytes).map(|(at, version)| at + if version == 4 { 8 } else { 7 })
}

fn push(bytes: &mut Vec<u8>, action: &Action) {
    match action {
        Action::PushVlan(kind) => {
            let tag = tag(bytes).unwrap_or(0) as u16;
            insert(bytes, 12, &[kind.to_be_bytes(), tag.to_be_bytes()].concat());
        }
        Action::PushMpls(kind) => {
            let ttl = ip_ttl_at(bytes).map_or(0, |at| bytes[at]);
            let mut entry = [0, 0, 1, ttl];
            if let Some(at) = mpls(bytes) {
                entry.copy_from_slice(&bytes[at..at + 4]);
                let is_next = at == 14;
                entry[2] = entry[2] & !1 | u8::from(!is_next);
            }
            insert(bytes, 14, &entry);
            bytes[12..14].copy_from_slice(&kind.to_be_bytes());
        }
        Action::PushPbb(kind) => {
            let priority = tag(bytes).map_or(0, |tag| (tag >> 13) as u32);
            let service = get(bytes, &Ingress::default(), 0, Field::PbbIsid).unwrap_or(0) as u32;
            let tag = (priority << 29 | service).to_be_bytes();
            let header = [&bytes[..12], &kind.to_be_bytes(), &tag].concat();
            insert(bytes, 0, &header);
        }
        _ => {}
    }
}

fn pop(bytes: &mut Vec<u8>, action: &Action) {
    match action {
        Action::PopVlan if tag(bytes).is_some() => drop(bytes.drain(12..16)),
        Action::PopMpls(kind) => {
            if let (Some(at), Some((type_at, _))) = (mpls(bytes), behind_tags(bytes)) {
                bytes[type_at..type_at + 2].copy_from_slice(&kind.to_be_bytes());
                bytes.drain(at..at + 4);
            }
        }
        Action::PopPbb => {
            if let Some(at) = pbb(bytes).filter(|at| bytes.len() >= at + 18) {
                let addresses = bytes[at + 4..at + 16].to_vec();
                let tags = bytes[12..at - 2].to_vec();
                let rest = bytes[at + 16..].to_vec();
                *bytes = [addresses, tags, rest].concat();
            }
        }
        _ => {}
    }
}

/// The set as actions in their order (5.10).
fn ordered(set: &[Action]) -> Vec<Action> {
    let rank = |action: &Action| match action {
        Action::CopyTtlIn => 0,
        Action::PopVlan => 1,
        Action::PopPbb => 2,
        Action::PopMpls(_) => 3,
        Action::PushMpls(_) => 4,
        Action::PushPbb(_) => 5,
        Action::PushVlan(_) => 6,
        Action::CopyTtlOut => 7,
        Action::DecMplsTtl => 8,
        Action::DecNwTtl => 9,
        Action::SetField { field, .. } => 100 + u32::from(field.number()),
        Action::SetMplsTtl(_) => 200,
        Action::SetNwTtl(_) => 201,
        Action::SetQueue(_) => 202,
        Action::Group(_) => 203,
        Action::Output { .. } | Action::Experimenter { .. } => 204,
    };
    let has_group = set.iter().any(|action| matches!(action, Action::Group(_)));
    let mut actions: Vec<(u32, Action)> = Vec::new();
    for action in set {
        actions.retain(|(own, _)| *own != rank(action));
        actions.push((rank(action), action.clone()));
    }
    actions.sort_by_key(|(rank, _)| *rank);
    actions.retain(|(rank, _)| !(has_group && *rank == 204));
    actions.into_iter().map(|(_, action)| action).collect()
}

impl Naive {
    /// A frame that arrived (5.1).
    pub(super) fn receive(&mut self, bytes: &[u8], ingress: Ingress, count: (u64, u64)) {
        let frame = Frame {
            bytes: bytes.to_vec(),
            ingress,
            metadata: 0,
            table: 0,
            cookie: u64::MAX,
            is_miss: false,
            count,
        };
        let no_receive = self.ports.iter().any(|port| port.number == ingress.in_port && port.no_receive);
        let is_dropped = self.drop_fragments && behind(bytes).is_some_and(|behind| behind.is_fragment);
        if bytes.len() >= 14 && !no_receive && !is_dropped {
            self.tables(frame);
        }
    }

    pub(super) fn packet_out(
        &mut self,
        bytes: &[u8],
        ingress: Ingress,
        count: (u64, u64),
        actions: &[Action],
    ) {
        let mut frame = Frame {
            bytes: bytes.to_vec(),
            ingress,
            metadata: 0,
            table: 0,
            cookie: u64::MAX,
            is_miss: false,
            count,
        };
        if bytes.len() < 14 {
            return;
        }
        for action in actions {
            if let Action::Output { port: port::TABLE, .. } = action {
                self.tables(frame.clone());
            } else if self.act(&mut frame, action).is_err() {
                return;
            }
        }
    }

    fn tables(&mut self, mut frame: Frame) {
        let mut set: Vec<Action> = Vec::new();
        frame.table = 0;
        loop {
            let best = self.best(&frame);
            let (lookups, matches) = &mut self.lookups[usize::from(frame.table)];
            *lookups += frame.count.0;
            let Some(best) = best else { return };
            *matches += frame.count.0;
            let flow = &mut self.flows[best];
            flow.counted.0 += frame.count.0;
            flow.counted.1 += frame.count.1;
            flow.used = self.now;
            (frame.cookie, frame.is_miss) =
                (flow.cookie, flow.priority == 0 && flow.fields.canonical().is_empty());
            let instructions = flow.instructions.clone();
            let Ok(next) = self.instructions(&mut frame, &instructions, &mut set) else { return };
            match next {
                Some(next) if next > frame.table => frame.table = next,
                _ => break,
            }
        }
        frame.is_miss = false;
        for action in ordered(&set) {
            if self.act(&mut frame, &action).is_err() {
                return;
            }
        }
    }

    /// The flow of highest priority that matches (5.3).
    fn best(&self, frame: &Frame) -> Option<usize> {
        let takes = |flow: &Flow| {
            flow.fields.fields().iter().all(|entry| {
                let value = get(&frame.bytes, &frame.ingress, frame.metadata, entry.field);
                let mask = entry.effective_mask();
                mask == 0 || value.is_some_and(|value| value & mask == entry.value & mask)
            })
        };
        let flows =
            self.flows.iter().enumerate().filter(|(_, flow)| flow.table == frame.table && takes(flow));
        flows.max_by_key(|(_, flow)| flow.priority).map(|(number, _)| number)
    }

    /// In the order of 5.9, not in theirs.
    fn instructions(
        &mut self,
        frame: &mut Frame,
        instructions: &[Instruction],
        set: &mut Vec<Action>,
    ) -> Result<Option<u8>, Stopped> {
        for instruction in instructions {
            if let Instruction::Meter(meter) = instruction {
                self.meter(frame, *meter)?;
            }
        }
        for instruction in instructions {
            if let Instruction::ApplyActions(actions) = instruction {
                actions.iter().try_for_each(|action| self.act(frame, action))?;
            }
        }
        if instructions.contains(&Instruction::ClearActions) {
            set.clear();
        }
        let mut next = None;
        for instruction in instructions {
            match instruction {
                Instruction::WriteActions(actions) => set.extend(actions.iter().cloned()),
                Instruction::WriteMetadata { metadata, mask } => {
                    frame.metadata = frame.metadata & !mask | metadata & mask;
                }
                Instruction::GotoTable(table) => next = Some(*table),
                _ => {}
            }
        }
        Ok(next)
    }

    /// Meters of the tests either let everything through or nothing (5.7).
    fn meter(&self, frame: &mut Frame, meter: u32) -> Result<(), Stopped> {
        let Some(config) = self.meters.get(&meter) else { return Ok(()) };
        for band in &config.bands {
            match band {
                Band::Drop { rate: 0, .. } => return Err(Stopped),
                Band::DscpRemark { rate: 0, prec_level, .. } => {
                    let dscp = get(&frame.bytes, &frame.ingress, 0, Field::IpDscp);
                    // Assured forwarding has classes 1 to 4, each with precedences 1 to 3 (RFC 2597).
                    let assured = [10, 12, 14, 18, 20, 22, 26, 28, 30, 34, 36, 38];
                    if let Some(dscp) = dscp.filter(|dscp| assured.contains(dscp)) {
                        let highest = dscp & !7 | 6;
                        set(frame, Field::IpDscp, (dscp + 2 * u128::from(*prec_level)).min(highest));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn act(&mut self, frame: &mut Frame, action: &Action) -> Result<(), Stopped> {
        self.change(frame, action)?;
        if !matches!(action, Action::Output { .. } | Action::Group(_)) {
            complete(&mut frame.bytes);
        }
        Ok(())
    }

    fn change(&mut self, frame: &mut Frame, action: &Action) -> Result<(), Stopped> {
        match action {
            Action::Output { port, max_len } => self.output(frame, *port, *max_len),
            Action::Group(group) => self.group(frame, *group, 0),
            Action::SetField { field, value } => set(frame, *field, *value),
            Action::PushVlan(_) | Action::PushMpls(_) | Action::PushPbb(_) => push(&mut frame.bytes, action),
            Action::PopVlan | Action::PopMpls(_) | Action::PopPbb => pop(&mut frame.bytes, action),
            Action::SetMplsTtl(ttl) => {
                if let Some(at) = mpls(&frame.bytes) {
                    frame.bytes[at + 3] = *ttl;
                }
            }
            Action::SetNwTtl(ttl) => {
                if let Some(at) = ip_ttl_at(&frame.bytes) {
                    frame.bytes[at] = *ttl;
                }
            }
            Action::DecMplsTtl => {
                let at = mpls(&frame.bytes).map(|at| at + 3);
                return self.decrement(frame, at);
            }
            Action::DecNwTtl => {
                let at = ip_ttl_at(&frame.bytes);
                return self.decrement(frame, at);
            }
            Action::CopyTtlOut => {
                if let Some((outer, inner, _)) = ttls(&frame.bytes) {
                    frame.bytes[outer] = frame.bytes[inner];
                }
            }
            Action::CopyTtlIn => {
                if let Some((outer, inner, ipv4_at)) = ttls(&frame.bytes) {
                    frame.bytes[inner] = frame.bytes[outer];
                    if let Some(at) = ipv4_at {
                        complete_ipv4(&mut frame.bytes, at);
                    }
                }
            }
            Action::SetQueue(_) | Action::Experimenter { .. } => {}
        }
        Ok(())
    }

    fn decrement(&mut self, frame: &mut Frame, at: Option<usize>) -> Result<(), Stopped> {
        let Some(at) = at else { return Ok(()) };
        if frame.bytes[at] <= 1 {
            self.packet_in(frame, PacketInReason::InvalidTtl, None);
            return Err(Stopped);
        }
        frame.bytes[at] -= 1;
        Ok(())
    }

    fn packet_in(&mut self, frame: &Frame, reason: PacketInReason, max_len: Option<u16>) {
        let Frame { ingress, metadata, table, cookie, .. } = *frame;
        let to = PacketIn { reason, table, cookie, max_len, ingress, metadata };
        self.sent.push((Destination::Controller(to), frame.bytes.clone()));
    }

    fn output(&mut self, frame: &Frame, port: u32, max_len: u16) {
        let in_port = frame.ingress.in_port;
        let forwards = |number: u32| self.ports.iter().any(|port| port.number == number && !port.no_forward);
        let to = match port {
            port::IN_PORT => forwards(in_port).then_some(Destination::Port(in_port)),
            port::NORMAL => Some(Destination::Normal(in_port)),
            port::FLOOD => Some(Destination::Flood(in_port)),
            port::ALL => {
                let ports = self.ports.iter().filter(|port| port.number != in_port && !port.no_forward);
                let mut numbers: Vec<u32> = ports.map(|port| port.number).collect();
                numbers.sort_unstable();
                let sent = numbers.into_iter().map(|number| (Destination::Port(number), frame.bytes.clone()));
                self.sent.extend(sent);
                None
            }
            port::CONTROLLER => {
                let silent = self.ports.iter().any(|port| port.number == in_port && port.no_packet_in);
                match frame.is_miss {
                    true if silent => {}
                    true => self.packet_in(frame, PacketInReason::NoMatch, Some(max_len)),
                    false => self.packet_in(frame, PacketInReason::Action, Some(max_len)),
                }
                None
            }
            _ => (port != in_port && forwards(port)).then_some(Destination::Port(port)),
        };
        self.sent.extend(to.map(|to| (to, frame.bytes.clone())));
    }

    fn is_live(&self, config: &GroupConfig, number: usize, depth: u32) -> bool {
        const ANY: u32 = u32::MAX;
        let bucket = &config.buckets[number];
        let is_port_live = self.ports.iter().any(|port| port.number == bucket.watch_port && port.is_live);
        let is_group_live = self.groups.get(&bucket.watch_group).is_some_and(|group| {
            depth < 8 && (0..group.buckets.len()).any(|number| self.is_live(group, number, depth + 1))
        });
        (bucket.watch_port, bucket.watch_group) == (ANY, ANY) || is_port_live || is_group_live
    }

    /// A group (5.6). Groups of type SELECT have one bucket with a weight in the tests.
    fn group(&mut self, frame: &Frame, number: u32, depth: u32) {
        let Some(config) = self.groups.get(&number).cloned() else { return };
        let counted = self.group_counts.entry(number).or_default();
        counted.0 += frame.count.0;
        counted.1 += frame.count.1;
        let live = |number: &usize| self.is_live(&config, *number, 0);
        let mut all = 0..config.buckets.len();
        let chosen: Vec<usize> = match config.kind {
            GroupType::All => all.collect(),
            GroupType::Indirect => all.take(1).collect(),
            GroupType::FastFailover => all.find(live).into_iter().collect(),
            GroupType::Select => {
                all.filter(|number| config.buckets[*number].weight > 0).filter(live).take(1).collect()
            }
        };
        for number in chosen {
            let mut frame = frame.clone();
            for action in ordered(&config.buckets[number].actions) {
                match action {
                    Action::Group(group) if depth < 15 => self.group(&frame, group, depth + 1),
                    action => {
                        if self.act(&mut frame, &action).is_err() {
                            break;
                        }
                    }
                }
            }
        }
    }
}
