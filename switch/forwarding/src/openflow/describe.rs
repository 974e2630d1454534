//! How the switch describes itself (sections 7.3.1, 7.3.5.5, 7.3.5.11 and 7.3.5.14).

use twinpath_openflow_wire::{
    ActionType, BandType, Desc, Field, GroupFeatures, InstructionType, MeterFeatures, PropertyId,
    TableFeatures, TableProperty, TablePropertyType, capabilities, group_capabilities, meter_flags, number,
};

use crate::openflow::meters::BANDS_MAX;

/// What a switch is called, and how much it holds.
#[derive(Clone, Debug)]
pub struct SwitchInfo {
    /// Its number.
    pub datapath_id: u64,
    /// What is said of it.
    pub desc: Desc,
    /// Maximum number of flows, of groups, and of meters.
    pub flows_max: u32,
    /// Maximum packet-ins of one port per second.
    pub packet_in_rate: u32,
}

/// What it can tell.
pub(crate) const CAPABILITIES: u32 = capabilities::FLOW_STATS
    | capabilities::TABLE_STATS
    | capabilities::PORT_STATS
    | capabilities::GROUP_STATS;

/// Actions that it does: all but those of queues and experimenters.
fn actions() -> impl Iterator<Item = ActionType> {
    let not_done = [ActionType::SetQueue, ActionType::Experimenter];
    ActionType::ALL.iter().copied().filter(move |action| !not_done.contains(action))
}

/// What it can do with groups, if this is their maximum number.
pub(crate) fn group_features(groups_max: u32) -> GroupFeatures {
    let actions = actions().fold(0, |bits, action| bits | 1 << action.number());
    GroupFeatures {
        types: 0xf,
        capabilities: group_capabilities::SELECT_WEIGHT
            | group_capabilities::SELECT_LIVENESS
            | group_capabilities::CHAINING
            | group_capabilities::CHAINING_CHECKS,
        max_groups: [groups_max; 4],
        actions: [actions; 4],
    }
}

/// What it can do with meters, if this is their maximum number.
pub(crate) fn meter_features(meters_max: u32) -> MeterFeatures {
    MeterFeatures {
        max_meter: meters_max,
        band_types: 1 << BandType::Drop.number() | 1 << BandType::DscpRemark.number(),
        capabilities: meter_flags::ALL.into(),
        max_bands: BANDS_MAX as u8,
        max_color: 0,
    }
}

/// The head of a field, as properties name it (section 7.2.3.2).
fn field(field: Field, has_mask: bool) -> PropertyId {
    let len = (field.wire_len() << u8::from(has_mask)) as u32;
    let head = 0x8000 << 16 | u32::from(field.number()) << 9 | u32::from(has_mask) << 8 | len;
    PropertyId { head, experimenter: None }
}

/// What a table can do: everything. Tables differ only in which tables follow.
pub(crate) fn table_features(table_id: u8, flows_max: u32) -> TableFeatures {
    use TablePropertyType as Type;
    let instructions: Box<[_]> = InstructionType::ALL
        .iter()
        .filter(|kind| **kind != InstructionType::Experimenter)
        .filter(|kind| **kind != InstructionType::GotoTable || table_id < number::table::MAX)
        .map(|kind| PropertyId::of_type(kind.number()))
        .collect();
    let next: Box<[u8]> = (table_id + 1..=number::table::MAX).collect();
    let actions: Box<[_]> = actions().map(PropertyId::of_action).collect();
    let matched: Box<[_]> = Field::ALL.iter().map(|one| field(*one, one.maskable())).collect();
    let any: Box<[_]> = Field::ALL.iter().map(|one| field(*one, false)).collect();
    let set: Box<[_]> =
        Field::ALL.iter().filter(|one| one.settable()).map(|one| field(*one, false)).collect();
    TableFeatures {
        table_id,
        name: format!("table{table_id}"),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        max_entries: flows_max,
        properties: [
            TableProperty::Ids(Type::Instructions, instructions),
            TableProperty::Tables(Type::NextTables, next),
            TableProperty::Ids(Type::WriteActions, actions.clone()),
            TableProperty::Ids(Type::ApplyActions, actions),
            TableProperty::Ids(Type::Match, matched),
            TableProperty::Ids(Type::Wildcards, any),
            TableProperty::Ids(Type::WriteSetfield, set.clone()),
            TableProperty::Ids(Type::ApplySetfield, set),
        ]
        .into(),
    }
}
