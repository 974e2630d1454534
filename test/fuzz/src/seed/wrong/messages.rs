//! The messages of controllers, field by field (OpenFlow 1.3.5, chapter 7).

use twinpath_openflow_wire::{
    ActionType, Field, InstructionType, MessageType, MultipartType, Prerequisite, number,
};

use super::parts::{Before, Layout};

/// Part of a message.
fn part() -> Layout {
    Layout::new("", MessageType::Hello)
}

/// Class of the fields that the specification defines.
const BASIC: u128 = 0x8000;
/// An unknown experimenter.
const NOBODY: u128 = 0x0bad_cafe;
/// Types of messages, of which the specification has 30.
const TYPES: [std::ops::RangeInclusive<u8>; 3] = [0..=35, 99..=99, 255..=255];

/// A value that a field may have.
fn value(field: Field) -> u128 {
    match field {
        Field::VlanVid => 0x1001,
        Field::EthType => 0x800,
        Field::IpProto => 6,
        Field::Icmpv6Type => 135,
        _ => 1,
    }
}

/// What a match needs before a field.
fn needed(field: Field) -> Vec<(Field, u128)> {
    match field.prerequisite() {
        Prerequisite::None => Vec::new(),
        Prerequisite::InPort => vec![(Field::InPort, 1)],
        Prerequisite::Tagged => vec![(Field::VlanVid, 0x1001)],
        Prerequisite::OneOf(other, values) => {
            let mut all = needed(other);
            // Beyond what the specification says, it is a protocol of IPv6 alone.
            if let Some(last) =
                all.last_mut().filter(|_| matches!(field, Field::Icmpv6Type | Field::Icmpv6Code))
            {
                *last = (Field::EthType, 0x86dd);
            }
            all.push((other, values[0].into()));
            all
        }
    }
}

/// The lowest bit beyond those of a field that count; without such a bit, all that count.
fn beyond(field: Field) -> u128 {
    field.full_mask().saturating_add(1).min(u128::MAX >> (128 - 8 * field.wire_len()))
}

/// Fields of each length, with and without masks, whose heads are made wrong, too.
const BY_LENGTH: [Field; 7] = [
    Field::InPort,
    Field::EthDst,
    Field::EthType,
    Field::IpProto,
    Field::Metadata,
    Field::Ipv6Dst,
    Field::PbbIsid,
];

/// The head of a field (section 7.2.3.2).
fn oxm_head(field: Field, has_mask: bool) -> Layout {
    let (kind, len) = (u128::from(field.number()) << 1, field.wire_len() as u128);
    let (kind, whole) = if has_mask { (kind | 1, 2 * len) } else { (kind, len) };
    let head = part()
        .choice("class", 2, BASIC, &[0x7fff, 0x8001])
        .choice("field", 1, kind, &[kind ^ 1, 80, 82, 0xfe])
        .number("field_len", 1, whole, &[len, 2 * len]);
    if BY_LENGTH.contains(&field) { head } else { head.fixed() }
}

/// A field with its value, and with a mask.
fn oxm(field: Field, value: u128, mask: Option<u128>) -> Layout {
    let (len, beyond) = (field.wire_len(), beyond(field));
    let head = oxm_head(field, mask.is_some()).number("value", len, value, &[beyond]);
    match mask {
        Some(mask) => head.number("mask", len, mask, &[beyond]),
        None => head,
    }
}

/// A match (section 7.2.3.1).
fn matching(fields: Layout) -> Layout {
    let len = 4 + fields.body_len();
    let pad = len.next_multiple_of(8) - len;
    let head = part().number("match_type", 2, 1, &[2]).len("match_len", len as u16);
    let all = head.then(fields);
    if pad > 0 { all.pad("match_pad", pad) } else { all }
}

/// A match of what a field needs, none of it wrong.
fn match_for(field: Field) -> Layout {
    let fields =
        needed(field).into_iter().fold(part(), |all, (field, value)| all.then(oxm(field, value, None)));
    matching(fields).fixed()
}

