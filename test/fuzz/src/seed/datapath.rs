//! A datapath that judges no frame: what was put in, as maps. Tests say what was counted and what is in force.

use std::collections::BTreeMap;

use twinpath_forwarding::openflow::pipeline::{
    FlowCount, GroupConfig, MeterConfig, PartsCount, Port, TableCount, TableFull,
};
use twinpath_forwarding::openflow::{Datapath, TimedFlow};
use twinpath_openflow_wire::{Count, GroupType, Instruction, PortStats};

/// A flow as it was put in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutFlow {
    /// Table, priority, cookie.
    pub numbers: (u8, u16, u64),
    /// What is done.
    pub instructions: Box<[Instruction]>,
}

/// The datapath.
#[derive(Debug, Default)]
pub struct Maps {
    /// Flows by their names.
    pub flows: BTreeMap<u32, PutFlow>,
    /// Groups with the number of their buckets.
    pub groups: BTreeMap<u32, (GroupType, usize)>,
    /// Meters with the number of their bands.
    pub meters: BTreeMap<u32, usize>,
    /// The ports as they were set last.
    pub ports: Vec<Port>,
    /// Whether fragments are dropped.
    pub drop_fragments: bool,
    /// What each flow has counted.
    pub counts: BTreeMap<u32, FlowCount>,
    /// Changes until now, and how many of them are in force.
    pub versions: [u64; 2],
    /// Flows that were taken out, with the change that did it.
    leaving: Vec<(u64, u32)>,
    next_flow: u32,
}

impl Maps {
    fn change(&mut self) {
        self.versions[0] += 1;
    }

    /// Every change until now is in force.
    pub fn take_all(&mut self) {
        self.versions[1] = self.versions[0];
    }
}

impl Datapath for Maps {
    type FlowId = u32;

    fn add_flow(&mut self, TimedFlow { flow, .. }: TimedFlow<'_>) -> Result<u32, TableFull> {
        self.change();
        self.next_flow += 1;
        let numbers = (flow.table, flow.priority, flow.cookie);
        self.flows.insert(self.next_flow, PutFlow { numbers, instructions: flow.instructions.into() });
        Ok(self.next_flow)
    }

    fn change_flow(&mut self, id: u32, TimedFlow { flow, .. }: TimedFlow<'_>) {
        self.change();
        let numbers = (flow.table, flow.priority, flow.cookie);
        let former = self.flows.insert(id, PutFlow { numbers, instructions: flow.instructions.into() });
        assert!(former.is_some_and(|former| (former.numbers.0, former.numbers.1) == (numbers.0, numbers.1)));
    }

    fn remove_flow(&mut self, id: u32) {
        self.change();
        assert!(self.flows.remove(&id).is_some(), "{id} is there");
        self.leaving.push((self.versions[0], id));
    }

    fn take_gone(&mut self) -> Vec<(u32, FlowCount)> {
        let (gone, leaving) = self.leaving.iter().partition(|(version, _)| *version <= self.versions[1]);
        self.leaving = leaving;
        let gone: Vec<(u64, u32)> = gone;
        gone.into_iter().map(|(_, id)| (id, self.counts.get(&id).copied().unwrap_or_default())).collect()
    }

    fn flow_count(&self, id: u32) -> FlowCount {
        self.counts.get(&id).copied().unwrap_or_default()
    }

    fn reset_flow_count(&mut self, id: u32) {
        self.counts.remove(&id);
    }

    fn table_count(&self, table_id: u8) -> TableCount {
        TableCount { lookups: table_id.into(), ..TableCount::default() }
    }

    fn set_group(&mut self, group_id: u32, group: GroupConfig) -> Result<(), TableFull> {
        self.change();
        self.groups.insert(group_id, (group.kind, group.buckets.len()));
        Ok(())
    }

    fn remove_group(&mut self, group_id: u32) {
        self.change();
        assert!(self.groups.remove(&group_id).is_some(), "{group_id} is there");
    }

    fn group_count(&self, group_id: u32) -> PartsCount {
        let parts = self.groups.get(&group_id).map_or(0, |(_, parts)| *parts);
        PartsCount { whole: Count::default(), parts: vec![Count::default(); parts].into() }
    }

    fn set_meter(&mut self, meter_id: u32, meter: &MeterConfig) -> Result<(), TableFull> {
        self.change();
        self.meters.insert(meter_id, meter.bands.len());
        Ok(())
    }

    fn remove_meter(&mut self, meter_id: u32) {
        self.change();
        assert!(self.meters.remove(&meter_id).is_some(), "{meter_id} is there");
    }

    fn meter_count(&self, meter_id: u32) -> PartsCount {
        let parts = self.meters.get(&meter_id).copied().unwrap_or(0);
        PartsCount { whole: Count::default(), parts: vec![Count::default(); parts].into() }
    }

    fn set_ports(&mut self, ports: &[Port]) {
        self.change();
        self.ports = ports.to_vec();
    }

    fn set_drop_fragments(&mut self, drop: bool) {
        self.change();
        self.drop_fragments = drop;
    }

    fn port_count(&self, port_no: u32) -> PortStats {
        PortStats { packets: [port_no.into(), 0], ..PortStats::default() }
    }

    fn barrier(&self) -> u64 {
        self.versions[0]
    }

    fn is_in_force(&self, version: u64) -> bool {
        version <= self.versions[1]
    }
}
