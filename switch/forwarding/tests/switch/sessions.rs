//! Sessions: greeting, roles, asynchronous messages, barriers, and controllers that do not read.

use twinpath_forwarding::openflow::{CONTROLLERS_MAX, ControllerId, Ending, Punt, Request};
use twinpath_openflow_wire::{
    Action, AsyncConfig, BadRequest, Config, ErrorCode, FlowMod, FlowModCommand, Hello, HelloFailed, Message,
    Multipart, MultipartReply, MultipartRequest, PacketIn, PacketInReason, PacketOut, PortMod, PortReason,
    Role, RoleMessage, RoleRequestFailed, SwitchConfigFailed, config_flags, number, port_config,
};

use crate::controller::{Bench, add, at, every_flow, from_port, output, port};

const FRAME: [u8; 300] = [7; 300];

fn punt(max_len: Option<u16>) -> Punt<'static> {
    Punt {
        reason: PacketInReason::Action,
        table_id: 2,
        cookie: 5,
        max_len,
        in_port: 1,
        in_phy_port: 1,
        tunnel_id: 0,
        metadata: 3,
        frame: &FRAME,
        total_len: 300,
    }
}

impl Bench {
    fn packet_ins(&mut self, id: ControllerId) -> Vec<PacketIn> {
        let packet = |(_, message)| match message {
            Message::PacketIn(packet) => *packet,
            other => panic!("{other:?}"),
        };
        self.heard(id).into_iter().map(packet).collect()
    }