/// A flow-mod without match and instructions (section 7.3.4.1).
fn flow_head(name: &str, command: u128) -> Layout {
    let all_or_one = u128::from(number::table::ALL);
    Layout::new(name, MessageType::FlowMod)
        .number("cookie", 8, 5, &[])
        .number("cookie_mask", 8, 0, &[])
        .number("table_id", 1, 0, &[all_or_one])
        .number("command", 1, command, &[5])
        .number("idle_timeout", 2, 0, &[])
        .number("hard_timeout", 2, 0, &[])
        .number("priority", 2, 100, &[])
        .number("buffer_id", 4, number::NO_BUFFER.into(), &[7])
        .number("out_port", 4, number::port::ANY.into(), &[9, number::port::CONTROLLER.into()])
        .number("out_group", 4, number::group::ANY.into(), &[9, number::group::ALL.into()])
        .number("flags", 2, 0, &[2, 4, 8, 16, 0x1f, 0x20])
        .pad("pad", 2)
}

/// A flow-mod that adds these instructions with that match, and nothing else of it wrong.
fn adds(name: &str, matches: Layout, instructions: Layout) -> Layout {
    flow_head(name, 0).fixed().then(matches).then(instructions).named(name)
}

/// An instruction (section 7.2.4).
fn instruction(kind: InstructionType, body: Layout) -> Layout {
    let len = 4 + body.body_len();
    part().choice("type", 2, kind.number().into(), &[0, 7, 99, 0x8000]).len("len", len as u16).then(body)
}

/// An instruction that applies an action, with nothing wrong but the action.
fn apply(action: Layout) -> Layout {
    let body = part().pad("pad", 4);
    let len = 8 + action.body_len();
    let head = part().choice("type", 2, InstructionType::ApplyActions.number().into(), &[]);
    head.len("len", len as u16).then(body).fixed().then(action)
}

/// An action (section 7.2.5).
fn action(kind: ActionType, body: Layout) -> Layout {
    let len = 4 + body.body_len();
    part().choice("type", 2, kind.number().into(), &[28, 99, 0x8000]).len("len", len as u16).then(body)
}

fn output(port: u128) -> Layout {
    let special = [
        number::port::MAX,
        number::port::IN_PORT,
        number::port::TABLE,
        number::port::NORMAL,
        number::port::FLOOD,
        number::port::ALL,
        number::port::CONTROLLER,
        number::port::LOCAL,
        number::port::MAX + 1,
        99,
    ];
    let body = part()
        .number("port", 4, port, &special.map(u128::from))
        .number("max_len", 2, 0, &[number::max_len::NO_BUFFER.into(), 0xffe5, 0xffe6])
        .pad("pad", 6);
    action(ActionType::Output, body)
}

/// The actions but set-field, each with a body that may be.
fn actions() -> Vec<(ActionType, Layout)> {
    let ethertype = |value: u128, more: &[u128]| part().number("ethertype", 2, value, more).pad("pad", 2);
    let ttl = || part().number("ttl", 1, 9, &[]).pad("pad", 3);
    let none = || part().pad("pad", 4);
    vec![
        (ActionType::CopyTtlOut, none()),
        (ActionType::CopyTtlIn, none()),
        (ActionType::SetMplsTtl, ttl()),
        (ActionType::DecMplsTtl, none()),
        (ActionType::PushVlan, ethertype(0x8100, &[0x88a8, 0x9100, 0x8847])),
        (ActionType::PopVlan, none()),
        (ActionType::PushMpls, ethertype(0x8847, &[0x8848, 0x8100])),
        (ActionType::PopMpls, ethertype(0x800, &[0x8847, 0x86dd])),
        (ActionType::SetQueue, part().number("queue_id", 4, 0, &[])),
        (ActionType::Group, part().number("group_id", 4, 1, &[2, number::group::ALL.into()])),
        (ActionType::SetNwTtl, ttl()),
        (ActionType::DecNwTtl, none()),
        (ActionType::PushPbb, ethertype(0x88e7, &[0x8100])),
        (ActionType::PopPbb, none()),
        (ActionType::Experimenter, part().number("experimenter", 4, NOBODY, &[])),
    ]
}

