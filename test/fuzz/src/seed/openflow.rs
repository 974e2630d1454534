//! OpenFlow messages of every type, from bytes: equal bytes give an equal message.

use twinpath_openflow_wire::{
    Action, ActionType, Aggregate, AsyncConfig, Band, Bucket, Config, Count, Desc, ErrorMessage,
    ExperimenterBody, Features, Field, FlowMod, FlowModCommand, FlowRemoved, FlowRemovedReason, FlowStats,
    FlowStatsRequest, GroupDesc, GroupFeatures, GroupMod, GroupModCommand, GroupStats, GroupType, Hello,
    Instruction, InstructionType, Match, MatchField, Message, MessageType, MeterConfig, MeterFeatures,
    MeterMod, MeterModCommand, MeterStats, Multipart, MultipartReply, MultipartRequest, MultipartType,
    PacketIn, PacketInReason, PacketOut, Port, PortMod, PortReason, PortStats, PortStatus, Prerequisite,
    PropertyId, Queue, QueueConfig, QueueProperty, QueueStats, Role, RoleMessage, TableFeatures, TableMod,
    TableProperty, TablePropertyType, TableStats, flow_flags, number,
};

/// Bytes that choose; after the last one everything is 0.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Chooses by these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// Two bytes choose it, so that messages need few.
    fn u64(&mut self) -> u64 {
        u64::from(self.u16()).wrapping_mul(0x0001_0001_0001_0001)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    fn list<T>(&mut self, most: u8, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.byte() % (most + 1)).map(|_| one(self)).collect()
    }

    fn data(&mut self, unit: usize) -> Box<[u8]> {
        let count = usize::from(self.byte() % 4) * unit;
        (0..count).map(|_| self.byte()).collect()
    }

    fn text(&mut self) -> String {
        self.list(12, |choices| char::from(b'a' + choices.byte() % 26)).into_iter().collect()
    }
}

fn field_value(choices: &mut Choices<'_>, field: Field) -> u128 {
    (u128::from(choices.u64()) << 64 | u128::from(choices.u64())) & field.full_mask()
}

/// Adds what the field needs, then the field.
fn add(fields: &mut Vec<MatchField>, choices: &mut Choices<'_>, field: Field) {
    match field.prerequisite() {
        Prerequisite::None => {}
        Prerequisite::InPort => add(fields, choices, Field::InPort),
        Prerequisite::Tagged => fields.push(MatchField::masked(Field::VlanVid, 0x1000, 0x1000)),
        Prerequisite::OneOf(needed, values) => {
            let value = choices.one_of(values);
            if !fields.iter().any(|one| one.field == needed) {
                add(fields, choices, needed);
                if let Some(last) = fields.last_mut() {
                    last.value = value.into();
                }
            }
        }
    }
    let value = field_value(choices, field);
    let mask = (field.maskable() && choices.byte() % 2 == 1).then(|| field_value(choices, field));
    fields.push(MatchField { field, value: value & mask.unwrap_or(u128::MAX), mask });
}

fn matches(choices: &mut Choices<'_>) -> Match {
    let mut fields = Vec::new();
    for _ in 0..choices.byte() % 4 {
        let field = choices.one_of(Field::ALL);
        let before = fields.len();
        add(&mut fields, choices, field);
        // One that is there twice, or needs something else than one before it.
        if Match::new(fields.as_slice()).is_err() {
            fields.truncate(before);
        }
    }
    Match::new(fields).expect("each field was tried")
}

fn action(choices: &mut Choices<'_>) -> Action {
    match choices.one_of(ActionType::ALL) {
        ActionType::Output => Action::Output { port: choices.u32(), max_len: choices.u16() },
        ActionType::CopyTtlOut => Action::CopyTtlOut,
        ActionType::CopyTtlIn => Action::CopyTtlIn,
        ActionType::SetMplsTtl => Action::SetMplsTtl(choices.byte()),
        ActionType::DecMplsTtl => Action::DecMplsTtl,
        ActionType::PushVlan => Action::PushVlan(choices.u16()),
        ActionType::PopVlan => Action::PopVlan,
        ActionType::PushMpls => Action::PushMpls(choices.u16()),
        ActionType::PopMpls => Action::PopMpls(choices.u16()),
        ActionType::SetQueue => Action::SetQueue(choices.u32()),
        ActionType::Group => Action::Group(choices.u32()),
        ActionType::SetNwTtl => Action::SetNwTtl(choices.byte()),
        ActionType::DecNwTtl => Action::DecNwTtl,
        ActionType::SetField => {
            let field = choices.one_of(Field::ALL);
            let field = if field.settable() { field } else { Field::EthSrc };
            Action::SetField { field, value: field_value(choices, field) }
        }
        ActionType::PushPbb => Action::PushPbb(choices.u16()),
        ActionType::PopPbb => Action::PopPbb,
        ActionType::Experimenter => {
            Action::Experimenter { experimenter: choices.u32(), data: choices.data(8) }
        }
    }
}

