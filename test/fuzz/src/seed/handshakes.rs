//! The handshakes of controllers, read from their sources: what each writes at once, and what it waits for before it goes on.

use twinpath_openflow_wire::{
    Action, Config, FlowMod, FlowModCommand, GroupMod, GroupModCommand, GroupType, Header, Hello,
    Instruction, Match, Message, MessageType, Multipart, MultipartRequest, Role, RoleMessage, number,
};

/// What a controller waits for: an answer of this kind, or just this one.
#[derive(Clone, Debug)]
enum Awaited {
    Kind(MessageType),
    Just(Message),
}

/// What a controller writes at once, with transaction numbers, and the answers that it waits for.
#[derive(Clone, Debug)]
pub struct Step {
    writes: Vec<(u32, Message)>,
    awaits: Vec<(u32, Awaited)>,
}

/// All that a controller does until it rules a switch.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The controller.
    pub name: &'static str,
    /// What it does, in order.
    pub steps: Vec<Step>,
}

/// Messages that come unasked.
const UNASKED: [MessageType; 4] =
    [MessageType::EchoRequest, MessageType::PortStatus, MessageType::PacketIn, MessageType::FlowRemoved];

impl Step {
    /// What is written.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (xid, message) in &self.writes {
            message.encode(*xid, &mut bytes).expect("it is short");
        }
        bytes
    }

    /// Whether all that the controller waits for has come.
    ///
    /// # Panics
    /// Something else has come.
    #[must_use]
    pub fn is_answered(&self, heard: &[Vec<u8>]) -> bool {
        let mut awaited = self.awaits.iter();
        let mut is_complete = true;
        for bytes in heard {
            let (header, message) =
                (Header::of(bytes).expect("a head"), Message::decode(bytes).expect("a message"));
            if UNASKED.contains(&message.kind()) {
                continue;
            }
            let more = matches!(&message, Message::MultipartReply(part) if part.more);
            // The other parts of a reply are as the first one.
            if is_complete {
                let Some((xid, awaited)) = awaited.next() else { panic!("unasked: {message:?}") };
                let is_right = match awaited {
                    Awaited::Kind(kind) => *kind == message.kind(),
                    Awaited::Just(other) => *other == message,
                };
                assert!(
                    is_right && *xid == header.xid,
                    "{awaited:?} with {xid}, and not {message:?} with {}",
                    header.xid
                );
            }
            is_complete = !more;
        }
        is_complete && awaited.next().is_none()
    }
}

fn hello(version: u8, versions: u32) -> Message {
    Message::Hello(Hello { version, versions: Some(versions) })
}

fn request(body: MultipartRequest) -> Message {
    Message::MultipartRequest(Box::new(Multipart { more: false, body }))
}

fn role(role: Role, generation_id: u64) -> RoleMessage {
    RoleMessage { role, generation_id }
}

/// Whole frames come in packet-ins, fragments are nothing special.
const CONFIG: Config = Config { flags: 0, miss_send_len: 0xffff };

fn step(writes: &[(u32, Message)], awaits: &[(u32, Awaited)]) -> Step {
    Step { writes: writes.to_vec(), awaits: awaits.to_vec() }
}

/// One question, and its answer.
fn ask(xid: u32, message: Message, kind: MessageType) -> Step {
    step(&[(xid, message)], &[(xid, Awaited::Kind(kind))])
}

/// Set-config, barrier and get-config in one write.
fn configure(xid: u32) -> Step {
    let writes = [
        (xid, Message::SetConfig(CONFIG)),
        (xid - 1, Message::BarrierRequest),
        (xid - 2, Message::GetConfigRequest),
    ];
    let awaits = [
        (xid - 1, Awaited::Kind(MessageType::BarrierReply)),
        (xid - 2, Awaited::Just(Message::GetConfigReply(CONFIG))),
    ];
    step(&writes, &awaits)
}

fn flows(command: FlowModCommand, table_id: u8, out_port: u32, instructions: &[Instruction]) -> Message {
    Message::FlowMod(Box::new(FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table_id,
        command,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        priority: 0,
        buffer_id: number::NO_BUFFER,
        out_port,
        out_group: number::group::ANY,
        flags: 0,
        matches: Match::default(),
        instructions: instructions.into(),
    }))
}

