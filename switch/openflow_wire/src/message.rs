//! Messages (section 7.1) from and to their bytes.

use crate::error::{BadRequest, ErrorCode};
use crate::flow::{FlowMod, FlowRemoved};
use crate::group::GroupMod;
use crate::meter::MeterMod;
use crate::multipart::{ExperimenterBody, Multipart, MultipartReply, MultipartRequest};
use crate::number::VERSION;
use crate::packet::{PacketIn, PacketOut};
use crate::port::{PortMod, PortStatus};
use crate::queue::QueueConfig;
use crate::switch::{AsyncConfig, Config, Features, Hello, RoleMessage};
use crate::table::TableMod;
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

/// Bytes of the head of a message: version, type, length, transaction number (section 7.1).
pub const HEADER_LEN: usize = 8;
/// Maximum bytes of a message.
pub const MESSAGE_LEN_MAX: usize = u16::MAX as usize;
/// Maximum bytes of a bad message that an error returns. The specification asks for at least 64 (section 7.4.4).
const ERROR_DATA_MAX: usize = 256;

wire_enum! {
    /// The type of a message (section 7.1, `ofp_type`).
    MessageType: u8 {
        /// [`Message::Hello`].
        Hello = 0,
        /// [`Message::Error`].
        Error = 1,
        /// [`Message::EchoRequest`].
        EchoRequest = 2,
        /// [`Message::EchoReply`].
        EchoReply = 3,
        /// [`Message::Experimenter`].
        Experimenter = 4,
        /// [`Message::FeaturesRequest`].
        FeaturesRequest = 5,
        /// [`Message::FeaturesReply`].
        FeaturesReply = 6,
        /// [`Message::GetConfigRequest`].
        GetConfigRequest = 7,
        /// [`Message::GetConfigReply`].
        GetConfigReply = 8,
        /// [`Message::SetConfig`].
        SetConfig = 9,
        /// [`Message::PacketIn`].
        PacketIn = 10,
        /// [`Message::FlowRemoved`].
        FlowRemoved = 11,
        /// [`Message::PortStatus`].
        PortStatus = 12,
        /// [`Message::PacketOut`].
        PacketOut = 13,
        /// [`Message::FlowMod`].
        FlowMod = 14,
        /// [`Message::GroupMod`].
        GroupMod = 15,
        /// [`Message::PortMod`].
        PortMod = 16,
        /// [`Message::TableMod`].
        TableMod = 17,
        /// [`Message::MultipartRequest`].
        MultipartRequest = 18,
        /// [`Message::MultipartReply`].
        MultipartReply = 19,
        /// [`Message::BarrierRequest`].
        BarrierRequest = 20,
        /// [`Message::BarrierReply`].
        BarrierReply = 21,
        /// [`Message::QueueGetConfigRequest`].
        QueueGetConfigRequest = 22,
        /// [`Message::QueueGetConfigReply`].
        QueueGetConfigReply = 23,
        /// [`Message::RoleRequest`].
        RoleRequest = 24,
        /// [`Message::RoleReply`].
        RoleReply = 25,
        /// [`Message::GetAsyncRequest`].
        GetAsyncRequest = 26,
        /// [`Message::GetAsyncReply`].
        GetAsyncReply = 27,
        /// [`Message::SetAsync`].
        SetAsync = 28,
        /// [`Message::MeterMod`].
        MeterMod = 29,
    }
}

