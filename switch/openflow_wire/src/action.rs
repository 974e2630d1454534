//! What is done with a frame (sections 7.2.4 and 7.2.5).

use crate::error::{BadAction, BadInstruction, ErrorCode};
use crate::field::Field;
use crate::flow_match::OxmHead;
use crate::wire::{Put, Reader, Wire};
use crate::wire_enum::wire_enum;

/// An instruction of a flow (section 7.2.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Go on in a later table.
    GotoTable(u8),
    /// Sets the bits of the metadata that the mask has.
    WriteMetadata {
        /// The bits.
        metadata: u64,
        /// Which of them are set.
        mask: u64,
    },
    /// Merges actions into the action set.
    WriteActions(Box<[Action]>),
    /// Applies actions immediately, in this order.
    ApplyActions(Box<[Action]>),
    /// Empties the action set.
    ClearActions,
    /// Passes the frame through a meter first.
    Meter(u32),
    /// One that the specification does not define.
    Experimenter {
        /// The experimenter that defines it.
        experimenter: u32,
        /// The bytes that follow, without padding rules of ours.
        data: Box<[u8]>,
    },
}

/// An action (section 7.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To a port, which may be a reserved one.
    Output {
        /// The port.
        port: u32,
        /// If it is the controller: maximum bytes of the frame to send.
        max_len: u16,
    },
    /// The TTL of the second header from outside becomes that of the first.
    CopyTtlOut,
    /// The TTL of the first header becomes that of the second from outside.
    CopyTtlIn,
    /// Sets the TTL of MPLS.
    SetMplsTtl(u8),
    /// One less for the TTL of MPLS.
    DecMplsTtl,
    /// A new VLAN tag outside the others, of this EtherType.
    PushVlan(u16),
    /// Takes the outer VLAN tag away.
    PopVlan,
    /// A new MPLS entry outside the others, of this EtherType.
    PushMpls(u16),
    /// Takes the outer MPLS entry away; what is behind has this EtherType.
    PopMpls(u16),
    /// Which queue of its port the frame leaves by.
    SetQueue(u32),
    /// To a group.
    Group(u32),
    /// Sets the TTL of IP.
    SetNwTtl(u8),
    /// One less for the TTL of IP.
    DecNwTtl,
    /// Sets a header field.
    SetField {
        /// The field.
        field: Field,
        /// Its value; a number as in [`crate::MatchField`].
        value: u128,
    },
    /// A new PBB service tag outside the others, of this EtherType.
    PushPbb(u16),
    /// Takes the outer PBB service tag away.
    PopPbb,
    /// One that the specification does not define.
    Experimenter {
        /// The experimenter that defines it.
        experimenter: u32,
        /// The data that follow.
        data: Box<[u8]>,
    },
}

wire_enum! {
    /// The type of an instruction (section 7.2.4, `ofp_instruction_type`).
    InstructionType: u16 {
        /// [`Instruction::GotoTable`].
        GotoTable = 1,
        /// [`Instruction::WriteMetadata`].
        WriteMetadata = 2,
        /// [`Instruction::WriteActions`].
        WriteActions = 3,
        /// [`Instruction::ApplyActions`].
        ApplyActions = 4,
        /// [`Instruction::ClearActions`].
        ClearActions = 5,
        /// [`Instruction::Meter`].
        Meter = 6,
        /// [`Instruction::Experimenter`].
        Experimenter = 0xffff,
    }
}

wire_enum! {
    /// The type of an action (section 7.2.5, `ofp_action_type`).
    ActionType: u16 {
        /// [`Action::Output`].
        Output = 0,
        /// [`Action::CopyTtlOut`].
        CopyTtlOut = 11,
        /// [`Action::CopyTtlIn`].
        CopyTtlIn = 12,
        /// [`Action::SetMplsTtl`].
        SetMplsTtl = 15,
        /// [`Action::DecMplsTtl`].
        DecMplsTtl = 16,
        /// [`Action::PushVlan`].
        PushVlan = 17,
        /// [`Action::PopVlan`].
        PopVlan = 18,
        /// [`Action::PushMpls`].
        PushMpls = 19,
        /// [`Action::PopMpls`].
        PopMpls = 20,
        /// [`Action::SetQueue`].
        SetQueue = 21,
        /// [`Action::Group`].
        Group = 22,
        /// [`Action::SetNwTtl`].
        SetNwTtl = 23,
        /// [`Action::DecNwTtl`].
        DecNwTtl = 24,
        /// [`Action::SetField`].
        SetField = 25,
        /// [`Action::PushPbb`].
        PushPbb = 26,
        /// [`Action::PopPbb`].
        PopPbb = 27,
        /// [`Action::Experimenter`].
        Experimenter = 0xffff,
    }
}

