//! Versions, and the numbers of counters that are used again, in every order that the memory model allows (loom).

use std::collections::VecDeque;

use loom::sync::{Arc, Mutex};
use loom::thread;
use twinpath_frame::{Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_openflow_wire::{Action, Field, MatchField};

use super::*;
use crate::openflow::pipeline::sync::{AtomicU64, Ordering};
use crate::openflow::pipeline::{Arrival, Destination, Outlet};

const NOW: Instant = Instant::from_nanos(1 << 40);

/// Control's and the worker's ends of mailboxes: versions one way, the number of the last one taken the other.
struct Mail {
    versions: Mutex<VecDeque<std::sync::Arc<Snapshot>>>,
    taken: AtomicU64,
}

/// Gives frames back, and notes the port that the last one was sent to.
struct Sent {
    pool: Pool,
    to: Option<u32>,
}

impl Outlet for Sent {
    fn share(&mut self, _: &mut Frame) -> Option<Frame> {
        None
    }

    fn send(&mut self, frame: Frame, to: Destination, _: &Ports) {
        let Destination::Port(to) = to else { panic!("no flow says so") };
        self.to = Some(to);
        self.pool.release(frame);
    }

    fn discard(&mut self, frame: Frame, _: u32, _: Reason) {
        self.pool.release(frame);
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }
}

/// The port that a frame is sent to.
fn pass(worker: &mut Worker, sent: &mut Sent) -> Option<u32> {
    sent.to = None;
    let mut frame = sent.pool.take().expect("the last one came back");
    frame.copy_from(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]).expect("it fits");
    let arrival = Arrival { count: Count { packets: 1, bytes: 14 }, ..Arrival::default() };
    worker.receive(NOW, frame, &arrival, sent);
    sent.to
}

/// A flow for all frames, to this port.
fn add(pipeline: &mut Pipeline, port: u32) -> FlowId {
    let fields = Match::new([MatchField::exact(Field::EthType, 0x800)]).expect("valid");
    let instructions = [Instruction::ApplyActions(Box::new([Action::Output { port, max_len: 0 }]))];
    let flow = Flow { table: 0, priority: 1, fields: &fields, instructions: &instructions, cookie: 0 };
    pipeline.add_flow(&flow).expect("room")
}

/// Runs a model; a thread is interrupted up to this many times.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn a_flow_that_is_gone_has_counted_all_and_its_number_counts_for_another_from_zero() {
    model(|| {
        let mut pipeline = Pipeline::new(1, [1, 2]);
        pipeline.set_ports(vec![Port::new(1), Port::new(2)]);
        let first = add(&mut pipeline, 1);
        let mut worker = pipeline.worker(0).expect("one worker");
        // The second version is without the flow.
        pipeline.remove_flow(first, true);
        let removed = pipeline.barrier();
        let without = pipeline.publish().expect("a change");
        let versions = Mutex::new(VecDeque::from([without]));
        let mail = Arc::new(Mail { versions, taken: AtomicU64::new(0) });
        let to_control = Arc::clone(&mail);
        let turns = thread::spawn(move || {
            let mut sent = Sent { pool: Pool::new(1).expect("memory"), to: None };
            let (mut counted, mut former) = ([0; 3], Vec::new());
            for _ in 0..2 {
                let to = pass(&mut worker, &mut sent);
                counted[to.unwrap_or(0) as usize] += 1;
                let next = to_control.versions.lock().expect("no panic").pop_front();
                if let Some(version) = next {
                    let number = version.number();
                    former.push(worker.replace(version));
                    to_control.taken.store(number, Ordering::Release);
                }
            }
            let to = pass(&mut worker, &mut sent);
            counted[to.unwrap_or(0) as usize] += 1;
            // Control frees the former versions.
            (counted, former)
        });
        pipeline.taken(mail.taken.load(Ordering::Acquire));
        let gone = pipeline.take_gone();
        assert_eq!(!gone.is_empty(), pipeline.is_in_force(removed));
        let second = add(&mut pipeline, 2);
        assert_eq!(second == first, !gone.is_empty(), "its number is free once no worker uses it");
        assert_eq!(pipeline.flow_count(second).map(|flow| flow.count.packets), Some(0));
        let with = pipeline.publish().expect("a change");
        mail.versions.lock().expect("no panic").push_back(with);
        let (counted, former) = turns.join().expect("no panic");
        assert!(!former.is_empty());
        pipeline.taken(mail.taken.load(Ordering::Acquire));
        let gone: Vec<_> = gone.into_iter().chain(pipeline.take_gone()).collect();
        let [(id, last)] = gone[..] else { panic!("one flow is gone: {gone:?}") };
        assert_eq!((id, last.count.packets), (first, counted[1]));
        assert_eq!(pipeline.flow_count(second).map(|flow| flow.count.packets), Some(counted[2]));
    });
}

#[test]
fn what_arrives_after_a_required_version_is_not_judged_by_an_older_one() {
    model(|| {
        let mut pipeline = Pipeline::new(1, [1, 2]);
        pipeline.set_ports(vec![Port::new(1), Port::new(2)]);
        let first = add(&mut pipeline, 1);
        let mut worker = pipeline.worker(0).expect("one worker");
        pipeline.remove_flow(first, true);
        add(&mut pipeline, 2);
        let barrier = pipeline.barrier();
        let version = pipeline.publish().expect("a change");
        // A frame that is sent once the barrier's reply is there.
        let arrived = Arc::new(AtomicU64::new(0));
        let (ring, mail) = (Arc::clone(&arrived), Arc::new(Mutex::new(None)));
        let to_worker = Arc::clone(&mail);
        let turns = thread::spawn(move || {
            let mut sent = Sent { pool: Pool::new(1).expect("memory"), to: None };
            for _ in 0..2 {
                let has_arrived = ring.load(Ordering::Acquire) == 1;
                if !worker.is_outdated() {
                    let to = pass(&mut worker, &mut sent);
                    assert!(!has_arrived || to == Some(2), "judged by the former version");
                }
                if let Some(version) = to_worker.lock().expect("no panic").take() {
                    let former = worker.replace(version);
                    assert_eq!(former.number() + 1, worker.snapshot().number());
                }
            }
        });
        *mail.lock().expect("no panic") = Some(version);
        assert!(!pipeline.is_in_force(barrier));
        pipeline.require(barrier);
        assert!(pipeline.is_in_force(barrier) && pipeline.take_gone().is_empty());
        arrived.store(1, Ordering::Release);
        turns.join().expect("no panic");
    });
}
