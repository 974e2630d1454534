//! Flows, groups, meters and ports of a switch, and every change of them (sections 6.4 to 6.6 and 7.3.4).

use std::collections::{BTreeMap, BTreeSet};

use twinpath_openflow::{
    Action, ErrorCode, FlowMod, FlowModCommand, FlowModFailed, FlowRemoved, FlowRemovedReason, GroupMod,
    GroupModCommand, GroupModFailed, Instruction, MeterMod, MeterModCommand, MeterModFailed, Port, PortMod,
    PortModFailed, PortReason, PortStatus, TableMod, TableModFailed, flow_flags, number, port_config,
    port_state,
};
use twinpath_time::Instant;

use crate::check::{self, References, actions_of, groups_of};
use crate::datapath::{Datapath, Flow, FlowCount, NoRoom, PortFlags};
use crate::entry::{Filter, FlowEntry, NONE};
use crate::flows::FlowStore;
use crate::groups::{GroupEntry, Groups};
use crate::meters::{self, MeterEntry, Meters};

/// What a switch has, apart from its controllers.
#[derive(Debug)]
pub(crate) struct Tables<D: Datapath> {
    pub(crate) datapath: D,
    pub(crate) flows: FlowStore<D::FlowId>,
    pub(crate) groups: Groups,
    pub(crate) meters: Meters,
    pub(crate) ports: BTreeMap<u32, (Port, Instant)>,
    /// What is to be said of flows that were taken out, once their counters are final.
    leaving: BTreeMap<D::FlowId, Box<FlowRemoved>>,
    flows_max: usize,
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
        let flow = Flow {
            table_id,
            priority,
            matches: &change.matches,
            instructions: &change.instructions,
            cookie,
            created: now,
            idle_timeout_s: change.idle_timeout_s,
            hard_timeout_s: change.hard_timeout_s,
        };
        let former = self.flows.strict(table_id, &change.matches, priority);
        let id = match former.and_then(|former| self.flows.remove(former)) {
            // In its place, without a flow-removed; the counters stay unless the flag says otherwise (section 6.4).
            Some(former) => {
                self.count_references(&former.instructions, -1);
                self.datapath.change_flow(former.id, flow);
                if flags & flow_flags::RESET_COUNTS != 0 {
                    self.datapath.reset_flow_count(former.id);
                }
                former.id
            }
            None if self.flows.len() >= self.flows_max => return Err(FlowModFailed::TableFull.into()),
            None => self.datapath.add_flow(flow).map_err(|NoRoom| FlowModFailed::TableFull)?,
        };
        self.count_references(&change.instructions, 1);
        self.flows.insert(FlowEntry {
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
            next_same: NONE,
        });
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
                Flow {
                    table_id: entry.table_id,
                    priority: entry.priority,
                    matches: &entry.matches,
                    instructions: &entry.instructions,
                    cookie: entry.cookie,
                    created: entry.created,
                    idle_timeout_s: entry.idle_timeout_s,
                    hard_timeout_s: entry.hard_timeout_s,
                },
            );
            self.count_references(&former, -1);
            self.count_references(&change.instructions, 1);
            if change.flags & flow_flags::RESET_COUNTS != 0 {
                self.datapath.reset_flow_count(id);
            }
        }
        Ok(())
    }

    fn remove_flow(&mut self, now: Instant, flow: u32, reason: FlowRemovedReason) {
        let Some(entry) = self.flows.remove(flow) else { return };
        self.count_references(&entry.instructions, -1);
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

    /// One flow with these instructions more (`1`) or fewer (`-1`).
    fn count_references(&mut self, instructions: &[Instruction], by: i32) {
        let mut groups = groups_of(actions_of(instructions)).peekable();
        if groups.peek().is_some() {
            let groups: BTreeSet<u32> = groups.collect();
            self.groups.count_flow(groups.into_iter(), by);
        }
        for meter in meters_of(instructions) {
            if let Some(entry) = self.meters.get_mut(&meter) {
                entry.flows = entry.flows.saturating_add_signed(by);
            }
        }
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

    /// Removes up to `most` flows whose timeout has passed (section 5.5). Whether that was all.
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
            GroupModCommand::Add | GroupModCommand::Modify => {}
        }
        self.groups.check(&change, &self.existing())?;
        self.datapath
            .set_group(change.group_id, change.group_type, &change.buckets)
            .map_err(|NoRoom| GroupModFailed::OutOfGroups)?;
        let flows = self.groups.entries.get(&change.group_id).map_or(0, |former| former.flows);
        let entry =
            GroupEntry { group_type: change.group_type, buckets: change.buckets, created: now, flows };
        self.groups.entries.insert(change.group_id, entry);
        Ok(())
    }

    /// Deletes a group, or all, with the flows that send to it. One that is not there is no error (section 6.5).
    fn delete_groups(&mut self, now: Instant, group_id: u32) -> Result<(), ErrorCode> {
        let groups: BTreeSet<u32> = match group_id {
            number::group::ALL => self.groups.entries.keys().copied().collect(),
            group if group > number::group::MAX => return Err(GroupModFailed::InvalidGroup.into()),
            group if self.groups.is_chained(group) => return Err(GroupModFailed::ChainedGroup.into()),
            group => self.groups.entries.contains_key(&group).then_some(group).into_iter().collect(),
        };
        let has_flows = |group: &u32| self.groups.entries.get(group).is_some_and(|entry| entry.flows > 0);
        if groups.iter().any(has_flows) {
            let sends = |entry: &FlowEntry<_>| {
                groups_of(actions_of(&entry.instructions)).any(|group| groups.contains(&group))
            };
            let flows: Vec<u32> =
                self.flows.all().filter(|(_, entry)| sends(entry)).map(|(flow, _)| flow).collect();
            for flow in flows {
                self.remove_flow(now, flow, FlowRemovedReason::GroupDelete);
            }
        }
        for group in groups {
            self.groups.entries.remove(&group);
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
            MeterModCommand::Add | MeterModCommand::Modify => meters::check(&change)?,
        }
        if change.command == MeterModCommand::Modify && !exists {
            return Err(MeterModFailed::UnknownMeter.into());
        }
        self.datapath
            .set_meter(change.meter_id, change.flags, &change.bands)
            .map_err(|NoRoom| MeterModFailed::OutOfMeters)?;
        let flows = self.meters.get(&change.meter_id).map_or(0, |former| former.flows);
        let entry = MeterEntry { flags: change.flags, bands: change.bands, created: now, flows };
        self.meters.insert(change.meter_id, entry);
        Ok(())
    }

    /// Deletes a meter, or all, with the flows that name it. One that is not there is no error (section 6.6).
    fn delete_meters(&mut self, now: Instant, meter_id: u32) -> Result<(), ErrorCode> {
        let meters: BTreeSet<u32> = match meter_id {
            number::meter::ALL => self.meters.keys().copied().collect(),
            0 => return Err(MeterModFailed::InvalidMeter.into()),
            meter => self.meters.contains_key(&meter).then_some(meter).into_iter().collect(),
        };
        if meters.iter().any(|meter| self.meters.get(meter).is_some_and(|entry| entry.flows > 0)) {
            let names =
                |entry: &FlowEntry<_>| meters_of(&entry.instructions).any(|meter| meters.contains(&meter));
            let flows: Vec<u32> =
                self.flows.all().filter(|(_, entry)| names(entry)).map(|(flow, _)| flow).collect();
            for flow in flows {
                self.remove_flow(now, flow, FlowRemovedReason::Delete);
            }
        }
        for meter in meters {
            self.meters.remove(&meter);
            self.datapath.remove_meter(meter);
        }
        Ok(())
    }

    /// Takes over what ports there are and how they are; what controllers have configured of them stays. What has become
    /// of which.
    pub(crate) fn set_ports(&mut self, now: Instant, ports: Vec<Port>) -> Vec<PortStatus> {
        let mut news = Vec::new();
        let mut former = std::mem::take(&mut self.ports);
        for mut port in ports {
            let before = former.remove(&port.port_no);
            let since = before.as_ref().map_or(now, |(_, since)| *since);
            let reason = match before {
                None => Some(PortReason::Add),
                Some((before, _)) => {
                    port.config = before.config;
                    (before != port).then_some(PortReason::Modify)
                }
            };
            news.extend(reason.map(|reason| PortStatus { reason, port: port.clone() }));
            self.ports.insert(port.port_no, (port, since));
        }
        let gone = former.into_values();
        news.extend(gone.map(|(port, _)| PortStatus { reason: PortReason::Delete, port }));
        if !news.is_empty() {
            self.publish_ports();
        }
        news
    }

    fn publish_ports(&mut self) {
        let flags = |(port, _): &(Port, Instant)| PortFlags {
            port_no: port.port_no,
            config: port.config,
            is_live: port.state & port_state::LIVE != 0 && port.config & port_config::PORT_DOWN == 0,
        };
        let ports: Vec<_> = self.ports.values().map(flags).collect();
        self.datapath.set_ports(&ports);
    }

    /// Changes a port (section 7.3.4.3).
    pub(crate) fn port_mod(&mut self, change: &PortMod) -> Result<Option<PortStatus>, ErrorCode> {
        let (port, _) = self.ports.get_mut(&change.port_no).ok_or(PortModFailed::BadPort)?;
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
        port.config = config;
        let status = PortStatus { reason: PortReason::Modify, port: port.clone() };
        self.publish_ports();
        Ok(Some(status))
    }
}

/// Changes a table's configuration, of which there is none (section 7.3.3; the lowest two bits once had a meaning).
pub(crate) fn table_mod(change: TableMod) -> Result<(), ErrorCode> {
    if change.config & !3 != 0 { Err(TableModFailed::BadConfig.into()) } else { Ok(()) }
}