fn actions(choices: &mut Choices<'_>) -> Box<[Action]> {
    choices.list(4, action).into()
}

fn instruction(choices: &mut Choices<'_>) -> Instruction {
    match choices.one_of(InstructionType::ALL) {
        InstructionType::GotoTable => Instruction::GotoTable(choices.byte()),
        InstructionType::WriteMetadata => {
            Instruction::WriteMetadata { metadata: choices.u64(), mask: choices.u64() }
        }
        InstructionType::WriteActions => Instruction::WriteActions(actions(choices)),
        InstructionType::ApplyActions => Instruction::ApplyActions(actions(choices)),
        InstructionType::ClearActions => Instruction::ClearActions,
        InstructionType::Meter => Instruction::Meter(choices.u32()),
        InstructionType::Experimenter => {
            Instruction::Experimenter { experimenter: choices.u32(), data: choices.data(8) }
        }
    }
}

fn instructions(choices: &mut Choices<'_>) -> Box<[Instruction]> {
    choices.list(4, instruction).into()
}

fn bucket(choices: &mut Choices<'_>) -> Bucket {
    Bucket {
        weight: choices.u16(),
        watch_port: choices.u32(),
        watch_group: choices.u32(),
        actions: actions(choices),
    }
}

fn band(choices: &mut Choices<'_>) -> Band {
    let (rate, burst) = (choices.u32(), choices.u32());
    match choices.byte() % 3 {
        0 => Band::Drop { rate, burst },
        1 => Band::DscpRemark { rate, burst, prec_level: choices.byte() },
        _ => Band::Experimenter { rate, burst, experimenter: choices.u32(), data: choices.data(1) },
    }
}

fn count(choices: &mut Choices<'_>) -> Count {
    Count { packets: choices.u64(), bytes: choices.u64() }
}

fn port(choices: &mut Choices<'_>) -> Port {
    Port {
        port_no: choices.u32(),
        hw_addr: choices.array(),
        name: choices.text(),
        config: choices.u32(),
        state: choices.u32(),
        curr: choices.u32(),
        advertised: choices.u32(),
        supported: choices.u32(),
        peer: choices.u32(),
        curr_speed: choices.u32(),
        max_speed: choices.u32(),
    }
}

fn port_stats(choices: &mut Choices<'_>) -> PortStats {
    let mut pair = || [choices.u64(), choices.u64()];
    let (packets, bytes, dropped, errors) = (pair(), pair(), pair(), pair());
    PortStats {
        port_no: choices.u32(),
        packets,
        bytes,
        dropped,
        errors,
        rx_errors: [choices.u64(), choices.u64(), choices.u64()],
        collisions: choices.u64(),
        duration_s: choices.u32(),
        duration_ns: choices.u32(),
    }
}

fn queue(choices: &mut Choices<'_>) -> Queue {
    let property = |choices: &mut Choices<'_>| match choices.byte() % 3 {
        0 => QueueProperty::MinRate(choices.u16()),
        1 => QueueProperty::MaxRate(choices.u16()),
        _ => QueueProperty::Experimenter { experimenter: choices.u32(), data: choices.data(8) },
    };
    Queue { queue_id: choices.u32(), port: choices.u32(), properties: choices.list(3, property).into() }
}

fn experimenter(choices: &mut Choices<'_>) -> ExperimenterBody {
    ExperimenterBody { experimenter: choices.u32(), exp_type: choices.u32(), data: choices.data(1) }
}

fn property(choices: &mut Choices<'_>) -> TableProperty {
    use TablePropertyType as Type;
    let kind = choices.one_of(Type::ALL);
    match kind {
        Type::NextTables | Type::NextTablesMiss => TableProperty::Tables(kind, choices.data(3)),
        Type::Experimenter | Type::ExperimenterMiss => {
            TableProperty::Experimenter(kind, choices.u32(), choices.u32(), choices.data(4))
        }
        Type::Match
        | Type::Wildcards
        | Type::WriteSetfield
        | Type::WriteSetfieldMiss
        | Type::ApplySetfield
        | Type::ApplySetfieldMiss => {
            let id = |choices: &mut Choices<'_>| {
                let class = choices.one_of(&[0x8000, 0, 0xffff]);
                PropertyId {
                    head: class << 16 | u32::from(choices.u16()),
                    experimenter: (class == 0xffff).then(|| choices.u32()),
                }
            };
            TableProperty::Ids(kind, choices.list(4, id).into())
        }
        _ => {
            let id = |choices: &mut Choices<'_>| PropertyId {
                head: choices.u16().into(),
                experimenter: (choices.byte() % 2 == 1).then(|| choices.u32()),
            };
            TableProperty::Ids(kind, choices.list(4, id).into())
        }
    }
}