/// A message, without its transaction number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Versions (section 7.5.1).
    Hello(Hello),
    /// A message was bad (section 7.4.4).
    Error(ErrorMessage),
    /// Asks for a reply with the same data (section 7.5.2).
    EchoRequest(Box<[u8]>),
    /// The data of a request (section 7.5.3).
    EchoReply(Box<[u8]>),
    /// Something that the specification does not define (section 7.5.4).
    Experimenter(ExperimenterBody),
    /// Asks what the switch is (section 7.3.1).
    FeaturesRequest,
    /// What the switch is.
    FeaturesReply(Features),
    /// Asks for the configuration (section 7.3.2).
    GetConfigRequest,
    /// The configuration.
    GetConfigReply(Config),
    /// Sets the configuration.
    SetConfig(Config),
    /// A frame for the controller.
    PacketIn(Box<PacketIn>),
    /// A flow is gone.
    FlowRemoved(Box<FlowRemoved>),
    /// Something has become of a port.
    PortStatus(Box<PortStatus>),
    /// A frame from the controller.
    PacketOut(Box<PacketOut>),
    /// A change of flows.
    FlowMod(Box<FlowMod>),
    /// A change of groups.
    GroupMod(Box<GroupMod>),
    /// A change of a port.
    PortMod(PortMod),
    /// A change of a table.
    TableMod(TableMod),
    /// A question whose answer may take several messages.
    MultipartRequest(Box<Multipart<MultipartRequest>>),
    /// Part of its answer.
    MultipartReply(Box<Multipart<MultipartReply>>),
    /// Asks for a reply when everything before it is done (section 7.3.8).
    BarrierRequest,
    /// Everything before the request is done.
    BarrierReply,
    /// Asks for the queues of a port (section 7.3.6).
    QueueGetConfigRequest(u32),
    /// The queues of a port.
    QueueGetConfigReply(QueueConfig),
    /// Asks for a role (section 7.3.9).
    RoleRequest(RoleMessage),
    /// The role that the controller has.
    RoleReply(RoleMessage),
    /// Asks which messages the controller gets without asking (section 7.3.10).
    GetAsyncRequest,
    /// Which they are.
    GetAsyncReply(AsyncConfig),
    /// Sets which they are.
    SetAsync(AsyncConfig),
    /// A change of meters.
    MeterMod(Box<MeterMod>),
}

/// An error (section 7.4.4), as it is on the wire: a peer may send types and codes that are not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Its type.
    pub error_type: u16,
    /// Its code; of an experimenter's error its type.
    pub code: u16,
    /// Whose error it is, for `OFPET_EXPERIMENTER`.
    pub experimenter: Option<u32>,
    /// The start of the bad message; of a failed hello a text.
    pub data: Box<[u8]>,
}

/// The number of `OFPET_EXPERIMENTER`.
const EXPERIMENTER: u16 = 0xffff;

impl ErrorMessage {
    /// The answer to a bad message.
    #[must_use]
    pub fn about(error: ErrorCode, message: &[u8]) -> Self {
        let (error_type, code) = error.numbers();
        let experimenter = match error {
            ErrorCode::Experimenter { experimenter, .. } => Some(experimenter),
            _ => None,
        };
        Self { error_type, code, experimenter, data: message[..message.len().min(ERROR_DATA_MAX)].into() }
    }

    /// The error, if it is one of the specification's.
    #[must_use]
    pub fn error(&self) -> Option<ErrorCode> {
        match self.experimenter {
            Some(experimenter) => Some(ErrorCode::Experimenter { exp_type: self.code, experimenter }),
            None => ErrorCode::from_numbers(self.error_type, self.code),
        }
    }
}

impl Wire for ErrorMessage {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let (error_type, code) = (reader.u16()?, reader.u16()?);
        let experimenter = if error_type == EXPERIMENTER { Some(reader.u32()?) } else { None };
        Ok(Self { error_type, code, experimenter, data: reader.remaining().into() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u16(self.error_type);
        out.u16(self.code);
        if let Some(experimenter) = self.experimenter {
            out.u32(experimenter);
        }
        out.extend_from_slice(&self.data);
    }
}

/// A message has more bytes than its length can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {len} bytes; at most {MESSAGE_LEN_MAX} can be sent")]
pub struct TooLong {
    /// Its length.
    pub len: usize,
}

/// The head of a message (section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version.
    pub version: u8,
    /// Number of its type.
    pub message_type: u8,
    /// Bytes of the message, this head included.
    pub len: u16,
    /// The transaction number: that of a reply is its request's.
    pub xid: u32,
}

impl Header {
    /// The head of the message that starts here; `None` if not all of it is here.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let [version, message_type, a, b, c, d, e, f] = *bytes.first_chunk::<HEADER_LEN>()?;
        let (len, xid) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
        Some(Self { version, message_type, len, xid })
    }
}