impl Instruction {
    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> InstructionType {
        match self {
            Self::GotoTable(_) => InstructionType::GotoTable,
            Self::WriteMetadata { .. } => InstructionType::WriteMetadata,
            Self::WriteActions(_) => InstructionType::WriteActions,
            Self::ApplyActions(_) => InstructionType::ApplyActions,
            Self::ClearActions => InstructionType::ClearActions,
            Self::Meter(_) => InstructionType::Meter,
            Self::Experimenter { .. } => InstructionType::Experimenter,
        }
    }
}

impl Action {
    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> ActionType {
        match self {
            Self::Output { .. } => ActionType::Output,
            Self::CopyTtlOut => ActionType::CopyTtlOut,
            Self::CopyTtlIn => ActionType::CopyTtlIn,
            Self::SetMplsTtl(_) => ActionType::SetMplsTtl,
            Self::DecMplsTtl => ActionType::DecMplsTtl,
            Self::PushVlan(_) => ActionType::PushVlan,
            Self::PopVlan => ActionType::PopVlan,
            Self::PushMpls(_) => ActionType::PushMpls,
            Self::PopMpls(_) => ActionType::PopMpls,
            Self::SetQueue(_) => ActionType::SetQueue,
            Self::Group(_) => ActionType::Group,
            Self::SetNwTtl(_) => ActionType::SetNwTtl,
            Self::DecNwTtl => ActionType::DecNwTtl,
            Self::SetField { .. } => ActionType::SetField,
            Self::PushPbb(_) => ActionType::PushPbb,
            Self::PopPbb => ActionType::PopPbb,
            Self::Experimenter { .. } => ActionType::Experimenter,
        }
    }
}

impl Wire for Instruction {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let kind = reader.u16()?;
        let len = reader.u16()?;
        let mut part = reader.counted(len, 4, BadInstruction::BadLen)?;
        let kind = InstructionType::from_number(kind).ok_or(BadInstruction::UnknownInstruction)?;
        // Each is padded to 8 bytes (section 7.2.4); what others have defined is their own.
        if !len.is_multiple_of(8) && kind != InstructionType::Experimenter {
            return Err(BadInstruction::BadLen.into());
        }
        let this = match kind {
            InstructionType::GotoTable => {
                let table = part.u8()?;
                part.skip(3)?;
                Self::GotoTable(table)
            }
            InstructionType::WriteMetadata => {
                part.skip(4)?;
                Self::WriteMetadata { metadata: part.u64()?, mask: part.u64()? }
            }
            InstructionType::WriteActions => Self::WriteActions(actions_of(&mut part)?),
            InstructionType::ApplyActions => Self::ApplyActions(actions_of(&mut part)?),
            InstructionType::ClearActions => {
                part.skip(4)?;
                Self::ClearActions
            }
            InstructionType::Meter => Self::Meter(part.u32()?),
            InstructionType::Experimenter => {
                Self::Experimenter { experimenter: part.u32()?, data: part.remaining().into() }
            }
        };
        part.end()?;
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(self.kind().number());
        out.u16(0);
        match self {
            Self::GotoTable(table) => {
                out.u8(*table);
                out.zeros(3);
            }
            Self::WriteMetadata { metadata, mask } => {
                out.zeros(4);
                out.u64(*metadata);
                out.u64(*mask);
            }
            Self::WriteActions(actions) | Self::ApplyActions(actions) => {
                out.zeros(4);
                out.list(actions);
            }
            Self::ClearActions => out.zeros(4),
            Self::Meter(meter) => out.u32(*meter),
            Self::Experimenter { experimenter, data } => {
                out.u32(*experimenter);
                out.extend_from_slice(data);
            }
        }
        out.put_len(start + 2, start);
    }
}

/// The actions of an instruction: padding, then actions to its end.
fn actions_of(part: &mut Reader<'_>) -> Result<Box<[Action]>, ErrorCode> {
    part.skip(4)?;
    Ok(Reader::new(part.remaining(), BadAction::BadLen).list()?.into())
}

