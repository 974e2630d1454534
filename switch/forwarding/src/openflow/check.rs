//! Whether instructions and actions can be done (sections 5.9, 5.12, 7.2.4, 7.2.5 and 7.4.4).

use twinpath_openflow_wire::{
    Action, BadAction, BadInstruction, ErrorCode, Field, Instruction, Match, MeterModFailed, Prerequisite,
    number,
};

use number::VLAN_PRESENT;

const VLAN: [u16; 2] = [0x8100, 0x88a8];
const MPLS: [u16; 2] = [0x8847, 0x8848];
const PBB: u16 = 0x88e7;

/// What instructions and actions may refer to.
pub(crate) trait References {
    fn has_group(&self, group_id: u32) -> bool;
    fn has_meter(&self, meter_id: u32) -> bool;
}

/// What is known of a frame at an action: the fields that decide which others there are.
#[derive(Clone, Copy, Debug)]
struct Known {
    eth_type: Option<u128>,
    ip_proto: Option<u128>,
    icmpv6_type: Option<u128>,
    is_tagged: bool,
}

impl Known {
    fn of(matches: &Match) -> Self {
        let exact = |field| matches.get(field).map(|one| one.value);
        let tag = matches.get(Field::VlanVid);
        Self {
            eth_type: exact(Field::EthType),
            ip_proto: exact(Field::IpProto),
            icmpv6_type: exact(Field::Icmpv6Type),
            is_tagged: tag
                .is_some_and(|one| one.value & one.effective_mask() & u128::from(VLAN_PRESENT) != 0),
        }
    }

    fn meets(&self, prerequisite: Prerequisite) -> bool {
        match prerequisite {
            Prerequisite::None | Prerequisite::InPort => true,
            Prerequisite::Tagged => self.is_tagged,
            Prerequisite::OneOf(field, values) => {
                let known = match field {
                    Field::EthType => self.eth_type,
                    Field::IpProto => self.ip_proto,
                    Field::Icmpv6Type => self.icmpv6_type,
                    _ => None,
                };
                known.is_some_and(|known| values.iter().any(|value| u128::from(*value) == known))
            }
        }
    }

    /// What is known behind an action.
    fn follow(&mut self, action: &Action) {
        match action {
            Action::PushVlan(_) => self.is_tagged = true,
            Action::PopVlan => self.is_tagged = false,
            Action::PushMpls(ethertype) | Action::PopMpls(ethertype) | Action::PushPbb(ethertype) => {
                self.eth_type = Some((*ethertype).into());
                self.ip_proto = None;
                self.icmpv6_type = None;
            }
            Action::SetField { field: Field::EthType, value } => self.eth_type = Some(*value),
            Action::SetField { field: Field::IpProto, value } => self.ip_proto = Some(*value),
            Action::SetField { field: Field::Icmpv6Type, value } => self.icmpv6_type = Some(*value),
            Action::SetField { field: Field::VlanVid, .. } => self.is_tagged = true,
            _ => {}
        }
    }
}

/// Where actions stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// In a flow with this match.
    Flow(&'a Match),
    /// In a bucket, where nothing is known of frames.
    Bucket,
    /// In a packet-out, where nothing is known of the frame, and the tables are an output.
    PacketOut,
}

/// Checks the instructions of a flow of this table.
pub(crate) fn instructions(
    instructions: &[Instruction],
    table_id: u8,
    matches: &Match,
    references: &impl References,
) -> Result<(), ErrorCode> {
    for (place, instruction) in instructions.iter().enumerate() {
        // At most one of each type (section 5.9); 1.3 has no error of its own for a second one.
        if instructions[..place].iter().any(|earlier| earlier.kind() == instruction.kind()) {
            return Err(BadInstruction::UnsupInstruction.into());
        }
        match instruction {
            Instruction::GotoTable(next) if *next <= table_id || *next > number::table::MAX => {
                return Err(BadInstruction::BadTableId.into());
            }
            Instruction::Meter(meter) if !references.has_meter(*meter) => {
                return Err(MeterModFailed::InvalidMeter.into());
            }
            Instruction::WriteActions(list) | Instruction::ApplyActions(list) => {
                actions(list, Place::Flow(matches), references)?;
            }
            Instruction::Experimenter { .. } => return Err(BadInstruction::BadExperimenter.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Checks a list of actions.
pub(crate) fn actions(
    actions: &[Action],
    place: Place<'_>,
    references: &impl References,
) -> Result<(), ErrorCode> {
    let mut known = match place {
        Place::Flow(matches) => Some(Known::of(matches)),
        Place::Bucket | Place::PacketOut => None,
    };
    for action in actions {
        check(action, place, references)?;
        if let (Action::SetField { field, .. }, Some(known)) = (action, &known)
            && !known.meets(field.prerequisite())
        {
            return Err(BadAction::MatchInconsistent.into());
        }
        if let Some(known) = &mut known {
            known.follow(action);
        }
    }
    Ok(())
}

fn check(action: &Action, place: Place<'_>, references: &impl References) -> Result<(), ErrorCode> {
    let error = match action {
        Action::Output { port, .. } if !is_output(*port, place) => BadAction::BadOutPort,
        Action::Group(group) if !references.has_group(*group) => BadAction::BadOutGroup,
        // There are no queues.
        Action::SetQueue(_) => BadAction::BadQueue,
        Action::PushVlan(ethertype) if !VLAN.contains(ethertype) => BadAction::BadArgument,
        Action::PushMpls(ethertype) if !MPLS.contains(ethertype) => BadAction::BadArgument,
        Action::PushPbb(ethertype) if *ethertype != PBB => BadAction::BadArgument,
        Action::SetField { field: Field::VlanVid, value } if value & u128::from(VLAN_PRESENT) == 0 => {
            BadAction::BadSetArgument
        }
        Action::Experimenter { .. } => BadAction::BadExperimenter,
        _ => return Ok(()),
    };
    Err(error.into())
}

/// Whether a port can be an output. One that is not there may come later (section 7.4.4, `OFPBAC_BAD_OUT_PORT`).
const fn is_output(port: u32, place: Place<'_>) -> bool {
    match port {
        0 | number::port::ANY => false,
        number::port::TABLE => matches!(place, Place::PacketOut),
        number::port::IN_PORT
        | number::port::NORMAL
        | number::port::FLOOD
        | number::port::ALL
        | number::port::CONTROLLER
        | number::port::LOCAL => true,
        other => other <= number::port::MAX,
    }
}

/// All actions of a flow, whether applied immediately or written to the action set.
pub(crate) fn actions_of(instructions: &[Instruction]) -> impl Iterator<Item = &Action> {
    instructions.iter().flat_map(|instruction| match instruction {
        Instruction::WriteActions(actions) | Instruction::ApplyActions(actions) => actions.iter(),
        _ => [].iter(),
    })
}

/// Groups that a list of actions sends to.
pub(crate) fn groups_of<'a>(actions: impl Iterator<Item = &'a Action>) -> impl Iterator<Item = u32> {
    actions.filter_map(|action| match action {
        Action::Group(group) => Some(*group),
        _ => None,
    })
}
