//! Tables: their configuration, counters and features (sections 7.3.3, 7.3.5.4 and 7.3.5.5).

use crate::action::ActionType;
use crate::error::{ErrorCode, TableFeaturesFailed};
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

/// Longest name of a table, with the zero byte at its end.
pub const TABLE_NAME_LEN: usize = 32;

/// A change of a table's configuration, of which 1.3 defines nothing (section 7.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMod {
    /// The table, or [`crate::number::table::ALL`].
    pub table_id: u8,
    /// Bits without a meaning in this version.
    pub config: u32,
}

impl Wire for TableMod {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let table_id = reader.u8()?;
        reader.skip(3)?;
        Ok(Self { table_id, config: reader.u32()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u8(self.table_id);
        out.zeros(3);
        out.u32(self.config);
    }
}

/// The counters of a table (section 7.3.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table_id: u8,
    /// Flows in it.
    pub active: u32,
    /// Frames looked up in it.
    pub lookups: u64,
    /// Frames that a flow of it took.
    pub matched: u64,
}

impl Wire for TableStats {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let table_id = reader.u8()?;
        reader.skip(3)?;
        Ok(Self { table_id, active: reader.u32()?, lookups: reader.u64()?, matched: reader.u64()? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.u8(self.table_id);
        out.zeros(3);
        out.u32(self.active);
        out.u64(self.lookups);
        out.u64(self.matched);
    }
}

wire_enum! {
    /// What a property of a table says (section 7.3.5.5.2, `ofp_table_feature_prop_type`); those ending in `Miss` say
    /// it for the table-miss flow.
    TablePropertyType: u16 {
        /// Instructions.
        Instructions = 0,
        /// Instructions.
        InstructionsMiss = 1,
        /// Tables to go on in.
        NextTables = 2,
        /// Tables to go on in.
        NextTablesMiss = 3,
        /// Actions to write.
        WriteActions = 4,
        /// Actions to write.
        WriteActionsMiss = 5,
        /// Actions to apply.
        ApplyActions = 6,
        /// Actions to apply.
        ApplyActionsMiss = 7,
        /// Fields to match.
        Match = 8,
        /// Fields that a match may leave out.
        Wildcards = 10,
        /// Fields to set by written actions.
        WriteSetfield = 12,
        /// Fields to set by written actions.
        WriteSetfieldMiss = 13,
        /// Fields to set by applied actions.
        ApplySetfield = 14,
        /// Fields to set by applied actions.
        ApplySetfieldMiss = 15,
        /// Something that the specification does not define.
        Experimenter = 0xfffe,
        /// Something that the specification does not define.
        ExperimenterMiss = 0xffff,
    }
}

/// Something that is named in a property by its head only: an instruction, an action, or a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropertyId {
    /// Type of the instruction or action; for a field its head: class, number, whether there is a mask, length.
    pub head: u32,
    /// The experimenter that defines it, if the specification does not.
    pub experimenter: Option<u32>,
}

/// A property of a table (section 7.3.5.5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableProperty {
    /// Tables, of the types `NextTables` and `NextTablesMiss`.
    Tables(TablePropertyType, Box<[u8]>),
    /// Instructions, actions or fields, of any other type.
    Ids(TablePropertyType, Box<[PropertyId]>),
    /// Of the types `Experimenter` and `ExperimenterMiss`: who defines it, its type, and what stands behind.
    Experimenter(TablePropertyType, u32, u32, Box<[u8]>),
}

/// What the entries of a property's list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entries {
    /// Types of two bytes and their lengths.
    Typed,
    /// Heads of fields.
    Fields,
}

const fn entries(kind: TablePropertyType) -> Entries {
    use TablePropertyType as Type;
    match kind {
        Type::Match
        | Type::Wildcards
        | Type::WriteSetfield
        | Type::WriteSetfieldMiss
        | Type::ApplySetfield
        | Type::ApplySetfieldMiss => Entries::Fields,
        _ => Entries::Typed,
    }
}

impl PropertyId {
    /// An instruction or action of the specification.
    #[must_use]
    pub fn of_type(number: u16) -> Self {
        Self { head: number.into(), experimenter: None }
    }

