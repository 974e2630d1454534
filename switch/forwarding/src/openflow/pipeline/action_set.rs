//! The action set: what is done with a frame when no table follows (OpenFlow 1.3.5, 5.10).

use twinpath_openflow_wire::{Action, Field};

/// The kinds of actions in a set, in the order in which they are done. A set has at most one of each, and one set-field
/// per field. The specification leaves the order of several pops open; here outer headers go first.
const COPY_TTL_IN: u16 = 1;
const POP_VLAN: u16 = 1 << 1;
const POP_PBB: u16 = 1 << 2;
const POP_MPLS: u16 = 1 << 3;
const PUSH_MPLS: u16 = 1 << 4;
const PUSH_PBB: u16 = 1 << 5;
const PUSH_VLAN: u16 = 1 << 6;
const COPY_TTL_OUT: u16 = 1 << 7;
const DEC_MPLS_TTL: u16 = 1 << 8;
const DEC_NW_TTL: u16 = 1 << 9;
const SET_MPLS_TTL: u16 = 1 << 10;
const SET_NW_TTL: u16 = 1 << 11;
const QUEUE: u16 = 1 << 12;
const GROUP: u16 = 1 << 13;
const OUTPUT: u16 = 1 << 14;

/// An action set, or what a flow writes into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetPart {
    kinds: u16,
    fields: u64,
    pop_mpls: u16,
    push_mpls: u16,
    push_pbb: u16,
    push_vlan: u16,
    mpls_ttl: u8,
    nw_ttl: u8,
    queue: u32,
    group: u32,
    port: u32,
    max_len: u16,
    /// Valid where `fields` has a bit.
    values: [u128; Field::COUNT],
}

impl Default for SetPart {
    fn default() -> Self {
        Self {
            kinds: 0,
            fields: 0,
            pop_mpls: 0,
            push_mpls: 0,
            push_pbb: 0,
            push_vlan: 0,
            mpls_ttl: 0,
            nw_ttl: 0,
            queue: 0,
            group: 0,
            port: 0,
            max_len: 0,
            values: [0; Field::COUNT],
        }
    }
}

impl SetPart {
    /// The last action of a kind wins.
    pub(crate) fn compile(actions: &[Action]) -> Self {
        let mut part = Self::default();
        actions.iter().for_each(|action| part.write(action));
        part
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.kinds == 0 && self.fields == 0
    }

    #[inline]
    pub(crate) const fn clear(&mut self) {
        (self.kinds, self.fields) = (0, 0);
    }

    fn write(&mut self, action: &Action) {
        self.kinds |= match *action {
            Action::CopyTtlIn => COPY_TTL_IN,
            Action::PopVlan => POP_VLAN,
            Action::PopPbb => POP_PBB,
            Action::PopMpls(ethertype) => set(&mut self.pop_mpls, ethertype, POP_MPLS),
            Action::PushMpls(ethertype) => set(&mut self.push_mpls, ethertype, PUSH_MPLS),
            Action::PushPbb(ethertype) => set(&mut self.push_pbb, ethertype, PUSH_PBB),
            Action::PushVlan(ethertype) => set(&mut self.push_vlan, ethertype, PUSH_VLAN),
            Action::CopyTtlOut => COPY_TTL_OUT,
            Action::DecMplsTtl => DEC_MPLS_TTL,
            Action::DecNwTtl => DEC_NW_TTL,
            Action::SetMplsTtl(ttl) => set(&mut self.mpls_ttl, ttl, SET_MPLS_TTL),
            Action::SetNwTtl(ttl) => set(&mut self.nw_ttl, ttl, SET_NW_TTL),
            Action::SetQueue(queue) => set(&mut self.queue, queue, QUEUE),
            Action::Group(group) => set(&mut self.group, group, GROUP),
            Action::Output { port, max_len } => {
                self.max_len = max_len;
                set(&mut self.port, port, OUTPUT)
            }
            Action::SetField { field, value } => {
                self.fields |= 1 << field.number();
                self.values[field as usize] = value;
                0
            }
            Action::Experimenter { .. } => 0,
        };
    }

    /// Merges in what a flow writes: actions of a kind that is there already are replaced.
    #[inline]
    pub(crate) fn merge(&mut self, part: &Self) {
        self.kinds |= part.kinds;
        let copy = |has: u16, own: &mut u16, other: u16| {
            if part.kinds & has != 0 {
                *own = other;
            }
        };
        copy(POP_MPLS, &mut self.pop_mpls, part.pop_mpls);
        copy(PUSH_MPLS, &mut self.push_mpls, part.push_mpls);
        copy(PUSH_PBB, &mut self.push_pbb, part.push_pbb);
        copy(PUSH_VLAN, &mut self.push_vlan, part.push_vlan);
        if part.kinds & SET_MPLS_TTL != 0 {
            self.mpls_ttl = part.mpls_ttl;
        }
        if part.kinds & SET_NW_TTL != 0 {
            self.nw_ttl = part.nw_ttl;
        }
        if part.kinds & QUEUE != 0 {
            self.queue = part.queue;
        }
        if part.kinds & GROUP != 0 {
            self.group = part.group;
        }
        if part.kinds & OUTPUT != 0 {
            (self.port, self.max_len) = (part.port, part.max_len);
        }
        self.fields |= part.fields;
        let mut fields = part.fields;
        while fields != 0 {
            let field = fields.trailing_zeros() as usize % Field::COUNT;
            self.values[field] = part.values[field];
            fields &= fields - 1;
        }
    }

