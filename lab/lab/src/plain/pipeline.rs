//! `plain pipeline`: time per frame through OpenFlow's tables, by what the tables have.
//!
//! One thread; frames of many flows in no order, each with an output. Medians of several rounds, in which the cases
//! alternate. Hostile are frames that no flow was made for: headers that have every table search as long as it can.

use std::hint::black_box;
use std::time::Instant as Clock;

use anyhow::ensure;
use serde_json::json;
use twinpath_clients::measure::print;
use twinpath_forwarding::openflow::pipeline::{
    Arrival, Count, Destination, Flow, FlowId, Ingress, Outlet, Pipeline, Port, Ports, Worker,
};
use twinpath_frame::{Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_openflow_wire::{Action, Field, Instruction, Match, MatchField};
use twinpath_sys::affinity;
use twinpath_time::Instant;

use crate::openflow::hostile;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
}

const ROUNDS: usize = 9;
const FRAMES: usize = 1024;
/// Times that the frames pass per round.
const PASSES: usize = 100;
const NOW: Instant = Instant::from_nanos(1 << 40);

const ETH_IPV4: u128 = 0x800;
const UDP: u128 = 17;

/// The fields of a frame that the cases differ in.
#[derive(Clone, Copy)]
struct Headers {
    in_port: u32,
    source: u32,
    destination: u32,
    ports: [u16; 2],
}

fn headers(random: &mut fastrand::Rng) -> Headers {
    Headers {
        in_port: random.u32(1..=4),
        source: random.u32(..),
        destination: random.u32(..),
        ports: [random.u16(..), random.u16(..)],
    }
}

fn frame(pool: &mut Pool, headers: &Headers) -> Frame {
    let mut bytes = [0; 60];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    bytes[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, UDP as u8]);
    bytes[26..30].copy_from_slice(&headers.source.to_be_bytes());
    bytes[30..34].copy_from_slice(&headers.destination.to_be_bytes());
    bytes[34..36].copy_from_slice(&headers.ports[0].to_be_bytes());
    bytes[36..38].copy_from_slice(&headers.ports[1].to_be_bytes());
    bytes[39] = 26;
    let mut frame = pool.take().expect("a pool for all frames");
    frame.copy_from(&bytes).expect("it fits");
    frame
}

/// Bits of a match that a flow may have.
const IN_PORT: u32 = 1;
const SOURCE: u32 = 2;
const DESTINATION: u32 = 4;
const SOURCE_PORT: u32 = 8;
const DESTINATION_PORT: u32 = 16;
const EXACT: u32 = 31;

fn fields(headers: &Headers, which: u32, prefixes: [u32; 2]) -> Match {
    let mut fields = vec![MatchField::exact(Field::EthType, ETH_IPV4)];
    if which & IN_PORT != 0 {
        fields.push(MatchField::exact(Field::InPort, headers.in_port.into()));
    }
    for (bit, field, address, len) in [
        (SOURCE, Field::Ipv4Src, headers.source, prefixes[0]),
        (DESTINATION, Field::Ipv4Dst, headers.destination, prefixes[1]),
    ] {
        let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
        if which & bit != 0 && len > 0 {
            fields.push(MatchField::masked(field, (address & mask).into(), mask.into()));
        }
    }
    if which & (SOURCE_PORT | DESTINATION_PORT) != 0 {
        fields.push(MatchField::exact(Field::IpProto, UDP));
    }
    for (bit, field, port) in
        [(SOURCE_PORT, Field::UdpSrc, headers.ports[0]), (DESTINATION_PORT, Field::UdpDst, headers.ports[1])]
    {
        if which & bit != 0 {
            fields.push(MatchField::exact(field, port.into()));
        }
    }
    Match::new(fields).expect("a valid match")
}

fn add(pipeline: &mut Pipeline, fields: &Match, priority: u16) -> FlowId {
    let output = Action::Output { port: 5, max_len: 0 };
    let instructions = [Instruction::ApplyActions(Box::new([output]))];
    let flow = Flow { table: 0, priority, fields, instructions: &instructions, cookie: 0 };
    pipeline.add_flow(&flow).expect("room for a flow")
}

struct Case {
    /// Control's end, which the worker's versions belong to.
    _pipeline: Pipeline,
    worker: Worker,
    frames: Vec<(Option<Frame>, Arrival)>,
    ns: Vec<f64>,
    sent: usize,
}

impl Case {
    fn new(mut pipeline: Pipeline, headers: &[Headers]) -> Self {
        pipeline.set_ports((1..=8).map(Port::new).collect());
        let worker = pipeline.worker(0).expect("one worker");
        let mut pool = Pool::new(FRAMES as u32).expect("memory");
        let frames = (0..FRAMES).map(|number| {
            let headers = &headers[number * 7919 % headers.len()];
            let ingress = Ingress { in_port: headers.in_port, in_phy_port: headers.in_port, tunnel_id: 0 };
            let arrival = Arrival { ingress, count: Count { packets: 1, bytes: 60 } };
            (Some(frame(&mut pool, headers)), arrival)
        });
        let frames = frames.collect();
        // The frames stay for as long as the program.
        std::mem::forget(pool);
        Self { _pipeline: pipeline, worker, frames, ns: Vec::new(), sent: 0 }
    }

