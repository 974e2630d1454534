//! Flows, groups, meters and ports of a switch, and every change of them (sections 6.4 to 6.6 and 7.3.4).

use std::collections::{BTreeMap, BTreeSet};

use crate::openflow::pipeline::{Flow, FlowCount, GroupConfig, TableFull};
use twinpath_openflow_wire::{
    Action, ErrorCode, FlowMod, FlowModCommand, FlowModFailed, FlowRemoved, FlowRemovedReason, GroupMod,
    GroupModCommand, GroupModFailed, Instruction, MeterMod, MeterModCommand, MeterModFailed, Port, PortMod,
    PortModFailed, PortReason, PortStatus, TableMod, TableModFailed, flow_flags, number, port_config,
    port_state,
};
use twinpath_time::Instant;

use crate::openflow::check::{self, References, actions_of, groups_of};
use crate::openflow::datapath::{Datapath, TimedFlow};
use crate::openflow::entry::{Filter, FlowEntry};
use crate::openflow::flows::FlowStore;
use crate::openflow::groups::Groups;
use crate::openflow::meters::{self, MeterEntry, Meters};

/// What a switch has, apart from its controllers.
#[derive(Debug)]
pub(crate) struct Tables<D: Datapath> {
    pub(crate) datapath: D,
    pub(crate) flows: FlowStore<D::FlowId>,
    pub(crate) groups: Groups,
    pub(crate) meters: Meters,
    pub(crate) ports: BTreeMap<u32, PortEntry>,
    /// What is to be said of flows that were taken out, once their counters are final.
    leaving: BTreeMap<D::FlowId, Box<FlowRemoved>>,
    flows_max: usize,
    /// Which flows name which groups and meters.
    users: BTreeSet<(Used, u32)>,
    /// Whether fragments of IP packets are dropped.
    pub(crate) drop_fragments: bool,
}

/// What a flow names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Used {
    Group(u32),
    Meter(u32),
}

/// A port.
#[derive(Debug)]
pub(crate) struct PortEntry {
    /// As controllers see it.
    pub(crate) port: Port,
    pub(crate) since: Instant,
    /// How it is, of [`port_state`], whatever controllers have configured.
    state: u32,
}

impl PortEntry {
    /// One that a controller has set down has no link and is not live, as with other switches: controllers go by the state alone.
    fn configure(&mut self, config: u32) {
        self.port.config = config;
        self.port.state = match config & port_config::PORT_DOWN {
            0 => self.state,
            _ => self.state & !port_state::LIVE | port_state::LINK_DOWN,
        };
    }
}

/// What workers need to know of a port.
fn for_workers(port: &Port) -> crate::openflow::pipeline::Port {
    let has = |bits: u32| port.config & bits != 0;
    crate::openflow::pipeline::Port {
        number: port.port_no,
        no_receive: has(port_config::PORT_DOWN | port_config::NO_RECV),
        no_forward: has(port_config::PORT_DOWN | port_config::NO_FWD),
        no_packet_in: has(port_config::NO_PACKET_IN),
        is_live: port.state & port_state::LIVE != 0,
    }
}

/// Groups and meters, for what refers to them.
struct Existing<'a> {
    groups: &'a Groups,
    meters: &'a Meters,
}

impl References for Existing<'_> {
    fn has_group(&self, group_id: u32) -> bool {
        self.groups.entries.contains_key(&group_id)
    }

    fn has_meter(&self, meter_id: u32) -> bool {
        self.meters.contains_key(&meter_id)
    }
}

fn meters_of(instructions: &[Instruction]) -> impl Iterator<Item = u32> {
    instructions.iter().filter_map(|instruction| match instruction {
        Instruction::Meter(meter) => Some(*meter),
        _ => None,
    })
}

/// What a flow with these instructions names.
fn used_by(instructions: &[Instruction]) -> Vec<Used> {
    let groups = groups_of(actions_of(instructions)).map(Used::Group);
    groups.chain(meters_of(instructions).map(Used::Meter)).collect()
}

