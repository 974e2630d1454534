//! Fuzzes the OpenFlow pipeline: frames leave a [`Worker`] as they leave an interpreter of the specification's text, with the
//! same flows, groups, meters and ports, and the same is counted.

mod checksums;
mod fields;
pub(crate) mod kernel;
mod made;
mod naive;

use twinpath_forwarding::openflow::pipeline::{
    Arrival, Count, Destination, FlowId, Outlet, Pipeline, Ports, Trace, WhyNot, Worker,
};
use twinpath_frame::{Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_openflow_wire::Action;
use twinpath_time::{Duration, Instant};

use self::made::{Bytes, Made};
use self::naive::Naive;
use crate::fuzz;

/// Maximum number of frames of a run, each of which may leave by all ports of all buckets.
const FRAMES: u32 = 512;

/// Frames, and changes in between, of a run.
const STEPS: usize = 20;

/// Collects what leaves.
struct Sent<'a> {
    pool: &'a mut Pool,
    sent: Vec<(Destination, Vec<u8>)>,
}

/// A frame's bytes as on a wire: with the tag that is beside them.
fn on_wire(frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.bytes().to_vec();
    if let Some(control) = frame.meta().vlan {
        bytes.splice(12..12, [[0x81, 0], control.to_be_bytes()].concat());
    }
    bytes
}

impl Outlet for Sent<'_> {
    fn share(&mut self, frame: &mut Frame) -> Option<Frame> {
        self.pool.share(frame)
    }

    fn send(&mut self, frame: Frame, to: Destination, _: &Ports) {
        self.sent.push((to, on_wire(&frame)));
        self.pool.release(frame);
    }

    fn discard(&mut self, frame: Frame, _: u32, _: Reason) {
        self.pool.release(frame);
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }
}

struct Pair {
    pipeline: Pipeline,
    worker: Worker,
    naive: Naive,
    flows: Vec<FlowId>,
    pool: Pool,
    now: Instant,
}

impl Pair {
    fn new() -> Self {
        let pipeline = Pipeline::new(1, [7, 8]);
        let worker = pipeline.worker(0).expect("one worker");
        let pool = Pool::new(FRAMES).expect("pool");
        let now = Instant::from_nanos(1 << 40);
        Self { pipeline, worker, naive: Naive::default(), flows: Vec::new(), pool, now }
    }

    /// Has the worker take what has changed.
    fn publish(&mut self) {
        let version = self.pipeline.barrier();
        if let Some(snapshot) = self.pipeline.publish() {
            drop(self.worker.replace(snapshot));
        }
        assert_eq!(self.worker.snapshot().number(), version);
        self.pipeline.taken(version);
        assert!(self.pipeline.is_in_force(version));
    }

    fn pass(&mut self, made: &Made, actions: Option<&[Action]>) {
        let mut frame = self.pool.take().expect("all frames are back");
        frame.copy_from(&made.bytes).expect("short");
        frame.meta_mut().vlan = made.beside;
        let wire = on_wire(&frame);
        let count = Count { packets: made.packets, bytes: wire.len() as u64 };
        let arrival = Arrival { ingress: made.ingress, count };
        let traced = self.pipeline.trace(&made.bytes, made.beside, &made.ingress);
        let counts = self.counts_of(&traced);
        self.now += Duration::from_nanos(1);
        self.naive.now = self.now;
        self.naive.sent.clear();
        let mut outlet = Sent { pool: &mut self.pool, sent: Vec::new() };
        match actions {
            None => {
                self.worker.receive(self.now, frame, &arrival, &mut outlet);
                self.naive.receive(&wire, made.ingress, (count.packets, count.bytes));
            }
            Some(actions) => {
                self.worker.packet_out(self.now, frame, &arrival, actions, &mut outlet);
                self.naive.packet_out(&wire, made.ingress, (count.packets, count.bytes), actions);
            }
        }
        let sent = outlet.sent;
        if actions.is_none() {
            match traced.verdict() {
                Ok(port) => assert_eq!(sent, [(Destination::Port(port), wire.clone())]),
                Err(WhyNot::NoOutput) => assert_eq!(sent, []),
                Err(_) => {}
            }
            let passed = counts.into_iter().map(|packets| packets + made.packets);
            assert!(passed.eq(self.counts_of(&traced)), "each flow of the trace has counted the frame");
        }
        assert_eq!(self.pool.free(), self.pool.frames(), "each frame comes back once");
        if made.has_checksums && made::keeps_checksums(&self.naive.flows, &self.naive.groups, actions) {
            assert_eq!(sent, self.naive.sent, "{wire:02x?}");
        } else {
            // A wrong checksum stays wrong, and by how much is not specified.
            let to = |sent: &[(Destination, Vec<u8>)]| -> Vec<_> {
                sent.iter().map(|(to, bytes)| (*to, bytes.len())).collect()
            };
            assert_eq!(to(&sent), to(&self.naive.sent), "{wire:02x?}");
        }
    }