fn table_features(choices: &mut Choices<'_>) -> TableFeatures {
    TableFeatures {
        table_id: choices.byte(),
        name: choices.text(),
        metadata_match: choices.u64(),
        metadata_write: choices.u64(),
        config: choices.u32(),
        max_entries: choices.u32(),
        properties: choices.list(4, property).into(),
    }
}

fn flow_stats_request(choices: &mut Choices<'_>) -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: choices.byte(),
        out_port: choices.u32(),
        out_group: choices.u32(),
        cookie: choices.u64(),
        cookie_mask: choices.u64(),
        matches: matches(choices),
    }
}

fn flow_stats(choices: &mut Choices<'_>) -> FlowStats {
    FlowStats {
        table_id: choices.byte(),
        duration_s: choices.u32(),
        duration_ns: choices.u32(),
        priority: choices.u16(),
        idle_timeout_s: choices.u16(),
        hard_timeout_s: choices.u16(),
        flags: choices.u16(),
        cookie: choices.u64(),
        packets: choices.u64(),
        bytes: choices.u64(),
        matches: matches(choices),
        instructions: instructions(choices),
    }
}

fn request(choices: &mut Choices<'_>) -> MultipartRequest {
    match choices.one_of(MultipartType::ALL) {
        MultipartType::Desc => MultipartRequest::Desc,
        MultipartType::Flow => MultipartRequest::Flow(flow_stats_request(choices)),
        MultipartType::Aggregate => MultipartRequest::Aggregate(flow_stats_request(choices)),
        MultipartType::Table => MultipartRequest::Table,
        MultipartType::PortStats => MultipartRequest::PortStats(choices.u32()),
        MultipartType::Queue => MultipartRequest::Queue { port: choices.u32(), queue_id: choices.u32() },
        MultipartType::Group => MultipartRequest::Group(choices.u32()),
        MultipartType::GroupDesc => MultipartRequest::GroupDesc,
        MultipartType::GroupFeatures => MultipartRequest::GroupFeatures,
        MultipartType::Meter => MultipartRequest::Meter(choices.u32()),
        MultipartType::MeterConfig => MultipartRequest::MeterConfig(choices.u32()),
        MultipartType::MeterFeatures => MultipartRequest::MeterFeatures,
        MultipartType::TableFeatures => {
            MultipartRequest::TableFeatures(choices.list(3, table_features).into())
        }
        MultipartType::PortDesc => MultipartRequest::PortDesc,
        MultipartType::Experimenter => MultipartRequest::Experimenter(experimenter(choices)),
    }
}

fn reply(choices: &mut Choices<'_>) -> MultipartReply {
    match choices.one_of(MultipartType::ALL) {
        MultipartType::Desc => MultipartReply::Desc(Box::new(Desc {
            manufacturer: choices.text(),
            hardware: choices.text(),
            software: choices.text(),
            serial_number: choices.text(),
            datapath: choices.text(),
        })),
        MultipartType::Flow => MultipartReply::Flow(choices.list(3, flow_stats)),
        MultipartType::Aggregate => MultipartReply::Aggregate(Aggregate {
            packets: choices.u64(),
            bytes: choices.u64(),
            flows: choices.u32(),
        }),
        MultipartType::Table => MultipartReply::Table(choices.list(3, |choices| TableStats {
            table_id: choices.byte(),
            active: choices.u32(),
            lookups: choices.u64(),
            matched: choices.u64(),
        })),
        MultipartType::PortStats => MultipartReply::PortStats(choices.list(3, port_stats)),
        MultipartType::Queue => MultipartReply::Queue(choices.list(3, |choices| QueueStats {
            port: choices.u32(),
            queue_id: choices.u32(),
            tx_bytes: choices.u64(),
            tx_packets: choices.u64(),
            tx_errors: choices.u64(),
            duration_s: choices.u32(),
            duration_ns: choices.u32(),
        })),
        MultipartType::Group => MultipartReply::Group(choices.list(3, |choices| GroupStats {
            group_id: choices.u32(),
            ref_count: choices.u32(),
            count: count(choices),
            duration_s: choices.u32(),
            duration_ns: choices.u32(),
            buckets: choices.list(3, count).into(),
        })),
        MultipartType::GroupDesc => MultipartReply::GroupDesc(choices.list(3, |choices| GroupDesc {
            group_type: choices.one_of(GroupType::ALL),
            group_id: choices.u32(),
            buckets: choices.list(3, bucket).into(),
        })),
        other => reply_about_the_switch(other, choices),
    }
}

