//! The state of a switch for those who show it.

use crate::openflow::pipeline::{FlowCount, PartsCount, TableCount};
use twinpath_openflow_wire::{Band, Bucket, GroupType, Instruction, Match, number};
use twinpath_time::{Duration, Instant};

use crate::openflow::datapath::Datapath;
use crate::openflow::switch::OpenFlowSwitch;

/// How much there is in a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Flows in all tables.
    pub flows: usize,
    /// Groups.
    pub groups: usize,
    /// Meters.
    pub meters: usize,
}

/// A table that has flows, or that frames were looked up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableView {
    /// Its number.
    pub table_id: u8,
    /// Its flows.
    pub flows: usize,
    /// What it has counted.
    pub count: TableCount,
}

/// A flow.
#[derive(Clone, Debug)]
pub struct FlowView<'a> {
    /// Its table.
    pub table_id: u8,
    /// Its priority.
    pub priority: u16,
    /// The controller's mark.
    pub cookie: u64,
    /// What it matches.
    pub matches: &'a Match,
    /// What is done then.
    pub instructions: &'a [Instruction],
    /// Idle timeout, s; 0: none.
    pub idle_timeout_s: u16,
    /// Hard timeout, s; 0: none.
    pub hard_timeout_s: u16,
    /// Since when it is there.
    pub age: Duration,
    /// What it has counted.
    pub count: FlowCount,
}

/// A group.
#[derive(Clone, Debug)]
pub struct GroupView<'a> {
    /// Its number.
    pub group_id: u32,
    /// Which of its buckets frames go through.
    pub group_type: GroupType,
    /// Its buckets.
    pub buckets: &'a [Bucket],
    /// Flows that send to it.
    pub flows: u32,
    /// What it has counted.
    pub count: PartsCount,
}

/// A meter.
#[derive(Clone, Debug)]
pub struct MeterView<'a> {
    /// Its number.
    pub meter_id: u32,
    /// Of [`twinpath_openflow_wire::meter_flags`].
    pub flags: u16,
    /// Its bands.
    pub bands: &'a [Band],
    /// Flows that name it.
    pub flows: u32,
    /// What it has counted.
    pub count: PartsCount,
}

impl<D: Datapath> OpenFlowSwitch<D> {
    /// How much there is.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let tables = &self.tables;
        Sizes { flows: tables.flows.len(), groups: tables.groups.entries.len(), meters: tables.meters.len() }
    }

    /// The tables that have flows or were looked up in, in order.
    pub fn tables(&self) -> impl Iterator<Item = TableView> {
        let view = |table_id| TableView {
            table_id,
            flows: self.tables.flows.table_len(table_id),
            count: self.tables.datapath.table_count(table_id),
        };
        let views = (0..=number::table::MAX).map(view);
        views.filter(|table| table.flows > 0 || table.count.lookups > 0)
    }

    /// The flows and their names in the datapath, in no order that means anything.
    pub fn flows(&self, now: Instant) -> impl Iterator<Item = (D::FlowId, FlowView<'_>)> {
        self.tables.flows.all().map(move |(_, flow)| {
            (
                flow.id,
                FlowView {
                    table_id: flow.table_id,
                    priority: flow.priority,
                    cookie: flow.cookie,
                    matches: &flow.matches,
                    instructions: &flow.instructions,
                    idle_timeout_s: flow.idle_timeout_s,
                    hard_timeout_s: flow.hard_timeout_s,
                    age: now.since(flow.created),
                    count: self.tables.datapath.flow_count(flow.id),
                },
            )
        })
    }

    /// The groups, by number.
    pub fn groups(&self) -> impl Iterator<Item = GroupView<'_>> {
        self.tables.groups.entries.iter().map(|(group_id, group)| GroupView {
            group_id: *group_id,
            group_type: group.group_type,
            buckets: &group.buckets,
            flows: group.flows,
            count: self.tables.datapath.group_count(*group_id),
        })
    }

    /// The meters, by number.
    pub fn meters(&self) -> impl Iterator<Item = MeterView<'_>> {
        self.tables.meters.iter().map(|(meter_id, meter)| MeterView {
            meter_id: *meter_id,
            flags: meter.flags,
            bands: &meter.bands,
            flows: meter.flows,
            count: self.tables.datapath.meter_count(*meter_id),
        })
    }
}
