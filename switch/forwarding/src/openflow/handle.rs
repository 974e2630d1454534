//! What each message of a controller does (sections 6.3 and 7.3).

use twinpath_openflow_wire::{
    Action, BadRequest, Config, ErrorCode, ErrorMessage, Features, FlowMod, FlowModCommand, Hello,
    HelloFailed, LostFraming, MESSAGE_LEN_MAX, Message, Multipart, MultipartRequest, PacketOut, PortMod,
    QueueConfig, QueueOpFailed, Role, RoleMessage, RoleRequestFailed, SwitchConfigFailed, config_flags,
    number,
};
use twinpath_time::Instant;

use crate::openflow::buffers::{BUFFERS, Buffered};
use crate::openflow::datapath::Datapath;
use crate::openflow::describe::CAPABILITIES;
use crate::openflow::session::{Before, Ending, Session, Stage, Waiting};
use crate::openflow::switch::{HELLO, News, OpenFlowSwitch, Request};
use crate::openflow::tables::table_mod;
use crate::openflow::walk::Walk;

/// Shortest frame of a packet-out: an Ethernet header.
const FRAME_LEN_MIN: usize = 14;

/// Bytes that statistics need in addition to what they repeat of a flow-mod or group-mod. A longer message could not be
/// reported back.
const STATS_HEAD: usize = 32;

/// The generation when there was no election (section 7.3.9).
const NO_GENERATION: u64 = u64::MAX;

impl Session {
    /// The next message cannot be found: an error, and the end.
    pub(crate) fn lose_framing(&mut self, lost: LostFraming) {
        let error = ErrorMessage::about(BadRequest::BadLen.into(), &[]);
        self.send(lost.header.xid, &Message::Error(error));
        self.close(Ending::Framing);
    }

    /// The first message (section 6.3.1).
    fn greet(&mut self, message: &[u8]) {
        let theirs = match Message::decode(message) {
            Ok(Message::Hello(hello)) => hello,
            // The other end has refused ours.
            Ok(Message::Error(_)) => {
                self.close(Ending::Refused);
                return;
            }
            _ => Hello { version: 0, versions: None },
        };
        if HELLO.common(theirs) == Some(number::VERSION) {
            self.stage = Stage::Open;
            return;
        }
        let text: &[u8] = b"This switch speaks OpenFlow 1.3 (version 4) only.";
        let error = ErrorMessage::about(HelloFailed::Incompatible.into(), text);
        self.send(0, &Message::Error(error));
        self.close(Ending::Version);
    }
}

/// Whether a slave may not send it (section 6.3.5).
fn changes_something(message: &Message) -> bool {
    match message {
        Message::PacketOut(_)
        | Message::FlowMod(_)
        | Message::GroupMod(_)
        | Message::PortMod(_)
        | Message::TableMod(_)
        | Message::MeterMod(_) => true,
        Message::MultipartRequest(part) => {
            matches!(&part.body, MultipartRequest::TableFeatures(wanted) if !wanted.is_empty())
        }
        _ => false,
    }
}

/// As [`changes_something`], of a message that cannot be decoded: by its type (section 7.1.1, `ofp_type`).
fn is_change(bytes: &[u8]) -> bool {
    const PACKET_OUT_TO_TABLE_MOD: std::ops::RangeInclusive<u8> = 13..=17;
    const METER_MOD: u8 = 29;
    let is_ours = bytes.first() == Some(&number::VERSION);
    is_ours && bytes.get(1).is_some_and(|kind| PACKET_OUT_TO_TABLE_MOD.contains(kind) || *kind == METER_MOD)
}

impl<D: Datapath> OpenFlowSwitch<D> {
    /// Does what one message says, and answers it.
    pub(crate) fn handle(&mut self, now: Instant, session: &mut Session, bytes: &[u8]) {
        if session.stage == Stage::Hello {
            session.greet(bytes);
            return;
        }
        let message = Message::decode(bytes).map_err(|error| match session.role {
            // This error comes first, whatever else is wrong with the message.
            Role::Slave if is_change(bytes) => BadRequest::IsSlave.into(),
            _ => error,
        });
        let done = message.and_then(|message| self.obey(now, session, bytes, message));
        if let Err(error) = done {
            session.send_error(error, bytes);
        }
    }

