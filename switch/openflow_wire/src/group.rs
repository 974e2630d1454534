//! Groups (sections 5.6, 7.3.4.2, and 7.3.5.9 to 7.3.5.11).

use crate::action::Action;
use crate::error::{BadAction, BadRequest, ErrorCode, GroupModFailed};
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

wire_enum! {
    /// Which buckets of a group a frame goes to (section 5.6.1).
    GroupType: u8 {
        /// All.
        All = 0,
        /// One, chosen by weights.
        Select = 1,
        /// The only one.
        Indirect = 2,
        /// The first whose watched port or group is live.
        FastFailover = 3,
    }
}

wire_enum! {
    /// What a group-mod does (section 7.3.4.2, `ofp_group_mod_command`).
    GroupModCommand: u16 {
        /// A new group.
        Add = 0,
        /// Another type and other buckets for a group.
        Modify = 1,
        /// Removes a group, or all.
        Delete = 2,
    }
}

/// A bucket of a group (section 7.3.4.2, `ofp_bucket`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its share, in a group of type [`GroupType::Select`]; 0 otherwise.
    pub weight: u16,
    /// The port whose state makes it live; [`crate::number::port::ANY`]: none.
    pub watch_port: u32,
    /// The group whose state makes it live; [`crate::number::group::ANY`]: none.
    pub watch_group: u32,
    /// Its actions, as an action set.
    pub actions: Box<[Action]>,
}

impl Bucket {
    /// Whether it is live only if a port or a group is.
    #[must_use]
    pub const fn watches(&self) -> bool {
        self.watch_port != crate::number::port::ANY || self.watch_group != crate::number::group::ANY
    }
}

impl Wire for Bucket {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let len = reader.u16()?;
        // It is padded to 8 bytes (section 7.3.4.2).
        if !len.is_multiple_of(8) {
            return Err(GroupModFailed::BadBucket.into());
        }
        let mut part = reader.counted(len, 2, GroupModFailed::BadBucket)?;
        let (weight, watch_port, watch_group) = (part.u16()?, part.u32()?, part.u32()?);
        part.skip(4)?;
        let actions = Reader::new(part.remaining(), BadAction::BadLen).list()?.into();
        Ok(Self { weight, watch_port, watch_group, actions })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u16(self.weight);
        out.u32(self.watch_port);
        out.u32(self.watch_group);
        out.zeros(4);
        out.list(&self.actions);
        out.put_len(start, start);
    }
}

/// A change of groups (section 7.3.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// What is done.
    pub command: GroupModCommand,
    /// Its type.
    pub group_type: GroupType,
    /// Its number, or [`crate::number::group::ALL`] to delete all.
    pub group_id: u32,
    /// Its buckets.
    pub buckets: Box<[Bucket]>,
}

/// Buckets to the end.
fn buckets(reader: &mut Reader<'_>) -> Result<Box<[Bucket]>, ErrorCode> {
    Ok(reader.padded(GroupModFailed::BadBucket)?.list()?.into())
}

impl Wire for GroupMod {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let command = GroupModCommand::from_number(reader.u16()?).ok_or(GroupModFailed::BadCommand)?;
        let group_type = GroupType::from_number(reader.u8()?).ok_or(GroupModFailed::BadType)?;
        reader.skip(1)?;
        Ok(Self { command, group_type, group_id: reader.u32()?, buckets: buckets(reader)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u16(self.command.number());
        out.u8(self.group_type.number());
        out.zeros(1);
        out.u32(self.group_id);
        out.list(&self.buckets);
    }
}

/// Packets and bytes of a flow, a bucket or a meter's band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets; a super-frame counts as the packets that it becomes on a wire.
    pub packets: u64,
    /// Their bytes, from the destination address on, without checksum.
    pub bytes: u64,
}

impl Count {
    /// Both together; counters go on at 0.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    /// What was counted since `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            packets: self.packets.wrapping_sub(other.packets),
            bytes: self.bytes.wrapping_sub(other.bytes),
        }
    }
}

impl Wire for Count {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        Ok(Self { packets: reader.u64()?, bytes: reader.u64()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u64(self.packets);
        out.u64(self.bytes);
    }
}

/// The counters of a group (section 7.3.5.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// Its number.
    pub group_id: u32,
    /// Flows and groups that send to it.
    pub ref_count: u32,
    /// What it has passed on.
    pub count: Count,
    /// Seconds that it has been there.
    pub duration_s: u32,
    /// Nanoseconds beyond them.
    pub duration_ns: u32,
    /// What each of its buckets has passed on.
    pub buckets: Box<[Count]>,
}

impl Wire for GroupStats {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let len = reader.u16()?;
        let mut part = reader.counted(len, 2, BadRequest::BadLen)?;
        part.skip(2)?;
        let (group_id, ref_count) = (part.u32()?, part.u32()?);
        part.skip(4)?;
        Ok(Self {
            group_id,
            ref_count,
            count: Count::read(&mut part)?,
            duration_s: part.u32()?,
            duration_ns: part.u32()?,
            buckets: part.list()?.into(),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.zeros(4);
        out.u32(self.group_id);
        out.u32(self.ref_count);
        out.zeros(4);
        self.count.write(out);
        out.u32(self.duration_s);
        out.u32(self.duration_ns);
        out.list(&self.buckets);
        out.put_len(start, start);
    }
}

/// A group as it was made (section 7.3.5.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// Its type.
    pub group_type: GroupType,
    /// Its number.
    pub group_id: u32,
    /// Its buckets.
    pub buckets: Box<[Bucket]>,
}

impl Wire for GroupDesc {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let len = reader.u16()?;
        let mut part = reader.counted(len, 2, BadRequest::BadLen)?;
        let group_type = GroupType::from_number(part.u8()?).ok_or(GroupModFailed::BadType)?;
        part.skip(1)?;
        Ok(Self { group_type, group_id: part.u32()?, buckets: buckets(&mut part)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u8(self.group_type.number());
        out.zeros(1);
        out.u32(self.group_id);
        out.list(&self.buckets);
        out.put_len(start, start);
    }
}

/// What a switch can do with groups (section 7.3.5.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFeatures {
    /// A bit for each type of group.
    pub types: u32,
    /// Of [`group_capabilities`].
    pub capabilities: u32,
    /// Maximum number of groups of each type.
    pub max_groups: [u32; 4],
    /// For each type, a bit for each type of action.
    pub actions: [u32; 4],
}

/// What a switch can do with groups (section 7.3.5.11, `ofp_group_capabilities`).
pub mod group_capabilities {
    /// Buckets of different weights.
    pub const SELECT_WEIGHT: u32 = 1;
    /// Buckets of [`super::GroupType::Select`] that are left out while they are not live.
    pub const SELECT_LIVENESS: u32 = 1 << 1;
    /// Groups that send to groups.
    pub const CHAINING: u32 = 1 << 2;
    /// Groups in a circle are refused.
    pub const CHAINING_CHECKS: u32 = 1 << 3;
}

impl Wire for GroupFeatures {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let mut words = [0; 10];
        for word in &mut words {
            *word = reader.u32()?;
        }
        let [types, capabilities, a, b, c, d, e, f, g, h] = words;
        Ok(Self { types, capabilities, max_groups: [a, b, c, d], actions: [e, f, g, h] })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.types);
        out.u32(self.capabilities);
        for word in self.max_groups.into_iter().chain(self.actions) {
            out.u32(word);
        }
    }
}