/// Floodlight (net.floodlightcontroller.core.internal: `OFChannelHandler`, `OFSwitchHandshakeHandler`, `OFSwitchManager`): all versions
/// up to 1.5 in its hello, numbers that count down and begin anew, and once it is master all tables emptied by flow-mods,
/// group-mods and barriers behind each other.
fn floodlight() -> Handshake {
    const LAST: u32 = u32::MAX;
    let master = Awaited::Just(Message::RoleReply(role(Role::Master, 0)));
    let groups = |group_type| {
        let (command, group_id) = (GroupModCommand::Delete, number::group::ALL);
        Message::GroupMod(Box::new(GroupMod { command, group_type, group_id, buckets: Box::default() }))
    };
    let to_controller =
        Action::Output { port: number::port::CONTROLLER, max_len: number::max_len::NO_BUFFER };
    let miss = [Instruction::ApplyActions([to_controller].into())];
    let (all, any) = (number::table::ALL, number::port::ANY);
    let reign = [
        (20, flows(FlowModCommand::Delete, all, any, &[])),
        (21, groups(GroupType::All)),
        (22, groups(GroupType::FastFailover)),
        (23, groups(GroupType::Indirect)),
        (24, groups(GroupType::Select)),
        (LAST - 6, Message::BarrierRequest),
        (LAST - 7, Message::BarrierRequest),
        (25, flows(FlowModCommand::DeleteStrict, all, number::port::CONTROLLER, &[])),
        (26, flows(FlowModCommand::Add, 0, any, &miss)),
        (LAST - 8, Message::BarrierRequest),
    ];
    let barrier = |xid| (xid, Awaited::Kind(MessageType::BarrierReply));
    Handshake {
        name: "Floodlight",
        steps: vec![
            step(&[(LAST, hello(6, 0x7e))], &[(0, Awaited::Kind(MessageType::Hello))]),
            ask(LAST - 1, Message::FeaturesRequest, MessageType::FeaturesReply),
            ask(LAST, request(MultipartRequest::PortDesc), MessageType::MultipartReply),
            configure(LAST - 1),
            ask(LAST - 4, request(MultipartRequest::Desc), MessageType::MultipartReply),
            ask(
                LAST - 5,
                request(MultipartRequest::TableFeatures(Box::default())),
                MessageType::MultipartReply,
            ),
            step(&[(19, Message::RoleRequest(role(Role::Master, 0)))], &[(19, master)]),
            step(&reign, &[barrier(LAST - 6), barrier(LAST - 7), barrier(LAST - 8)]),
            ask(LAST - 2, Message::EchoRequest(Box::default()), MessageType::EchoReply),
        ],
    }
}

/// ONOS (org.onosproject.openflow.controller.impl: `OFChannelHandler`, `RoleManager`): its hello and the next question come together
/// once the switch has greeted; meters are asked for before the description.
fn onos() -> Handshake {
    const LAST: u32 = u32::MAX;
    let master = Awaited::Just(Message::RoleReply(role(Role::Master, 0)));
    let greeting = [(LAST, hello(4, 0x72)), (LAST - 1, Message::FeaturesRequest)];
    let features =
        [(0, Awaited::Kind(MessageType::Hello)), (LAST - 1, Awaited::Kind(MessageType::FeaturesReply))];
    Handshake {
        name: "ONOS",
        steps: vec![
            step(&greeting, &features),
            ask(LAST - 2, request(MultipartRequest::PortDesc), MessageType::MultipartReply),
            configure(LAST - 3),
            ask(LAST - 6, request(MultipartRequest::MeterFeatures), MessageType::MultipartReply),
            ask(LAST - 7, request(MultipartRequest::Desc), MessageType::MultipartReply),
            step(&[(1, Message::RoleRequest(role(Role::Master, 0)))], &[(1, master)]),
            ask(0, Message::EchoRequest(Box::default()), MessageType::EchoReply),
        ],
    }
}

/// OpenDaylight (org.opendaylight.openflowplugin.impl: `HandshakeManagerImpl`, `HandshakeListenerImpl`, `RoleService`, `SalRoleServiceImpl`,
/// `OF13DeviceInitializer`): a barrier with the number 0, the generation asked for before it is master with the next one, and
/// four descriptions asked for at once.
fn open_daylight() -> Handshake {
    let reply = |xid, wanted| (xid, Awaited::Just(Message::RoleReply(wanted)));
    let asked = |xid, body| (xid, request(body));
    let parts = [
        asked(6, MultipartRequest::MeterFeatures),
        asked(7, MultipartRequest::GroupFeatures),
        asked(8, MultipartRequest::TableFeatures(Box::default())),
        asked(9, MultipartRequest::PortDesc),
    ];
    let answered = [6, 7, 8, 9].map(|xid| (xid, Awaited::Kind(MessageType::MultipartReply)));
    let equal = role(Role::Equal, u64::MAX);
    Handshake {
        name: "OpenDaylight",
        steps: vec![
            step(&[(21, hello(4, 0x12))], &[(0, Awaited::Kind(MessageType::Hello))]),
            ask(1, Message::FeaturesRequest, MessageType::FeaturesReply),
            ask(0, Message::BarrierRequest, MessageType::BarrierReply),
            step(&[(3, Message::RoleRequest(role(Role::NoChange, 0)))], &[reply(3, equal)]),
            // Behind the last generation there is none, comes the first.
            step(&[(4, Message::RoleRequest(role(Role::Master, 0)))], &[reply(4, role(Role::Master, 0))]),
            ask(5, request(MultipartRequest::Desc), MessageType::MultipartReply),
            step(&parts, &answered),
            step(
                &[(10, Message::SetConfig(CONFIG)), (11, Message::BarrierRequest)],
                &[(11, Awaited::Kind(MessageType::BarrierReply))],
            ),
        ],
    }
}

/// All of them, each with a switch that no controller has ruled before.
#[must_use]
pub fn handshakes() -> Vec<Handshake> {
    vec![floodlight(), onos(), open_daylight()]
}
