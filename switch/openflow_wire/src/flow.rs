//! Changes of flows, and what is told of them (sections 7.3.4.1, 7.3.5.2, 7.3.5.3 and 7.4.2).

use crate::action::Instruction;
use crate::error::{BadInstruction, BadRequest, ErrorCode, FlowModFailed};
use crate::flow_match::Match;
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

wire_enum! {
    /// What a flow-mod does (section 7.3.4.1, `ofp_flow_mod_command`).
    FlowModCommand: u8 {
        /// A new flow, in place of one with the same match and priority.
        Add = 0,
        /// New instructions for all flows that the match includes.
        Modify = 1,
        /// New instructions for the flow with this match and priority.
        ModifyStrict = 2,
        /// Removes all flows that the match includes.
        Delete = 3,
        /// Removes the flow with this match and priority.
        DeleteStrict = 4,
    }
}

wire_enum! {
    /// Why a flow was removed (section 7.4.2, `ofp_flow_removed_reason`).
    FlowRemovedReason: u8 {
        /// Unused for its idle timeout.
        IdleTimeout = 0,
        /// There for its hard timeout.
        HardTimeout = 1,
        /// By a flow-mod.
        Delete = 2,
        /// With a group that it sent to.
        GroupDelete = 3,
    }
}

/// Flags of a flow (section 7.3.4.1, `ofp_flow_mod_flags`).
pub mod flow_flags {
    /// Tell controllers when the flow is removed.
    pub const SEND_FLOW_REM: u16 = 1;
    /// Refuse the flow if it overlaps with one of the same priority.
    pub const CHECK_OVERLAP: u16 = 1 << 1;
    /// The counters start again.
    pub const RESET_COUNTS: u16 = 1 << 2;
    /// Packets need not be counted.
    pub const NO_PKT_COUNTS: u16 = 1 << 3;
    /// Bytes need not be counted.
    pub const NO_BYT_COUNTS: u16 = 1 << 4;
    /// All of them.
    pub const ALL: u16 = 0x1f;
}

/// A change of flows (section 7.3.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// What the controller calls the flow.
    pub cookie: u64,
    /// Bits of the cookie that a flow must have to be modified or deleted.
    pub cookie_mask: u64,
    /// The table; all of them when flows are deleted from [`crate::number::table::ALL`].
    pub table_id: u8,
    /// What is done.
    pub command: FlowModCommand,
    /// Seconds without use after which the flow goes; 0: never.
    pub idle_timeout_s: u16,
    /// Seconds after which the flow goes; 0: never.
    pub hard_timeout_s: u16,
    /// Higher ones come first.
    pub priority: u16,
    /// A frame that the switch holds and that is to take the new flow; [`crate::number::NO_BUFFER`]: none.
    pub buffer_id: u32,
    /// Deletes only flows that send to this port; [`crate::number::port::ANY`]: all.
    pub out_port: u32,
    /// Deletes only flows that send to this group; [`crate::number::group::ANY`]: all.
    pub out_group: u32,
    /// Of [`flow_flags`].
    pub flags: u16,
    /// Frames that it takes.
    pub matches: Match,
    /// What is done with them.
    pub instructions: Box<[Instruction]>,
}

/// Bytes of a flow-mod in front of its match.
const FLOW_MOD_HEAD: usize = 40;

impl Wire for FlowMod {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        // Its length is checked once.
        let mut head = reader.part(FLOW_MOD_HEAD, BadRequest::BadLen)?;
        let cookie = head.u64()?;
        let cookie_mask = head.u64()?;
        let table_id = head.u8()?;
        let command = head.u8()?;
        let this = Self {
            cookie,
            cookie_mask,
            table_id,
            command: FlowModCommand::from_number(command).ok_or(FlowModFailed::BadCommand)?,
            idle_timeout_s: head.u16()?,
            hard_timeout_s: head.u16()?,
            priority: head.u16()?,
            buffer_id: head.u32()?,
            out_port: head.u32()?,
            out_group: head.u32()?,
            flags: head.u16()?,
            matches: Match::read(reader)?,
            instructions: instructions(reader)?,
        };
        if this.flags & !flow_flags::ALL != 0 {
            return Err(FlowModFailed::BadFlags.into());
        }
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u64(self.cookie);
        out.u64(self.cookie_mask);
        out.u8(self.table_id);
        out.u8(self.command.number());
        out.u16(self.idle_timeout_s);
        out.u16(self.hard_timeout_s);
        out.u16(self.priority);
        out.u32(self.buffer_id);
        out.u32(self.out_port);
        out.u32(self.out_group);
        out.u16(self.flags);
        out.zeros(2);
        self.matches.write(out);
        out.list(&self.instructions);
    }
}

