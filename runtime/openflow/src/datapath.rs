//! The tables that workers judge by, as the OpenFlow state of the switch changes them.

use std::collections::BTreeMap;

use twinpath_offload::Lifetime;
use twinpath_openflow::{Band, Bucket, Count, GroupType, Match, PortStats, meter_flags, port_config};
use twinpath_openflow_switch::{Datapath, Flow, FlowCount, NoRoom, PartsCount, PortFlags, TableCount};
use twinpath_pipeline::{
    Count as Counted, Flow as PipelineFlow, FlowId, GroupConfig, MeterConfig, MeterUnit, Pipeline, Port,
    TableFull,
};
use twinpath_sys::clock;
use twinpath_time::Duration;

use crate::counts::PortCounts;
use crate::kernel::Kernel;

/// The tables, and what ports count.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) pipeline: Pipeline,
    /// By OpenFlow's numbers.
    pub(crate) ports: BTreeMap<u32, PortCounts>,
    pub(crate) kernel: Kernel,
    /// As they were told last.
    flags: Vec<PortFlags>,
}

impl Tables {
    pub(crate) fn new(pipeline: Pipeline) -> Self {
        Self { pipeline, ports: BTreeMap::new(), kernel: Kernel::default(), flags: Vec::new() }
    }
}

const fn count(Counted { packets, bytes }: Counted) -> Count {
    Count { packets, bytes }
}

fn parts(counted: Option<twinpath_pipeline::PartsCount>) -> PartsCount {
    let counted = counted.unwrap_or_default();
    PartsCount { whole: count(counted.whole), parts: counted.parts.into_iter().map(count).collect() }
}

const fn flow_count(counted: twinpath_pipeline::FlowCount) -> FlowCount {
    FlowCount { count: count(counted.count), used: counted.used }
}