    fn config(&self, session: &Session) -> Config {
        let drop = self.tables.drop_fragments;
        let flags = if drop { config_flags::FRAG_DROP } else { config_flags::FRAG_NORMAL };
        Config { flags, miss_send_len: session.miss_send_len }
    }

    /// The length belongs to each controller. How fragments are treated belongs to the switch, so a slave cannot change
    /// it.
    fn set_config(&mut self, session: &mut Session, config: Config) -> Result<(), ErrorCode> {
        // Putting fragments together is not done.
        if config.flags > config_flags::FRAG_DROP {
            return Err(SwitchConfigFailed::BadFlags.into());
        }
        session.miss_send_len = config.miss_send_len;
        if session.role != Role::Slave {
            self.tables.set_drop_fragments(config.flags == config_flags::FRAG_DROP);
        }
        Ok(())
    }

    fn obey(
        &mut self,
        now: Instant,
        session: &mut Session,
        bytes: &[u8],
        message: Message,
    ) -> Result<(), ErrorCode> {
        let xid = twinpath_openflow_wire::Header::of(bytes).map_or(0, |header| header.xid);
        if session.role == Role::Slave && changes_something(&message) {
            return Err(BadRequest::IsSlave.into());
        }
        match message {
            // A second hello changes nothing; an error is the other end's news.
            Message::Hello(_) | Message::Error(_) | Message::EchoReply(_) => {}
            Message::EchoRequest(data) => session.send(xid, &Message::EchoReply(data)),
            Message::Experimenter(_) => return Err(BadRequest::BadExperimenter.into()),
            Message::FeaturesRequest => session.send(xid, &Message::FeaturesReply(self.features())),
            Message::GetConfigRequest => {
                session.send(xid, &Message::GetConfigReply(self.config(session)));
            }
            Message::SetConfig(config) => return self.set_config(session, config),
            Message::PacketOut(packet) => return self.packet_out(*packet),
            Message::FlowMod(change) => return self.flow_mod(now, bytes.len(), *change),
            Message::GroupMod(change) => {
                check_len(bytes.len())?;
                return self.tables.group_mod(now, *change);
            }
            Message::MeterMod(change) => return self.tables.meter_mod(now, *change),
            Message::PortMod(change) => return self.port_mod(&change),
            Message::TableMod(change) => return table_mod(change),
            Message::MultipartRequest(part) => return self.multipart(session, xid, *part),
            Message::BarrierRequest => {
                let until = Before { version: self.tables.datapath.barrier(), frames: self.asked() };
                session.waiting = Some(Waiting::Barrier { xid, until });
            }
            Message::QueueGetConfigRequest(port) => {
                if port != number::port::ANY && !self.tables.ports.contains_key(&port) {
                    return Err(QueueOpFailed::BadPort.into());
                }
                // There are no queues.
                let none = QueueConfig { port, queues: Box::default() };
                session.send(xid, &Message::QueueGetConfigReply(none));
            }
            Message::RoleRequest(wanted) => {
                let role = self.change_role(session, wanted)?;
                session.send(xid, &Message::RoleReply(role));
            }
            Message::GetAsyncRequest => session.send(xid, &Message::GetAsyncReply(session.asynchronous)),
            Message::SetAsync(config) => session.asynchronous = config,
            Message::FeaturesReply(_)
            | Message::GetConfigReply(_)
            | Message::PacketIn(_)
            | Message::FlowRemoved(_)
            | Message::PortStatus(_)
            | Message::MultipartReply(_)
            | Message::BarrierReply
            | Message::QueueGetConfigReply(_)
            | Message::RoleReply(_)
            | Message::GetAsyncReply(_) => return Err(BadRequest::BadType.into()),
        }
        Ok(())
    }

