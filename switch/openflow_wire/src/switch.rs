//! What a switch is, and what it agrees on with a controller (sections 7.3.1, 7.3.2, 7.3.9 and 7.3.10).

use crate::error::{BadRequest, ErrorCode, RoleRequestFailed};
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

/// What a switch can do (section 7.3.1, `ofp_capabilities`).
pub mod capabilities {
    /// Statistics of flows.
    pub const FLOW_STATS: u32 = 1;
    /// Statistics of tables.
    pub const TABLE_STATS: u32 = 1 << 1;
    /// Statistics of ports.
    pub const PORT_STATS: u32 = 1 << 2;
    /// Statistics of groups.
    pub const GROUP_STATS: u32 = 1 << 3;
    /// It can put fragments together.
    pub const IP_REASM: u32 = 1 << 5;
    /// Statistics of queues.
    pub const QUEUE_STATS: u32 = 1 << 6;
    /// It blocks ports that make a loop.
    pub const PORT_BLOCKED: u32 = 1 << 8;
}

/// What a switch is (section 7.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Its number.
    pub datapath_id: u64,
    /// Frames that it can hold.
    pub n_buffers: u32,
    /// Its tables.
    pub n_tables: u8,
    /// Which connection of the controller this is; 0: its main one.
    pub auxiliary_id: u8,
    /// Of [`capabilities`].
    pub capabilities: u32,
}

impl Wire for Features {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let this = Self {
            datapath_id: reader.u64()?,
            n_buffers: reader.u32()?,
            n_tables: reader.u8()?,
            auxiliary_id: reader.u8()?,
            capabilities: {
                reader.skip(2)?;
                reader.u32()?
            },
        };
        reader.skip(4)?;
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u64(self.datapath_id);
        out.u32(self.n_buffers);
        out.u8(self.n_tables);
        out.u8(self.auxiliary_id);
        out.zeros(2);
        out.u32(self.capabilities);
        out.zeros(4);
    }
}

/// How a switch treats fragments of IP packets (section 7.3.2, `ofp_config_flags`).
pub mod config_flags {
    /// As other frames.
    pub const FRAG_NORMAL: u16 = 0;
    /// They are dropped.
    pub const FRAG_DROP: u16 = 1;
}

/// What a controller sets of a switch (section 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How fragments are treated: 0 as other frames, 1 dropped, 2 put together.
    pub flags: u16,
    /// Bytes of a frame in packet-in where no action says how many.
    pub miss_send_len: u16,
}

impl Wire for Config {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        Ok(Self { flags: reader.u16()?, miss_send_len: reader.u16()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u16(self.flags);
        out.u16(self.miss_send_len);
    }
}

wire_enum! {
    /// What a controller may do (section 6.3.5).
    Role: u32 {
        /// As it is.
        NoChange = 0,
        /// Everything, as others.
        Equal = 1,
        /// Everything; the former master becomes a slave.
        Master = 2,
        /// Only ask.
        Slave = 3,
    }
}

/// A role, asked for or given (section 7.3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMessage {
    /// The role.
    pub role: Role,
    /// Number of the election that made a controller master, or a slave.
    pub generation_id: u64,
}

impl Wire for RoleMessage {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let role = Role::from_number(reader.u32()?).ok_or(RoleRequestFailed::BadRole)?;
        reader.skip(4)?;
        Ok(Self { role, generation_id: reader.u64()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u32(self.role.number());
        out.zeros(4);
        out.u64(self.generation_id);
    }
}

/// Which messages a controller gets without asking (section 7.3.10): bits by reason; the first of each pair counts for
/// a master or an equal, the second for a slave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncConfig {
    /// Bits of [`crate::PacketInReason`].
    pub packet_in: [u32; 2],
    /// Bits of [`crate::PortReason`].
    pub port_status: [u32; 2],
    /// Bits of [`crate::FlowRemovedReason`].
    pub flow_removed: [u32; 2],
}

impl Wire for AsyncConfig {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        Ok(Self {
            packet_in: [reader.u32()?, reader.u32()?],
            port_status: [reader.u32()?, reader.u32()?],
            flow_removed: [reader.u32()?, reader.u32()?],
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        for word in [self.packet_in, self.port_status, self.flow_removed].into_iter().flatten() {
            out.u32(word);
        }
    }
}

/// The versions that one end speaks (section 7.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version of the message's header: the highest that its sender speaks.
    pub version: u8,
    /// A bit for each version up to 31; `None` if the message has no such element.
    pub versions: Option<u32>,
}

/// Type of the element with versions (`OFPHET_VERSIONBITMAP`).
const VERSION_BITMAP: u16 = 1;

impl Hello {
    /// The highest version that both speak (section 6.3.1): by the bitmaps if both have one, otherwise the lower of
    /// the two highest ones.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u8> {
        match (self.versions, other.versions) {
            (Some(one), Some(two)) => (one & two).checked_ilog2().map(|version| version as u8),
            _ => {
                let version = self.version.min(other.version);
                let speaks = |hello: Self| {
                    hello
                        .versions
                        .is_none_or(|bits| 1_u32.checked_shl(version.into()).unwrap_or(0) & bits != 0)
                };
                (speaks(self) && speaks(other)).then_some(version)
            }
        }
    }

    /// Reads the elements; those that are not known are skipped, as later versions may have more (section 7.5.1). What cannot
    /// be read as elements is ignored, as in other switches: a hello of another version may have any body.
    pub(crate) fn read(version: u8, body: &[u8]) -> Self {
        let mut reader = Reader::new(body, BadRequest::BadLen);
        let mut this = Self { version, versions: None };
        while let Ok((kind, mut part)) = Self::element(&mut reader) {
            if kind == VERSION_BITMAP
                && let Ok(versions) = part.u32()
            {
                this.versions = Some(versions);
            }
        }
        this
    }

    /// An element: its type and what it has.
    fn element<'a>(reader: &mut Reader<'a>) -> Result<(u16, Reader<'a>), ErrorCode> {
        let kind = reader.u16()?;
        let len = reader.u16()?;
        let part = reader.counted(len, 4, BadRequest::BadLen)?;
        // The length leaves the padding out; the last element of some senders has none.
        let padding = usize::from(len).next_multiple_of(8) - usize::from(len);
        reader.skip(padding.min(reader.len()))?;
        Ok((kind, part))
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if let Some(versions) = self.versions {
            out.u16(VERSION_BITMAP);
            out.u16(8);
            out.u32(versions);
        }
    }
}
