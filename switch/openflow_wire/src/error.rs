//! The errors that a switch answers a bad message with (section 7.4.4).

use crate::wire_enum::wire_enum;

/// Type and code of an error message (section 7.4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("OpenFlow error {self:?}")]
pub enum ErrorCode {
    /// `OFPET_HELLO_FAILED`: no version in common.
    HelloFailed(HelloFailed),
    /// `OFPET_BAD_REQUEST`: the message as such.
    BadRequest(BadRequest),
    /// `OFPET_BAD_ACTION`: an action in it.
    BadAction(BadAction),
    /// `OFPET_BAD_INSTRUCTION`: an instruction in it.
    BadInstruction(BadInstruction),
    /// `OFPET_BAD_MATCH`: a match in it.
    BadMatch(BadMatch),
    /// `OFPET_FLOW_MOD_FAILED`: a change of flows.
    FlowModFailed(FlowModFailed),
    /// `OFPET_GROUP_MOD_FAILED`: a change of a group.
    GroupModFailed(GroupModFailed),
    /// `OFPET_PORT_MOD_FAILED`: a change of a port.
    PortModFailed(PortModFailed),
    /// `OFPET_TABLE_MOD_FAILED`: a change of a table.
    TableModFailed(TableModFailed),
    /// `OFPET_QUEUE_OP_FAILED`: a request about queues.
    QueueOpFailed(QueueOpFailed),
    /// `OFPET_SWITCH_CONFIG_FAILED`: a change of the switch's configuration.
    SwitchConfigFailed(SwitchConfigFailed),
    /// `OFPET_ROLE_REQUEST_FAILED`: a change of role.
    RoleRequestFailed(RoleRequestFailed),
    /// `OFPET_METER_MOD_FAILED`: a change of a meter.
    MeterModFailed(MeterModFailed),
    /// `OFPET_TABLE_FEATURES_FAILED`: a change of what tables do.
    TableFeaturesFailed(TableFeaturesFailed),
    /// `OFPET_EXPERIMENTER`: with its own type and the number of the experimenter.
    Experimenter {
        /// Type of the error, by that experimenter.
        exp_type: u16,
        /// The experimenter that defines it.
        experimenter: u32,
    },
}

/// The number of `OFPET_EXPERIMENTER`.
const EXPERIMENTER: u16 = 0xffff;

/// The list of error types, by ascending number, for the conversions.
macro_rules! error_types {
    ($($name:ident = $number:literal,)+) => {
        impl ErrorCode {
            /// Type and code on the wire; for an experimenter's, its type is in place of the code.
            #[must_use]
            pub const fn numbers(self) -> (u16, u16) {
                match self {
                    $(Self::$name(code) => ($number, code.number()),)+
                    Self::Experimenter { exp_type, .. } => (EXPERIMENTER, exp_type),
                }
            }

            /// The error of a type and code on the wire, except an experimenter's; `None` if there is no such error.
            #[must_use]
            pub fn from_numbers(error_type: u16, code: u16) -> Option<Self> {
                match error_type {
                    $($number => $name::from_number(code).map(Self::$name),)+
                    _ => None,
                }
            }
        }

        $(impl From<$name> for ErrorCode {
            fn from(code: $name) -> Self {
                Self::$name(code)
            }
        })+
    };
}

error_types! {
    HelloFailed = 0,
    BadRequest = 1,
    BadAction = 2,
    BadInstruction = 3,
    BadMatch = 4,
    FlowModFailed = 5,
    GroupModFailed = 6,
    PortModFailed = 7,
    TableModFailed = 8,
    QueueOpFailed = 9,
    SwitchConfigFailed = 10,
    RoleRequestFailed = 11,
    MeterModFailed = 12,
    TableFeaturesFailed = 13,
}

wire_enum! {
    /// Codes of `OFPET_HELLO_FAILED`.
    HelloFailed: u16 {
        /// No version in common.
        Incompatible = 0,
        /// Not permitted.
        Eperm = 1,
    }
}

