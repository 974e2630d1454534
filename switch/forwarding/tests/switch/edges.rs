//! What controllers meet at the edges of the specification.

use twinpath_forwarding::openflow::{ControllerId, Punt};
use twinpath_openflow_wire::{
    Action, BadInstruction, BadMatch, BadRequest, Bucket, ErrorCode, Field, FlowMod, FlowModCommand,
    GroupMod, GroupModCommand, GroupModFailed, GroupType, Instruction, Match, MatchField, Message, MeterMod,
    MeterModCommand, MeterModFailed, MultipartReply, MultipartRequest, PacketInReason, PacketOut, Port,
    PortMod, Role, RoleMessage, meter_flags, number, port_config, port_state,
};

use crate::controller::{Bench, FLOWS_MAX, add, port};

fn bucket(weight: u16, actions: &[Action]) -> Bucket {
    Bucket { weight, watch_port: number::port::ANY, watch_group: number::group::ANY, actions: actions.into() }
}

fn group(command: GroupModCommand, group_type: GroupType, group_id: u32, buckets: &[Bucket]) -> Message {
    Message::GroupMod(Box::new(GroupMod { command, group_type, group_id, buckets: buckets.into() }))
}

fn meter(meter_id: u32) -> Message {
    let command = MeterModCommand::Add;
    Message::MeterMod(Box::new(MeterMod {
        command,
        flags: meter_flags::KBPS,
        meter_id,
        bands: Box::default(),
    }))
}

/// The error that the bytes of a message are answered with.
fn error_of(bench: &mut Bench, id: ControllerId, bytes: &[u8]) -> Option<ErrorCode> {
    assert_eq!(bench.switch.receive(bench.now, id, bytes), bytes.len());
    match bench.settle(id).as_slice() {
        [] => None,
        [Message::Error(error)] => error.error(),
        other => panic!("{other:?}"),
    }
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(9, &mut bytes).expect("it is short");
    bytes
}

/// Section 6.3.5, and `OFPT_SET_ASYNC` of section 7.3.10.
#[test]
fn a_frame_whose_ttl_is_invalid_comes_to_those_alone_who_ask() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let [Message::GetAsyncReply(config)] = bench.ask(id, &Message::GetAsyncRequest)[..] else { panic!() };
    assert_eq!(config.packet_in, [0b011, 0]);
}

/// Section 7.3.4.2: "for other group types this field must be set to 0".
#[test]
fn only_groups_that_choose_have_weights() {
    use GroupType::{All, FastFailover, Indirect, Select};
    let mut bench = Bench::new();
    let id = bench.controller();
    let output = [Action::Output { port: 1, max_len: 0 }];
    for (group_id, group_type) in [All, Indirect, FastFailover].into_iter().enumerate() {
        let watching = Bucket { watch_port: 1, ..bucket(1, &output) };
        let change = group(GroupModCommand::Add, group_type, group_id as u32, &[watching]);
        assert_eq!(bench.done(id, &change), Err(GroupModFailed::InvalidGroup.into()), "{group_type:?}");
    }
    assert_eq!(bench.done(id, &group(GroupModCommand::Add, Select, 9, &[bucket(7, &output)])), Ok(()));
}

/// Section 7.2.3.6: what a field needs comes before it.
#[test]
fn a_field_in_front_of_what_it_needs_is_refused() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let fields = [
        MatchField::exact(Field::EthType, 0x800),
        MatchField::exact(Field::IpProto, 17),
        MatchField::exact(Field::UdpDst, 53),
    ];
    let change = FlowMod { matches: Match::new(fields).expect("a match"), ..add() };
    let good = bytes_of(&Message::FlowMod(Box::new(change)));
    assert_eq!(error_of(&mut bench, id, &good), None);
    // The three fields have 6, 5 and 6 bytes behind the head of 48 and that of the match.
    let start = 52;
    let mut bad = good.clone();
    bad[start..start + 5].copy_from_slice(&good[start + 6..start + 11]);
    bad[start + 5..start + 11].copy_from_slice(&good[start..start + 6]);
    assert_eq!(error_of(&mut bench, id, &bad), Some(BadMatch::BadPrereq.into()));
}

