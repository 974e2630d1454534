use twinpath_frame::Pool;
use twinpath_openflow_wire::{Bucket, Field, GroupType, Instruction, Match, MatchField};

use super::*;
use crate::openflow::pipeline::{Flow, GroupConfig, Pipeline, Port, Ports};

const NOW: Instant = Instant::from_nanos(1 << 40);

struct Sent {
    pool: Pool,
    to: Vec<Destination>,
    dropped: Vec<Reason>,
}

impl Outlet for Sent {
    fn share(&mut self, frame: &mut Frame) -> Option<Frame> {
        self.pool.share(frame)
    }

    fn send(&mut self, frame: Frame, to: Destination, _: &Ports) {
        self.to.push(to);
        self.pool.release(frame);
    }

    fn discard(&mut self, frame: Frame, _: u32, reason: Reason) {
        self.dropped.push(reason);
        self.pool.release(frame);
    }

    fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }
}

fn sent() -> Sent {
    Sent { pool: Pool::new(64).expect("pool"), to: Vec::new(), dropped: Vec::new() }
}

fn receive(worker: &mut Worker, outlet: &mut Sent, source: u8, packets: u64) {
    let mut frame = outlet.pool.take().expect("free");
    frame.copy_from(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, source, 0x88, 0xb5, 0]).expect("it fits");
    let ingress = Ingress { in_port: 1, in_phy_port: 1, tunnel_id: 0 };
    let arrival = Arrival { ingress, count: Count { packets, bytes: packets * 60 } };
    worker.receive(NOW, frame, &arrival, outlet);
    assert_eq!(outlet.pool.free(), outlet.pool.frames());
}

fn output(port: u32) -> Action {
    Action::Output { port, max_len: 0 }
}

fn pipeline(instructions: &[Instruction]) -> (Pipeline, crate::openflow::pipeline::FlowId) {
    let mut pipeline = Pipeline::new(1, [1, 2]);
    pipeline.set_ports((1..=4).map(Port::new).collect());
    let flow = Flow { table: 0, priority: 1, fields: &Match::default(), instructions, cookie: 3 };
    let id = pipeline.add_flow(&flow).expect("room");
    (pipeline, id)
}

fn adopt(pipeline: &mut Pipeline, worker: &mut Worker) {
    let version = pipeline.barrier();
    if let Some(snapshot) = pipeline.publish() {
        drop(worker.replace(snapshot));
    }
    pipeline.taken(version);
}

#[test]
fn fragments_are_dropped_where_control_says_so() {
    let apply = [Instruction::ApplyActions(Box::new([output(2)]))];
    let (mut pipeline, _) = pipeline(&apply);
    let (mut worker, mut sent) = (pipeline.worker(0).expect("one"), sent());
    // UDP over IPv4: whole, a first fragment, a later one.
    let ip = |fragment: u16| {
        let [high, low] = fragment.to_be_bytes();
        let mut bytes =
            vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0, 0, 28, 0, 1, high, low, 64, 17, 0, 0];
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 7, 0, 8, 0, 0]);
        bytes
    };
    let ingress = Ingress { in_port: 1, in_phy_port: 1, tunnel_id: 0 };
    let mut pass = |worker: &mut Worker| {
        for fragment in [0, 0x4000, 0x2000, 0x0001] {
            let mut frame = sent.pool.take().expect("free");
            frame.copy_from(&ip(fragment)).expect("it fits");
            worker.receive(
                NOW,
                frame,
                &Arrival { ingress, count: Count { packets: 1, bytes: 60 } },
                &mut sent,
            );
        }
        (std::mem::take(&mut sent.to).len(), std::mem::take(&mut sent.dropped))
    };
    let traced = |pipeline: &Pipeline, fragment| pipeline.trace(&ip(fragment), None, &ingress).verdict();
    assert_eq!(pass(&mut worker), (4, vec![]));
    assert_eq!(traced(&pipeline, 0x2000), Ok(2));
    pipeline.set_drop_fragments(true);
    adopt(&mut pipeline, &mut worker);
    assert_eq!(pass(&mut worker), (2, vec![Reason::Fragment; 2]));
    assert_eq!(
        (traced(&pipeline, 0), traced(&pipeline, 0x2000)),
        (Ok(2), Err(crate::openflow::pipeline::WhyNot::Fields))
    );
    pipeline.set_drop_fragments(false);
    adopt(&mut pipeline, &mut worker);
    assert_eq!(pass(&mut worker), (4, vec![]));
}

#[test]
fn each_drop_has_its_reason() {
    let reasons = |instructions: &[Instruction]| {
        let (pipeline, _) = pipeline(instructions);
        let (mut worker, mut sent) = (pipeline.worker(0).expect("one"), sent());
        receive(&mut worker, &mut sent, 1, 1);
        assert!(sent.to.is_empty());
        sent.dropped
    };
    let apply = |action| vec![Instruction::ApplyActions(Box::new([action]))];
    assert_eq!(reasons(&[]), [Reason::FlowDrop]);
    assert_eq!(reasons(&[Instruction::GotoTable(1)]), [Reason::TableMiss]);
    assert_eq!(reasons(&apply(output(1))), [Reason::SamePort]);
    assert_eq!(reasons(&apply(output(9))), [Reason::PortDown]);
    assert_eq!(reasons(&apply(Action::Group(1))), [Reason::NoBucket]);
}

