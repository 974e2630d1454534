use super::*;

const XID: u32 = 0x0102_0304;

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(XID, &mut bytes).unwrap();
    bytes
}

fn flow_mod() -> FlowMod {
    FlowMod {
        cookie: 1,
        cookie_mask: 0,
        table_id: 2,
        command: FlowModCommand::Add,
        idle_timeout_s: 3,
        hard_timeout_s: 4,
        priority: 5,
        buffer_id: number::NO_BUFFER,
        out_port: number::port::ANY,
        out_group: number::group::ANY,
        flags: flow_flags::SEND_FLOW_REM,
        matches: Match::new([
            MatchField::exact(Field::EthType, 0x800),
            MatchField::masked(Field::Ipv4Dst, 0x0a00_0000, 0xff00_0000),
        ])
        .unwrap(),
        instructions: [
            Instruction::ApplyActions(
                [
                    Action::SetField { field: Field::EthDst, value: 0x0200_0000_0001 },
                    Action::Output { port: 7, max_len: 0 },
                ]
                .into(),
            ),
            Instruction::GotoTable(3),
        ]
        .into(),
    }
}

/// Bytes of a flow-mod's parts, from its start.
const MATCH: usize = 48;
const FIRST_FIELD: usize = MATCH + 4;
const SECOND_FIELD: usize = FIRST_FIELD + 6;
const INSTRUCTION: usize = MATCH + 24;
const SET_FIELD: usize = INSTRUCTION + 8;
const OUTPUT: usize = SET_FIELD + 16;
const GOTO: usize = OUTPUT + 16;

/// What becomes of a message with other bytes in one place.
fn with_bytes(message: &[u8], at: usize, bytes: &[u8]) -> Result<Message, ErrorCode> {
    let mut message = message.to_vec();
    message[at..at + bytes.len()].copy_from_slice(bytes);
    Message::decode(&message)
}