    fn round(&mut self) {
        let started = Clock::now();
        for _ in 0..PASSES {
            for (frame, arrival) in &mut self.frames {
                let mut outlet = Back::default();
                if let Some(frame) = frame.take() {
                    self.worker.receive(NOW, frame, black_box(arrival), &mut outlet);
                }
                self.sent += usize::from(outlet.sent);
                *frame = outlet.frame;
            }
        }
        self.ns.push(started.elapsed().as_nanos() as f64 / (FRAMES * PASSES) as f64);
    }
}

/// Keeps the frame for the next pass.
#[derive(Default)]
struct Back {
    frame: Option<Frame>,
    sent: bool,
}

impl Outlet for Back {
    fn share(&mut self, _: &mut Frame) -> Option<Frame> {
        None
    }

    fn send(&mut self, frame: Frame, _: Destination, _: &Ports) {
        (self.frame, self.sent) = (Some(frame), true);
    }

    fn discard(&mut self, frame: Frame, _: u32, _: Reason) {
        self.frame = Some(frame);
    }

    fn release(&mut self, frame: Frame) {
        self.frame = Some(frame);
    }
}

/// Eight masks, as an access list might have.
const MASKS: [(u32, [u32; 2]); 8] = [
    (EXACT, [32, 32]),
    (SOURCE | DESTINATION, [32, 32]),
    (DESTINATION | DESTINATION_PORT, [32, 32]),
    (SOURCE | DESTINATION_PORT, [24, 32]),
    (IN_PORT | SOURCE, [32, 32]),
    (DESTINATION, [32, 24]),
    (SOURCE, [16, 32]),
    (IN_PORT | DESTINATION_PORT, [0, 0]),
];

fn pipeline(random: &mut fastrand::Rng) -> Pipeline {
    let mut pipeline = Pipeline::new(1, [random.u64(..), random.u64(..)]);
    add(&mut pipeline, &Match::default(), 0);
    pipeline
}

fn exact(flows: usize, random: &mut fastrand::Rng) -> Case {
    let mut pipeline = pipeline(random);
    let headers: Vec<_> = (0..flows).map(|_| headers(random)).collect();
    for headers in &headers {
        add(&mut pipeline, &fields(headers, EXACT, [32, 32]), 10);
    }
    Case::new(pipeline, &headers)
}

fn eight(random: &mut fastrand::Rng) -> Case {
    let mut pipeline = pipeline(random);
    let known: Vec<_> = (0..1000).map(|_| headers(random)).collect();
    for (number, headers) in known.iter().enumerate() {
        let (which, prefixes) = MASKS[number % MASKS.len()];
        add(&mut pipeline, &fields(headers, which, prefixes), 10 + (number % MASKS.len()) as u16);
    }
    Case::new(pipeline, &known)
}

/// The flows and frames of tuple-space explosion ([`hostile`]), a mask for each pair of prefix lengths. Half of the frames are
/// of one of the flows.
fn explosion(random: &mut fastrand::Rng) -> Case {
    let mut pipeline = pipeline(random);
    let (taken, unknown) = hostile::all();
    let of = |[source, destination]: hostile::Addresses, random: &mut fastrand::Rng| Headers {
        source,
        destination,
        ..headers(random)
    };
    let mut frames = Vec::new();
    for (lengths, addresses) in taken {
        let headers = of(addresses, random);
        add(&mut pipeline, &fields(&headers, SOURCE | DESTINATION, lengths), random.u16(1..));
        frames.push(headers);
    }
    frames.extend(unknown.into_iter().map(|addresses| of(addresses, random)));
    Case::new(pipeline, &frames)
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(cpu) = args.cpu {
        affinity::pin_current_thread(cpu)?;
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut cases = [exact(1000, &mut random), eight(&mut random), explosion(&mut random)];
    for _ in 0..ROUNDS {
        cases.iter_mut().for_each(Case::round);
    }
    for case in &cases {
        ensure!(case.sent > 0, "no frame left the tables");
    }
    let [exact_ns, masks_ns, hostile_ns] = cases.each_mut().map(|case| median(&mut case.ns));
    // Frames are not given back to their pools.
    cases.into_iter().for_each(std::mem::forget);
    // ns per frame: one exact table with 1,000 flows; eight masks, 1,000 flows; 1,024 masks, and frames that search as many of them as
    // can be.
    Ok(print(json!({ "exact_ns": exact_ns, "masks_ns": masks_ns, "hostile_ns": hostile_ns }))?)
}