fn reply_about_the_switch(kind: MultipartType, choices: &mut Choices<'_>) -> MultipartReply {
    match kind {
        MultipartType::GroupFeatures => MultipartReply::GroupFeatures(GroupFeatures {
            types: choices.u32(),
            capabilities: choices.u32(),
            max_groups: [choices.u32(), choices.u32(), choices.u32(), choices.u32()],
            actions: [choices.u32(), choices.u32(), choices.u32(), choices.u32()],
        }),
        MultipartType::Meter => MultipartReply::Meter(choices.list(3, |choices| MeterStats {
            meter_id: choices.u32(),
            flows: choices.u32(),
            count: count(choices),
            duration_s: choices.u32(),
            duration_ns: choices.u32(),
            bands: choices.list(3, count).into(),
        })),
        MultipartType::MeterConfig => MultipartReply::MeterConfig(choices.list(3, |choices| MeterConfig {
            flags: choices.u16(),
            meter_id: choices.u32(),
            bands: choices.list(3, band).into(),
        })),
        MultipartType::MeterFeatures => MultipartReply::MeterFeatures(MeterFeatures {
            max_meter: choices.u32(),
            band_types: choices.u32(),
            capabilities: choices.u32(),
            max_bands: choices.byte(),
            max_color: choices.byte(),
        }),
        MultipartType::TableFeatures => MultipartReply::TableFeatures(choices.list(3, table_features)),
        MultipartType::PortDesc => MultipartReply::PortDesc(choices.list(3, port)),
        _ => MultipartReply::Experimenter(experimenter(choices)),
    }
}

fn flow_mod(choices: &mut Choices<'_>) -> FlowMod {
    FlowMod {
        cookie: choices.u64(),
        cookie_mask: choices.u64(),
        table_id: choices.byte(),
        command: choices.one_of(FlowModCommand::ALL),
        idle_timeout_s: choices.u16(),
        hard_timeout_s: choices.u16(),
        priority: choices.u16(),
        buffer_id: choices.u32(),
        out_port: choices.u32(),
        out_group: choices.u32(),
        flags: choices.u16() & flow_flags::ALL,
        matches: matches(choices),
        instructions: instructions(choices),
    }
}

fn flow_removed(choices: &mut Choices<'_>) -> FlowRemoved {
    FlowRemoved {
        cookie: choices.u64(),
        priority: choices.u16(),
        reason: choices.one_of(FlowRemovedReason::ALL),
        table_id: choices.byte(),
        duration_s: choices.u32(),
        duration_ns: choices.u32(),
        idle_timeout_s: choices.u16(),
        hard_timeout_s: choices.u16(),
        packets: choices.u64(),
        bytes: choices.u64(),
        matches: matches(choices),
    }
}

fn error(choices: &mut Choices<'_>) -> ErrorMessage {
    let of_experimenter = choices.byte() % 4 == 3;
    ErrorMessage {
        error_type: if of_experimenter { 0xffff } else { choices.byte().into() },
        code: choices.u16(),
        experimenter: of_experimenter.then(|| choices.u32()),
        data: choices.data(16),
    }
}

fn packet_in(choices: &mut Choices<'_>) -> PacketIn {
    PacketIn {
        buffer_id: choices.u32(),
        total_len: choices.u16(),
        reason: choices.one_of(PacketInReason::ALL),
        table_id: choices.byte(),
        cookie: choices.u64(),
        matches: matches(choices),
        data: choices.data(20),
    }
}