    /// The actions in the order in which they are done. Where there is a group, the output is left out.
    #[inline]
    pub(crate) fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        let (before_set, after_set) = (SET_MPLS_TTL - 1, !(SET_MPLS_TTL - 1));
        let kinds = if self.kinds & GROUP != 0 { self.kinds & !OUTPUT } else { self.kinds };
        self.of_kinds(kinds & before_set).chain(self.set_fields()).chain(self.of_kinds(kinds & after_set))
    }

    fn set_fields(&self) -> impl Iterator<Item = Action> + '_ {
        Bits(self.fields).filter_map(|number| {
            let field = Field::from_number(number as u8)?;
            Some(Action::SetField { field, value: self.values[number as usize % Field::COUNT] })
        })
    }

    fn of_kinds(&self, kinds: u16) -> impl Iterator<Item = Action> + '_ {
        Bits(u64::from(kinds)).filter_map(|number| {
            Some(match 1_u16 << number {
                COPY_TTL_IN => Action::CopyTtlIn,
                POP_VLAN => Action::PopVlan,
                POP_PBB => Action::PopPbb,
                POP_MPLS => Action::PopMpls(self.pop_mpls),
                PUSH_MPLS => Action::PushMpls(self.push_mpls),
                PUSH_PBB => Action::PushPbb(self.push_pbb),
                PUSH_VLAN => Action::PushVlan(self.push_vlan),
                COPY_TTL_OUT => Action::CopyTtlOut,
                DEC_MPLS_TTL => Action::DecMplsTtl,
                DEC_NW_TTL => Action::DecNwTtl,
                SET_MPLS_TTL => Action::SetMplsTtl(self.mpls_ttl),
                SET_NW_TTL => Action::SetNwTtl(self.nw_ttl),
                QUEUE => Action::SetQueue(self.queue),
                GROUP => Action::Group(self.group),
                OUTPUT => Action::Output { port: self.port, max_len: self.max_len },
                _ => return None,
            })
        })
    }
}

fn set<T>(own: &mut T, value: T, kind: u16) -> u16 {
    *own = value;
    kind
}

/// The numbers of the bits of a word that are set.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        let bit = self.0.checked_ilog2().map(|_| self.0.trailing_zeros())?;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn set_field(field: Field, value: u128) -> Action {
        Action::SetField { field, value }
    }

    #[test]
    fn actions_are_done_in_the_order_of_the_specification() {
        let written = [
            Action::Output { port: 1, max_len: 9 },
            Action::SetQueue(3),
            Action::SetNwTtl(5),
            set_field(Field::EthSrc, 4),
            set_field(Field::EthDst, 3),
            Action::DecNwTtl,
            Action::CopyTtlOut,
            Action::PushVlan(0x8100),
            Action::PushPbb(0x88e7),
            Action::PushMpls(0x8847),
            Action::PopMpls(0x800),
            Action::PopVlan,
            Action::CopyTtlIn,
        ];
        let done: Vec<_> = SetPart::compile(&written).actions().collect();
        let wanted = [
            Action::CopyTtlIn,
            Action::PopVlan,
            Action::PopMpls(0x800),
            Action::PushMpls(0x8847),
            Action::PushPbb(0x88e7),
            Action::PushVlan(0x8100),
            Action::CopyTtlOut,
            Action::DecNwTtl,
            set_field(Field::EthDst, 3),
            set_field(Field::EthSrc, 4),
            Action::SetNwTtl(5),
            Action::SetQueue(3),
            Action::Output { port: 1, max_len: 9 },
        ];
        assert_eq!(done, wanted);
    }

    #[test]
    fn a_later_action_of_a_kind_replaces_the_former_one_and_a_group_the_output() {
        let mut set =
            SetPart::compile(&[set_field(Field::EthDst, 1), Action::Output { port: 1, max_len: 0 }]);
        set.merge(&SetPart::compile(&[set_field(Field::EthDst, 2), Action::Output { port: 2, max_len: 0 }]));
        let output = Action::Output { port: 2, max_len: 0 };
        assert_eq!(set.actions().collect::<Vec<_>>(), [set_field(Field::EthDst, 2), output]);
        set.merge(&SetPart::compile(&[Action::Group(7)]));
        assert_eq!(set.actions().collect::<Vec<_>>(), [set_field(Field::EthDst, 2), Action::Group(7)]);
        set.clear();
        assert!(set.is_empty() && set.actions().next().is_none());
    }
}
