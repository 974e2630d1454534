//! OpenFlow 1.3.5 (ONF TS-023) as values: what a controller and a switch tell each other, without any state.
//!
//! Section numbers in this crate are those of that document. Values keep what was sent: a match gives its fields back
//! in the same order and with the same masks, as flow statistics must.

mod action;
mod error;
mod field;
mod flow_match;
mod group;
mod meter;
pub mod number;
mod wire_enum;

pub use action::{Action, Instruction};
pub use error::{
    BadAction, BadInstruction, BadMatch, BadRequest, ErrorCode, FlowModFailed, GroupModFailed, HelloFailed,
    MeterModFailed, PortModFailed, QueueOpFailed, RoleRequestFailed, SwitchConfigFailed, TableFeaturesFailed,
    TableModFailed,
};
pub use field::{Field, Prerequisite};
pub use flow_match::{Match, MatchField};
pub use group::{Bucket, GroupType};
pub use meter::Band;