wire_enum! {
    /// Codes of `OFPET_BAD_REQUEST`.
    BadRequest: u16 {
        /// The header's version is not the negotiated one.
        BadVersion = 0,
        /// No message of this type.
        BadType = 1,
        /// No multipart message of this type.
        BadMultipart = 2,
        /// An unknown experimenter.
        BadExperimenter = 3,
        /// An unknown type of that experimenter.
        BadExperimenterType = 4,
        /// Not permitted.
        Eperm = 5,
        /// An invalid length.
        BadLen = 6,
        /// The buffer has been used already.
        BufferEmpty = 7,
        /// No such buffer.
        BufferUnknown = 8,
        /// No such table.
        BadTableId = 9,
        /// The controller is a slave.
        IsSlave = 10,
        /// No such port.
        BadPort = 11,
        /// The frame of a packet-out is invalid.
        BadPacket = 12,
        /// A multipart request of too many parts.
        MultipartBufferOverflow = 13,
    }
}

wire_enum! {
    /// Codes of `OFPET_BAD_ACTION`.
    BadAction: u16 {
        /// No action of this type.
        BadType = 0,
        /// An invalid length.
        BadLen = 1,
        /// An unknown experimenter.
        BadExperimenter = 2,
        /// An unknown type of that experimenter.
        BadExperimenterType = 3,
        /// No such port to send to.
        BadOutPort = 4,
        /// An invalid argument.
        BadArgument = 5,
        /// Not permitted.
        Eperm = 6,
        /// Too many actions.
        TooMany = 7,
        /// No such queue.
        BadQueue = 8,
        /// No such group to send to.
        BadOutGroup = 9,
        /// An action that does not fit the match, or a set-field without its prerequisite.
        MatchInconsistent = 10,
        /// Actions in an order that is not supported.
        UnsupportedOrder = 11,
        /// A tag or EtherType that is not supported.
        BadTag = 12,
        /// A set-field of a field that cannot be set.
        BadSetType = 13,
        /// A set-field of a wrong length.
        BadSetLen = 14,
        /// A set-field with an invalid value.
        BadSetArgument = 15,
    }
}

wire_enum! {
    /// Codes of `OFPET_BAD_INSTRUCTION`.
    BadInstruction: u16 {
        /// No instruction of this type.
        UnknownInstruction = 0,
        /// An instruction that is not supported here.
        UnsupInstruction = 1,
        /// No such table.
        BadTableId = 2,
        /// Metadata that is not supported.
        UnsupMetadata = 3,
        /// A mask of metadata that is not supported.
        UnsupMetadataMask = 4,
        /// An unknown experimenter.
        BadExperimenter = 5,
        /// An unknown type of that experimenter.
        BadExperimenterType = 6,
        /// An invalid length.
        BadLen = 7,
        /// Not permitted.
        Eperm = 8,
    }
}

wire_enum! {
    /// Codes of `OFPET_BAD_MATCH`.
    BadMatch: u16 {
        /// No match of this type.
        BadType = 0,
        /// An invalid length.
        BadLen = 1,
        /// Tags that are refused.
        BadTag = 2,
        /// A mask of a link address that is not supported.
        BadDlAddrMask = 3,
        /// A mask of a network address that is not supported.
        BadNwAddrMask = 4,
        /// Fields are left out that must not be, or a value has bits where its mask has none.
        BadWildcards = 5,
        /// No field of this type.
        BadField = 6,
        /// An invalid value.
        BadValue = 7,
        /// A mask on a field that takes none.
        BadMask = 8,
        /// A prerequisite is missing.
        BadPrereq = 9,
        /// A field is there twice.
        DupField = 10,
        /// Not permitted.
        Eperm = 11,
    }
}

wire_enum! {
    /// Codes of `OFPET_FLOW_MOD_FAILED`.
    FlowModFailed: u16 {
        /// Something else.
        Unknown = 0,
        /// The table is full.
        TableFull = 1,
        /// No such table.
        BadTableId = 2,
        /// It overlaps with an entry of the same priority.
        Overlap = 3,
        /// Not permitted.
        Eperm = 4,
        /// A timeout that is not supported.
        BadTimeout = 5,
        /// No such command.
        BadCommand = 6,
        /// Flags that are not supported.
        BadFlags = 7,
    }
}