#[test]
fn a_flow_that_was_removed_is_gone_once_every_worker_has_turned() {
    let (mut pipeline, id) = pipeline(&[Instruction::ApplyActions(Box::new([output(2)]))]);
    let (mut worker, mut sent) = (pipeline.worker(0).expect("one"), sent());
    adopt(&mut pipeline, &mut worker);
    receive(&mut worker, &mut sent, 1, 7);
    pipeline.remove_flow(id, true);
    let barrier = pipeline.barrier();
    let snapshot = pipeline.publish().expect("a change");
    receive(&mut worker, &mut sent, 1, 1);
    assert!(pipeline.take_gone().is_empty() && !pipeline.is_in_force(barrier));
    drop(worker.replace(snapshot));
    pipeline.taken(barrier);
    assert!(pipeline.is_in_force(barrier));
    let [(gone, counted)] = pipeline.take_gone()[..] else { panic!("one flow") };
    assert_eq!((gone, counted.count, counted.used), (id, Count { packets: 8, bytes: 480 }, NOW));
    assert_eq!(pipeline.flow_count(id), None);
    receive(&mut worker, &mut sent, 1, 1);
    assert_eq!(sent.dropped, [Reason::TableMiss]);
}

fn bucket(weight: u16, port: u32) -> Bucket {
    Bucket { weight, watch_port: port, watch_group: u32::MAX, actions: Box::new([output(port)]) }
}

#[test]
fn a_flow_stays_with_its_bucket_and_flows_are_shared_by_weight() {
    let (mut pipeline, _) = pipeline(&[Instruction::ApplyActions(Box::new([Action::Group(7)]))]);
    let buckets = vec![bucket(1, 2), bucket(3, 3)];
    pipeline.set_group(7, GroupConfig { kind: GroupType::Select, buckets }).expect("room");
    let (mut worker, mut sent) = (pipeline.worker(0).expect("one"), sent());
    (0..=255).for_each(|source| receive(&mut worker, &mut sent, source, 1));
    (0..=255).for_each(|source| receive(&mut worker, &mut sent, source, 1));
    assert_eq!(sent.to[..256], sent.to[256..]);
    let share = sent.to.iter().filter(|to| **to == Destination::Port(2)).count();
    assert!((80..180).contains(&share), "{share} of 512");
    let counted = pipeline.group_count(7).expect("there");
    assert_eq!((counted.whole.packets, counted.parts[0].packets), (512, share as u64));
}

#[test]
fn a_group_fails_over_with_the_state_of_its_port_and_back() {
    let (mut pipeline, _) = pipeline(&[Instruction::WriteActions(Box::new([Action::Group(7)]))]);
    let watching = Bucket { watch_group: 7, watch_port: u32::MAX, ..bucket(0, 4) };
    let config = |kind, buckets: &[Bucket]| GroupConfig { kind, buckets: buckets.to_vec() };
    pipeline.set_group(7, config(GroupType::FastFailover, &[bucket(0, 2), bucket(0, 3)])).expect("room");
    pipeline.set_group(8, config(GroupType::FastFailover, &[watching])).expect("room");
    let (mut worker, mut sent) = (pipeline.worker(0).expect("one"), sent());
    for (dead, wanted) in [(0, Some(2)), (2, Some(3)), (3, Some(2)), (5, None), (0, Some(2))] {
        let port = |number: u32| Port { is_live: dead != number && dead != 5, ..Port::new(number) };
        pipeline.set_ports((1..=4).map(port).collect());
        adopt(&mut pipeline, &mut worker);
        sent.to.clear();
        receive(&mut worker, &mut sent, 1, 1);
        assert_eq!(sent.to.first().copied(), wanted.map(Destination::Port), "{dead}");
    }
    assert_eq!(sent.dropped, [Reason::NoBucket]);
}

#[test]
fn groups_of_groups_multiply_a_frame_only_so_often() {
    let (mut pipeline, _) = pipeline(&[Instruction::ApplyActions(Box::new([Action::Group(1)]))]);
    for group in 1..=16 {
        let to = if group == 16 { output(2) } else { Action::Group(group + 1) };
        let twice = Bucket { actions: Box::new([to]), ..bucket(0, u32::MAX) };
        let buckets = vec![twice.clone(), twice];
        pipeline.set_group(group, GroupConfig { kind: GroupType::All, buckets }).expect("room");
    }
    let (mut worker, mut sent) = (pipeline.worker(0).expect("one"), sent());
    receive(&mut worker, &mut sent, 1, 1);
    assert!((100..=BUCKETS_MAX as usize).contains(&sent.to.len()), "{}", sent.to.len());
}

#[test]
fn a_flow_of_higher_priority_takes_the_frames_of_a_lower_one() {
    let (mut pipeline, _) = pipeline(&[Instruction::ApplyActions(Box::new([output(2)]))]);
    let fields = Match::new([MatchField::exact(Field::EthSrc, 0x0200_0000_0005)]).expect("valid");
    let instructions = [Instruction::ApplyActions(Box::new([output(3)]))];
    let flow = Flow { table: 0, priority: 2, fields: &fields, instructions: &instructions, cookie: 0 };
    let id = pipeline.add_flow(&flow).expect("room");
    let (mut worker, mut sent) = (pipeline.worker(0).expect("one"), sent());
    receive(&mut worker, &mut sent, 5, 1);
    receive(&mut worker, &mut sent, 6, 1);
    pipeline.change_flow(id, &[Instruction::ApplyActions(Box::new([output(4)]))], 5);
    adopt(&mut pipeline, &mut worker);
    receive(&mut worker, &mut sent, 5, 1);
    assert_eq!(sent.to, [3, 2, 4].map(Destination::Port));
    assert_eq!(pipeline.flow_count(id).map(|flow| flow.count.packets), Some(2), "it goes on counting");
    assert_eq!(
        pipeline.table_count(0),
        crate::openflow::pipeline::TableCount { flows: 2, lookups: 3, matched: 3 }
    );
}
