//! What OpenFlow's tables do for a frame: one exact table, eight masks, and the learning switch behind them.

use std::hint::black_box;

use twinpath_forwarding::learning::Switch;
use twinpath_forwarding::openflow::pipeline::{
    Arrival, Count, Destination, Flow, Ingress, Outlet, Pipeline, Port, Ports, Worker,
};
use twinpath_frame::{Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_openflow_wire::{Action, Field, Instruction, Match, MatchField, number};
use twinpath_time::Instant;

use crate::switch;

const FLOWS: u32 = 1000;
/// Frames that pass in turn.
const BURST: usize = 50;
const NOW: Instant = Instant::from_nanos(1 << 40);

/// Prefixes of source and destination, and whether the ports count: a table with all of them has eight masks.
const MASKS: [(u32, u32, bool); 8] = [
    (32, 32, true),
    (32, 32, false),
    (0, 32, true),
    (24, 0, true),
    (32, 0, false),
    (0, 24, false),
    (16, 0, false),
    (0, 0, true),
];

/// Source and destination of a flow, without an order.
fn addresses(flow: u32) -> [u32; 2] {
    [flow.wrapping_mul(0x9e37_79b1), flow.wrapping_mul(0x85eb_ca6b) ^ 0x5bd1_e995]
}

/// UDP ports of a flow.
fn ports(flow: u32) -> [u16; 2] {
    [1024 + flow as u16, 53]
}

fn frame(pool: &mut Pool, flow: u32) -> Frame {
    let mut bytes = [0; 60];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    bytes[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    let ([source, destination], [from, to]) = (addresses(flow), ports(flow));
    bytes[26..30].copy_from_slice(&source.to_be_bytes());
    bytes[30..34].copy_from_slice(&destination.to_be_bytes());
    bytes[34..36].copy_from_slice(&from.to_be_bytes());
    bytes[36..38].copy_from_slice(&to.to_be_bytes());
    bytes[39] = 26;
    let mut frame = pool.take().expect("a pool for all frames");
    frame.copy_from(&bytes).expect("it fits");
    frame
}

fn fields(flow: u32, (from_len, to_len, has_ports): (u32, u32, bool)) -> Match {
    let mut fields = vec![MatchField::exact(Field::EthType, 0x800)];
    let [source, destination] = addresses(flow);
    for (field, address, len) in [(Field::Ipv4Src, source, from_len), (Field::Ipv4Dst, destination, to_len)] {
        if let Some(mask) = u32::MAX.checked_shl(32 - len) {
            fields.push(MatchField::masked(field, (address & mask).into(), mask.into()));
        }
    }
    if has_ports {
        fields.push(MatchField::exact(Field::IpProto, 17));
        fields.push(MatchField::exact(Field::UdpSrc, ports(flow)[0].into()));
    }
    Match::new(fields).expect("a valid match")
}

fn add(pipeline: &mut Pipeline, fields: &Match, priority: u16, to: u32) {
    let instructions = [Instruction::ApplyActions(Box::new([Action::Output { port: to, max_len: 0 }]))];
    let flow = Flow { table: 0, priority, fields, instructions: &instructions, cookie: 0 };
    pipeline.add_flow(&flow).expect("room for a flow");
}

/// Flows with these masks in turn.
fn pipeline(masks: &[(u32, u32, bool)]) -> Pipeline {
    let mut pipeline = Pipeline::new(1, [1, 2]);
    pipeline.set_ports((1..=4).map(Port::new).collect());
    for flow in 0..FLOWS {
        let place = flow as usize % masks.len();
        add(&mut pipeline, &fields(flow, masks[place]), 10 + place as u16, 2);
    }
    pipeline
}

/// Keeps each frame for the next pass, and counts those that were sent.
struct Back {
    frame: Option<Frame>,
    sent: u64,
    switch: Switch,
}

impl Outlet for Back {
    fn share(&mut self, _: &mut Frame) -> Option<Frame> {
        None
    }

    fn send(&mut self, frame: Frame, to: Destination, _: &Ports) {
        if let Destination::Normal(port) = to {
            let arrival = twinpath_forwarding::learning::Arrival::read(port as u16, frame.bytes(), None, 1);
            self.sent += self.switch.normal(NOW, &arrival).outputs.count() as u64;
        } else {
            self.sent += 1;
        }
        self.frame = Some(frame);
    }

    fn discard(&mut self, frame: Frame, _: u32, _: Reason) {
        self.frame = Some(frame);
    }

    fn release(&mut self, frame: Frame) {
        self.frame = Some(frame);
    }
}

/// Takes this many frames through tables.
fn pass(mut worker: Worker, mut frames: Vec<Option<Frame>>, pool: &mut Pool, in_port: u32, count: u64) {
    let mut back = Back { frame: None, sent: 0, switch: switch::switch() };
    let ingress = Ingress { in_port, in_phy_port: in_port, tunnel_id: 0 };
    let arrival = Arrival { ingress, count: Count { packets: 1, bytes: 60 } };
    for _ in 0..count / BURST as u64 {
        for frame in &mut frames {
            if let Some(frame) = frame.take() {
                worker.receive(NOW, frame, black_box(&arrival), &mut back);
            }
            *frame = back.frame.take();
        }
    }
    assert_eq!(back.sent, count, "each frame has one output");
    frames.into_iter().flatten().for_each(|frame| pool.release(frame));
}

fn pool() -> Pool {
    Pool::new(BURST as u32).expect("memory")
}

/// One hash table finds the flow.
pub(crate) fn exact(count: u64) {
    let (pipeline, mut pool) = (pipeline(&MASKS[..1]), pool());
    let frames = (0..BURST as u32).map(|number| Some(frame(&mut pool, number * 19))).collect();
    pass(pipeline.worker(0).expect("one worker"), frames, &mut pool, 1, count);
}

/// Flows of eight masks.
pub(crate) fn masks(count: u64) {
    let (pipeline, mut pool) = (pipeline(&MASKS), pool());
    let frames = (0..BURST as u32).map(|number| Some(frame(&mut pool, number * 19))).collect();
    pass(pipeline.worker(0).expect("one worker"), frames, &mut pool, 1, count);
}

/// Frames between known stations, which the tables leave to the learning switch.
pub(crate) fn normal(count: u64) {
    let mut pipeline = Pipeline::new(1, [1, 2]);
    pipeline.set_ports((1..=4).map(Port::new).collect());
    add(&mut pipeline, &Match::default(), 0, number::port::NORMAL);
    let mut pool = pool();
    let frames = (0..BURST as u32).map(|_| {
        let mut frame = frame(&mut pool, 1);
        // Of the stations on one port.
        frame.bytes_mut()[..6].copy_from_slice(&switch::mac(18).0);
        frame.bytes_mut()[6..12].copy_from_slice(&switch::mac(17).0);
        Some(frame)
    });
    let frames = frames.collect();
    pass(pipeline.worker(0).expect("one worker"), frames, &mut pool, 1, count);
}