/// Beyond section 7.2.3.8, as other switches: an access list with a range of ports is a few of these.
#[test]
fn ports_of_transport_protocols_may_have_masks() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let protocols = [
        (6, [Field::TcpSrc, Field::TcpDst]),
        (17, [Field::UdpSrc, Field::UdpDst]),
        (132, [Field::SctpSrc, Field::SctpDst]),
    ];
    for (protocol, ports) in protocols {
        let [source, destination] = ports.map(|field| MatchField::masked(field, 0x1f40, 0xfff0));
        let fields = [
            MatchField::exact(Field::EthType, 0x86dd),
            MatchField::exact(Field::IpProto, protocol),
            source,
            destination,
        ];
        let matches = Match::new(fields).expect("a match");
        assert_eq!(bench.flow_mod(id, FlowMod { matches: matches.clone(), ..add() }), Ok(()));
        assert!(bench.flows(id).iter().any(|flow| flow.matches == matches), "{protocol}");
    }
}

/// Section 7.2.4: instructions are padded to 8 bytes, and have errors of their own.
#[test]
fn an_instruction_of_a_wrong_length_has_the_error_of_instructions() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let actions = [Action::Output { port: 1, max_len: 0 }].into();
    let change = FlowMod { instructions: [Instruction::ApplyActions(actions)].into(), ..add() };
    let good = bytes_of(&Message::FlowMod(Box::new(change)));
    // The instruction is last: a head of 8 bytes, and 16 of the action.
    let at = good.len() - 24 + 2;
    for len in [0u16, 3, 4, 12, 20, 23, 25, 32] {
        let mut bad = good.clone();
        bad[at..at + 2].copy_from_slice(&len.to_be_bytes());
        assert_eq!(error_of(&mut bench, id, &bad), Some(BadInstruction::BadLen.into()), "{len} bytes");
    }
    assert_eq!(error_of(&mut bench, id, &good), None);
}

/// Section 7.3.7.
#[test]
fn a_frame_is_sent_from_ports_that_are_there() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let mut sends = |in_port| {
        let actions = [Action::Output { port: 2, max_len: 0 }].into();
        let packet = PacketOut { buffer_id: number::NO_BUFFER, in_port, actions, data: [7; 60].into() };
        let answer = bench.done(id, &Message::PacketOut(Box::new(packet)));
        bench.switch.take_requests(9);
        bench.switch.done_but(0);
        answer
    };
    for in_port in [1, 3, number::port::CONTROLLER, number::port::LOCAL] {
        assert_eq!(sends(in_port), Ok(()), "{in_port}");
    }
    for in_port in [0, 4, number::port::MAX, number::port::ANY, number::port::FLOOD] {
        assert_eq!(sends(in_port), Err(BadRequest::BadPort.into()), "{in_port}");
    }
}

/// Section 6.3.5: a slave's change is refused as such, whatever else is wrong with it.
#[test]
fn a_slave_may_not_even_send_a_change_that_cannot_be_read() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let mut unknown = bytes_of(&group(GroupModCommand::Add, GroupType::All, 1, &[]));
    unknown[8 + 2] = 77;
    assert_eq!(error_of(&mut bench, id, &unknown), Some(GroupModFailed::BadType.into()));
    let slave = RoleMessage { role: Role::Slave, generation_id: 1 };
    assert!(matches!(bench.ask(id, &Message::RoleRequest(slave))[..], [Message::RoleReply(_)]));
    assert_eq!(error_of(&mut bench, id, &unknown), Some(BadRequest::IsSlave.into()));
    // A request that is no change has its own error.
    let request = [4, 18, 0, 16, 0, 0, 0, 9, 0, 99, 0, 0, 0, 0, 0, 0];
    assert_ne!(error_of(&mut bench, id, &request), Some(BadRequest::IsSlave.into()));
}

