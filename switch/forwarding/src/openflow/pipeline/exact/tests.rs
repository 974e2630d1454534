use twinpath_openflow_wire::{Action, Field, Instruction, MatchField};

use super::*;
use crate::openflow::pipeline::{Flow, Ingress, Pipeline, Port};

/// A frame to a station, from one.
fn frame(to: u8, from: u8) -> Vec<u8> {
    vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5, 0]
}

fn station(number: u8) -> MatchField {
    MatchField::exact(Field::EthDst, 0x0200_0000_0000 | u128::from(number))
}

fn matching(fields: &[MatchField]) -> Match {
    Match::new(fields).expect("valid")
}

fn add(pipeline: &mut Pipeline, priority: u16, fields: &[MatchField], port: u32) -> FlowId {
    let instructions = [Instruction::ApplyActions([Action::Output { port, max_len: 0 }].into())];
    let fields = matching(fields);
    let flow = Flow { table: 0, priority, fields: &fields, instructions: &instructions, cookie: 0 };
    pipeline.add_flow(&flow).expect("room")
}

fn trace(pipeline: &Pipeline, to: u8, in_port: u32) -> Trace {
    pipeline.trace(&frame(to, 9), None, &Ingress { in_port, in_phy_port: in_port, tunnel_id: 0 })
}

/// Flows to stations 1 to 8, and entries for frames to them from ports 5 and 6.
fn filled() -> (Pipeline, ExactEntries, Vec<FlowId>) {
    let mut pipeline = Pipeline::new(1, [1, 2]);
    pipeline.set_ports((1..=8).map(Port::new).collect());
    let flows = (1..=8).map(|to| add(&mut pipeline, 7, &[station(to)], 1)).collect();
    let mut entries = ExactEntries::new(16);
    for number in 0..16_u8 {
        let place = entries.insert(&trace(&pipeline, number / 2 + 1, 5 + u32::from(number % 2)));
        assert_eq!(place, Ok(Inserted::Now(number.into())));
    }
    (pipeline, entries, flows)
}

#[test]
fn a_flow_makes_void_what_it_overlaps_and_nothing_else() {
    let (_, mut entries, flows) = filled();
    assert_eq!(entries.of_flow(flows[2]).collect::<Vec<_>>(), [4, 5]);
    let from = MatchField::exact(Field::InPort, 6);
    let mut of = |table, priority, fields: &[MatchField]| {
        let mut found = entries.overlapping(table, priority, &matching(fields));
        found.sort_unstable();
        found
    };
    assert_eq!(of(0, 7, &[station(3)]), [4, 5]);
    assert_eq!(of(0, 9, &[from, station(3)]), [5]);
    assert_eq!(of(0, 9, &[from]), [1, 3, 5, 7, 9, 11, 13, 15]);
    assert_eq!(of(0, 6, &[station(3)]), [], "of lower priority");
    assert_eq!(of(1, 9, &[station(3)]), [], "in a table that the frames do not come to");
    assert_eq!(of(0, 9, &[station(30)]), []);
    assert_eq!(of(0, 9, &[MatchField::exact(Field::EthSrc, 1)]).len(), 16, "nobody has looked at sources");
    let tunnel = MatchField::exact(Field::TunnelId, 1);
    assert_eq!(of(0, 9, &[tunnel, station(3)]), [], "no frame of a tunnel has an entry");
    let even = MatchField::masked(Field::EthDst, 0, 1);
    assert_eq!(of(0, 9, &[even]), [2, 3, 6, 7, 10, 11, 14, 15]);
    assert_eq!((entries.of_port(6).len(), entries.of_port(1).len(), entries.of_port(2).len()), (8, 16, 0));
}

#[test]
fn a_number_stays_until_it_is_forgotten() {
    let (pipeline, mut entries, flows) = filled();
    assert_eq!(entries.insert(&trace(&pipeline, 1, 7)), Err(WhyNot::Full));
    assert_eq!(entries.insert(&trace(&pipeline, 3, 5)), Ok(Inserted::Before(4)), "there is one");
    assert_eq!(entries.masks_of(5), 1);
    assert!(entries.make_void(4).is_some() && entries.make_void(4).is_none());
    assert_eq!(entries.of_flow(flows[2]).collect::<Vec<_>>(), [5]);
    assert_eq!(entries.insert(&trace(&pipeline, 3, 5)), Err(WhyNot::Full), "programs may be using it");
    assert!(entries.forget(5).is_none(), "it is not void");
    assert_eq!(entries.forget(4).map(|entry| entry.output), Some(1));
    assert_eq!(entries.insert(&trace(&pipeline, 3, 5)), Ok(Inserted::Now(4)));
    for number in entries.numbers().collect::<Vec<_>>() {
        assert!(entries.make_void(number).is_some() && entries.forget(number).is_some());
    }
    assert!(entries.is_empty() && entries.masks_of(5) == 0);
    assert!(entries.masks.iter().all(Option::is_none) && entries.by_flow.is_empty());
}

#[test]
fn entries_that_are_kept_by_common_bits_follow_changes() {
    let (mut pipeline, mut entries, _) = filled();
    let from = matching(&[MatchField::exact(Field::InPort, 6)]);
    assert_eq!(entries.overlapping(0, 9, &from).len(), 8);
    entries.make_void(1);
    entries.forget(1);
    assert_eq!(entries.overlapping(0, 9, &from).len(), 7);
    add(&mut pipeline, 7, &[station(40)], 2);
    assert_eq!(entries.insert(&trace(&pipeline, 40, 6)), Ok(Inserted::Now(1)));
    assert_eq!(entries.overlapping(0, 9, &from).len(), 8);
}

#[test]
fn a_flow_in_a_table_that_matched_nothing_takes_frames_too() {
    let mut pipeline = Pipeline::new(1, [1, 2]);
    pipeline.set_ports((1..=2).map(Port::new).collect());
    let output = Instruction::ApplyActions([Action::Output { port: 2, max_len: 0 }].into());
    let instructions = [output, Instruction::GotoTable(3)];
    let flow =
        Flow { table: 0, priority: 0, fields: &Match::default(), instructions: &instructions, cookie: 0 };
    pipeline.add_flow(&flow).expect("room");
    let mut entries = ExactEntries::new(4);
    let traced = trace(&pipeline, 1, 1);
    assert_eq!((traced.verdict(), entries.insert(&traced)), (Ok(2), Ok(Inserted::Now(0))));
    assert_eq!(entries.overlapping(3, 0, &matching(&[station(1)])), [0]);
    assert_eq!(entries.overlapping(2, 0, &matching(&[station(1)])), []);
    pipeline.record(
        traced.path(),
        crate::openflow::pipeline::Count { packets: 2, bytes: 2 },
        twinpath_time::Instant::ZERO,
    );
    assert_eq!((pipeline.table_count(0).matched, pipeline.table_count(3).lookups), (2, 2));
    assert_eq!(pipeline.table_count(3).matched, 0);
}
