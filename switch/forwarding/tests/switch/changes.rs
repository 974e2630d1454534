//! Changes of flows, groups, meters and ports: what is refused, what goes along, what is told.

use twinpath_forwarding::openflow::pipeline::FlowCount;
use twinpath_forwarding::openflow::{ControllerId, Request};
use twinpath_openflow_wire::{
    Action, BadAction, BadInstruction, Band, Bucket, Count, ErrorCode, Field, FlowMod, FlowModCommand,
    FlowModFailed, FlowRemovedReason, GroupMod, GroupModCommand, GroupModFailed, GroupType, Instruction,
    Match, MatchField, Message, MeterMod, MeterModCommand, MeterModFailed, MultipartReply, MultipartRequest,
    PortMod, PortModFailed, PortReason, flow_flags, meter_flags, number, port_config,
};

use crate::controller::{Bench, FLOWS_MAX, add, at, every_flow, from_port, output};

fn apply(actions: &[Action]) -> Box<[Instruction]> {
    [Instruction::ApplyActions(actions.into())].into()
}

fn bucket(actions: &[Action]) -> Bucket {
    Bucket {
        weight: 0,
        watch_port: number::port::ANY,
        watch_group: number::group::ANY,
        actions: actions.into(),
    }
}

fn group(command: GroupModCommand, group_id: u32, buckets: &[Bucket]) -> GroupMod {
    GroupMod { command, group_type: GroupType::All, group_id, buckets: buckets.into() }
}

fn meter(command: MeterModCommand, meter_id: u32, rate: u32) -> MeterMod {
    let bands = [Band::Drop { rate, burst: 10 }].into();
    MeterMod { command, flags: meter_flags::KBPS, meter_id, bands }
}

impl Bench {
    fn group_mod(&mut self, id: ControllerId, change: GroupMod) -> Result<(), ErrorCode> {
        self.done(id, &Message::GroupMod(Box::new(change)))
    }

    fn meter_mod(&mut self, id: ControllerId, change: MeterMod) -> Result<(), ErrorCode> {
        self.done(id, &Message::MeterMod(Box::new(change)))
    }
}

#[test]
fn instructions_that_cannot_be_done_are_refused_by_name() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let ip = Match::new([MatchField::exact(Field::EthType, 0x800)]).unwrap();
    let set = |field, value| Action::SetField { field, value };
    let cases: Vec<(Box<[Instruction]>, ErrorCode)> = vec![
        ([Instruction::GotoTable(3)].into(), BadInstruction::BadTableId.into()),
        ([Instruction::GotoTable(255)].into(), BadInstruction::BadTableId.into()),
        (
            [Instruction::ClearActions, Instruction::ClearActions].into(),
            BadInstruction::UnsupInstruction.into(),
        ),
        (
            [Instruction::Experimenter { experimenter: 1, data: [0; 8].into() }].into(),
            BadInstruction::BadExperimenter.into(),
        ),
        ([Instruction::Meter(1)].into(), MeterModFailed::InvalidMeter.into()),
        (output(0), BadAction::BadOutPort.into()),
        (output(number::port::TABLE), BadAction::BadOutPort.into()),
        (output(number::port::ANY), BadAction::BadOutPort.into()),
        (apply(&[Action::Group(1)]), BadAction::BadOutGroup.into()),
        (apply(&[Action::SetQueue(1)]), BadAction::BadQueue.into()),
        (apply(&[Action::PushVlan(0x800)]), BadAction::BadArgument.into()),
        (apply(&[set(Field::VlanVid, 5)]), BadAction::BadSetArgument.into()),
        (apply(&[set(Field::TcpDst, 5)]), BadAction::MatchInconsistent.into()),
        (apply(&[set(Field::VlanPcp, 5)]), BadAction::MatchInconsistent.into()),
        (apply(&[Action::PushMpls(0x8847), set(Field::Ipv4Dst, 5)]), BadAction::MatchInconsistent.into()),
        (
            apply(&[Action::Experimenter { experimenter: 1, data: Box::default() }]),
            BadAction::BadExperimenter.into(),
        ),
    ];
    for (instructions, error) in cases {
        let change =
            FlowMod { table_id: 3, matches: ip.clone(), instructions: instructions.clone(), ..add() };
        assert_eq!(bench.flow_mod(id, change), Err(error), "{instructions:?}");
    }
    let good: Vec<Box<[Instruction]>> = vec![
        [Instruction::GotoTable(4)].into(),
        apply(&[Action::PushVlan(0x8100), set(Field::VlanPcp, 5)]),
        apply(&[set(Field::Ipv4Dst, 5), set(Field::IpProto, 6), set(Field::TcpDst, 5)]),
        apply(&[Action::PushMpls(0x8847), set(Field::MplsLabel, 5)]),
        apply(&[]),
        [].into(),
    ];
    for instructions in good {
        let change = FlowMod { table_id: 3, matches: ip.clone(), instructions, ..add() };
        assert_eq!(bench.flow_mod(id, change), Ok(()));
    }
    let all = FlowMod { table_id: number::table::ALL, ..add() };
    assert_eq!(bench.flow_mod(id, all), Err(FlowModFailed::BadTableId.into()));
}

