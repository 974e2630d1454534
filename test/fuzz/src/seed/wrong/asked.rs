//! How a switch is asked: what comes before a message, and which answers are those to it.

use twinpath_openflow_wire::{
    Action, AsyncConfig, Band, Bucket, Config, Field, FlowMod, FlowModCommand, GroupMod, GroupModCommand,
    GroupType, Header, Hello, Instruction, Match, MatchField, Message, MessageType, MeterMod,
    MeterModCommand, PortMod, Role, RoleMessage, meter_flags, number, port_config,
};

use super::parts::{Before, Case};

/// Transaction numbers of what comes before a message, and of the barrier behind it.
const PRELUDE: u32 = 1;
const BARRIER: u32 = 2;
/// Minimum bytes of a message that an error gives back (section 7.4.4).
const ERROR_DATA_MIN: usize = 64;

/// A switch with the ports 1, 2 and 3, whose Ethernet addresses are 02:00:00:00:00:01 and so on.
pub trait Switch {
    /// Connects again; nothing was said on the new connection.
    fn connect(&mut self);

    /// Sends these bytes on the connection. The messages that came until the reply to a barrier with this transaction
    /// number, and whether the connection stands.
    fn exchange(&mut self, bytes: &[u8], barrier: u32) -> (Vec<Vec<u8>>, bool);
}

/// What a message was answered with, in short: `-` with nothing, `1/6` with that error, `r8` with a reply of type 8, `m13` with a
/// multipart reply of type 13, each once for parts that follow each other; a `!` behind it says that the connection was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers(pub String);

fn encode(xid: u32, messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        message.encode(xid, &mut bytes).expect("it is short");
    }
    bytes
}

fn hello() -> Message {
    Message::Hello(Hello { version: number::VERSION, versions: None })
}

/// A flow-mod that adds.
fn flow(matches: Match, instructions: &[Instruction]) -> FlowMod {
    FlowMod {
        cookie: 5,
        cookie_mask: 0,
        table_id: 0,
        command: FlowModCommand::Add,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: 100,
        buffer_id: number::NO_BUFFER,
        out_port: number::port::ANY,
        out_group: number::group::ANY,
        flags: 0,
        matches,
        instructions: instructions.into(),
    }
}

/// Whatever was before: one flow (in port 1), one group (1), one meter (1), every port as at first, every controller equal.
fn usual() -> Vec<Message> {
    let output = |port| Action::Output { port, max_len: 0 };
    let everything = FlowMod {
        command: FlowModCommand::Delete,
        table_id: number::table::ALL,
        ..flow(Match::default(), &[])
    };
    let group = |command, group_id, buckets: &[Bucket]| {
        let buckets = buckets.into();
        Message::GroupMod(Box::new(GroupMod { command, group_type: GroupType::All, group_id, buckets }))
    };
    let meter = |command, meter_id, bands: &[Band]| {
        let (flags, bands) = (meter_flags::KBPS, bands.into());
        Message::MeterMod(Box::new(MeterMod { command, flags, meter_id, bands }))
    };
    let bucket = Bucket {
        weight: 0,
        watch_port: number::port::ANY,
        watch_group: number::group::ANY,
        actions: [output(1)].into(),
    };
    let in_port = Match::new([MatchField::exact(Field::InPort, 1)]).expect("a match");
    let as_at_first = |port_no: u32| {
        let hw_addr = [2, 0, 0, 0, 0, port_no as u8];
        Message::PortMod(PortMod { port_no, hw_addr, config: 0, mask: port_config::ALL, advertise: 0 })
    };
    let equal = RoleMessage { role: Role::Equal, generation_id: 0 };
    let asynchronous =
        AsyncConfig { packet_in: [0b011, 0], port_status: [0b111, 0b111], flow_removed: [0b1111, 0] };
    vec![
        Message::RoleRequest(equal),
        Message::FlowMod(Box::new(everything)),
        group(GroupModCommand::Delete, number::group::ALL, &[]),
        meter(MeterModCommand::Delete, number::meter::ALL, &[]),
        as_at_first(1),
        as_at_first(2),
        as_at_first(3),
        Message::SetConfig(Config { flags: 0, miss_send_len: 128 }),
        Message::SetAsync(asynchronous),
        group(GroupModCommand::Add, 1, &[bucket]),
        meter(MeterModCommand::Add, 1, &[Band::Drop { rate: 1000, burst: 0 }]),
        Message::FlowMod(Box::new(flow(in_port, &[Instruction::ApplyActions([output(2)].into())]))),
    ]
}