    /// What the flows of a trace have counted.
    fn counts_of(&self, traced: &Trace) -> Vec<u64> {
        let of = |flow| self.pipeline.flow_count(flow).expect("not removed").count.packets;
        traced.path().flows().map(of).collect()
    }

    fn compare_counts(&self) {
        self.compare_counted();
        for (id, flow) in self.flows.iter().zip(&self.naive.flows) {
            assert_eq!(self.pipeline.flow_count(*id).expect("not removed").used, flow.used);
        }
    }

    fn compare_counted(&self) {
        for (id, flow) in self.flows.iter().zip(&self.naive.flows) {
            let counted = self.pipeline.flow_count(*id).expect("not removed");
            assert_eq!((counted.count.packets, counted.count.bytes), flow.counted, "{:?}", flow.fields);
        }
        for (table, counted) in (0_u8..).zip(&self.naive.lookups) {
            let own = self.pipeline.table_count(table);
            assert_eq!((own.lookups, own.matched), *counted);
            assert_eq!(own.flows, self.naive.flows.iter().filter(|flow| flow.table == table).count());
        }
        for (group, counted) in &self.naive.group_counts {
            let own = self.pipeline.group_count(*group).expect("there").whole;
            assert_eq!((own.packets, own.bytes), *counted);
        }
    }
}

/// Flows, groups, meters and ports from the first bytes; then frames, and changes of flows in between.
fn run(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let mut pair = Pair::new();
    made::configure(&mut bytes, &mut pair.pipeline, &mut pair.naive);
    let samples: Vec<Made> = (0..4).map(|_| made::frame(&mut bytes)).collect();
    for _ in 0..bytes.next() % 24 {
        made::add_flow(&mut bytes, &samples, &mut pair.pipeline, &mut pair.naive, &mut pair.flows);
    }
    pair.publish();
    for _ in 0..STEPS {
        match bytes.next() % 16 {
            0 => made::add_flow(&mut bytes, &samples, &mut pair.pipeline, &mut pair.naive, &mut pair.flows),
            1 => made::change_flow(&mut bytes, &mut pair.pipeline, &mut pair.naive, &mut pair.flows),
            2 => {
                let (frame, actions) = (made::frame(&mut bytes), made::actions(&mut bytes, true));
                pair.publish();
                pair.pass(&frame, Some(&actions));
            }
            3 => made::set_ports(&mut bytes, &mut pair.pipeline, &mut pair.naive),
            4..=8 => {
                let sample = &samples[usize::from(bytes.next()) % samples.len()];
                pair.publish();
                pair.pass(sample, None);
            }
            _ => {
                let frame = made::frame(&mut bytes);
                pair.publish();
                pair.pass(&frame, None);
            }
        }
    }
    pair.compare_counts();
}

#[test]
fn frames() {
    fuzz!("pipeline__frames", |input: &[u8]| run(input));
}