#[test]
fn a_full_table_takes_no_more_but_replaces() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for number in 0..FLOWS_MAX {
        bench.say(id, &Message::FlowMod(Box::new(FlowMod { matches: from_port(number), ..add() })));
    }
    assert_eq!(bench.settle(id), []);
    let more = FlowMod { matches: from_port(FLOWS_MAX), ..add() };
    assert_eq!(bench.flow_mod(id, more), Err(FlowModFailed::TableFull.into()));
    assert_eq!(bench.flow_mod(id, FlowMod { matches: from_port(0), cookie: 5, ..add() }), Ok(()));
    assert_eq!(bench.flows(id).len(), FLOWS_MAX as usize);
    let one = MultipartRequest::Aggregate(every_flow());
    assert!(
        matches!(bench.question(id, one)[..], [MultipartReply::Aggregate(sums)] if sums.flows == FLOWS_MAX)
    );
}

#[test]
fn a_replaced_flow_keeps_its_counters_unless_they_are_reset() {
    let mut bench = Bench::new();
    let id = bench.controller();
    assert_eq!(bench.flow_mod(id, add()), Ok(()));
    let counted = FlowCount { count: Count { packets: 3, bytes: 200 }, used: at(2.0) };
    bench.switch.datapath().counts.insert(1, counted);
    bench.now = at(4.0);
    assert_eq!(bench.flow_mod(id, FlowMod { cookie: 8, ..add() }), Ok(()));
    let flow = &bench.flows(id)[0];
    assert_eq!((flow.packets, flow.bytes, flow.cookie, flow.duration_s), (3, 200, 8, 0));
    assert_eq!(bench.flow_mod(id, FlowMod { flags: flow_flags::RESET_COUNTS, ..add() }), Ok(()));
    assert_eq!(bench.flows(id)[0].packets, 0);
}