    /// An action of the specification.
    #[must_use]
    pub fn of_action(action: ActionType) -> Self {
        Self::of_type(action.number())
    }

    fn read(entries: Entries, part: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        match entries {
            Entries::Typed => {
                let head = part.u16()?;
                let len = part.u16()?;
                // Some senders leave the length of an id's missing body at 0.
                let mut id = part.counted(len.max(4), 4, TableFeaturesFailed::BadLen)?;
                let experimenter = if id.is_empty() { None } else { Some(id.u32()?) };
                id.end()?;
                Ok(Self { head: head.into(), experimenter })
            }
            Entries::Fields => {
                let head = part.u32()?;
                let experimenter = if head >> 16 == 0xffff { Some(part.u32()?) } else { None };
                Ok(Self { head, experimenter })
            }
        }
    }

    fn write(&self, entries: Entries, out: &mut Vec<u8>) {
        match entries {
            Entries::Typed => {
                out.u16(self.head as u16);
                out.u16(if self.experimenter.is_some() { 8 } else { 4 });
            }
            Entries::Fields => out.u32(self.head),
        }
        if let Some(experimenter) = self.experimenter {
            out.u32(experimenter);
        }
    }
}

impl Wire for TableProperty {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let kind = reader.u16()?;
        let len = reader.u16()?;
        let mut part = reader.counted(len, 4, TableFeaturesFailed::BadLen)?;
        let kind = TablePropertyType::from_number(kind).ok_or(TableFeaturesFailed::BadType)?;
        let this = match kind {
            TablePropertyType::NextTables | TablePropertyType::NextTablesMiss => {
                Self::Tables(kind, part.remaining().into())
            }
            TablePropertyType::Experimenter | TablePropertyType::ExperimenterMiss => {
                Self::Experimenter(kind, part.u32()?, part.u32()?, part.remaining().into())
            }
            _ => {
                let mut ids = Vec::new();
                while !part.is_empty() {
                    ids.push(PropertyId::read(entries(kind), &mut part)?);
                }
                Self::Ids(kind, ids.into())
            }
        };
        let len = usize::from(len);
        reader.part(len.next_multiple_of(8) - len, TableFeaturesFailed::BadLen)?;
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let (Self::Tables(kind, ..) | Self::Ids(kind, ..) | Self::Experimenter(kind, ..)) = self;
        out.u16(kind.number());
        out.u16(0);
        match self {
            Self::Tables(_, tables) => out.extend_from_slice(tables),
            Self::Ids(_, ids) => {
                for id in ids {
                    id.write(entries(*kind), out);
                }
            }
            Self::Experimenter(_, experimenter, exp_type, data) => {
                out.u32(*experimenter);
                out.u32(*exp_type);
                out.extend_from_slice(data);
            }
        }
        out.put_len(start + 2, start);
        out.pad(start);
    }
}

/// What a table can do (section 7.3.5.5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFeatures {
    /// The table.
    pub table_id: u8,
    /// Its name; cut to [`TABLE_NAME_LEN`].
    pub name: String,
    /// Bits of the metadata that it can match.
    pub metadata_match: u64,
    /// Bits of the metadata that it can write.
    pub metadata_write: u64,
    /// Its configuration.
    pub config: u32,
    /// Maximum number of flows.
    pub max_entries: u32,
    /// Its properties.
    pub properties: Box<[TableProperty]>,
}

impl Wire for TableFeatures {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let len = reader.u16()?;
        let mut part = reader.counted(len, 2, TableFeaturesFailed::BadLen)?;
        let table_id = part.u8()?;
        part.skip(5)?;
        Ok(Self {
            table_id,
            name: part.text(TABLE_NAME_LEN)?,
            metadata_match: part.u64()?,
            metadata_write: part.u64()?,
            config: part.u32()?,
            max_entries: part.u32()?,
            properties: part.list()?.into(),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u8(self.table_id);
        out.zeros(5);
        out.text(&self.name, TABLE_NAME_LEN);
        out.u64(self.metadata_match);
        out.u64(self.metadata_write);
        out.u32(self.config);
        out.u32(self.max_entries);
        out.list(&self.properties);
        out.put_len(start, start);
    }
}