/// What a match says of frames that all of these actions can be done with.
fn match_of_action(kind: ActionType) -> Layout {
    let tagged = [(Field::VlanVid, 0x1001)];
    let mpls = [(Field::EthType, 0x8847)];
    let ip = [(Field::EthType, 0x800)];
    let fields: &[(Field, u128)] = match kind {
        ActionType::SetMplsTtl | ActionType::DecMplsTtl | ActionType::PopMpls => &mpls,
        ActionType::CopyTtlOut | ActionType::CopyTtlIn => &mpls,
        ActionType::PopVlan => &tagged,
        ActionType::SetNwTtl | ActionType::DecNwTtl => &ip,
        _ => &[],
    };
    let fields = fields.iter().fold(part(), |all, (field, value)| all.then(oxm(*field, *value, None)));
    matching(fields).fixed()
}

/// A name as in messages of switches.
fn name(kind: &str, of: &impl std::fmt::Debug) -> String {
    format!("{kind}.{of:?}")
}

/// Flow-mods: all commands, and then a match of each field, each instruction, each action.
fn flow_mods() -> Vec<Layout> {
    let in_port = || matching(oxm(Field::InPort, 1, None));
    let nothing = || apply(output(2)).fixed();
    let mut all = vec![
        flow_head("flow_mod_add", 0).then(in_port()).then(apply(output(2))),
        flow_head("flow_mod_modify", 1).then(in_port().fixed()).then(nothing()),
        flow_head("flow_mod_modify_strict", 2).then(in_port().fixed()).then(nothing()),
        flow_head("flow_mod_delete", 3).then(in_port().fixed()),
        flow_head("flow_mod_delete_strict", 4).then(in_port().fixed()),
    ];
    for field in Field::ALL {
        let value = value(*field);
        let fields = |last: Layout| {
            let before = needed(*field)
                .into_iter()
                .fold(part(), |all, (field, value)| all.then(oxm(field, value, None)));
            matching(before.fixed().then(last))
        };
        all.push(adds(&name("match", field), fields(oxm(*field, value, None)), nothing()).without("match_"));
        let full = field.full_mask();
        let mask = full ^ full >> 1 | value;
        let masked = fields(oxm(*field, value, Some(mask)));
        all.push(adds(&name("match_masked", field), masked, nothing()).without("match_"));
        // What it needs comes behind it, or not at all.
        if !needed(*field).is_empty() {
            let alone = matching(oxm(*field, value, None)).fixed();
            all.push(adds(&name("match_alone", field), alone, nothing()));
        }
        let (width, head) = (field.wire_len(), oxm_head(*field, false));
        let body = head.number("value", width, value, &[beyond(*field)]);
        let pad = (4 + body.body_len()).next_multiple_of(8) - 4 - body.body_len();
        let body = if pad > 0 { body.pad("pad", pad) } else { body };
        let set = apply(action(ActionType::SetField, body));
        all.push(adds(&name("set_field", field), match_for(*field), set.clone()));
        if !needed(*field).is_empty() {
            all.push(adds(&name("set_field_alone", field), matching(part()).fixed(), set.fixed()));
        }
    }
    let twice = oxm(Field::InPort, 1, None).then(oxm(Field::InPort, 1, None));
    all.push(adds("match_twice", matching(twice).fixed(), nothing()));
    let instructions = [
        (InstructionType::GotoTable, part().number("table_id", 1, 1, &[254]).pad("pad", 3)),
        (
            InstructionType::WriteMetadata,
            part().pad("pad", 4).number("metadata", 8, 1, &[]).number("mask", 8, 1, &[]),
        ),
        (InstructionType::WriteActions, part().pad("pad", 4).then(output(2).fixed())),
        (InstructionType::ApplyActions, part().pad("pad", 4).then(output(2).fixed())),
        (InstructionType::ClearActions, part().pad("pad", 4)),
        (InstructionType::Meter, part().number("meter_id", 4, 1, &[2, number::meter::ALL.into()])),
        (InstructionType::Experimenter, part().number("experimenter", 4, NOBODY, &[])),
    ];
    for (kind, body) in instructions {
        let one = instruction(kind, body);
        all.push(adds(&name("instruction", &kind), in_port().fixed(), one.clone()));
        let twice = one.clone().fixed().then(one.fixed());
        all.push(adds(&name("instruction_twice", &kind), in_port().fixed(), twice));
    }
    for (kind, body) in actions() {
        let one = apply(action(kind, body));
        all.push(adds(&name("action", &kind), match_of_action(kind), one.clone()));
        all.push(adds(&name("action_of_any_frame", &kind), matching(part()).fixed(), one.fixed()));
    }
    all
}

