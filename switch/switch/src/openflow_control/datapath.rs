//! The tables that workers judge by, as the OpenFlow state of the switch changes them.

use std::collections::BTreeMap;

use twinpath_forwarding::openflow::pipeline::{
    Flow, FlowCount, FlowId, GroupConfig, MeterConfig, PartsCount, Pipeline, Port, TableCount, TableFull,
};
use twinpath_forwarding::openflow::{Datapath, TimedFlow};
use twinpath_openflow_wire::{Match, PortStats};
use twinpath_sys::clock;
use twinpath_time::Duration;

use crate::offload::Lifetime;
use crate::openflow_control::counts::PortCounts;
use crate::openflow_control::kernel::Kernel;

/// The tables, and what ports count.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) pipeline: Pipeline,
    /// By OpenFlow's numbers.
    pub(crate) ports: BTreeMap<u32, PortCounts>,
    pub(crate) kernel: Kernel,
    /// As they were told last.
    told: Vec<Port>,
}

impl Tables {
    pub(crate) fn new(pipeline: Pipeline) -> Self {
        Self { pipeline, ports: BTreeMap::new(), kernel: Kernel::default(), told: Vec::new() }
    }
}

/// How long entries for frames of a flow are good for.
fn lifetime_of(flow: &TimedFlow<'_>) -> Lifetime {
    let seconds = |seconds: u16| (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    Lifetime {
        deadline: seconds(flow.hard_timeout_s).map(|timeout| flow.created + timeout),
        idle: seconds(flow.idle_timeout_s),
        unmoved: None,
    }
}

impl Datapath for Tables {
    type FlowId = FlowId;

    fn add_flow(&mut self, flow: TimedFlow<'_>) -> Result<FlowId, TableFull> {
        let id = self.pipeline.add_flow(&flow.flow)?;
        let Flow { table, priority, fields, .. } = flow.flow;
        self.kernel.flow_added(table, priority, fields, id, lifetime_of(&flow));
        self.kernel.review(clock::now(), &mut self.pipeline, fields);
        Ok(id)
    }

    fn change_flow(&mut self, id: FlowId, flow: TimedFlow<'_>) {
        self.kernel.flow_changed(id, lifetime_of(&flow));
        let Flow { fields, instructions, cookie, .. } = flow.flow;
        self.pipeline.change_flow(id, instructions, cookie);
        self.kernel.review(clock::now(), &mut self.pipeline, fields);
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
        self.pipeline.take_gone()
    }

    fn flow_count(&self, id: FlowId) -> FlowCount {
        self.pipeline.flow_count(id).unwrap_or_default()
    }

    fn reset_flow_count(&mut self, id: FlowId) {
        self.kernel.record_flow(&mut self.pipeline, id);
        self.pipeline.reset_flow_count(id);
    }

    fn table_count(&self, table_id: u8) -> TableCount {
        self.pipeline.table_count(table_id)
    }

    fn set_group(&mut self, group_id: u32, group: GroupConfig) -> Result<(), TableFull> {
        self.kernel.groups_changed();
        self.pipeline.set_group(group_id, group)
    }

    fn remove_group(&mut self, group_id: u32) {
        self.kernel.groups_changed();
        self.pipeline.remove_group(group_id);
    }

    fn group_count(&self, group_id: u32) -> PartsCount {
        self.pipeline.group_count(group_id).unwrap_or_default()
    }

    fn set_meter(&mut self, meter_id: u32, meter: &MeterConfig) -> Result<(), TableFull> {
        self.pipeline.set_meter(meter_id, meter)
    }

    fn remove_meter(&mut self, meter_id: u32) {
        self.pipeline.remove_meter(meter_id);
    }

    fn meter_count(&self, meter_id: u32) -> PartsCount {
        self.pipeline.meter_count(meter_id).unwrap_or_default()
    }

    fn set_ports(&mut self, ports: &[Port]) {
        if self.told != ports {
            let former = std::mem::replace(&mut self.told, ports.to_vec());
            let gone = former.iter().filter(|port| !ports.contains(port));
            self.kernel.ports_changed(gone.map(|port| port.number));
        }
        self.pipeline.set_ports(ports.to_vec());
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