/// How long entries for frames of a flow are good for.
fn lifetime_of(flow: &Flow<'_>) -> Lifetime {
    let seconds = |seconds: u16| (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    Lifetime {
        deadline: seconds(flow.hard_timeout_s).map(|timeout| flow.created + timeout),
        idle: seconds(flow.idle_timeout_s),
        unmoved: None,
    }
}

/// What workers need to know of a port.
fn port(flags: &PortFlags) -> Port {
    let has = |bits: u32| flags.config & bits != 0;
    Port {
        number: flags.port_no,
        no_receive: has(port_config::PORT_DOWN | port_config::NO_RECV),
        no_forward: has(port_config::PORT_DOWN | port_config::NO_FWD),
        no_packet_in: has(port_config::NO_PACKET_IN),
        is_live: flags.is_live,
    }
}

impl Datapath for Tables {
    type FlowId = FlowId;

    fn add_flow(&mut self, flow: Flow<'_>) -> Result<FlowId, NoRoom> {
        let lifetime = lifetime_of(&flow);
        let Flow { table_id, priority, matches, instructions, cookie, .. } = flow;
        let flow = PipelineFlow { table: table_id, priority, fields: matches, instructions, cookie };
        let id = self.pipeline.add_flow(&flow).map_err(|TableFull| NoRoom)?;
        self.kernel.flow_added(table_id, priority, matches, id, lifetime);
        self.kernel.review(clock::now(), &mut self.pipeline, matches);
        Ok(id)
    }

    fn change_flow(&mut self, id: FlowId, flow: Flow<'_>) {
        self.kernel.flow_changed(id, lifetime_of(&flow));
        self.pipeline.change_flow(id, flow.instructions, flow.cookie);
        self.kernel.review(clock::now(), &mut self.pipeline, flow.matches);
    }

    fn remove_flow(&mut self, id: FlowId) {
        self.kernel.flow_changed(id, Lifetime::default());
        self.pipeline.remove_flow(id, true);
    }

    fn flows_deleted(&mut self, _table_id: Option<u8>, matches: &Match, out_port: Option<u32>) {
        // In which table a former process had them is not known.
        self.kernel.flows_deleted(&mut self.pipeline, matches, out_port);
    }

    fn take_gone(&mut self) -> Vec<(FlowId, FlowCount)> {
        self.pipeline.take_gone().into_iter().map(|(id, counted)| (id, flow_count(counted))).collect()
    }

    fn flow_count(&self, id: FlowId) -> FlowCount {
        self.pipeline.flow_count(id).map(flow_count).unwrap_or_default()
    }

    fn reset_flow_count(&mut self, id: FlowId) {
        self.kernel.record_flow(&mut self.pipeline, id);
        self.pipeline.reset_flow_count(id);
    }

    fn table_count(&self, table_id: u8) -> TableCount {
        let counted = self.pipeline.table_count(table_id);
        TableCount { lookups: counted.lookups, matched: counted.matches }
    }

    fn set_group(&mut self, group_id: u32, group_type: GroupType, buckets: &[Bucket]) -> Result<(), NoRoom> {
        self.kernel.groups_changed();
        let config = GroupConfig { kind: group_type, buckets: buckets.to_vec() };
        self.pipeline.set_group(group_id, config).map_err(|TableFull| NoRoom)
    }

    fn remove_group(&mut self, group_id: u32) {
        self.kernel.groups_changed();
        self.pipeline.remove_group(group_id);
    }

    fn group_count(&self, group_id: u32) -> PartsCount {
        parts(self.pipeline.group_count(group_id))
    }

    fn set_meter(&mut self, meter_id: u32, flags: u16, bands: &[Band]) -> Result<(), NoRoom> {
        // Without a flag that says so, rates are in kilobits (section 7.3.4.4).
        let in_packets = flags & meter_flags::PKTPS != 0;
        let config = MeterConfig {
            unit: if in_packets { MeterUnit::Packets } else { MeterUnit::Kilobits },
            has_burst: flags & meter_flags::BURST != 0,
            bands: bands.to_vec(),
        };
        self.pipeline.set_meter(meter_id, &config).map_err(|TableFull| NoRoom)
    }

    fn remove_meter(&mut self, meter_id: u32) {
        self.pipeline.remove_meter(meter_id);
    }

    fn meter_count(&self, meter_id: u32) -> PartsCount {
        parts(self.pipeline.meter_count(meter_id))
    }

    fn set_ports(&mut self, ports: &[PortFlags]) {
        if self.flags != ports {
            let former = std::mem::replace(&mut self.flags, ports.to_vec());
            let gone = former.iter().filter(|port| !ports.contains(port));
            self.kernel.ports_changed(gone.map(|port| port.port_no));
        }
        self.pipeline.set_ports(ports.iter().map(port).collect());
    }

    fn set_drop_fragments(&mut self, drop: bool) {
        // The kernel's programs leave fragments to workers, so none of their entries is void.
        self.pipeline.set_drop_fragments(drop);
    }

    fn port_count(&self, port_no: u32) -> PortStats {
        let PortCounts { before, queues } = self.ports.get(&port_no).cloned().unwrap_or_default();
        let counts = queues.iter().fold(before, |counts, queue| counts.with(queue));
        let forwarded = self.kernel.forwarded(port_no);
        PortStats {
            port_no,
            packets: [counts.packets_in + forwarded.packets_in, counts.packets_out + forwarded.packets_out],
            bytes: [counts.bytes_in + forwarded.bytes_in, counts.bytes_out + forwarded.bytes_out],
            dropped: [counts.dropped_in, counts.dropped_out],
            errors: [counts.errors, NOT_COUNTED],
            rx_errors: [NOT_COUNTED; 3],
            collisions: NOT_COUNTED,
            duration_s: 0,
            duration_ns: 0,
        }
    }

    fn barrier(&self) -> u64 {
        self.pipeline.barrier()
    }

    fn is_in_force(&self, version: u64) -> bool {
        self.pipeline.is_in_force(version)
    }
}

/// A counter that a switch does not have (section 7.3.5.6).
const NOT_COUNTED: u64 = u64::MAX;