/// Instructions to the end. All their lengths are checked first: one that is too short may cut an action in two, which
/// is not that action's error.
fn instructions(reader: &mut Reader<'_>) -> Result<Box<[Instruction]>, ErrorCode> {
    let mut list = reader.padded(BadInstruction::BadLen)?;
    let mut heads = list;
    while !heads.is_empty() {
        heads.skip(2)?;
        let len = heads.u16()?;
        heads.counted(len, 4, BadInstruction::BadLen)?;
    }
    Ok(list.list()?.into())
}

/// A flow is gone (section 7.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// What the controller called it.
    pub cookie: u64,
    /// Its priority.
    pub priority: u16,
    /// Why it went.
    pub reason: FlowRemovedReason,
    /// Its table.
    pub table_id: u8,
    /// Seconds that it was there.
    pub duration_s: u32,
    /// Nanoseconds beyond them.
    pub duration_ns: u32,
    /// Its idle timeout, s.
    pub idle_timeout_s: u16,
    /// Its hard timeout, s.
    pub hard_timeout_s: u16,
    /// Packets that it took.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Frames that it took.
    pub matches: Match,
}

impl Wire for FlowRemoved {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        Ok(Self {
            cookie: reader.u64()?,
            priority: reader.u16()?,
            reason: FlowRemovedReason::from_number(reader.u8()?).ok_or(BadRequest::BadType)?,
            table_id: reader.u8()?,
            duration_s: reader.u32()?,
            duration_ns: reader.u32()?,
            idle_timeout_s: reader.u16()?,
            hard_timeout_s: reader.u16()?,
            packets: reader.u64()?,
            bytes: reader.u64()?,
            matches: Match::read(reader)?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u64(self.cookie);
        out.u16(self.priority);
        out.u8(self.reason.number());
        out.u8(self.table_id);
        out.u32(self.duration_s);
        out.u32(self.duration_ns);
        out.u16(self.idle_timeout_s);
        out.u16(self.hard_timeout_s);
        out.u64(self.packets);
        out.u64(self.bytes);
        self.matches.write(out);
    }
}

/// Which flows statistics are asked of (sections 7.3.5.2 and 7.3.5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatsRequest {
    /// The table, or [`crate::number::table::ALL`].
    pub table_id: u8,
    /// Only flows that send to this port; [`crate::number::port::ANY`]: all.
    pub out_port: u32,
    /// Only flows that send to this group; [`crate::number::group::ANY`]: all.
    pub out_group: u32,
    /// Bits that their cookies must have.
    pub cookie: u64,
    /// Which bits are compared.
    pub cookie_mask: u64,
    /// Only flows that this includes.
    pub matches: Match,
}

impl Wire for FlowStatsRequest {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let table_id = reader.u8()?;
        reader.skip(3)?;
        let (out_port, out_group) = (reader.u32()?, reader.u32()?);
        reader.skip(4)?;
        Ok(Self {
            table_id,
            out_port,
            out_group,
            cookie: reader.u64()?,
            cookie_mask: reader.u64()?,
            matches: Match::read(reader)?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u8(self.table_id);
        out.zeros(3);
        out.u32(self.out_port);
        out.u32(self.out_group);
        out.zeros(4);
        out.u64(self.cookie);
        out.u64(self.cookie_mask);
        self.matches.write(out);
    }
}

/// A flow and its counters (section 7.3.5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// Its table.
    pub table_id: u8,
    /// Seconds that it has been there.
    pub duration_s: u32,
    /// Nanoseconds beyond them.
    pub duration_ns: u32,
    /// Its priority.
    pub priority: u16,
    /// Its idle timeout, s.
    pub idle_timeout_s: u16,
    /// Its hard timeout, s.
    pub hard_timeout_s: u16,
    /// Its flags.
    pub flags: u16,
    /// What the controller calls it.
    pub cookie: u64,
    /// Packets that it has taken.
    pub packets: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Frames that it takes.
    pub matches: Match,
    /// What is done with them.
    pub instructions: Box<[Instruction]>,
}

impl Wire for FlowStats {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let len = reader.u16()?;
        let mut part = reader.counted(len, 2, BadRequest::BadLen)?;
        let table_id = part.u8()?;
        part.skip(1)?;
        Ok(Self {
            table_id,
            duration_s: part.u32()?,
            duration_ns: part.u32()?,
            priority: part.u16()?,
            idle_timeout_s: part.u16()?,
            hard_timeout_s: part.u16()?,
            flags: part.u16()?,
            cookie: {
                part.skip(4)?;
                part.u64()?
            },
            packets: part.u64()?,
            bytes: part.u64()?,
            matches: Match::read(&mut part)?,
            instructions: instructions(&mut part)?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u8(self.table_id);
        out.zeros(1);
        out.u32(self.duration_s);
        out.u32(self.duration_ns);
        out.u16(self.priority);
        out.u16(self.idle_timeout_s);
        out.u16(self.hard_timeout_s);
        out.u16(self.flags);
        out.zeros(4);
        out.u64(self.cookie);
        out.u64(self.packets);
        out.u64(self.bytes);
        self.matches.write(out);
        out.list(&self.instructions);
        out.put_len(start, start);
    }
}