/// A packet-out (section 7.3.7).
fn packet_out() -> Layout {
    let special = [
        number::port::MAX,
        number::port::CONTROLLER,
        number::port::LOCAL,
        number::port::ANY,
        number::port::ALL,
    ];
    Layout::new("packet_out", MessageType::PacketOut)
        .number("buffer_id", 4, number::NO_BUFFER.into(), &[7])
        .number("in_port", 4, 1, &special.map(u128::from))
        .len("actions_len", 16)
        .pad("pad", 6)
        .then(output(2))
        .data("data", &[7; 20])
}

/// A bucket (section 7.3.4.2).
fn bucket(weight: u128, watch_port: u32, actions: Layout) -> Layout {
    part()
        .len("bucket_len", 16 + actions.body_len() as u16)
        .number("weight", 2, weight, &[])
        .number(
            "watch_port",
            4,
            watch_port.into(),
            &[2, 99, number::port::MAX.into(), number::port::LOCAL.into()],
        )
        .number("watch_group", 4, number::group::ANY.into(), &[1, 2, number::group::ALL.into()])
        .pad("bucket_pad", 4)
        .then(actions)
}

fn group_head(name: &str, command: u128, group_type: u128, group_id: u128) -> Layout {
    let special = [number::group::MAX, number::group::MAX + 1, number::group::ALL, number::group::ANY];
    Layout::new(name, MessageType::GroupMod)
        .number("command", 2, command, &[3])
        .number("group_type", 1, group_type, &[2, 3, 4])
        .pad("pad", 1)
        .number("group_id", 4, group_id, &special.map(u128::from))
}

/// Group-mods (section 7.3.4.2).
fn group_mods() -> Vec<Layout> {
    let any = number::port::ANY;
    let one = |weight, port| bucket(weight, port, output(1).fixed());
    let mut all = vec![
        group_head("group_mod_add", 0, 0, 2).then(one(0, any)),
        group_head("group_mod_add_select", 0, 1, 2).then(one(1, any)),
        group_head("group_mod_add_indirect", 0, 2, 2).then(one(0, any)),
        group_head("group_mod_add_fast_failover", 0, 3, 2).then(one(0, 1)),
        group_head("group_mod_modify", 1, 0, 1).then(one(0, any).fixed()),
        group_head("group_mod_delete", 2, 0, 1),
        group_head("group_mod_delete_with_buckets", 2, 0, 1).then(one(0, any)),
        group_head("group_mod_empty", 0, 0, 2).fixed().named("group_mod_empty"),
        group_head("group_mod_two_indirect", 0, 2, 2)
            .then(one(0, any))
            .then(one(0, any))
            .fixed()
            .named("group_mod_two_indirect"),
        group_head("group_mod_no_indirect", 0, 2, 2).fixed().named("group_mod_no_indirect"),
    ];
    all.push(
        group_head("group_mod_loop", 1, 0, 1)
            .then(bucket(0, any, action(ActionType::Group, part().number("group_id", 4, 1, &[]))))
            .fixed()
            .named("group_mod_loop"),
    );
    for (kind, body) in actions() {
        let name = name("bucket_action", &kind);
        all.push(group_head(&name, 0, 0, 2).then(bucket(0, any, action(kind, body))).fixed().named(&name));
    }
    all
}