    fn features(&self) -> Features {
        Features {
            datapath_id: self.info.datapath_id,
            n_buffers: BUFFERS as u32,
            n_tables: number::table::ALL,
            auxiliary_id: 0,
            capabilities: CAPABILITIES,
        }
    }

    fn flow_mod(&mut self, now: Instant, len: usize, change: FlowMod) -> Result<(), ErrorCode> {
        check_len(len)?;
        let uses_buffer = change.buffer_id != number::NO_BUFFER
            && !matches!(change.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
        let buffer_id = change.buffer_id;
        self.tables.flow_mod(now, change)?;
        if uses_buffer {
            // As a packet-out to the tables behind the flow-mod (section 7.3.4.1).
            let Buffered { in_port, frame } =
                self.buffers.take(buffer_id).ok_or(BadRequest::BufferUnknown)?;
            let actions = [Action::Output { port: number::port::TABLE, max_len: 0 }].into();
            self.request(Request::PacketOut { in_port, actions, frame });
        }
        Ok(())
    }

    /// Sends a frame of a controller, or one that is held (section 7.3.7).
    fn packet_out(&mut self, packet: PacketOut) -> Result<(), ErrorCode> {
        // The switch's own port is that of no interface.
        let is_reserved = [number::port::CONTROLLER, number::port::LOCAL].contains(&packet.in_port);
        if !is_reserved && !self.tables.ports.contains_key(&packet.in_port) {
            return Err(BadRequest::BadPort.into());
        }
        self.tables.check_packet_out(&packet.actions)?;
        let frame = match packet.buffer_id {
            number::NO_BUFFER => packet.data,
            buffer => self.buffers.take(buffer).ok_or(BadRequest::BufferUnknown)?.frame,
        };
        if frame.len() < FRAME_LEN_MIN {
            return Err(BadRequest::BadPacket.into());
        }
        self.request(Request::PacketOut { in_port: packet.in_port, actions: packet.actions, frame });
        Ok(())
    }

    fn port_mod(&mut self, change: &PortMod) -> Result<(), ErrorCode> {
        if let Some(status) = self.tables.port_mod(change)? {
            let config = status.port.config;
            self.request(Request::PortConfig { port_no: change.port_no, config });
            self.news.push(News::PortStatus(Box::new(status)));
        }
        Ok(())
    }

    fn multipart(
        &mut self,
        session: &mut Session,
        xid: u32,
        part: Multipart<MultipartRequest>,
    ) -> Result<(), ErrorCode> {
        // No request that is taken needs several parts, so none is kept for a later one (section 7.3.5).
        if part.more {
            return Err(BadRequest::MultipartBufferOverflow.into());
        }
        let walk = Walk::start(part.body, &self.tables, &self.info)?;
        session.waiting = Some(Waiting::Walk { xid, walk });
        Ok(())
    }

    /// Gives a controller a role (section 6.3.5).
    fn change_role(&mut self, session: &mut Session, wanted: RoleMessage) -> Result<RoleMessage, ErrorCode> {
        if matches!(wanted.role, Role::Master | Role::Slave) {
            // The distance of two generations is a signed number, as they wrap around.
            if self.generation_id.is_some_and(|own| (wanted.generation_id.wrapping_sub(own) as i64) < 0) {
                return Err(RoleRequestFailed::Stale.into());
            }
            self.generation_id = Some(wanted.generation_id);
        }
        if wanted.role == Role::Master {
            // The one that asks is not among them now.
            for other in self.sessions.values_mut().filter(|other| other.role == Role::Master) {
                other.role = Role::Slave;
            }
        }
        if wanted.role != Role::NoChange {
            session.role = wanted.role;
        }
        let generation_id = self.generation_id.unwrap_or(NO_GENERATION);
        Ok(RoleMessage { role: session.role, generation_id })
    }
}

/// What is stored has to fit a reply.
fn check_len(len: usize) -> Result<(), ErrorCode> {
    if len > MESSAGE_LEN_MAX - STATS_HEAD { Err(BadRequest::BadLen.into()) } else { Ok(()) }
}