#[test]
fn a_flow_mod_has_the_layout_of_the_specification() {
    let bytes = encoded(&Message::FlowMod(Box::new(flow_mod())));
    assert_eq!(bytes[..8], [4, 14, 0, bytes.len() as u8, 1, 2, 3, 4]);
    // Type and length without padding; a field is class, number and mask bit, length, value.
    assert_eq!(bytes[MATCH..FIRST_FIELD], [0, 1, 0, 22]);
    assert_eq!(bytes[FIRST_FIELD..SECOND_FIELD], [0x80, 0, 5 << 1, 2, 8, 0]);
    assert_eq!(bytes[SECOND_FIELD..INSTRUCTION], [0x80, 0, 12 << 1 | 1, 8, 10, 0, 0, 0, 255, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[INSTRUCTION..SET_FIELD], [0, 4, 0, 40, 0, 0, 0, 0]);
    assert_eq!(bytes[SET_FIELD..OUTPUT], [0, 25, 0, 16, 0x80, 0, 3 << 1, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(bytes[OUTPUT..GOTO], [0, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[GOTO..], [0, 1, 0, 8, 3, 0, 0, 0]);
}

#[test]
fn each_lie_in_a_flow_mod_has_its_error() {
    let bytes = encoded(&Message::FlowMod(Box::new(flow_mod())));
    assert_eq!(Message::decode(&bytes), Ok(Message::FlowMod(Box::new(flow_mod()))));
    let cases: &[(usize, &[u8], ErrorCode)] = &[
        (0, &[1], BadRequest::BadVersion.into()),
        (1, &[30], BadRequest::BadType.into()),
        (2, &[0, 9], BadRequest::BadLen.into()),
        (25, &[5], FlowModFailed::BadCommand.into()),
        (44, &[0, 0x20], FlowModFailed::BadFlags.into()),
        (MATCH, &[0, 0], BadMatch::BadType.into()),
        (MATCH + 2, &[0, 3], BadMatch::BadLen.into()),
        (MATCH + 2, &[0, 21], BadMatch::BadLen.into()),
        (MATCH + 2, &[1, 22], BadMatch::BadLen.into()),
        (FIRST_FIELD, &[0xff, 0xff], BadMatch::BadField.into()),
        (FIRST_FIELD, &[0x80, 0, 40 << 1], BadMatch::BadField.into()),
        (FIRST_FIELD, &[0x80, 0, 10, 3], BadMatch::BadLen.into()),
        (FIRST_FIELD, &[0x80, 0, 11, 2], BadMatch::BadLen.into()),
        (FIRST_FIELD + 4, &[0x86, 0xdd], BadMatch::BadPrereq.into()),
        (SECOND_FIELD + 5, &[1], BadMatch::BadWildcards.into()),
        (INSTRUCTION, &[0, 7], BadInstruction::UnknownInstruction.into()),
        (INSTRUCTION + 2, &[0, 0], BadInstruction::BadLen.into()),
        (INSTRUCTION + 2, &[0, 3], BadInstruction::BadLen.into()),
        (INSTRUCTION + 2, &[0xff, 0xff], BadInstruction::BadLen.into()),
        (INSTRUCTION + 2, &[0, 28], BadInstruction::BadLen.into()),
        // It cuts an action in two; what follows is no instruction.
        (INSTRUCTION + 2, &[0, 32], BadInstruction::BadLen.into()),
        (SET_FIELD, &[0, 28], BadAction::BadType.into()),
        (SET_FIELD + 2, &[0, 0], BadAction::BadLen.into()),
        (SET_FIELD + 2, &[0, 12], BadAction::BadLen.into()),
        (SET_FIELD + 2, &[0, 48], BadAction::BadLen.into()),
        (SET_FIELD + 4, &[0, 1], BadAction::BadSetType.into()),
        (SET_FIELD + 6, &[0], BadAction::BadSetType.into()),
        (SET_FIELD + 6, &[3 << 1, 5], BadAction::BadSetLen.into()),
        (SET_FIELD + 6, &[6 << 1, 2, 0xff], BadAction::BadSetArgument.into()),
        (OUTPUT + 2, &[0, 8], BadAction::BadLen.into()),
        (GOTO + 2, &[0, 16], BadInstruction::BadLen.into()),
    ];
    for (at, changed, error) in cases {
        assert_eq!(with_bytes(&bytes, *at, changed), Err(*error), "{changed:02x?} at {at}");
    }
}

#[test]
fn a_field_that_is_there_often_costs_no_memory() {
    let mut bytes = encoded(&Message::FlowMod(Box::new(FlowMod { instructions: [].into(), ..flow_mod() })));
    bytes.truncate(MATCH);
    let fields: Vec<u8> = [0x80, 0, 10, 2, 8, 0].repeat(8000);
    bytes.extend([0, 1]);
    bytes.extend((fields.len() as u16 + 4).to_be_bytes());
    bytes.extend(&fields);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let len = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    assert_eq!(Message::decode(&bytes), Err(BadMatch::DupField.into()));
}

#[test]
fn each_lie_elsewhere_has_its_error() {
    let bucket = Bucket { weight: 1, watch_port: 2, watch_group: 3, actions: [Action::PopVlan].into() };
    let group = encoded(&Message::GroupMod(Box::new(GroupMod {
        command: GroupModCommand::Add,
        group_type: GroupType::All,
        group_id: 1,
        buckets: [bucket].into(),
    })));
    let meter = encoded(&Message::MeterMod(Box::new(MeterMod {
        command: MeterModCommand::Add,
        flags: 1,
        meter_id: 1,
        bands: [Band::Drop { rate: 1, burst: 2 }].into(),
    })));
    let packet = encoded(&Message::PacketOut(Box::new(PacketOut {
        buffer_id: number::NO_BUFFER,
        in_port: 1,
        actions: [Action::PopVlan].into(),
        data: [1; 20].into(),
    })));
    let role = encoded(&Message::RoleRequest(RoleMessage { role: Role::Master, generation_id: 0 }));
    let barrier = encoded(&Message::BarrierRequest);
    let desc = encoded(&Message::MultipartRequest(Box::new(Multipart {
        more: false,
        body: MultipartRequest::Desc,
    })));
    let cases: &[(&[u8], usize, &[u8], ErrorCode)] = &[
        (&group, 8, &[0, 3], GroupModFailed::BadCommand.into()),
        (&group, 10, &[4], GroupModFailed::BadType.into()),
        (&group, 16, &[0, 15], GroupModFailed::BadBucket.into()),
        (&group, 16, &[0, 32], GroupModFailed::BadBucket.into()),
        (&group, 34, &[0, 16], BadAction::BadLen.into()),
        (&meter, 8, &[0, 3], MeterModFailed::BadCommand.into()),
        (&meter, 16, &[0, 3], MeterModFailed::BadBand.into()),
        (&meter, 18, &[0, 12], BadRequest::BadLen.into()),
        (&meter, 18, &[0, 17], BadRequest::BadLen.into()),
        (&packet, 16, &[0, 4], BadRequest::BadLen.into()),
        (&packet, 16, &[0, 60], BadRequest::BadLen.into()),
        (&role, 8, &[0, 0, 0, 4], RoleRequestFailed::BadRole.into()),
        (&desc, 8, &[0, 14], BadRequest::BadMultipart.into()),
        (&desc, 8, &[0, 4], BadRequest::BadLen.into()),
    ];
    for (message, at, changed, error) in cases {
        assert!(Message::decode(message).is_ok());
        assert_eq!(
            with_bytes(message, *at, changed),
            Err(*error),
            "{changed:02x?} at {at} of {message:02x?}"
        );
    }
    let mut longer = [barrier.as_slice(), &[0]].concat();
    longer[3] += 1;
    assert_eq!(Message::decode(&longer), Err(BadRequest::BadLen.into()));
}

#[test]
fn an_error_gives_back_64_bytes_at_least_and_not_everything() {
    let long = [7; 65_535];
    for (len, given) in [(8, 8), (64, 64), (100, 100), (65_535, 256)] {
        let error = ErrorMessage::about(BadMatch::BadPrereq.into(), &long[..len]);
        assert_eq!((error.error_type, error.code, error.data.len()), (4, 9, given));
        assert_eq!(error.error(), Some(BadMatch::BadPrereq.into()));
    }
}

#[test]
fn the_highest_common_version_is_chosen() {
    let hello = |version, versions| Hello { version, versions };
    let ours = hello(4, Some(1 << 4));
    assert_eq!(ours.common(hello(4, Some(0b1_0010))), Some(4));
    assert_eq!(ours.common(hello(6, Some(0b101_0000))), Some(4));
    assert_eq!(ours.common(hello(6, None)), Some(4));
    assert_eq!(ours.common(hello(6, Some(0b100_0000))), None);
    assert_eq!(ours.common(hello(1, None)), None);
    assert_eq!(ours.common(hello(255, None)), Some(4));
}

#[test]
fn a_hello_of_any_version_is_read_and_unknown_elements_are_skipped() {
    let bytes = [1, 0, 0, 8, 0, 0, 0, 0];
    assert_eq!(Message::decode(&bytes), Ok(Message::Hello(Hello { version: 1, versions: None })));
    let bytes =
        [6, 0, 0, 32, 0, 0, 0, 0, 0, 9, 0, 6, 1, 2, 0, 0, 0, 1, 0, 12, 0, 0, 0, 16, 9, 9, 9, 9, 0, 0, 0, 0];
    assert_eq!(Message::decode(&bytes), Ok(Message::Hello(Hello { version: 6, versions: Some(16) })));
    // Anything that is not an element is ignored, and so is what follows it.
    for body in [&[0, 1, 0, 8][..], &[0, 1, 0, 3, 0, 0, 0, 16], &[0; 9], &[7]] {
        let bytes = [&[4, 0, 0, 8 + body.len() as u8, 0, 0, 0, 0], body].concat();
        assert_eq!(Message::decode(&bytes), Ok(Message::Hello(Hello { version: 4, versions: None })));
    }
}

#[test]
fn a_message_that_is_shorter_than_its_head_ends_the_stream() {
    let mut frames = Frames::new();
    let mut input: &[u8] = &[4, 2, 0, 8, 0, 0, 0, 1, 4, 2, 0, 7, 0, 0, 0, 2];
    assert_eq!(frames.next(&mut input).unwrap(), Some(&[4, 2, 0, 8, 0, 0, 0, 1][..]));
    let lost = frames.next(&mut input).unwrap_err();
    assert_eq!((lost.header.len, lost.header.xid), (7, 2));
}

#[test]
fn a_reader_keeps_only_what_has_come_of_a_message() {
    let mut frames = Frames::new();
    let mut head: &[u8] = &[4, 2, 0xff, 0xff, 0, 0, 0, 1];
    assert_eq!(frames.next(&mut head), Ok(None));
    assert!(frames.is_unfinished());
    let rest = vec![1; 65_527];
    let mut rest = rest.as_slice();
    assert_eq!(frames.next(&mut rest).unwrap().map(<[u8]>::len), Some(65_535));
    assert!(!frames.is_unfinished());
    let mut none: &[u8] = &[];
    assert_eq!(frames.next(&mut none), Ok(None));
}

#[test]
fn a_message_that_is_too_long_is_not_written() {
    let mut out = vec![1];
    let message = Message::EchoReply(vec![0; 65_528].into());
    assert_eq!(message.encode(0, &mut out), Err(TooLong { len: 65_536 }));
    assert_eq!(out, [1]);
}

#[test]
fn a_name_is_cut_at_a_character_and_ends_with_a_zero() {
    let port = Port { name: "äöüäöüäöü".to_owned(), ..Port::default() };
    let message = Message::PortStatus(Box::new(PortStatus { reason: PortReason::Add, port }));
    let Ok(Message::PortStatus(status)) = Message::decode(&encoded(&message)) else { panic!("it is one") };
    assert_eq!(status.port.name, "äöüäöüä");
}