impl Message {
    /// Decodes one message: exactly its bytes, as [`crate::Frames`] gives them. Memory grows with their number only.
    ///
    /// # Errors
    /// What a switch answers with, by [`ErrorMessage::about`]. Every length that does not fit what it counts is one.
    pub fn decode(bytes: &[u8]) -> Result<Self, ErrorCode> {
        let header = Header::of(bytes).ok_or(BadRequest::BadLen)?;
        if usize::from(header.len) != bytes.len() {
            return Err(BadRequest::BadLen.into());
        }
        let mut reader = Reader::new(&bytes[HEADER_LEN..], BadRequest::BadLen);
        // A hello has the version of its sender, and the error that refuses it too (section 6.3.1).
        if header.message_type == MessageType::Hello.number() {
            return Ok(Self::Hello(Hello::read(header.version, reader.remaining())));
        }
        if header.version != VERSION && header.message_type != MessageType::Error.number() {
            return Err(BadRequest::BadVersion.into());
        }
        let kind = MessageType::from_number(header.message_type).ok_or(BadRequest::BadType)?;
        let this = Self::read(kind, &mut reader)?;
        reader.end()?;
        Ok(this)
    }

    fn read(kind: MessageType, reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        Ok(match kind {
            MessageType::Hello => Self::Hello(Hello::read(VERSION, reader.remaining())),
            MessageType::Error => Self::Error(Wire::read(reader)?),
            MessageType::EchoRequest => Self::EchoRequest(reader.remaining().into()),
            MessageType::EchoReply => Self::EchoReply(reader.remaining().into()),
            MessageType::Experimenter => Self::Experimenter(Wire::read(reader)?),
            MessageType::FeaturesRequest => Self::FeaturesRequest,
            MessageType::FeaturesReply => Self::FeaturesReply(Wire::read(reader)?),
            MessageType::GetConfigRequest => Self::GetConfigRequest,
            MessageType::GetConfigReply => Self::GetConfigReply(Wire::read(reader)?),
            MessageType::SetConfig => Self::SetConfig(Wire::read(reader)?),
            MessageType::PacketIn => Self::PacketIn(Box::new(Wire::read(reader)?)),
            MessageType::FlowRemoved => Self::FlowRemoved(Box::new(Wire::read(reader)?)),
            MessageType::PortStatus => Self::PortStatus(Box::new(Wire::read(reader)?)),
            MessageType::PacketOut => Self::PacketOut(Box::new(Wire::read(reader)?)),
            MessageType::FlowMod => Self::FlowMod(Box::new(Wire::read(reader)?)),
            MessageType::GroupMod => Self::GroupMod(Box::new(Wire::read(reader)?)),
            MessageType::PortMod => Self::PortMod(Wire::read(reader)?),
            MessageType::TableMod => Self::TableMod(Wire::read(reader)?),
            MessageType::MultipartRequest => Self::MultipartRequest(Box::new(Wire::read(reader)?)),
            MessageType::MultipartReply => Self::MultipartReply(Box::new(Wire::read(reader)?)),
            MessageType::BarrierRequest => Self::BarrierRequest,
            MessageType::BarrierReply => Self::BarrierReply,
            MessageType::QueueGetConfigRequest => {
                let port = reader.u32()?;
                reader.skip(4)?;
                Self::QueueGetConfigRequest(port)
            }
            MessageType::QueueGetConfigReply => Self::QueueGetConfigReply(Wire::read(reader)?),
            MessageType::RoleRequest => Self::RoleRequest(Wire::read(reader)?),
            MessageType::RoleReply => Self::RoleReply(Wire::read(reader)?),
            MessageType::GetAsyncRequest => Self::GetAsyncRequest,
            MessageType::GetAsyncReply => Self::GetAsyncReply(Wire::read(reader)?),
            MessageType::SetAsync => Self::SetAsync(Wire::read(reader)?),
            MessageType::MeterMod => Self::MeterMod(Box::new(Wire::read(reader)?)),
        })
    }

    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> MessageType {
        match self {
            Self::Hello(_) => MessageType::Hello,
            Self::Error(_) => MessageType::Error,
            Self::EchoRequest(_) => MessageType::EchoRequest,
            Self::EchoReply(_) => MessageType::EchoReply,
            Self::Experimenter(_) => MessageType::Experimenter,
            Self::FeaturesRequest => MessageType::FeaturesRequest,
            Self::FeaturesReply(_) => MessageType::FeaturesReply,
            Self::GetConfigRequest => MessageType::GetConfigRequest,
            Self::GetConfigReply(_) => MessageType::GetConfigReply,
            Self::SetConfig(_) => MessageType::SetConfig,
            Self::PacketIn(_) => MessageType::PacketIn,
            Self::FlowRemoved(_) => MessageType::FlowRemoved,
            Self::PortStatus(_) => MessageType::PortStatus,
            Self::PacketOut(_) => MessageType::PacketOut,
            Self::FlowMod(_) => MessageType::FlowMod,
            Self::GroupMod(_) => MessageType::GroupMod,
            Self::PortMod(_) => MessageType::PortMod,
            Self::TableMod(_) => MessageType::TableMod,
            Self::MultipartRequest(_) => MessageType::MultipartRequest,
            Self::MultipartReply(_) => MessageType::MultipartReply,
            Self::BarrierRequest => MessageType::BarrierRequest,
            Self::BarrierReply => MessageType::BarrierReply,
            Self::QueueGetConfigRequest(_) => MessageType::QueueGetConfigRequest,
            Self::QueueGetConfigReply(_) => MessageType::QueueGetConfigReply,
            Self::RoleRequest(_) => MessageType::RoleRequest,
            Self::RoleReply(_) => MessageType::RoleReply,
            Self::GetAsyncRequest => MessageType::GetAsyncRequest,
            Self::GetAsyncReply(_) => MessageType::GetAsyncReply,
            Self::SetAsync(_) => MessageType::SetAsync,
            Self::MeterMod(_) => MessageType::MeterMod,
        }
    }

