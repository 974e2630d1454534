//! Frames between switch and controller (sections 7.3.7 and 7.4.1).

use crate::action::Action;
use crate::error::{BadAction, BadRequest, ErrorCode};
use crate::flow_match::Match;
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

wire_enum! {
    /// Why a controller gets a frame (section 7.4.1, `ofp_packet_in_reason`).
    PacketInReason: u8 {
        /// The table-miss flow sent it.
        NoMatch = 0,
        /// Another flow, or a group, sent it.
        Action = 1,
        /// Its TTL would have become invalid.
        InvalidTtl = 2,
    }
}

/// A frame for the controller (section 7.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// Where the switch holds the frame; [`crate::number::NO_BUFFER`]: it does not.
    pub buffer_id: u32,
    /// Bytes of the whole frame.
    pub total_len: u16,
    /// Why it comes.
    pub reason: PacketInReason,
    /// The table of the flow.
    pub table_id: u8,
    /// The cookie of the flow.
    pub cookie: u64,
    /// What the switch knows of it: where it came in, metadata.
    pub matches: Match,
    /// The frame, or its start.
    pub data: Box<[u8]>,
}

impl Wire for PacketIn {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let this = Self {
            buffer_id: reader.u32()?,
            total_len: reader.u16()?,
            reason: PacketInReason::from_number(reader.u8()?).ok_or(BadRequest::BadType)?,
            table_id: reader.u8()?,
            cookie: reader.u64()?,
            matches: Match::read(reader)?,
            data: {
                reader.skip(2)?;
                reader.remaining().into()
            },
        };
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.buffer_id);
        out.u16(self.total_len);
        out.u8(self.reason.number());
        out.u8(self.table_id);
        out.u64(self.cookie);
        self.matches.write(out);
        out.zeros(2);
        out.extend_from_slice(&self.data);
    }
}

/// A frame from the controller (section 7.3.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The frame that the switch holds; [`crate::number::NO_BUFFER`]: it is in `data`.
    pub buffer_id: u32,
    /// Where it is taken to have come in; [`crate::number::port::CONTROLLER`] if nowhere.
    pub in_port: u32,
    /// What is done with it.
    pub actions: Box<[Action]>,
    /// The frame.
    pub data: Box<[u8]>,
}

impl Wire for PacketOut {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let (buffer_id, in_port) = (reader.u32()?, reader.u32()?);
        let actions_len = reader.u16()?;
        reader.skip(6)?;
        // That the actions are longer than the message, or end within one, is a lie of the message (section 7.3.7).
        if !actions_len.is_multiple_of(8) {
            return Err(BadRequest::BadLen.into());
        }
        let mut actions = reader.part(actions_len.into(), BadAction::BadLen)?;
        Ok(Self { buffer_id, in_port, actions: actions.list()?.into(), data: reader.remaining().into() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.buffer_id);
        out.u32(self.in_port);
        let len_at = out.len();
        out.zeros(8);
        out.list(&self.actions);
        out.put_len(len_at, len_at + 8);
        out.extend_from_slice(&self.data);
    }
}
