//! What a flow-mod costs control: from the bytes that a controller sends to the tables that workers judge by.

use std::sync::Arc;

use twinpath_forwarding::openflow::pipeline::{
    FlowCount, FlowId, GroupConfig, MeterConfig, PartsCount, Pipeline, Port, Snapshot, TableCount, TableFull,
};
use twinpath_forwarding::openflow::{Datapath, OpenFlowSwitch, SwitchInfo, TimedFlow};
use twinpath_openflow_wire::{
    Action, Desc, Field, FlowMod, FlowModCommand, Hello, Instruction, Match, MatchField, Message, PortStats,
    number,
};
use twinpath_time::Instant;

/// Bytes that arrive at once, and flow-mods after which workers get a version.
const READ: usize = 32 << 10;
const VERSION_EACH: usize = 5_000;
const NOW: Instant = Instant::from_nanos(1 << 40);

/// Flows alone: no groups, no meters.
struct Tables(Pipeline);

impl Datapath for Tables {
    type FlowId = FlowId;

    fn add_flow(&mut self, flow: TimedFlow<'_>) -> Result<FlowId, TableFull> {
        self.0.add_flow(&flow.flow)
    }

    fn change_flow(&mut self, id: FlowId, flow: TimedFlow<'_>) {
        self.0.change_flow(id, flow.flow.instructions, flow.flow.cookie);
    }

    fn remove_flow(&mut self, id: FlowId) {
        self.0.remove_flow(id, false);
    }

    fn take_gone(&mut self) -> Vec<(FlowId, FlowCount)> {
        Vec::new()
    }

    fn flow_count(&self, _: FlowId) -> FlowCount {
        FlowCount::default()
    }

    fn reset_flow_count(&mut self, id: FlowId) {
        self.0.reset_flow_count(id);
    }

    fn table_count(&self, _: u8) -> TableCount {
        TableCount::default()
    }

    fn set_group(&mut self, _: u32, _: GroupConfig) -> Result<(), TableFull> {
        Err(TableFull)
    }

    fn remove_group(&mut self, _: u32) {}

    fn group_count(&self, _: u32) -> PartsCount {
        PartsCount::default()
    }

    fn set_meter(&mut self, _: u32, _: &MeterConfig) -> Result<(), TableFull> {
        Err(TableFull)
    }

    fn remove_meter(&mut self, _: u32) {}

    fn meter_count(&self, _: u32) -> PartsCount {
        PartsCount::default()
    }

    fn set_ports(&mut self, _: &[Port]) {}

    fn set_drop_fragments(&mut self, _: bool) {}

    fn port_count(&self, port_no: u32) -> PortStats {
        PortStats {
            port_no,
            packets: [0; 2],
            bytes: [0; 2],
            dropped: [0; 2],
            errors: [0; 2],
            rx_errors: [0; 3],
            collisions: 0,
            duration_s: 0,
            duration_ns: 0,
        }
    }

    fn barrier(&self) -> u64 {
        self.0.barrier()
    }

    fn is_in_force(&self, version: u64) -> bool {
        self.0.is_in_force(version)
    }
}

/// Where the last field's value is in the message: an address.
const ADDRESS: usize = 62;

/// A flow for one destination.
fn message() -> Vec<u8> {
    let fields = [MatchField::exact(Field::EthType, 0x800), MatchField::exact(Field::Ipv4Dst, 0)];
    let output = Action::Output { port: 2, max_len: number::max_len::NO_BUFFER };
    let change = FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table_id: 0,
        command: FlowModCommand::Add,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: 100,
        buffer_id: number::NO_BUFFER,
        out_port: number::port::ANY,
        out_group: number::group::ANY,
        flags: 0,
        matches: Match::new(fields).expect("a valid match"),
        instructions: Box::new([Instruction::ApplyActions(Box::new([output]))]),
    };
    let mut bytes = Vec::new();
    Message::FlowMod(Box::new(change)).encode(1, &mut bytes).expect("it is short");
    bytes
}

/// Such messages for as many destinations.
fn messages(count: u64) -> Vec<u8> {
    let one = message();
    let mut all = one.repeat(count as usize);
    for (number, message) in all.chunks_exact_mut(one.len()).enumerate() {
        message[ADDRESS..ADDRESS + 4].copy_from_slice(&(0x0b00_0000 + number as u32).to_be_bytes());
    }
    all
}

/// A switch takes messages from a controller, and one worker gets versions: it has one, and gives the former one back.
fn take(messages: &[u8], each: usize) {
    let desc = Desc::default();
    let info = SwitchInfo { datapath_id: 1, desc, flows_max: 2_000_000, packet_in_rate: 1000 };
    let mut switch = OpenFlowSwitch::new(info, Tables(Pipeline::new(1, [1, 2])));
    let id = switch.connect(NOW).expect("the first connection");
    let mut hello = Vec::new();
    let ours = Hello { version: number::VERSION, versions: Some(1 << number::VERSION) };
    Message::Hello(ours).encode(1, &mut hello).expect("it is short");
    assert_eq!(switch.receive(NOW, id, &hello), hello.len());
    let mut at_worker: Option<Arc<Snapshot>> = None;
    let (mut rest, mut since) = (messages, 0);
    while !rest.is_empty() {
        let used = switch.receive(NOW, id, &rest[..rest.len().min(READ)]);
        rest = &rest[used..];
        since += used / each;
        if since >= VERSION_EACH {
            since = 0;
            let pipeline = &mut switch.datapath().0;
            at_worker = pipeline.publish().or(at_worker);
            pipeline.taken(pipeline.barrier());
        }
    }
    assert_eq!(switch.datapath().0.flows(), messages.len() / each);
    // Freeing the tables is not part of the measurement.
    std::mem::forget(switch);
    drop(at_worker);
}

/// New flows of one mask.
pub(crate) fn add_flows(count: u64) {
    let messages = messages(count);
    take(&messages, messages.len() / count as usize);
}