/// Meter-mods (section 7.3.4.4).
fn meter_mods() -> Vec<Layout> {
    let special = [number::meter::MAX, number::meter::MAX + 1, 0xffff_fffd, 0xffff_fffe, number::meter::ALL];
    let head = |name: &str, command: u128, meter_id: u128| {
        Layout::new(name, MessageType::MeterMod)
            .number("command", 2, command, &[3])
            .number("flags", 2, 1, &[2, 3, 4, 5, 8, 9, 0x10])
            .number("meter_id", 4, meter_id, &special.map(u128::from))
    };
    let band = |kind: u128| {
        part()
            .number("band_type", 2, kind, &[3, 0xffff])
            .len("band_len", 16)
            .number("rate", 4, 1000, &[])
            .number("burst_size", 4, 100, &[])
    };
    vec![
        head("meter_mod_add", 0, 2).then(band(1)).pad("band_pad", 4),
        head("meter_mod_add_remark", 0, 2)
            .then(band(2))
            .number("prec_level", 1, 1, &[3, 4])
            .pad("band_pad", 3),
        head("meter_mod_add_experimenter", 0, 2).then(band(0xffff)).number("experimenter", 4, NOBODY, &[]),
        head("meter_mod_modify", 1, 1).then(band(1).fixed()).pad("band_pad", 4),
        head("meter_mod_delete", 2, 1),
        head("meter_mod_empty", 0, 2).fixed().named("meter_mod_empty"),
    ]
}

/// The others that change or ask something, but multipart requests.
fn others() -> Vec<Layout> {
    let ports = [
        number::port::MAX,
        number::port::ANY,
        number::port::LOCAL,
        number::port::CONTROLLER,
        number::port::ALL,
    ];
    let ports = ports.map(u128::from);
    let empty = |name: &str, kind| Layout::new(name, kind);
    vec![
        empty("hello", MessageType::Hello).number("element_type", 2, 1, &[]).len("element_len", 8).number(
            "bitmap",
            4,
            0x10,
            &[0x12],
        ),
        empty("error", MessageType::Error)
            .number("type", 2, 1, &[99, 0xffff])
            .number("code", 2, 6, &[99])
            .data("data", &[0; 8]),
        empty("echo_request", MessageType::EchoRequest).data("data", &[1, 2, 3, 4]),
        empty("echo_reply", MessageType::EchoReply).data("data", &[1, 2, 3, 4]),
        empty("experimenter", MessageType::Experimenter).number("experimenter", 4, NOBODY, &[]).number(
            "exp_type",
            4,
            1,
            &[],
        ),
        empty("features_request", MessageType::FeaturesRequest),
        empty("get_config_request", MessageType::GetConfigRequest),
        empty("set_config", MessageType::SetConfig).number("flags", 2, 0, &[2, 3, 4]).number(
            "miss_send_len",
            2,
            128,
            &[0xffe5, 0xffe6],
        ),
        packet_out(),
        empty("port_mod", MessageType::PortMod)
            .number("port_no", 4, 2, &ports)
            .pad("pad", 4)
            .number("hw_addr", 6, 0x0200_0000_0002, &[])
            .pad("pad2", 2)
            .number("config", 4, 0, &[4, 32, 64])
            .number("mask", 4, 0x65, &[4, 32, 64])
            .number("advertise", 4, 0, &[0x20, 0x840])
            .pad("pad3", 4),
        empty("table_mod", MessageType::TableMod).number("table_id", 1, 0, &[]).pad("pad", 3).number(
            "config",
            4,
            0,
            &[2, 3, 4],
        ),
        empty("barrier_request", MessageType::BarrierRequest),
        empty("queue_get_config_request", MessageType::QueueGetConfigRequest)
            .number("port", 4, 1, &ports)
            .pad("pad", 4),
    ]
}

