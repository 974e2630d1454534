//! Matches, instructions and actions as text for people: the names are those of the specification, in small letters.

use core::fmt::{Display, Formatter, Result};
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::action::{Action, Instruction};
use crate::field::Field;
use crate::flow_match::{Match, MatchField};
use crate::group::GroupType;
use crate::meter::Band;
use crate::number::{self, VLAN_PRESENT};

impl Field {
    /// Writes a value of it.
    fn write(self, f: &mut Formatter<'_>, value: u128) -> Result {
        match self {
            Self::EthDst | Self::EthSrc | Self::ArpSha | Self::ArpTha | Self::Ipv6NdSll | Self::Ipv6NdTll => {
                let bytes = (value as u64).to_be_bytes();
                let [_, _, a, b, c, d, e, g] = bytes;
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Self::Ipv4Src | Self::Ipv4Dst | Self::ArpSpa | Self::ArpTpa => {
                write!(f, "{}", Ipv4Addr::from(value as u32))
            }
            Self::Ipv6Src | Self::Ipv6Dst | Self::Ipv6NdTarget => write!(f, "{}", Ipv6Addr::from(value)),
            Self::EthType => write!(f, "0x{value:04x}"),
            Self::Metadata | Self::TunnelId | Self::PbbIsid | Self::Ipv6Exthdr | Self::Ipv6Flabel => {
                write!(f, "0x{value:x}")
            }
            Self::InPort | Self::InPhyPort => PortText(value as u32).fmt(f),
            _ => write!(f, "{value}"),
        }
    }
}

/// A port's number, or the name of a reserved one.
struct PortText(u32);

impl Display for PortText {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        use number::port;
        match self.0 {
            port::IN_PORT => f.write_str("in_port"),
            port::TABLE => f.write_str("table"),
            port::NORMAL => f.write_str("normal"),
            port::FLOOD => f.write_str("flood"),
            port::ALL => f.write_str("all"),
            port::CONTROLLER => f.write_str("controller"),
            port::LOCAL => f.write_str("local"),
            port::ANY => f.write_str("any"),
            number => write!(f, "{number}"),
        }
    }
}

impl Display for MatchField {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let tag = u128::from(VLAN_PRESENT);
        write!(f, "{}=", self.field.name())?;
        match (self.field, self.mask) {
            (Field::VlanVid, None) if self.value == 0 => f.write_str("none"),
            (Field::VlanVid, None) => write!(f, "{}", self.value & !tag),
            (Field::VlanVid, Some(mask)) if self.value == tag && mask == tag => f.write_str("any"),
            (Field::VlanVid, Some(mask)) => write!(f, "0x{:x}/0x{mask:x}", self.value),
            (field, None) => field.write(f, self.value),
            (field, Some(mask)) => {
                field.write(f, self.value)?;
                f.write_str("/")?;
                field.write(f, mask)
            }
        }
    }
}

/// Writes a list with commas.
fn list<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> Result {
    for (at, item) in items.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(f, "{comma}{item}")?;
    }
    Ok(())
}

/// `any` if it takes every frame.
impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.fields().is_empty() { f.write_str("any") } else { list(f, self.fields()) }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Output { port: number::port::CONTROLLER, max_len } => write!(f, "controller:{max_len}"),
            Self::Output { port, .. } => write!(f, "output:{}", PortText(*port)),
            Self::CopyTtlOut => f.write_str("copy_ttl_out"),
            Self::CopyTtlIn => f.write_str("copy_ttl_in"),
            Self::SetMplsTtl(ttl) => write!(f, "set_mpls_ttl:{ttl}"),
            Self::DecMplsTtl => f.write_str("dec_mpls_ttl"),
            Self::PushVlan(ethertype) => write!(f, "push_vlan:0x{ethertype:04x}"),
            Self::PopVlan => f.write_str("pop_vlan"),
            Self::PushMpls(ethertype) => write!(f, "push_mpls:0x{ethertype:04x}"),
            Self::PopMpls(ethertype) => write!(f, "pop_mpls:0x{ethertype:04x}"),
            Self::SetQueue(queue) => write!(f, "set_queue:{queue}"),
            Self::Group(group) => write!(f, "group:{group}"),
            Self::SetNwTtl(ttl) => write!(f, "set_nw_ttl:{ttl}"),
            Self::DecNwTtl => f.write_str("dec_nw_ttl"),
            Self::SetField { field, value } => {
                write!(f, "set_field:{}", MatchField::exact(*field, *value))
            }
            Self::PushPbb(ethertype) => write!(f, "push_pbb:0x{ethertype:04x}"),
            Self::PopPbb => f.write_str("pop_pbb"),
            Self::Experimenter { experimenter, .. } => write!(f, "experimenter:0x{experimenter:x}"),
        }
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::GotoTable(table) => write!(f, "goto_table:{table}"),
            Self::WriteMetadata { metadata, mask } => write!(f, "write_metadata:0x{metadata:x}/0x{mask:x}"),
            Self::WriteActions(actions) => {
                f.write_str("write_actions(")?;
                list(f, actions)?;
                f.write_str(")")
            }
            Self::ApplyActions(actions) => list(f, actions),
            Self::ClearActions => f.write_str("clear_actions"),
            Self::Meter(meter) => write!(f, "meter:{meter}"),
            Self::Experimenter { experimenter, .. } => write!(f, "experimenter:0x{experimenter:x}"),
        }
    }
}

impl Display for Band {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let kind = match self {
            Self::Drop { .. } => "drop".to_owned(),
            Self::DscpRemark { prec_level, .. } => format!("dscp_remark:{prec_level}"),
            Self::Experimenter { experimenter, .. } => format!("experimenter:0x{experimenter:x}"),
        };
        write!(f, "{kind} rate={}", self.rate())?;
        if self.burst() > 0 { write!(f, " burst={}", self.burst()) } else { Ok(()) }
    }
}

impl GroupType {
    /// Its name (section 7.3.4.2), such as `fast_failover`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Select => "select",
            Self::Indirect => "indirect",
            Self::FastFailover => "fast_failover",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_and_instructions_are_written_as_the_specification_names_them() {
        let fields = [
            MatchField::exact(Field::InPort, 3),
            MatchField::masked(Field::EthDst, 0x0200_0000_0000, 0xff00_0000_0000),
            MatchField::exact(Field::EthType, 0x800),
            MatchField::exact(Field::VlanVid, 0x1000 | 7),
            MatchField::masked(Field::Ipv4Dst, 0x0a00_0000, 0xff00_0000),
        ];
        let text = "in_port=3,eth_dst=02:00:00:00:00:00/ff:00:00:00:00:00,eth_type=0x0800,vlan_vid=7,ipv4_dst=10.0.0.0/255.0.0.0";
        assert_eq!(Match::new(fields).expect("a match").to_string(), text);
        assert_eq!(Match::default().to_string(), "any");
        let actions = [
            Action::PushVlan(0x8100),
            Action::SetField { field: Field::VlanVid, value: 0x1000 | 9 },
            Action::Output { port: number::port::CONTROLLER, max_len: 128 },
            Action::Output { port: number::port::LOCAL, max_len: 0 },
        ];
        let text = "push_vlan:0x8100,set_field:vlan_vid=9,controller:128,output:local";
        assert_eq!(Instruction::ApplyActions(actions.into()).to_string(), text);
        assert_eq!(
            Instruction::WriteActions([Action::Group(4)].into()).to_string(),
            "write_actions(group:4)"
        );
    }
}