    fn role(&mut self, id: ControllerId, role: Role, generation_id: u64) -> Result<RoleMessage, ErrorCode> {
        match self.ask(id, &Message::RoleRequest(RoleMessage { role, generation_id })).as_slice() {
            [Message::RoleReply(role)] => Ok(*role),
            [Message::Error(error)] => Err(error.error().expect("a known error")),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn another_version_is_refused_with_a_text() {
    for hello in [Hello { version: 1, versions: None }, Hello { version: 6, versions: Some(0b100_0010) }] {
        let mut bench = Bench::new();
        let id = bench.switch.connect(bench.now).unwrap();
        bench.say(id, &Message::Hello(hello));
        assert!(!bench.switch.is_over(id), "the error is not sent yet");
        match &bench.heard(id)[..] {
            [(_, Message::Hello(_)), (_, Message::Error(error))] => {
                assert_eq!(error.error(), Some(HelloFailed::Incompatible.into()));
                assert!(error.data.is_ascii() && !error.data.is_empty());
            }
            other => panic!("{other:?}"),
        }
        assert!(bench.switch.is_over(id));
    }
}

#[test]
fn nothing_is_done_before_the_hello() {
    let mut bench = Bench::new();
    let id = bench.switch.connect(bench.now).unwrap();
    bench.say(id, &Message::FlowMod(Box::new(add())));
    assert!(matches!(&bench.heard(id)[..], [_, (_, Message::Error(_))]));
    assert!(bench.switch.is_over(id) && bench.switch.datapath().flows.is_empty());
}

#[test]
fn a_bad_message_is_answered_with_its_number_and_its_start() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let bad = [&[4, 14, 0, 100, 1, 2, 3, 4][..], &[9; 92]].concat();
    assert_eq!(bench.switch.receive(bench.now, id, &bad), 100);
    match &bench.heard(id)[..] {
        [(0x0102_0304, Message::Error(error))] => assert_eq!(*error.data, bad),
        other => panic!("{other:?}"),
    }
    assert!(bench.switch.is_open(id));
    assert_eq!(bench.done(id, &Message::BarrierReply), Err(BadRequest::BadType.into()));
    // Without its length the next message cannot be found.
    assert_eq!(bench.switch.receive(bench.now, id, &[4, 2, 0, 0, 0, 0, 0, 1, 5, 5]), 10);
    assert!(matches!(&bench.heard(id)[..], [(1, Message::Error(_))]));
    assert!(bench.switch.is_over(id));
}

#[test]
fn a_silent_controller_is_probed_and_then_given_up() {
    let mut bench = Bench::new();
    let id = bench.controller();
    assert_eq!(bench.switch.deadline(), at(6.0));
    bench.now = at(6.0);
    bench.switch.advance(bench.now);
    assert!(matches!(&bench.heard(id)[..], [(_, Message::EchoRequest(_))]));
    bench.now = at(7.0);
    bench.say(id, &Message::EchoReply(Box::default()));
    assert_eq!(bench.switch.deadline(), at(12.0));
    bench.now = at(12.0);
    bench.switch.advance(bench.now);
    bench.now = at(22.0);
    bench.switch.advance(bench.now);
    assert!(bench.switch.is_over(id));
    bench.switch.disconnect(id);
    let silent = bench.switch.connect(bench.now).unwrap();
    bench.now = at(37.0);
    bench.switch.advance(bench.now);
    assert!(bench.switch.is_over(silent));
}

#[test]
fn there_are_only_so_many_connections() {
    let mut bench = Bench::new();
    let ids: Vec<_> = (0..CONTROLLERS_MAX).map(|_| bench.switch.connect(bench.now).unwrap()).collect();
    assert_eq!(bench.switch.connect(bench.now), None);
    bench.switch.disconnect(ids[0]);
    assert!(bench.switch.connect(bench.now).is_some());
}

#[test]
fn what_comes_after_a_barrier_waits_for_the_workers() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.say(id, &Message::FlowMod(Box::new(add())));
    let mut bytes = Vec::new();
    Message::BarrierRequest.encode(1, &mut bytes).unwrap();
    let barrier = bytes.len();
    Message::EchoRequest([1].into()).encode(2, &mut bytes).unwrap();
    assert_eq!(bench.switch.receive(bench.now, id, &bytes), barrier);
    // Longer than a controller may be silent: it is not read.
    bench.now = at(60.0);
    bench.switch.advance(bench.now);
    assert_eq!(bench.heard(id), []);
    bench.switch.datapath().take_all();
    bench.switch.advance(bench.now);
    assert_eq!(bench.heard(id), [(1, Message::BarrierReply)]);
    assert_eq!(bench.switch.receive(bench.now, id, &bytes[barrier..]), bytes.len() - barrier);
    assert_eq!(bench.heard(id), [(2, Message::EchoReply([1].into()))]);
}

#[test]
fn a_new_master_makes_the_former_one_a_slave() {
    let mut bench = Bench::new();
    let (one, two) = (bench.controller(), bench.controller());
    let reply = |role, generation_id| Ok(RoleMessage { role, generation_id });
    assert_eq!(bench.role(one, Role::NoChange, 0), reply(Role::Equal, u64::MAX));
    assert_eq!(bench.role(one, Role::Master, 5), reply(Role::Master, 5));
    assert_eq!(bench.role(two, Role::Master, 4), Err(RoleRequestFailed::Stale.into()));
    assert_eq!(bench.role(two, Role::Master, 6), reply(Role::Master, 6));
    assert_eq!(bench.role(one, Role::NoChange, 0), reply(Role::Slave, 6));
    assert_eq!(bench.flow_mod(one, add()), Err(BadRequest::IsSlave.into()));
    assert_eq!(bench.flow_mod(two, add()), Ok(()));
    // Generations wrap around.
    assert_eq!(bench.role(one, Role::Slave, 6 + (1 << 63)), Err(RoleRequestFailed::Stale.into()));
    assert_eq!(bench.role(one, Role::Equal, 0), reply(Role::Equal, 6));
    assert_eq!(bench.flow_mod(one, add()), Ok(()));
}

#[test]
fn each_controller_gets_what_it_wants_in_its_role() {
    let mut bench = Bench::new();
    let (one, two) = (bench.controller(), bench.controller());
    assert_eq!(bench.role(two, Role::Slave, 1).map(|reply| reply.role), Ok(Role::Slave));
    bench.switch.packet_in(bench.now, &punt(Some(number::max_len::NO_BUFFER)));
    bench.switch.set_ports(bench.now, vec![port(1), port(2)]);
    let reasons = |heard: &[(u32, Message)]| -> Vec<Option<PortReason>> {
        let reason = |(_, message): &(u32, Message)| match message {
            Message::PortStatus(status) => Some(status.reason),
            _ => None,
        };
        heard.iter().map(reason).collect()
    };
    assert_eq!(reasons(&bench.heard(one)), [None, Some(PortReason::Delete)]);
    assert_eq!(reasons(&bench.heard(two)), [Some(PortReason::Delete)]);
    let config = AsyncConfig { packet_in: [0, 0b10], port_status: [0, 0b001], flow_removed: [0, 0] };
    for id in [one, two] {
        assert_eq!(bench.done(id, &Message::SetAsync(config)), Ok(()));
        assert_eq!(bench.ask(id, &Message::GetAsyncRequest), [Message::GetAsyncReply(config)]);
    }
    bench.switch.packet_in(bench.now, &punt(Some(number::max_len::NO_BUFFER)));
    bench.switch.packet_in(bench.now, &Punt { reason: PacketInReason::NoMatch, ..punt(None) });
    bench.switch.set_ports(bench.now, vec![port(1), port(3)]);
    assert_eq!(reasons(&bench.heard(one)), []);
    assert_eq!(reasons(&bench.heard(two)), [None, Some(PortReason::Add)]);
}

/// OpenFlow 1.3.5, 7.3.2: `ofp_config_flags`.
#[test]
fn fragments_are_dropped_if_a_controller_says_so() {
    let mut bench = Bench::new();
    let (id, other) = (bench.controller(), bench.controller());
    let set = |flags| Message::SetConfig(Config { flags, miss_send_len: 128 });
    let flags = |bench: &mut Bench| match bench.ask(other, &Message::GetConfigRequest)[..] {
        [Message::GetConfigReply(config)] => config.flags,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(flags(&mut bench), config_flags::FRAG_NORMAL);
    assert_eq!(bench.done(id, &set(config_flags::FRAG_DROP)), Ok(()));
    assert_eq!(flags(&mut bench), config_flags::FRAG_DROP, "it is the switch's, not one controller's");
    assert!(bench.switch.datapath().drop_fragments);
    for flags in [2, 3, 4] {
        assert_eq!(bench.done(id, &set(flags)), Err(SwitchConfigFailed::BadFlags.into()));
    }
    let slave = Message::RoleRequest(RoleMessage { role: Role::Slave, generation_id: 1 });
    assert_eq!(bench.ask(id, &slave).len(), 1);
    assert_eq!(bench.done(id, &set(config_flags::FRAG_NORMAL)), Ok(()));
    assert_eq!(flags(&mut bench), config_flags::FRAG_DROP, "a slave changes nothing of the switch");
    assert_eq!(bench.done(other, &set(config_flags::FRAG_NORMAL)), Ok(()));
    assert!(!bench.switch.datapath().drop_fragments);
}

#[test]
fn a_frame_is_held_if_it_is_not_sent_whole_and_taken_once() {
    let mut bench = Bench::new();
    let id = bench.controller();
    assert_eq!(
        bench.done(id, &Message::SetConfig(Config { flags: 2, miss_send_len: 0 })),
        Err(SwitchConfigFailed::BadFlags.into())
    );
    assert_eq!(bench.done(id, &Message::SetConfig(Config { flags: 0, miss_send_len: 40 })), Ok(()));
    for (max_len, sent) in
        [(Some(number::max_len::NO_BUFFER), 300), (Some(400), 300), (Some(60), 60), (None, 40)]
    {
        bench.switch.packet_in(bench.now, &punt(max_len));
        let packets = bench.packet_ins(id);
        let [packet] = packets.as_slice() else { panic!("{packets:?}") };
        assert_eq!((packet.data.len(), packet.total_len, packet.table_id, packet.cookie), (sent, 300, 2, 5));
        assert_eq!(packet.matches.fields().len(), 2, "in_port and metadata");
        assert_eq!(packet.buffer_id == number::NO_BUFFER, sent == 300);
        if sent == 300 {
            continue;
        }
        let flood: Box<[Action]> = [Action::Output { port: number::port::FLOOD, max_len: 0 }].into();
        let packet_out = Message::PacketOut(Box::new(PacketOut {
            buffer_id: packet.buffer_id,
            in_port: 1,
            actions: flood.clone(),
            data: Box::default(),
        }));
        assert_eq!(bench.done(id, &packet_out), Ok(()));
        let asked = Request::PacketOut { in_port: 1, actions: flood, frame: FRAME.into() };
        assert_eq!(bench.switch.take_requests(9), [asked]);
        assert_eq!(bench.done(id, &packet_out), Err(BadRequest::BufferUnknown.into()));
    }
}

#[test]
fn a_barrier_waits_for_the_frames_that_were_sent_before_it() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let packet_out = Message::PacketOut(Box::new(PacketOut {
        buffer_id: number::NO_BUFFER,
        in_port: number::port::CONTROLLER,
        actions: [Action::Output { port: 1, max_len: 0 }].into(),
        data: FRAME.into(),
    }));
    for _ in 0..3 {
        bench.say(id, &packet_out);
    }
    bench.say(id, &Message::BarrierRequest);
    assert!(!bench.switch.takes(id), "what follows is not read yet");
    // Two are under way, then one, and one was not taken before.
    for (taken, under_way) in [(0, 0), (2, 2), (0, 1), (1, 1)] {
        bench.switch.take_requests(taken);
        bench.switch.done_but(under_way);
        assert_eq!(bench.settle(id), []);
    }
    bench.switch.done_but(0);
    assert!(bench.switch.deadline() <= bench.now, "something goes on now");
    assert_eq!(bench.settle(id), [Message::BarrierReply]);
    assert!(bench.switch.takes(id));
}

#[test]
fn a_barrier_waits_for_frames_whatever_others_have_done_meanwhile() {
    let mut bench = Bench::new();
    let (id, other) = (bench.controller(), bench.controller());
    bench.say(
        id,
        &Message::PacketOut(Box::new(PacketOut {
            buffer_id: number::NO_BUFFER,
            in_port: number::port::CONTROLLER,
            actions: [Action::Output { port: 1, max_len: 0 }].into(),
            data: FRAME.into(),
        })),
    );
    bench.say(id, &Message::BarrierRequest);
    let down = PortMod {
        port_no: 2,
        hw_addr: port(2).hw_addr,
        config: port_config::PORT_DOWN,
        mask: port_config::PORT_DOWN,
        advertise: 0,
    };
    bench.say(other, &Message::PortMod(down));
    // Both are taken; the port has its configuration, and the frame has not left.
    assert_eq!(bench.switch.take_requests(9).len(), 2);
    bench.switch.done_but(1);
    assert!(!bench.settle(id).contains(&Message::BarrierReply));
    bench.switch.done_but(0);
    assert!(bench.settle(id).contains(&Message::BarrierReply));
}

#[test]
fn a_hello_that_comes_byte_by_byte_is_not_waited_for_for_ever() {
    let mut bench = Bench::new();
    let id = bench.switch.connect(bench.now).unwrap();
    for second in 2..=16 {
        assert!(!bench.switch.is_over(id));
        bench.now = at(f64::from(second));
        bench.switch.receive(bench.now, id, &[4]);
        bench.switch.advance(bench.now);
    }
    assert_eq!((bench.switch.is_over(id), bench.switch.ending(id)), (true, Some(Ending::NoHello)));
}

#[test]
fn a_flow_mod_with_a_buffer_sends_the_frame_through_the_tables() {
    let mut bench = Bench::new();
    let id = bench.controller();
    bench.switch.packet_in(bench.now, &punt(Some(20)));
    let buffer_id = bench.packet_ins(id)[0].buffer_id;
    assert_eq!(bench.flow_mod(id, FlowMod { buffer_id, ..add() }), Ok(()));
    let actions = [Action::Output { port: number::port::TABLE, max_len: 0 }].into();
    let asked = Request::PacketOut { in_port: 1, actions, frame: FRAME.into() };
    assert_eq!(bench.switch.take_requests(9), [asked]);
    let again = FlowMod { buffer_id, ..add() };
    assert_eq!(bench.flow_mod(id, again), Err(BadRequest::BufferUnknown.into()));
}

#[test]
fn packet_ins_have_a_rate_for_each_port() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for _ in 0..500 {
        bench.switch.packet_in(bench.now, &punt(Some(number::max_len::NO_BUFFER)));
    }
    bench.switch.packet_in(bench.now, &Punt { in_port: 2, ..punt(Some(number::max_len::NO_BUFFER)) });
    // A tenth of a second's share of 1000.
    assert_eq!(bench.packet_ins(id).len(), 101);
    assert_eq!(bench.switch.dropped().packet_in_rate, 400);
}