wire_enum! {
    /// Codes of `OFPET_GROUP_MOD_FAILED`.
    GroupModFailed: u16 {
        /// The group is there already.
        GroupExists = 0,
        /// The number or the properties of the group are invalid.
        InvalidGroup = 1,
        /// Buckets of different weights are not supported.
        WeightUnsupported = 2,
        /// The table of groups is full.
        OutOfGroups = 3,
        /// Too many buckets.
        OutOfBuckets = 4,
        /// Groups that send to groups are not supported.
        ChainingUnsupported = 5,
        /// The port or group to watch is not supported.
        WatchUnsupported = 6,
        /// A loop of groups.
        Loop = 7,
        /// No such group.
        UnknownGroup = 8,
        /// Another group sends to it.
        ChainedGroup = 9,
        /// No group of this type.
        BadType = 10,
        /// No such command.
        BadCommand = 11,
        /// An invalid bucket.
        BadBucket = 12,
        /// No such port or group to watch.
        BadWatch = 13,
        /// Not permitted.
        Eperm = 14,
    }
}

wire_enum! {
    /// Codes of `OFPET_PORT_MOD_FAILED`.
    PortModFailed: u16 {
        /// No such port.
        BadPort = 0,
        /// Not the port's address.
        BadHwAddr = 1,
        /// Configuration that is not supported.
        BadConfig = 2,
        /// Features that are not supported.
        BadAdvertise = 3,
        /// Not permitted.
        Eperm = 4,
    }
}

wire_enum! {
    /// Codes of `OFPET_TABLE_MOD_FAILED`.
    TableModFailed: u16 {
        /// No such table.
        BadTable = 0,
        /// Configuration that is not supported.
        BadConfig = 1,
        /// Not permitted.
        Eperm = 2,
    }
}

wire_enum! {
    /// Codes of `OFPET_QUEUE_OP_FAILED`.
    QueueOpFailed: u16 {
        /// No such port.
        BadPort = 0,
        /// No such queue.
        BadQueue = 1,
        /// Not permitted.
        Eperm = 2,
    }
}

wire_enum! {
    /// Codes of `OFPET_SWITCH_CONFIG_FAILED`.
    SwitchConfigFailed: u16 {
        /// Flags that are not supported.
        BadFlags = 0,
        /// An invalid length.
        BadLen = 1,
        /// Not permitted.
        Eperm = 2,
    }
}

wire_enum! {
    /// Codes of `OFPET_ROLE_REQUEST_FAILED`.
    RoleRequestFailed: u16 {
        /// An outdated generation.
        Stale = 0,
        /// A change of role that is not supported.
        Unsup = 1,
        /// No such role.
        BadRole = 2,
    }
}

wire_enum! {
    /// Codes of `OFPET_METER_MOD_FAILED`.
    MeterModFailed: u16 {
        /// Something else.
        Unknown = 0,
        /// The meter is there already.
        MeterExists = 1,
        /// No meter can have this number.
        InvalidMeter = 2,
        /// No such meter.
        UnknownMeter = 3,
        /// No such command.
        BadCommand = 4,
        /// Flags that are not supported.
        BadFlags = 5,
        /// A rate that is not supported.
        BadRate = 6,
        /// A burst that is not supported.
        BadBurst = 7,
        /// No band of this type.
        BadBand = 8,
        /// A band's value that is not supported.
        BadBandValue = 9,
        /// The table of meters is full.
        OutOfMeters = 10,
        /// Too many bands.
        OutOfBands = 11,
    }
}

wire_enum! {
    /// Codes of `OFPET_TABLE_FEATURES_FAILED`.
    TableFeaturesFailed: u16 {
        /// No such table.
        BadTable = 0,
        /// Metadata that is not supported.
        BadMetadata = 1,
        /// No property of this type.
        BadType = 2,
        /// An invalid length.
        BadLen = 3,
        /// An invalid argument.
        BadArgument = 4,
        /// Not permitted.
        Eperm = 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_errors_convert_to_each_other() {
        let mut known = 0;
        for error_type in 0..20 {
            for code in 0..20 {
                if let Some(error) = ErrorCode::from_numbers(error_type, code) {
                    assert_eq!(error.numbers(), (error_type, code));
                    known += 1;
                }
            }
        }
        assert_eq!(known, 2 + 14 + 16 + 9 + 12 + 8 + 15 + 5 + 3 + 3 + 3 + 3 + 12 + 6);
    }
}