/// A message of any type.
#[must_use]
pub fn message(choices: &mut Choices<'_>) -> Message {
    let role = |choices: &mut Choices<'_>| RoleMessage {
        role: choices.one_of(Role::ALL),
        generation_id: choices.u64(),
    };
    match choices.one_of(MessageType::ALL) {
        MessageType::Hello => Message::Hello(Hello {
            version: choices.byte(),
            versions: (choices.byte() % 2 == 1).then(|| choices.u32()),
        }),
        MessageType::Error => Message::Error(error(choices)),
        MessageType::EchoRequest => Message::EchoRequest(choices.data(9)),
        MessageType::EchoReply => Message::EchoReply(choices.data(9)),
        MessageType::Experimenter => Message::Experimenter(experimenter(choices)),
        MessageType::FeaturesRequest => Message::FeaturesRequest,
        MessageType::GetConfigRequest => Message::GetConfigRequest,
        MessageType::PacketIn => Message::PacketIn(Box::new(packet_in(choices))),
        MessageType::FlowRemoved => Message::FlowRemoved(Box::new(flow_removed(choices))),
        MessageType::PacketOut => Message::PacketOut(Box::new(PacketOut {
            buffer_id: choices.u32(),
            in_port: choices.u32(),
            actions: actions(choices),
            data: choices.data(20),
        })),
        MessageType::FlowMod => Message::FlowMod(Box::new(flow_mod(choices))),
        MessageType::GroupMod => Message::GroupMod(Box::new(GroupMod {
            command: choices.one_of(GroupModCommand::ALL),
            group_type: choices.one_of(GroupType::ALL),
            group_id: choices.u32(),
            buckets: choices.list(4, bucket).into(),
        })),
        MessageType::MultipartRequest => Message::MultipartRequest(Box::new(Multipart {
            more: choices.byte() % 2 == 1,
            body: request(choices),
        })),
        MessageType::MultipartReply => Message::MultipartReply(Box::new(Multipart {
            more: choices.byte() % 2 == 1,
            body: reply(choices),
        })),
        MessageType::BarrierRequest => Message::BarrierRequest,
        MessageType::BarrierReply => Message::BarrierReply,
        MessageType::RoleRequest => Message::RoleRequest(role(choices)),
        MessageType::RoleReply => Message::RoleReply(role(choices)),
        MessageType::GetAsyncRequest => Message::GetAsyncRequest,
        MessageType::MeterMod => Message::MeterMod(Box::new(MeterMod {
            command: choices.one_of(MeterModCommand::ALL),
            flags: choices.u16(),
            meter_id: choices.u32(),
            bands: choices.list(3, band).into(),
        })),
        other => small_message(other, choices),
    }
}

fn small_message(kind: MessageType, choices: &mut Choices<'_>) -> Message {
    let asynchronous = |choices: &mut Choices<'_>| AsyncConfig {
        packet_in: [choices.u32(), choices.u32()],
        port_status: [choices.u32(), choices.u32()],
        flow_removed: [choices.u32(), choices.u32()],
    };
    let config = |choices: &mut Choices<'_>| Config { flags: choices.u16(), miss_send_len: choices.u16() };
    match kind {
        MessageType::FeaturesReply => Message::FeaturesReply(Features {
            datapath_id: choices.u64(),
            n_buffers: choices.u32(),
            n_tables: choices.byte(),
            auxiliary_id: choices.byte(),
            capabilities: choices.u32(),
        }),
        MessageType::GetConfigReply => Message::GetConfigReply(config(choices)),
        MessageType::SetConfig => Message::SetConfig(config(choices)),
        MessageType::PortStatus => Message::PortStatus(Box::new(PortStatus {
            reason: choices.one_of(PortReason::ALL),
            port: port(choices),
        })),
        MessageType::PortMod => Message::PortMod(PortMod {
            port_no: choices.u32(),
            hw_addr: choices.array(),
            config: choices.u32(),
            mask: choices.u32(),
            advertise: choices.u32(),
        }),
        MessageType::TableMod => {
            Message::TableMod(TableMod { table_id: choices.byte(), config: choices.u32() })
        }
        MessageType::QueueGetConfigRequest => Message::QueueGetConfigRequest(choices.u32()),
        MessageType::QueueGetConfigReply => Message::QueueGetConfigReply(QueueConfig {
            port: choices.u32(),
            queues: choices.list(3, queue).into(),
        }),
        MessageType::GetAsyncReply => Message::GetAsyncReply(asynchronous(choices)),
        _ => Message::SetAsync(asynchronous(choices)),
    }
}

/// The question for all flows of all tables.
#[must_use]
pub fn every_flow() -> Message {
    let request = FlowStatsRequest {
        table_id: number::table::ALL,
        out_port: number::port::ANY,
        out_group: number::group::ANY,
        cookie: 0,
        cookie_mask: 0,
        matches: Match::default(),
    };
    let body = MultipartRequest::Flow(request);
    Message::MultipartRequest(Box::new(Multipart { more: false, body }))
}
