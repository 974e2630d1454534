use twinpath_openflow_wire::{Bucket, Field, GroupType, Instruction, Match, MatchField};

use super::*;
use crate::openflow::pipeline::{Count, Flow, GroupConfig, MeterConfig, MeterUnit, Pipeline, Port};

const INGRESS: Ingress = Ingress { in_port: 1, in_phy_port: 1, tunnel_id: 0 };

/// An IPv4 UDP frame to a port.
fn udp(to: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0];
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, to, 0, 10, 0, 0, 1, 2]);
    frame
}

fn output(port: u32) -> Action {
    Action::Output { port, max_len: 0 }
}

fn pipeline() -> Pipeline {
    let mut pipeline = Pipeline::new(1, [1, 2]);
    pipeline.set_ports((1..=4).map(Port::new).collect());
    pipeline
}

fn add(
    pipeline: &mut Pipeline,
    table: u8,
    priority: u16,
    fields: &[MatchField],
    does: &[Instruction],
) -> FlowId {
    let fields = Match::new(fields).expect("valid");
    let flow = Flow { table, priority, fields: &fields, instructions: does, cookie: 0 };
    pipeline.add_flow(&flow).expect("room")
}

fn apply(actions: &[Action]) -> Vec<Instruction> {
    vec![Instruction::ApplyActions(actions.into())]
}

fn verdict(does: &[Instruction]) -> Result<u32, WhyNot> {
    let mut pipeline = pipeline();
    let meter = MeterConfig { unit: MeterUnit::Packets, has_burst: false, bands: Vec::new() };
    pipeline.set_meter(1, &meter).expect("room");
    let bucket = |port| Bucket {
        weight: 1,
        watch_port: number::port::ANY,
        watch_group: number::group::ANY,
        actions: [output(port)].into(),
    };
    for (group, kind, ports) in [
        (1, GroupType::Indirect, &[2][..]),
        (2, GroupType::All, &[2, 3]),
        (3, GroupType::Select, &[2]),
        (4, GroupType::FastFailover, &[]),
    ] {
        let buckets = ports.iter().map(|port| bucket(*port)).collect();
        pipeline.set_group(group, GroupConfig { kind, buckets }).expect("room");
    }
    add(&mut pipeline, 0, 1, &[], does);
    pipeline.trace(&udp(7), None, &INGRESS).verdict()
}

#[test]
fn only_one_output_of_the_unchanged_frame_is_exact() {
    use number::port::{ALL, CONTROLLER, FLOOD, IN_PORT, NORMAL};
    let of = |actions: &[Action]| verdict(&apply(actions));
    assert_eq!(of(&[output(2)]), Ok(2));
    assert_eq!(of(&[output(1), output(2), output(9)]), Ok(2), "no way back, and no such port");
    assert_eq!(of(&[output(IN_PORT)]), Ok(1));
    assert_eq!(of(&[Action::Group(1)]), Ok(2));
    assert_eq!(of(&[output(2), output(3)]), Err(WhyNot::SeveralOutputs));
    assert_eq!(of(&[Action::Group(1), output(3)]), Err(WhyNot::SeveralOutputs));
    assert_eq!(of(&[output(ALL)]), Err(WhyNot::SeveralOutputs));
    assert_eq!(of(&[output(1)]), Err(WhyNot::NoOutput));
    assert_eq!(of(&[]), Err(WhyNot::NoOutput));
    assert_eq!(of(&[Action::DecNwTtl, output(2)]), Err(WhyNot::Rewrites));
    assert_eq!(of(&[output(CONTROLLER)]), Err(WhyNot::Controller));
    assert_eq!(of(&[output(NORMAL)]), Err(WhyNot::Normal));
    assert_eq!(of(&[output(FLOOD)]), Err(WhyNot::Normal));
    assert_eq!(of(&[Action::Group(2)]), Err(WhyNot::Group));
    assert_eq!(of(&[Action::Group(3)]), Err(WhyNot::Group));
    assert_eq!(of(&[Action::Group(4)]), Err(WhyNot::NoOutput));
    assert_eq!(verdict(&[Instruction::Meter(1)]), Err(WhyNot::Meter));
    let written = [Instruction::WriteActions([output(3), output(2)].into())];
    assert_eq!(verdict(&written), Ok(2), "the last of a kind is in the set");
}

#[test]
fn what_is_looked_at_is_what_decides() {
    let mut pipeline = pipeline();
    let eth_type = MatchField::exact(Field::EthType, 0x800);
    let udp_proto = MatchField::exact(Field::IpProto, 17);
    let to = |port| [eth_type, udp_proto, MatchField::exact(Field::UdpDst, port)];
    let first = add(&mut pipeline, 0, 5, &[], &[Instruction::GotoTable(1)]);
    let second = add(&mut pipeline, 1, 1, &[eth_type], &apply(&[output(2)]));
    // It does not match, but that it does not has been looked at.
    add(&mut pipeline, 1, 9, &to(80), &apply(&[output(3)]));
    // It cannot win, so no look-up checks whether it matches.
    add(&mut pipeline, 1, 0, &[MatchField::exact(Field::EthSrc, 1)], &apply(&[output(4)]));
    let trace = pipeline.trace(&udp(7), None, &INGRESS);
    assert_eq!(trace.verdict(), Ok(2));
    assert_eq!(trace.path().flows().collect::<Vec<_>>(), [first, second]);
    let exact = trace.exact_key().expect("the fields are simple");
    assert_eq!(exact.mask[3], 0xffff << 32, "the destination port");
    assert_eq!(exact.value[3], 7 << 32);
    assert_eq!((exact.mask[2], exact.mask[4]), (0, 0), "neither source nor addresses");
    assert_eq!(exact.value[0] >> 16 & 0xffff, 1, "the port that it came in by");
    let other = pipeline.trace(&udp(80), None, &INGRESS);
    assert_eq!((other.verdict(), other.exact_key().map(|key| key.value[3])), (Ok(3), Ok(80 << 32)));
}

#[test]
fn fields_that_the_kernel_does_not_read_are_named() {
    let mut pipeline = pipeline();
    let label = [MatchField::exact(Field::EthType, 0x86dd), MatchField::exact(Field::Ipv6Flabel, 5)];
    add(&mut pipeline, 0, 5, &label, &[]);
    add(&mut pipeline, 0, 1, &[], &apply(&[output(2)]));
    assert_eq!(pipeline.trace(&udp(7), None, &INGRESS).exact_key(), Err(WhyNot::Fields));
    let tunnel = Ingress { tunnel_id: 4, ..INGRESS };
    assert_eq!(pipeline.trace(&udp(7), None, &tunnel).exact_key(), Err(WhyNot::Fields));
}

#[test]
fn what_the_kernel_has_counted_is_added_to_what_workers_have() {
    let mut pipeline = pipeline();
    let flow = add(&mut pipeline, 0, 1, &[], &apply(&[output(2)]));
    let trace = pipeline.trace(&udp(7), None, &INGRESS);
    let count = Count { packets: 3, bytes: 180 };
    let used = twinpath_time::Instant::from_nanos(9);
    pipeline.record(trace.path(), count, used);
    pipeline.record(trace.path(), count, twinpath_time::Instant::from_nanos(5));
    let counted = pipeline.flow_count(flow).expect("there");
    assert_eq!((counted.count.packets, counted.count.bytes, counted.used), (6, 360, used));
    let table = pipeline.table_count(0);
    assert_eq!((table.lookups, table.matched), (6, 6));
    assert!(pipeline.worker(1).is_none(), "what is counted elsewhere is no worker");
}