/// Section 7.3.5.9 has no error for it.
#[test]
fn statistics_of_a_group_that_is_not_there_are_empty() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let stats = bench.question(id, MultipartRequest::Group(77));
    assert!(matches!(&stats[..], [MultipartReply::Group(groups)] if groups.is_empty()), "{stats:?}");
}

/// There are as many as the switch says (sections 7.3.5.11 and 7.3.5.14).
#[test]
fn groups_and_meters_are_as_many_as_flows_at_most() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for number in 1..=FLOWS_MAX {
        let buckets = [bucket(0, &[Action::Output { port: 1, max_len: 0 }])];
        bench.say(id, &group(GroupModCommand::Add, GroupType::All, number, &buckets));
        bench.say(id, &meter(number));
    }
    assert_eq!(bench.settle(id), []);
    let more = group(GroupModCommand::Add, GroupType::All, FLOWS_MAX + 1, &[]);
    assert_eq!(bench.done(id, &more), Err(GroupModFailed::OutOfGroups.into()));
    assert_eq!(bench.done(id, &meter(FLOWS_MAX + 1)), Err(MeterModFailed::OutOfMeters.into()));
}

/// Flows and groups that send to a group are counted as they come and go, and go with it.
#[test]
fn what_sends_to_a_group_is_counted_through_every_change() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let to = |groups: &[u32]| -> Vec<Action> { groups.iter().map(|group| Action::Group(*group)).collect() };
    use GroupModCommand::{Add, Delete, Modify};
    use GroupType::All;
    let counts = |bench: &mut Bench| -> Vec<u32> {
        let stats = bench.question(id, MultipartRequest::Group(number::group::ALL));
        let [MultipartReply::Group(groups)] = &stats[..] else { panic!("{stats:?}") };
        groups.iter().map(|group| group.ref_count).collect()
    };
    for number in 1..=3 {
        assert_eq!(bench.done(id, &group(Add, All, number, &[])), Ok(()));
    }
    let flow = |in_port: u32, groups: &[u32]| {
        let matches = Match::new([MatchField::exact(Field::InPort, in_port.into())]).expect("a match");
        // Named twice, it is one flow that sends there.
        let twice =
            [Instruction::ApplyActions(to(groups).into()), Instruction::WriteActions(to(groups).into())];
        FlowMod { matches, instructions: twice.into(), ..add() }
    };
    assert_eq!(bench.flow_mod(id, flow(1, &[1, 2])), Ok(()));
    assert_eq!(bench.flow_mod(id, flow(2, &[2])), Ok(()));
    assert_eq!(bench.done(id, &group(Modify, All, 3, &[bucket(0, &to(&[1])), bucket(0, &to(&[1]))])), Ok(()));
    assert_eq!(counts(&mut bench), [2, 2, 0]);
    assert_eq!(bench.flow_mod(id, flow(1, &[3])), Ok(()), "in its place");
    assert_eq!(counts(&mut bench), [1, 1, 1]);
    let modified = FlowMod { command: FlowModCommand::Modify, ..flow(2, &[1, 3]) };
    assert_eq!(bench.flow_mod(id, modified), Ok(()));
    assert_eq!(counts(&mut bench), [2, 0, 2]);
    assert_eq!(bench.done(id, &group(Delete, All, 1, &[])), Err(GroupModFailed::ChainedGroup.into()));
    assert_eq!(bench.done(id, &group(Delete, All, 3, &[])), Ok(()));
    assert_eq!(bench.flows(id), [], "both have sent there");
    assert_eq!(counts(&mut bench), [0, 0]);
    assert_eq!(bench.done(id, &group(Delete, All, 1, &[])), Ok(()));
}