/// What a controller is to the switch (sections 7.3.9 and 7.3.10).
fn roles() -> Vec<Layout> {
    let empty = |name: &str, kind| Layout::new(name, kind);
    let role = |name: &str, role: u128| {
        Layout::new(name, MessageType::RoleRequest)
            .number("role", 4, role, &[2, 3, 4])
            .pad("pad", 4)
            .number("generation_id", 8, 7, &[6, 8, 1 << 63 | 6, 1 << 63 | 7, 1 << 63 | 8])
            .after(Before::Election)
    };
    let masks = [
        "packet_in",
        "packet_in_slave",
        "port_status",
        "port_status_slave",
        "flow_removed",
        "flow_removed_slave",
    ];
    vec![
        role("role_no_change", 0),
        role("role_equal", 1),
        role("role_master", 2),
        role("role_slave", 3),
        empty("get_async_request", MessageType::GetAsyncRequest),
        masks.iter().fold(empty("set_async", MessageType::SetAsync), |all, name| {
            all.number(name, 4, 3, &[7, 8, 15, 16])
        }),
    ]
}

/// Which flows a request is about (sections 7.3.5.2 and 7.3.5.3).
fn flow_request(ports: &[u128], groups: &[u128]) -> Layout {
    part()
        .number("table_id", 1, 0xff, &[])
        .pad("pad2", 3)
        .number("out_port", 4, number::port::ANY.into(), ports)
        .number("out_group", 4, number::group::ANY.into(), groups)
        .pad("pad3", 4)
        .number("cookie", 8, 0, &[])
        .number("cookie_mask", 8, 0, &[])
        .then(matching(oxm(Field::InPort, 1, None)))
}

/// What a table is to do (section 7.3.5.5).
fn table_features() -> Layout {
    part()
        .len("features_len", 72)
        .number("table_id", 1, 0, &[])
        .pad("pad2", 5)
        .data("name", &[0; 32])
        .number("metadata_match", 8, u64::MAX.into(), &[])
        .number("metadata_write", 8, u64::MAX.into(), &[])
        .number("config", 4, 0, &[3, 4])
        .number("max_entries", 4, 1000, &[])
        .number("property_type", 2, 0, &[16, 0xfffe])
        .len("property_len", 8)
        .number("instruction", 2, 4, &[7])
        .number("instruction_len", 2, 4, &[8])
}

/// Multipart requests (section 7.3.5).
fn multiparts() -> Vec<Layout> {
    let ports = [
        number::port::MAX,
        number::port::ANY,
        number::port::LOCAL,
        number::port::CONTROLLER,
        number::port::ALL,
        99,
    ];
    let ports = ports.map(u128::from);
    let groups = [2, number::group::MAX, number::group::MAX + 1, number::group::ALL, number::group::ANY]
        .map(u128::from);
    let meters =
        [2, number::meter::MAX, number::meter::MAX + 1, 0xffff_fffd, 0xffff_fffe, number::meter::ALL]
            .map(u128::from);
    let request = |kind: MultipartType, body: Layout| {
        Layout::new(&name("multipart", &kind), MessageType::MultipartRequest)
            .choice("type", 2, kind.number().into(), &[14, 15, 99, 0x8000])
            .number("flags", 2, 0, &[2])
            .pad("pad", 4)
            .then(body)
    };
    vec![
        request(MultipartType::Desc, part()),
        request(MultipartType::Flow, flow_request(&ports, &groups)),
        request(MultipartType::Aggregate, flow_request(&ports, &groups)),
        request(MultipartType::Table, part()),
        request(MultipartType::PortStats, part().number("port_no", 4, 1, &ports).pad("pad2", 4)),
        request(
            MultipartType::Queue,
            part().number("port_no", 4, number::port::ANY.into(), &ports).number(
                "queue_id",
                4,
                0xffff_ffff,
                &[],
            ),
        ),
        request(MultipartType::Group, part().number("group_id", 4, 1, &groups).pad("pad2", 4)),
        request(MultipartType::GroupDesc, part()),
        request(MultipartType::GroupFeatures, part()),
        request(MultipartType::Meter, part().number("meter_id", 4, 1, &meters).pad("pad2", 4)),
        request(MultipartType::MeterConfig, part().number("meter_id", 4, 1, &meters).pad("pad2", 4)),
        request(MultipartType::MeterFeatures, part()),
        request(MultipartType::TableFeatures, part()),
        request(MultipartType::TableFeatures, table_features()).named("multipart.TableFeatures_set"),
        request(MultipartType::PortDesc, part()),
        request(
            MultipartType::Experimenter,
            part().number("experimenter", 4, NOBODY, &[]).number("exp_type", 4, 1, &[]),
        ),
    ]
}