#[test]
fn a_controller_that_does_not_read_costs_bounded_memory() {
    let mut bench = Bench::new();
    let (id, other) = (bench.controller(), bench.controller());
    let long = [1; 1500];
    for step in 0..3000 {
        bench.now = at(1.0 + f64::from(step) / 100.0);
        let punt = punt(Some(number::max_len::NO_BUFFER));
        bench.switch.packet_in(bench.now, &Punt { frame: &long, total_len: 1500, ..punt });
        bench.say(other, &Message::EchoReply(Box::default()));
        assert_eq!(bench.packet_ins(other).len(), 1, "another one is not disturbed");
        // Its own requests are not read either, from some point on.
        let mut echo = Vec::new();
        Message::EchoRequest([0; 1000].into()).encode(1, &mut echo).unwrap();
        bench.switch.receive(bench.now, id, &echo);
        assert!(bench.switch.output(id).len() < (512 << 10) + 2000);
    }
    assert!(bench.switch.dropped().packet_in_unread > 1000);
    bench.switch.advance(bench.now);
    assert!(bench.switch.is_over(id), "it has neither read nor, as it was not read, said anything for long");
}

#[test]
fn a_long_reply_waits_for_its_reader_and_stalls_nothing() {
    let mut bench = Bench::new();
    let (id, other) = (bench.controller(), bench.controller());
    for number in 0..4000 {
        let change = FlowMod { matches: from_port(number), ..add() };
        bench.say(id, &Message::FlowMod(Box::new(change)));
    }
    let asked = Multipart { more: false, body: MultipartRequest::Flow(every_flow()) };
    bench.say(id, &Message::MultipartRequest(Box::new(asked)));
    for _ in 0..50 {
        bench.switch.advance(bench.now);
    }
    assert!(bench.switch.output(id).len() < (256 << 10) + 70_000);
    assert!(bench.switch.deadline() > bench.now, "there is nothing to do until it reads");
    assert_eq!(bench.ask(other, &Message::EchoRequest([3].into())), [Message::EchoReply([3].into())]);
    // Flows that go meanwhile do no harm.
    let delete = FlowMod { command: FlowModCommand::Delete, matches: from_port(3999), ..add() };
    assert_eq!(bench.flow_mod(other, delete), Ok(()));
    let mut flows = 0;
    for message in bench.settle(id) {
        match message {
            Message::MultipartReply(part) => match part.body {
                MultipartReply::Flow(part) => flows += part.len(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(flows, 3999);
}

#[test]
fn everything_can_be_asked() {
    let mut bench = Bench::new();
    let id = bench.controller();
    assert_eq!(bench.flow_mod(id, FlowMod { instructions: output(2), ..add() }), Ok(()));
    let tables = bench.question(id, MultipartRequest::TableFeatures(Box::default()));
    let count = |reply: &MultipartReply| match reply {
        MultipartReply::TableFeatures(list) => list.len(),
        MultipartReply::Table(list) => list.len(),
        MultipartReply::PortStats(list) => list.len(),
        MultipartReply::PortDesc(list) => list.len(),
        MultipartReply::Queue(list) => list.len(),
        _ => 1,
    };
    assert_eq!(tables.iter().map(count).sum::<usize>(), 255);
    let any = number::port::ANY;
    for (body, entries) in [
        (MultipartRequest::Desc, 1),
        (MultipartRequest::Table, 255),
        (MultipartRequest::PortStats(any), 3),
        (MultipartRequest::PortStats(2), 1),
        (MultipartRequest::PortDesc, 3),
        (MultipartRequest::Queue { port: any, queue_id: number::QUEUE_ALL }, 0),
        (MultipartRequest::GroupFeatures, 1),
        (MultipartRequest::MeterFeatures, 1),
    ] {
        assert_eq!(bench.question(id, body).iter().map(count).sum::<usize>(), entries);
    }
    let features = bench.ask(id, &Message::FeaturesRequest);
    assert!(matches!(&features[..], [Message::FeaturesReply(features)] if features.n_tables == 255));
    let several = Multipart { more: true, body: MultipartRequest::Desc };
    let overflow = BadRequest::MultipartBufferOverflow.into();
    assert_eq!(bench.done(id, &Message::MultipartRequest(Box::new(several))), Err(overflow));
}