#[test]
fn a_flow_removed_has_the_final_counters_and_comes_before_the_barrier_reply() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let flags = flow_flags::SEND_FLOW_REM;
    assert_eq!(bench.flow_mod(id, FlowMod { flags, cookie: 6, ..add() }), Ok(()));
    bench.now = at(3.5);
    bench.say(id, &Message::FlowMod(Box::new(FlowMod { command: FlowModCommand::Delete, ..add() })));
    bench.say(id, &Message::BarrierRequest);
    bench.switch.advance(bench.now);
    assert_eq!(bench.heard(id), [], "a worker may still judge by it");
    // What a worker counts until then belongs to it.
    let counted = FlowCount { count: Count { packets: 9, bytes: 900 }, used: at(3.4) };
    bench.switch.datapath().counts.insert(1, counted);
    match bench.settle(id).as_slice() {
        [Message::FlowRemoved(flow), Message::BarrierReply] => {
            assert_eq!((flow.packets, flow.bytes, flow.cookie), (9, 900, 6));
            assert_eq!((flow.duration_s, flow.duration_ns), (2, 500_000_000));
            assert_eq!(flow.reason, FlowRemovedReason::Delete);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_idle_timeout_begins_again_with_each_use() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let flags = flow_flags::SEND_FLOW_REM;
    assert_eq!(bench.flow_mod(id, FlowMod { flags, idle_timeout_s: 2, ..add() }), Ok(()));
    bench.switch.datapath().counts.insert(1, FlowCount { used: at(2.5), ..FlowCount::default() });
    bench.now = at(4.4);
    assert_eq!(bench.settle(id), []);
    assert_eq!(bench.flows(id).len(), 1);
    bench.now = at(4.51);
    match bench.settle(id).as_slice() {
        [Message::FlowRemoved(flow)] => assert_eq!(flow.reason, FlowRemovedReason::IdleTimeout),
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_are_checked_as_the_specification_says() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let to = |group| bucket(&[Action::Group(group)]);
    let plain = bucket(&[Action::Output { port: 1, max_len: 0 }]);
    use GroupModCommand::{Add, Delete, Modify};
    let one_bucket =
        |group_type, bucket: &Bucket| GroupMod { group_type, ..group(Add, 5, std::slice::from_ref(bucket)) };
    assert_eq!(bench.group_mod(id, group(Add, 1, std::slice::from_ref(&plain))), Ok(()));
    assert_eq!(bench.group_mod(id, group(Add, 2, &[to(1)])), Ok(()));
    let watching = |watch_port, watch_group| Bucket { watch_port, watch_group, ..plain.clone() };
    let any = (number::port::ANY, number::group::ANY);
    let cases = [
        (group(Add, 1, &[]), GroupModFailed::GroupExists.into()),
        (group(Modify, 3, &[]), GroupModFailed::UnknownGroup.into()),
        (group(Add, number::group::MAX + 1, &[]), GroupModFailed::InvalidGroup.into()),
        (group(Add, 3, &[to(3)]), GroupModFailed::Loop.into()),
        (group(Modify, 1, &[to(2)]), GroupModFailed::Loop.into()),
        (group(Add, 3, &[to(4)]), BadAction::BadOutGroup.into()),
        (group(Add, 3, &vec![plain.clone(); 300]), GroupModFailed::OutOfBuckets.into()),
        (
            GroupMod { group_type: GroupType::Indirect, ..group(Add, 3, &[]) },
            GroupModFailed::InvalidGroup.into(),
        ),
        (one_bucket(GroupType::FastFailover, &plain), GroupModFailed::InvalidGroup.into()),
        (one_bucket(GroupType::FastFailover, &watching(any.0, 9)), GroupModFailed::BadWatch.into()),
        (one_bucket(GroupType::Select, &watching(number::port::ALL, any.1)), GroupModFailed::BadWatch.into()),
        (group(Delete, 1, &[]), GroupModFailed::ChainedGroup.into()),
        (group(Delete, number::group::ANY, &[]), GroupModFailed::InvalidGroup.into()),
    ];
    for (change, error) in cases {
        assert_eq!(bench.group_mod(id, change.clone()), Err(error), "{change:?}");
    }
    assert_eq!(bench.group_mod(id, one_bucket(GroupType::FastFailover, &watching(2, any.1))), Ok(()));
    assert_eq!(bench.group_mod(id, group(Delete, 77, &[])), Ok(()));
    let desc = bench.question(id, MultipartRequest::GroupDesc);
    assert!(matches!(&desc[..], [MultipartReply::GroupDesc(groups)] if groups.len() == 3));
}

#[test]
fn flows_go_with_their_group_and_with_their_meter() {
    let mut bench = Bench::new();
    let id = bench.controller();
    assert_eq!(bench.group_mod(id, group(GroupModCommand::Add, 1, &[])), Ok(()));
    assert_eq!(bench.meter_mod(id, meter(MeterModCommand::Add, 1, 100)), Ok(()));
    let flags = flow_flags::SEND_FLOW_REM;
    let to_group = FlowMod { flags, instructions: apply(&[Action::Group(1)]), ..add() };
    let metered =
        FlowMod { flags, matches: from_port(1), instructions: [Instruction::Meter(1)].into(), ..add() };
    assert_eq!(bench.flow_mod(id, to_group.clone()), Ok(()));
    assert_eq!(bench.flow_mod(id, metered), Ok(()));
    let stats = bench.question(id, MultipartRequest::Group(1));
    assert!(matches!(&stats[..], [MultipartReply::Group(groups)] if groups[0].ref_count == 1));
    let stats = bench.question(id, MultipartRequest::Meter(number::meter::ALL));
    assert!(matches!(&stats[..], [MultipartReply::Meter(meters)] if meters[0].flows == 1));
    let reason = |heard: Vec<Message>| match heard.as_slice() {
        [Message::FlowRemoved(flow)] => flow.reason,
        other => panic!("{other:?}"),
    };
    let all = group(GroupModCommand::Delete, number::group::ALL, &[]);
    let heard = bench.ask(id, &Message::GroupMod(Box::new(all)));
    assert_eq!(reason(heard), FlowRemovedReason::GroupDelete);
    let heard = bench.ask(id, &Message::MeterMod(Box::new(meter(MeterModCommand::Delete, 1, 0))));
    assert_eq!(reason(heard), FlowRemovedReason::Delete);
    assert_eq!(bench.flows(id), []);
    let maps = bench.switch.datapath();
    assert!(maps.groups.is_empty() && maps.meters.is_empty() && maps.flows.is_empty());
}

#[test]
fn meters_are_checked_as_the_specification_says() {
    let mut bench = Bench::new();
    let id = bench.controller();
    use MeterModCommand::{Add, Delete, Modify};
    assert_eq!(bench.meter_mod(id, meter(Add, 1, 100)), Ok(()));
    let with = |flags, bands: &[Band]| MeterMod { flags, bands: bands.into(), ..meter(Add, 2, 1) };
    let drop = Band::Drop { rate: 1, burst: 0 };
    let remark = |prec_level| Band::DscpRemark { rate: 1, burst: 1, prec_level };
    let other = Band::Experimenter { rate: 1, burst: 1, experimenter: 1, data: Box::default() };
    let cases = [
        (meter(Add, 1, 100), MeterModFailed::MeterExists),
        (meter(Modify, 2, 100), MeterModFailed::UnknownMeter),
        (meter(Add, 0, 100), MeterModFailed::InvalidMeter),
        (meter(Add, u32::MAX, 100), MeterModFailed::InvalidMeter),
        (meter(Delete, 0, 100), MeterModFailed::InvalidMeter),
        (meter(Add, 2, 0), MeterModFailed::BadRate),
        (with(3, &[]), MeterModFailed::BadFlags),
        (with(16, &[]), MeterModFailed::BadFlags),
        (with(meter_flags::BURST, std::slice::from_ref(&drop)), MeterModFailed::BadBurst),
        (with(0, &[remark(0)]), MeterModFailed::BadBandValue),
        (with(0, &[remark(4)]), MeterModFailed::BadBandValue),
        (with(0, &[other]), MeterModFailed::BadBand),
        (with(0, &vec![drop.clone(); 20]), MeterModFailed::OutOfBands),
    ];
    for (change, error) in cases {
        assert_eq!(bench.meter_mod(id, change.clone()), Err(error.into()), "{change:?}");
    }
    let stats = bench.question(id, MultipartRequest::MeterConfig(1));
    assert!(
        matches!(&stats[..], [MultipartReply::MeterConfig(meters)] if meters[0].flags == meter_flags::KBPS)
    );
}

#[test]
fn a_port_mod_is_done_outside_and_told_to_all() {
    let mut bench = Bench::new();
    let (id, other) = (bench.controller(), bench.controller());
    let change = PortMod {
        port_no: 2,
        hw_addr: [2, 0, 0, 0, 0, 2],
        config: port_config::NO_FWD,
        mask: port_config::NO_FWD | port_config::NO_RECV,
        advertise: 0,
    };
    let cases = [
        (PortMod { port_no: 9, ..change }, PortModFailed::BadPort),
        (PortMod { hw_addr: [0; 6], ..change }, PortModFailed::BadHwAddr),
        (PortMod { mask: 2, ..change }, PortModFailed::BadConfig),
        (PortMod { advertise: 1, ..change }, PortModFailed::BadAdvertise),
    ];
    for (change, error) in cases {
        assert_eq!(bench.done(id, &Message::PortMod(change)), Err(error.into()));
    }
    bench.say(id, &Message::PortMod(change));
    for id in [id, other] {
        match bench.settle(id).as_slice() {
            [Message::PortStatus(status)] => {
                assert_eq!((status.reason, status.port.port_no), (PortReason::Modify, 2));
                assert_eq!(status.port.config, port_config::NO_FWD);
            }
            other => panic!("{other:?}"),
        }
    }
    let asked = Request::PortConfig { port_no: 2, config: port_config::NO_FWD };
    assert_eq!(bench.switch.take_requests(9), [asked]);
    let port = bench.switch.datapath().ports[1];
    assert!(port.no_forward && !port.no_receive && !port.no_packet_in);
}