/// Messages of each type that there is, and of some that there are not, with bodies that are none.
fn types() -> Vec<Layout> {
    let all = || TYPES.into_iter().flatten();
    let bodies = all().flat_map(|kind| {
        let of_len =
            |len| Layout::of_type(&format!("type_{kind}.{len}_bytes"), kind).data("body", &vec![0; len]);
        [0, 4, 8, 16, 64].map(of_len)
    });
    let slave = all().map(|kind| Layout::of_type(&format!("slave.type_{kind}"), kind).after(Before::Slave));
    bodies.chain(slave).collect()
}

/// Every message of a controller, valid, with its fields.
#[must_use]
pub fn messages() -> Vec<Layout> {
    let groups = [others(), roles(), group_mods(), meter_mods(), multiparts()];
    let main: Vec<_> = groups.into_iter().flatten().collect();
    let of_slave = |layout: &Layout| layout.clone().fixed().of_slave();
    let slave: Vec<_> = main.iter().chain(&flow_mods()[..5]).map(of_slave).collect();
    [main, flow_mods(), types(), slave].concat()
}

/// First messages of a controller (section 6.3.1).
#[must_use]
pub fn greetings() -> Vec<Layout> {
    let bare = |version| Layout::new("greeting", MessageType::Hello).of_version(version);
    let bitmap = |version: u8, bitmap: u128, name: &str| {
        Layout::new(name, MessageType::Hello)
            .number("element_type", 2, 1, &[2])
            .len("element_len", 8)
            .number("bitmap", 4, bitmap, &[0x12, 0x02, 0x30, 0x20, 0x72])
            .of_version(version)
    };
    let two = |name: &str, first: u128| {
        let element = |kind| {
            part().number("element_type", 2, kind, &[]).len("element_len", 8).number("bitmap", 4, 0x10, &[])
        };
        Layout::new(name, MessageType::Hello).then(element(first).fixed()).then(element(1).fixed())
    };
    let long = Layout::new("greeting_long", MessageType::Hello)
        .data("head", &[0, 1, 0, 12])
        .number("bitmap", 4, 0x10, &[])
        .number("bitmap2", 4, 1, &[])
        .pad("pad", 4);
    let others = TYPES[0].clone().filter(|kind| *kind != 0);
    let others =
        others.map(|kind| Layout::of_type(&format!("greeting.type_{kind}"), kind).data("body", &[0; 8]));
    let named = [
        bare(4),
        bitmap(4, 0x10, "greeting_bitmap"),
        bitmap(6, 0x52, "greeting_of_1_5"),
        bitmap(1, 0x12, "greeting_of_1_0"),
        two("greeting_other_element", 2),
        two("greeting_two_bitmaps", 1),
        long,
    ];
    named.into_iter().chain(others).collect()
}
