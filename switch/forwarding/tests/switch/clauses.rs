//! What the specification's chapters on messages demand, clause by clause, where no test of a subject says it already.
//! Lengths, types, padding and reserved values are in `wrong.rs`, changes of flows (section 6.4) in `naive.rs`.

use twinpath_openflow_wire::{
    Action, FlowMod, FlowModCommand, FlowRemovedReason, Header, Instruction, Message, MessageType, Multipart,
    MultipartReply, MultipartRequest, flow_flags, number,
};

use crate::controller::{Bench, add, every_flow, from_port, output};

/// Sections 7.5.2 and 7.5.3: the reply has the data of the request, all of it.
#[test]
fn an_echo_gives_back_its_data_however_long() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for len in [0, 1, 7, 1_000, 65_527] {
        let data: Box<[u8]> = (0..len).map(|at| at as u8).collect();
        assert_eq!(bench.ask(id, &Message::EchoRequest(data.clone())), [Message::EchoReply(data)]);
    }
}

/// Section 7.3.5: all parts of a reply have the number of the request and its type, and all but the last say that more comes.
#[test]
fn each_part_of_a_reply_says_whose_it_is_and_whether_it_is_the_last() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for port in 0..2_000 {
        bench.say(id, &Message::FlowMod(Box::new(FlowMod { matches: from_port(port), ..add() })));
    }
    assert_eq!(bench.settle(id), []);
    let body = MultipartRequest::Flow(every_flow());
    let mut asked = Vec::new();
    Message::MultipartRequest(Box::new(Multipart { more: false, body }))
        .encode(77, &mut asked)
        .expect("short");
    assert_eq!(bench.switch.receive(bench.now, id, &asked), asked.len());
    let mut heard = Vec::new();
    while bench.switch.deadline() <= bench.now {
        bench.switch.advance(bench.now);
        heard.extend(bench.heard(id));
    }
    assert!(heard.len() > 2, "{} parts", heard.len());
    let mut flows = 0;
    for (number, (xid, message)) in heard.iter().enumerate() {
        let Message::MultipartReply(part) = message else { panic!("{message:?}") };
        let MultipartReply::Flow(some) = &part.body else { panic!("{part:?}") };
        flows += some.len();
        assert_eq!((*xid, part.more), (77, number + 1 < heard.len()));
    }
    assert_eq!(flows, 2_000);
}

/// Section 6.4: changing or deleting flows that do not exist is not an error, and makes none.
#[test]
fn flows_that_are_not_there_are_neither_changed_nor_made() {
    use FlowModCommand::{Delete, DeleteStrict, Modify, ModifyStrict};
    let mut bench = Bench::new();
    let id = bench.controller();
    for command in [Modify, ModifyStrict, Delete, DeleteStrict] {
        for table_id in [0, 254] {
            assert_eq!(bench.flow_mod(id, FlowMod { command, table_id, ..add() }), Ok(()), "{command:?}");
        }
    }
    assert_eq!(bench.flows(id), []);
}

/// Section 6.4: a modification leaves cookie, timeouts, flags and counters as they are; a cookie in front of it chooses.
#[test]
fn a_modification_changes_instructions_alone_and_those_that_its_cookie_chooses() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for cookie in [0x11, 0x21] {
        let flow = FlowMod { cookie, matches: from_port(cookie as u32), hard_timeout_s: 9, ..add() };
        assert_eq!(bench.flow_mod(id, flow), Ok(()));
    }
    let command = FlowModCommand::Modify;
    let change = FlowMod {
        command,
        cookie: 0x10,
        cookie_mask: 0xf0,
        hard_timeout_s: 1,
        flags: flow_flags::SEND_FLOW_REM,
        instructions: output(3),
        ..add()
    };
    assert_eq!(bench.flow_mod(id, change), Ok(()));
    let flows = bench.flows(id);
    let seen: Vec<_> =
        flows.iter().map(|flow| (flow.cookie, flow.hard_timeout_s, flow.flags, &flow.instructions)).collect();
    assert_eq!(seen, [(0x11, 9, 0, &output(3)), (0x21, 9, 0, &output(1))]);
}

/// Sections 6.4 and 7.4.2: the end of a flow is told if its flag says so, and not otherwise.
#[test]
fn the_end_of_a_flow_is_told_to_who_asked_for_it() {
    let mut bench = Bench::new();
    let id = bench.controller();
    for (port, flags) in [(1, flow_flags::SEND_FLOW_REM), (2, 0)] {
        assert_eq!(bench.flow_mod(id, FlowMod { flags, matches: from_port(port), ..add() }), Ok(()));
    }
    let delete = FlowMod { command: FlowModCommand::Delete, instructions: [].into(), ..add() };
    match bench.ask(id, &Message::FlowMod(Box::new(delete))).as_slice() {
        [Message::FlowRemoved(gone)] => {
            assert_eq!((gone.matches.clone(), gone.reason), (from_port(1), FlowRemovedReason::Delete));
        }
        other => panic!("{other:?}"),
    }
}

/// Section 7.4.4: a wrong message has no effect, not even in part.
#[test]
fn a_message_that_is_refused_changes_nothing() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let bad = Instruction::WriteActions([Action::Group(7)].into());
    let good = Instruction::ApplyActions([Action::Output { port: 2, max_len: 0 }].into());
    assert_eq!(bench.flow_mod(id, add()), Ok(()));
    let flow = bench.flows(id);
    for command in [FlowModCommand::Add, FlowModCommand::Modify] {
        let change =
            FlowMod { command, cookie: 9, instructions: [good.clone(), bad.clone()].into(), ..add() };
        assert!(bench.flow_mod(id, change).is_err());
    }
    assert_eq!(bench.flows(id), flow);
}

/// Section 7.1.1: the number of a reply is that of its request, whatever it is.
#[test]
fn replies_have_the_numbers_of_their_requests() {
    let mut bench = Bench::new();
    let id = bench.controller();
    let requests = [
        Message::FeaturesRequest,
        Message::GetConfigRequest,
        Message::GetAsyncRequest,
        Message::BarrierRequest,
        Message::EchoRequest([1].into()),
        Message::QueueGetConfigRequest(number::port::ANY),
        Message::BarrierReply,
    ];
    for (xid, request) in [0, 1, u32::MAX, 0x8000_0000, 7, 7, 9].into_iter().zip(requests) {
        let mut bytes = Vec::new();
        request.encode(xid, &mut bytes).expect("it is short");
        assert_eq!(bench.switch.receive(bench.now, id, &bytes), bytes.len());
        bench.switch.datapath().take_all();
        bench.switch.advance(bench.now);
        let output = bench.switch.output(id).to_vec();
        bench.switch.sent(bench.now, id, output.len());
        let header = Header::of(&output).expect("an answer");
        assert_eq!((header.xid, usize::from(header.len)), (xid, output.len()), "{request:?}");
        let is_error = header.message_type == MessageType::Error.number();
        assert_eq!(is_error, request == Message::BarrierReply);
    }
}