/// A message has 65,535 bytes at most (section 7.1.1); a frame may have more than are left of them.
#[test]
fn the_longest_frame_comes_to_a_controller_as_far_as_it_fits() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let frame = vec![7; usize::from(u16::MAX)];
    bench.switch.packet_in(
        bench.now,
        &Punt {
            reason: PacketInReason::NoMatch,
            table_id: 1,
            cookie: 2,
            max_len: Some(number::max_len::NO_BUFFER),
            in_port: 1,
            in_phy_port: 3,
            tunnel_id: 4,
            metadata: 5,
            frame: &frame,
            total_len: u16::MAX,
        },
    );
    let heard = bench.heard(id);
    let [(_, Message::PacketIn(packet))] = &heard[..] else { panic!("{heard:?}") };
    assert!(packet.data.len() > 65_400 && packet.total_len == u16::MAX, "{}", packet.data.len());
}

/// Section 7.2.1: controllers go by the state, and some by nothing else.
#[test]
fn a_port_that_is_set_down_has_no_link() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let set = |bench: &mut Bench, config| {
        let change = PortMod {
            port_no: 2,
            hw_addr: port(2).hw_addr,
            config,
            mask: port_config::PORT_DOWN,
            advertise: 0,
        };
        let told = bench.ask(id, &Message::PortMod(change));
        bench.switch.take_requests(9);
        bench.switch.done_but(0);
        let [Message::PortStatus(status)] = &told[..] else { panic!("{told:?}") };
        status.port.state
    };
    assert_eq!(set(&mut bench, port_config::PORT_DOWN), port_state::LINK_DOWN);
    // The interface is down by then.
    let without_link = Port { state: port_state::LINK_DOWN, ..port(2) };
    let down = Port { config: port_config::PORT_DOWN, ..without_link.clone() };
    bench.switch.set_ports(bench.now, vec![port(1), down, port(3)]);
    assert_eq!(bench.heard(id), [], "it has no link as before");
    assert_eq!(set(&mut bench, 0), port_state::LINK_DOWN);
    bench.switch.set_ports(bench.now, vec![port(1), port(2), port(3)]);
    let told = bench.heard(id);
    assert!(matches!(&told[..], [(_, Message::PortStatus(status))] if status.port.state == port_state::LIVE));
    // Somebody else sets the interface down: what controllers have configured besides stays.
    let change = PortMod {
        port_no: 2,
        hw_addr: port(2).hw_addr,
        config: port_config::NO_FWD,
        mask: port_config::NO_FWD,
        advertise: 0,
    };
    bench.ask(id, &Message::PortMod(change));
    let down = Port { config: port_config::PORT_DOWN, ..without_link };
    bench.switch.set_ports(bench.now, vec![port(1), down, port(3)]);
    bench.heard(id);
    assert_eq!(bench.switch.port_config(2), Some(port_config::PORT_DOWN | port_config::NO_FWD));
}

/// Many flows with one match: each is found by its priority.
#[test]
fn flows_that_differ_in_priority_alone_are_found_at_once() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for priority in 0..FLOWS_MAX as u16 {
        bench.say(id, &Message::FlowMod(Box::new(FlowMod { priority, cookie: priority.into(), ..add() })));
    }
    assert_eq!(bench.settle(id), []);
    let command = FlowModCommand::DeleteStrict;
    for priority in (0..FLOWS_MAX as u16).filter(|priority| priority % 3 != 1) {
        bench.say(id, &Message::FlowMod(Box::new(FlowMod { command, priority, ..add() })));
    }
    assert_eq!(bench.settle(id), []);
    let left = bench.flows(id);
    assert!(left.iter().all(|flow| flow.priority % 3 == 1 && flow.cookie == flow.priority.into()));
    assert_eq!(left.len(), (1..FLOWS_MAX).step_by(3).count());
    assert_eq!(bench.flow_mod(id, FlowMod { command: FlowModCommand::Delete, ..add() }), Ok(()));
    assert_eq!(bench.flows(id), []);
}