/// Elections until the generation is 7, whatever it was: those that are stale change nothing.
fn election() -> Vec<Message> {
    let quarters = (0..8_u64).map(|step| step << 62);
    let slave = |generation_id| Message::RoleRequest(RoleMessage { role: Role::Slave, generation_id });
    let equal = Message::RoleRequest(RoleMessage { role: Role::Equal, generation_id: 0 });
    quarters.chain([7]).map(slave).chain([equal]).collect()
}

/// What to say before a message.
fn prelude(before: Before) -> Vec<u8> {
    let mut messages = usual();
    match before {
        Before::Usual => {}
        Before::Election => messages.extend(election()),
        Before::Slave => {
            messages.extend(election());
            messages.push(Message::RoleRequest(RoleMessage { role: Role::Slave, generation_id: 7 }));
        }
    }
    encode(PRELUDE, &messages)
}

/// In short, what came with that transaction number. An error gives back the start of the message.
fn in_short(heard: &[Vec<u8>], is_open: bool, asked: &[u8]) -> Answers {
    let xid = Header::of(asked).map_or(0, |header| header.xid);
    let mut said: Vec<String> = Vec::new();
    for message in heard {
        let Some(header) = Header::of(message).filter(|header| header.xid == xid) else { continue };
        let word =
            |at: usize| message.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let answer = match MessageType::from_number(header.message_type) {
            Some(MessageType::Error) => {
                let start = &asked[..asked.len().min(ERROR_DATA_MIN)];
                let gives_back = message.get(12..).is_some_and(|data| data.starts_with(start));
                let other = if gives_back { "" } else { "?" };
                format!("{}/{}{other}", word(8), word(10))
            }
            Some(MessageType::MultipartReply) => format!("m{}", word(8)),
            _ => format!("r{}", header.message_type),
        };
        if said.last() != Some(&answer) {
            said.push(answer);
        }
    }
    let mut said = if said.is_empty() { "-".to_owned() } else { said.join("+") };
    if !is_open {
        said.push('!');
    }
    Answers(said)
}

/// Has a switch answer a message on an open connection, or on a new one if there is none.
pub fn ask(switch: &mut impl Switch, is_open: &mut bool, case: &Case) -> Answers {
    if !*is_open {
        switch.connect();
        switch.exchange(&encode(PRELUDE, &[hello(), Message::BarrierRequest]), PRELUDE);
    }
    let barrier = encode(BARRIER, &[Message::BarrierRequest]);
    let bytes = [prelude(case.before), case.bytes.clone(), barrier].concat();
    let (heard, stands) = switch.exchange(&bytes, BARRIER);
    *is_open = stands;
    in_short(&heard, stands, &case.bytes)
}

/// Has a switch answer the first message on a new connection; the next one asks for features.
pub fn greet(switch: &mut impl Switch, case: &Case) -> Answers {
    switch.connect();
    let asked = encode(BARRIER, &[Message::FeaturesRequest, Message::BarrierRequest]);
    let (heard, stands) = switch.exchange(&[case.bytes.clone(), asked].concat(), BARRIER);
    let features = heard.iter().any(|message| message.get(1) == Some(&MessageType::FeaturesReply.number()));
    // The error of a failed hello has a text instead of the message, and the number of neither end's hello.
    let errors = heard.iter().filter(|message| message.get(1) == Some(&MessageType::Error.number()));
    let errors: Vec<_> = errors.map(|error| format!("{}/{}", error[9], error[11])).collect();
    let said = if features { "open".to_owned() } else { errors.join("+") };
    Answers(said + if stands { "" } else { "!" })
}
