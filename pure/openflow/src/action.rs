//! What is done with a frame (sections 7.2.4 and 7.2.5).

use crate::field::Field;

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
    /// Does actions at once, in this order.
    ApplyActions(Box<[Action]>),
    /// Empties the action set.
    ClearActions,
    /// Passes the frame through a meter first.
    Meter(u32),
    /// One that the specification does not define.
    Experimenter {
        /// Who defines it.
        experimenter: u32,
        /// What stands behind, without padding rules of ours.
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
        /// If it is the controller: bytes of the frame that it is sent at most.
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
        /// Who defines it.
        experimenter: u32,
        /// What stands behind.
        data: Box<[u8]>,
    },
}