/// Seconds and nanoseconds from one time to another.
pub(crate) fn duration(from: Instant, to: Instant) -> (u32, u32) {
    let duration = to.since(from);
    (u32::try_from(duration.as_secs()).unwrap_or(u32::MAX), duration.subsec_nanos())
}

impl<D: Datapath> Tables<D> {
    pub(crate) fn new(datapath: D, flows_max: usize) -> Self {
        Self {
            datapath,
            flows: FlowStore::new(),
            groups: Groups::default(),
            meters: Meters::new(),
            ports: BTreeMap::new(),
            leaving: BTreeMap::new(),
            flows_max,
            users: BTreeSet::new(),
            drop_fragments: false,
        }
    }

    fn existing(&self) -> Existing<'_> {
        Existing { groups: &self.groups, meters: &self.meters }
    }

    /// Checks actions of a packet-out.
    pub(crate) fn check_packet_out(&self, actions: &[Action]) -> Result<(), ErrorCode> {
        check::actions(actions, check::Place::PacketOut, &self.existing())
    }

    /// Changes flows (section 6.4).
    pub(crate) fn flow_mod(&mut self, now: Instant, change: FlowMod) -> Result<(), ErrorCode> {
        let deletes = matches!(change.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
        if change.table_id > number::table::MAX && !deletes {
            return Err(FlowModFailed::BadTableId.into());
        }
        match change.command {
            FlowModCommand::Add => self.add_flow(now, change),
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => self.modify_flows(&change),
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                let filter = Filter {
                    out_port: change.out_port,
                    out_group: change.out_group,
                    cookie: change.cookie,
                    cookie_mask: change.cookie_mask,
                };
                let is_strict = change.command == FlowModCommand::DeleteStrict;
                for flow in self.named(&change, is_strict) {
                    if self.flows.get(flow).is_some_and(|entry| filter.takes(entry)) {
                        self.remove_flow(now, flow, FlowRemovedReason::Delete);
                    }
                }
                let table = (change.table_id != number::table::ALL).then_some(change.table_id);
                let out_port = (change.out_port != number::port::ANY).then_some(change.out_port);
                self.datapath.flows_deleted(table, &change.matches, out_port);
                Ok(())
            }
        }
    }

    /// The flows that a change names by match, and by priority if it is strict.
    fn named(&self, change: &FlowMod, is_strict: bool) -> Vec<u32> {
        if !is_strict {
            return self.flows.included(change.table_id, &change.matches);
        }
        let tables = match change.table_id {
            number::table::ALL => 0..=number::table::MAX,
            table => table..=table,
        };
        tables.filter_map(|table| self.flows.strict(table, &change.matches, change.priority)).collect()
    }

    fn check_instructions(&self, change: &FlowMod) -> Result<(), ErrorCode> {
        check::instructions(&change.instructions, change.table_id, &change.matches, &self.existing())
    }

    fn add_flow(&mut self, now: Instant, change: FlowMod) -> Result<(), ErrorCode> {
        self.check_instructions(&change)?;
        let FlowMod { table_id, priority, cookie, flags, .. } = change;
        if flags & flow_flags::CHECK_OVERLAP != 0 && self.flows.overlaps(table_id, &change.matches, priority)
        {
            return Err(FlowModFailed::Overlap.into());
        }
        let (fields, instructions) = (&change.matches, &change.instructions);
        let flow = TimedFlow {
            flow: Flow { table: table_id, priority, fields, instructions, cookie },
            created: now,
            idle_timeout_s: change.idle_timeout_s,
            hard_timeout_s: change.hard_timeout_s,
        };
        let former = self.flows.strict(table_id, &change.matches, priority);
        let id = match former.and_then(|number| Some((number, self.flows.remove(number)?))) {
            // In its place, without a flow-removed; the counters stay unless the flag says otherwise (section 6.4).
            Some((number, former)) => {
                self.count_references(number, &used_by(&former.instructions), false);
                self.datapath.change_flow(former.id, flow);
                if flags & flow_flags::RESET_COUNTS != 0 {
                    self.datapath.reset_flow_count(former.id);
                }
                former.id
            }
            None if self.flows.len() >= self.flows_max => return Err(FlowModFailed::TableFull.into()),
            None => self.datapath.add_flow(flow).map_err(|TableFull| FlowModFailed::TableFull)?,
        };
        let used = used_by(&change.instructions);
        let number = self.flows.insert(FlowEntry {
            id,
            table_id,
            priority,
            matches: change.matches,
            cookie,
            flags,
            idle_timeout_s: change.idle_timeout_s,
            hard_timeout_s: change.hard_timeout_s,
            instructions: change.instructions,
            created: now,
        });
        self.count_references(number, &used, true);
        Ok(())
    }

    /// Gives flows other instructions; everything else of them stays (section 6.4).
    fn modify_flows(&mut self, change: &FlowMod) -> Result<(), ErrorCode> {
        self.check_instructions(change)?;
        let is_strict = change.command == FlowModCommand::ModifyStrict;
        for flow in self.named(change, is_strict) {
            let Some(entry) = self.flows.get_mut(flow) else { continue };
            if (entry.cookie ^ change.cookie) & change.cookie_mask != 0 {
                continue;
            }
            let former = std::mem::replace(&mut entry.instructions, change.instructions.clone());
            let id = entry.id;
            self.datapath.change_flow(
                id,
                TimedFlow {
                    flow: entry.as_flow(),
                    created: entry.created,
                    idle_timeout_s: entry.idle_timeout_s,
                    hard_timeout_s: entry.hard_timeout_s,
                },
            );
            self.count_references(flow, &used_by(&former), false);
            self.count_references(flow, &used_by(&change.instructions), true);
            if change.flags & flow_flags::RESET_COUNTS != 0 {
                self.datapath.reset_flow_count(id);
            }
        }
        Ok(())
    }

    fn remove_flow(&mut self, now: Instant, flow: u32, reason: FlowRemovedReason) {
        let Some(entry) = self.flows.remove(flow) else { return };
        self.count_references(flow, &used_by(&entry.instructions), false);
        self.datapath.remove_flow(entry.id);
        if entry.reports_its_end() {
            let (duration_s, duration_ns) = duration(entry.created, now);
            let flow = Box::new(FlowRemoved {
                cookie: entry.cookie,
                priority: entry.priority,
                reason,
                table_id: entry.table_id,
                duration_s,
                duration_ns,
                idle_timeout_s: entry.idle_timeout_s,
                hard_timeout_s: entry.hard_timeout_s,
                packets: 0,
                bytes: 0,
                matches: entry.matches,
            });
            self.leaving.insert(entry.id, flow);
        }
    }

    /// Adds (`has`) or removes the references of a flow to groups and meters.
    fn count_references(&mut self, flow: u32, used: &[Used], has: bool) {
        let by = if has { 1 } else { -1 };
        for used in used {
            // What it names twice counts once.
            let is_news =
                if has { self.users.insert((*used, flow)) } else { self.users.remove(&(*used, flow)) };
            match used {
                _ if !is_news => {}
                Used::Group(group) => self.groups.count_flow(*group, by),
                Used::Meter(meter) => {
                    if let Some(entry) = self.meters.get_mut(meter) {
                        entry.flows = entry.flows.saturating_add_signed(by);
                    }
                }
            }
        }
    }

    /// The flows that name one of these.
    fn users_of(&self, used: impl Iterator<Item = Used>) -> BTreeSet<u32> {
        used.flat_map(|used| self.users.range((used, 0)..=(used, u32::MAX)).map(|(_, flow)| *flow)).collect()
    }

    /// The flow-removed messages whose counters are final: no worker judges by those flows any more.
    pub(crate) fn take_removed(&mut self) -> impl Iterator<Item = Box<FlowRemoved>> {
        let gone = self.datapath.take_gone();
        let with_count = |(id, FlowCount { count, .. })| {
            let mut flow = self.leaving.remove(&id)?;
            (flow.packets, flow.bytes) = (count.packets, count.bytes);
            Some(flow)
        };
        gone.into_iter().filter_map(with_count)
    }

    /// Removes up to `most` flows whose timeout has passed (section 5.5). Returns whether those were all.
    pub(crate) fn expire(&mut self, now: Instant, most: usize) -> bool {
        for _ in 0..most {
            let Some(flow) = self.flows.take_due(now) else { return true };
            let Some(entry) = self.flows.get(flow) else { continue };
            let hard = entry.hard_deadline();
            let idle = match entry.idle_timeout_s {
                0 => Instant::NEVER,
                _ => entry.idle_deadline(self.datapath.flow_count(entry.id).used),
            };
            if hard <= now {
                self.remove_flow(now, flow, FlowRemovedReason::HardTimeout);
            } else if idle <= now {
                self.remove_flow(now, flow, FlowRemovedReason::IdleTimeout);
            } else {
                self.flows.set_deadline(flow, hard.min(idle));
            }
        }
        false
    }

    /// Changes groups (section 6.5).
    pub(crate) fn group_mod(&mut self, now: Instant, change: GroupMod) -> Result<(), ErrorCode> {
        let exists = self.groups.entries.contains_key(&change.group_id);
        match change.command {
            GroupModCommand::Delete => return self.delete_groups(now, change.group_id),
            GroupModCommand::Add if exists => return Err(GroupModFailed::GroupExists.into()),
            GroupModCommand::Modify if !exists => return Err(GroupModFailed::UnknownGroup.into()),
            GroupModCommand::Add if self.groups.entries.len() >= self.flows_max => {
                return Err(GroupModFailed::OutOfGroups.into());
            }
            GroupModCommand::Add | GroupModCommand::Modify => {}
        }
        self.groups.check(&change, &self.existing())?;
        let group = GroupConfig { kind: change.group_type, buckets: change.buckets.to_vec() };
        self.datapath.set_group(change.group_id, group).map_err(|TableFull| GroupModFailed::OutOfGroups)?;
        self.groups.set(now, change.group_id, change.group_type, change.buckets);
        Ok(())
    }

    /// Deletes a group, or all, with the flows that send to it. Deleting a group that does not exist is not an error
    /// (section 6.5).
    fn delete_groups(&mut self, now: Instant, group_id: u32) -> Result<(), ErrorCode> {
        let groups: BTreeSet<u32> = match group_id {
            number::group::ALL => self.groups.entries.keys().copied().collect(),
            group if group > number::group::MAX => return Err(GroupModFailed::InvalidGroup.into()),
            group if self.groups.is_chained(group) => return Err(GroupModFailed::ChainedGroup.into()),
            group => self.groups.entries.contains_key(&group).then_some(group).into_iter().collect(),
        };
        let has_flows = |group: &u32| self.groups.entries.get(group).is_some_and(|entry| entry.flows > 0);
        if groups.iter().any(has_flows) {
            for flow in self.users_of(groups.iter().map(|group| Used::Group(*group))) {
                self.remove_flow(now, flow, FlowRemovedReason::GroupDelete);
            }
        }
        for group in groups {
            self.groups.remove(group);
            self.datapath.remove_group(group);
        }
        Ok(())
    }

    /// Changes meters (section 6.6).
    pub(crate) fn meter_mod(&mut self, now: Instant, change: MeterMod) -> Result<(), ErrorCode> {
        let exists = self.meters.contains_key(&change.meter_id);
        match change.command {
            MeterModCommand::Delete => return self.delete_meters(now, change.meter_id),
            MeterModCommand::Add if exists => return Err(MeterModFailed::MeterExists.into()),
            MeterModCommand::Add if self.meters.len() >= self.flows_max => {
                return Err(MeterModFailed::OutOfMeters.into());
            }
            MeterModCommand::Add | MeterModCommand::Modify => meters::check(&change)?,
        }
        if change.command == MeterModCommand::Modify && !exists {
            return Err(MeterModFailed::UnknownMeter.into());
        }
        self.datapath
            .set_meter(change.meter_id, &meters::for_workers(&change))
            .map_err(|TableFull| MeterModFailed::OutOfMeters)?;
        let flows = self.meters.get(&change.meter_id).map_or(0, |former| former.flows);
        let entry = MeterEntry { flags: change.flags, bands: change.bands, created: now, flows };
        self.meters.insert(change.meter_id, entry);
        Ok(())
    }

    /// Deletes a meter, or all, with the flows that name it. Deleting a meter that does not exist is not an error
    /// (section 6.6).
    fn delete_meters(&mut self, now: Instant, meter_id: u32) -> Result<(), ErrorCode> {
        let meters: BTreeSet<u32> = match meter_id {
            number::meter::ALL => self.meters.keys().copied().collect(),
            0 => return Err(MeterModFailed::InvalidMeter.into()),
            meter => self.meters.contains_key(&meter).then_some(meter).into_iter().collect(),
        };
        if meters.iter().any(|meter| self.meters.get(meter).is_some_and(|entry| entry.flows > 0)) {
            for flow in self.users_of(meters.iter().map(|meter| Used::Meter(*meter))) {
                self.remove_flow(now, flow, FlowRemovedReason::Delete);
            }
        }
        for meter in meters {
            self.meters.remove(&meter);
            self.datapath.remove_meter(meter);
        }
        Ok(())
    }

    /// Replaces the list of ports and their states. PORT_DOWN is taken from the new list; everything else that
    /// controllers have configured stays. Returns which ports have changed, and how.
    pub(crate) fn set_ports(&mut self, now: Instant, ports: Vec<Port>) -> Vec<PortStatus> {
        let mut news = Vec::new();
        let mut former = std::mem::take(&mut self.ports);
        for port in ports {
            let before = former.remove(&port.port_no);
            let mut entry = PortEntry { state: port.state, port, since: now };
            entry.configure(entry.port.config);
            let reason = match before {
                None => Some(PortReason::Add),
                Some(before) => {
                    entry.since = before.since;
                    let own = entry.port.config & port_config::PORT_DOWN;
                    entry.configure(before.port.config & !port_config::PORT_DOWN | own);
                    (before.port != entry.port).then_some(PortReason::Modify)
                }
            };
            news.extend(reason.map(|reason| PortStatus { reason, port: entry.port.clone() }));
            self.ports.insert(entry.port.port_no, entry);
        }
        let gone = former.into_values();
        news.extend(gone.map(|entry| PortStatus { reason: PortReason::Delete, port: entry.port }));
        if !news.is_empty() {
            self.publish_ports();
        }
        news
    }

    fn publish_ports(&mut self) {
        let ports: Vec<_> = self.ports.values().map(|entry| for_workers(&entry.port)).collect();
        self.datapath.set_ports(&ports);
    }

    /// Has fragments of IP packets dropped, or treated as other frames (section 7.3.2).
    pub(crate) fn set_drop_fragments(&mut self, drop: bool) {
        if self.drop_fragments != drop {
            self.drop_fragments = drop;
            self.datapath.set_drop_fragments(drop);
        }
    }

    /// Changes a port (section 7.3.4.3).
    pub(crate) fn port_mod(&mut self, change: &PortMod) -> Result<Option<PortStatus>, ErrorCode> {
        let entry = self.ports.get_mut(&change.port_no).ok_or(PortModFailed::BadPort)?;
        let port = &entry.port;
        if port.hw_addr != change.hw_addr {
            return Err(PortModFailed::BadHwAddr.into());
        }
        if (change.config | change.mask) & !port_config::ALL != 0 {
            return Err(PortModFailed::BadConfig.into());
        }
        if change.advertise != 0 {
            return Err(PortModFailed::BadAdvertise.into());
        }
        let config = port.config & !change.mask | change.config & change.mask;
        if config == port.config {
            return Ok(None);
        }
        entry.configure(config);
        let status = PortStatus { reason: PortReason::Modify, port: entry.port.clone() };
        self.publish_ports();
        Ok(Some(status))
    }
}

/// Changes a table's configuration, of which there is none (section 7.3.3; the lowest two bits once had a meaning).
pub(crate) fn table_mod(change: TableMod) -> Result<(), ErrorCode> {
    if change.config & !3 != 0 { Err(TableModFailed::BadConfig.into()) } else { Ok(()) }
}