impl Wire for Action {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ErrorCode> {
        let kind = reader.u16()?;
        let len = reader.u16()?;
        if !len.is_multiple_of(8) {
            return Err(BadAction::BadLen.into());
        }
        let mut part = reader.counted(len, 4, BadAction::BadLen)?;
        let kind = ActionType::from_number(kind).ok_or(BadAction::BadType)?;
        // Those without more have four bytes of padding, those with a number of one or two bytes the rest of four.
        let this = match kind {
            ActionType::Output => {
                let this = Self::Output { port: part.u32()?, max_len: part.u16()? };
                part.skip(6)?;
                this
            }
            ActionType::SetField => set_field(&mut part)?,
            ActionType::Experimenter => {
                Self::Experimenter { experimenter: part.u32()?, data: part.remaining().into() }
            }
            _ => {
                let bytes = part.array()?;
                let (number, [high, low, ..]) = (u32::from_be_bytes(bytes), bytes);
                short_action(kind, number, u16::from_be_bytes([high, low]), high)
            }
        };
        part.end()?;
        Ok(this)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(self.kind().number());
        out.u16(0);
        match self {
            Self::Output { port, max_len } => {
                out.u32(*port);
                out.u16(*max_len);
                out.zeros(6);
            }
            Self::SetMplsTtl(ttl) | Self::SetNwTtl(ttl) => {
                out.u8(*ttl);
                out.zeros(3);
            }
            Self::PushVlan(ethertype)
            | Self::PushMpls(ethertype)
            | Self::PopMpls(ethertype)
            | Self::PushPbb(ethertype) => {
                out.u16(*ethertype);
                out.zeros(2);
            }
            Self::SetQueue(number) | Self::Group(number) => out.u32(*number),
            Self::SetField { field, value } => {
                OxmHead::write(*field, false, out);
                out.number(*value, field.wire_len());
                out.pad(start);
            }
            Self::Experimenter { experimenter, data } => {
                out.u32(*experimenter);
                out.extend_from_slice(data);
            }
            Self::CopyTtlOut
            | Self::CopyTtlIn
            | Self::DecMplsTtl
            | Self::PopVlan
            | Self::DecNwTtl
            | Self::PopPbb => out.zeros(4),
        }
        out.put_len(start + 2, start);
    }
}

/// The action of a type whose four bytes are one of these numbers.
const fn short_action(kind: ActionType, number: u32, ethertype: u16, ttl: u8) -> Action {
    match kind {
        ActionType::CopyTtlOut => Action::CopyTtlOut,
        ActionType::CopyTtlIn => Action::CopyTtlIn,
        ActionType::SetMplsTtl => Action::SetMplsTtl(ttl),
        ActionType::DecMplsTtl => Action::DecMplsTtl,
        ActionType::PushVlan => Action::PushVlan(ethertype),
        ActionType::PopVlan => Action::PopVlan,
        ActionType::PushMpls => Action::PushMpls(ethertype),
        ActionType::PopMpls => Action::PopMpls(ethertype),
        ActionType::SetQueue => Action::SetQueue(number),
        ActionType::SetNwTtl => Action::SetNwTtl(ttl),
        ActionType::DecNwTtl => Action::DecNwTtl,
        ActionType::PushPbb => Action::PushPbb(ethertype),
        ActionType::PopPbb => Action::PopPbb,
        // The three longer ones do not come here.
        ActionType::Group | ActionType::Output | ActionType::SetField | ActionType::Experimenter => {
            Action::Group(number)
        }
    }
}

/// One field with its value, then padding (section 7.2.5, `ofp_action_set_field`).
fn set_field(part: &mut Reader<'_>) -> Result<Action, ErrorCode> {
    let whole = part.len() + 4;
    let head = OxmHead::read(part)?;
    let field = head.field.filter(|field| field.settable() && !head.has_mask).ok_or(BadAction::BadSetType)?;
    if head.len != field.wire_len() {
        return Err(BadAction::BadSetLen.into());
    }
    let value = part.number(field.wire_len())?;
    if !field.accepts(value) {
        return Err(BadAction::BadSetArgument.into());
    }
    let used = whole - part.len();
    part.skip(used.next_multiple_of(8) - used)?;
    Ok(Action::SetField { field, value })
}