    /// Appends the message to `out`.
    ///
    /// # Errors
    /// It does not fit a message; `out` is as before.
    pub fn encode(&self, xid: u32, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let start = out.len();
        out.u8(if let Self::Hello(hello) = self { hello.version } else { VERSION });
        out.u8(self.kind().number());
        out.u16(0);
        out.u32(xid);
        self.write(out);
        let len = out.len() - start;
        if len > MESSAGE_LEN_MAX {
            out.truncate(start);
            return Err(TooLong { len });
        }
        out.put_len(start + 2, start);
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.write(out),
            Self::Error(error) => error.write(out),
            Self::EchoRequest(data) | Self::EchoReply(data) => out.extend_from_slice(data),
            Self::Experimenter(body) => body.write(out),
            Self::FeaturesReply(features) => features.write(out),
            Self::GetConfigReply(config) | Self::SetConfig(config) => config.write(out),
            Self::PacketIn(packet) => packet.write(out),
            Self::FlowRemoved(flow) => flow.write(out),
            Self::PortStatus(port) => port.write(out),
            Self::PacketOut(packet) => packet.write(out),
            Self::FlowMod(change) => change.write(out),
            Self::GroupMod(change) => change.write(out),
            Self::PortMod(change) => change.write(out),
            Self::TableMod(change) => change.write(out),
            Self::MultipartRequest(part) => part.write(out),
            Self::MultipartReply(part) => part.write(out),
            Self::QueueGetConfigRequest(port) => {
                out.u32(*port);
                out.zeros(4);
            }
            Self::QueueGetConfigReply(queues) => queues.write(out),
            Self::RoleRequest(role) | Self::RoleReply(role) => role.write(out),
            Self::GetAsyncReply(config) | Self::SetAsync(config) => config.write(out),
            Self::MeterMod(change) => change.write(out),
            Self::FeaturesRequest
            | Self::GetConfigRequest
            | Self::BarrierRequest
            | Self::BarrierReply
            | Self::GetAsyncRequest => {}
        }
    }
}
