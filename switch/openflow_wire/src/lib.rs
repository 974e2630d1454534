//! OpenFlow 1.3.5 (ONF TS-023) as values: what a controller and a switch tell each other, without any state.
//!
//! Section numbers in this crate are those of that document. Values keep what was sent: a match gives its fields back
//! in the same order and with the same masks, as flow statistics must. [`Frames`] takes messages from a stream.
//! [`Message::decode`] and [`Message::encode`] are the codec, for both ends. A peer's bytes never cause a panic, and a
//! length in them never decides how much memory is allocated.

mod action;
mod error;
mod field;
mod flow;
mod flow_match;
mod frames;
mod group;
mod message;
mod meter;
mod multipart;
pub mod number;
mod packet;
mod port;
mod queue;
mod switch;
mod table;
mod text;
mod wire;
mod wire_enum;

pub use action::{Action, ActionType, Instruction, InstructionType};
pub use error::{
    BadAction, BadInstruction, BadMatch, BadRequest, ErrorCode, FlowModFailed, GroupModFailed, HelloFailed,
    MeterModFailed, PortModFailed, QueueOpFailed, RoleRequestFailed, SwitchConfigFailed, TableFeaturesFailed,
    TableModFailed,
};
pub use field::{Field, Prerequisite};
pub use flow::{
    FlowMod, FlowModCommand, FlowRemoved, FlowRemovedReason, FlowStats, FlowStatsRequest, flow_flags,
};
pub use flow_match::{Match, MatchField};
pub use frames::{Frames, LostFraming};
pub use group::{
    Bucket, Count, GroupDesc, GroupFeatures, GroupMod, GroupModCommand, GroupStats, GroupType,
    group_capabilities,
};
pub use message::{ErrorMessage, HEADER_LEN, Header, MESSAGE_LEN_MAX, Message, MessageType, TooLong};
pub use meter::{
    Band, BandType, MeterConfig, MeterFeatures, MeterMod, MeterModCommand, MeterStats, meter_flags,
};
pub use multipart::{
    Aggregate, Desc, ExperimenterBody, Multipart, MultipartReply, MultipartRequest, MultipartType,
};
pub use packet::{PacketIn, PacketInReason, PacketOut};
pub use port::{
    PORT_NAME_LEN, Port, PortMod, PortReason, PortStats, PortStatus, port_config, port_features, port_state,
};
pub use queue::{Queue, QueueConfig, QueueProperty, QueueStats};
pub use switch::{AsyncConfig, Config, Features, Hello, Role, RoleMessage, capabilities, config_flags};
pub use table::{
    PropertyId, TABLE_NAME_LEN, TableFeatures, TableMod, TableProperty, TablePropertyType, TableStats,
};

#[cfg(test)]
mod tests;
