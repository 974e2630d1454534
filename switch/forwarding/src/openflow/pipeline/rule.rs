//! A flow as workers see it.

use std::sync::Arc;

use twinpath_openflow_wire::{Action, Instruction};

use crate::openflow::pipeline::action_set::SetPart;
use crate::openflow::pipeline::hash::Mask;
use crate::openflow::pipeline::key::{Key, WORDS};

/// The name of a flow, for as long as it is there. The name of one that was removed is used again for another one, but not
/// before it was reported as gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u32);

impl FlowId {
    /// The flow that has this counter.
    pub(crate) const fn of(counter: u32) -> Self {
        Self(counter)
    }

    pub(crate) const fn counter(self) -> u32 {
        self.0
    }
}

/// Words of a rule's value that are in the rule itself; few matches have more.
const INLINE: usize = 6;
/// Most rules have at most this many, which are compared without checking the number.
const MOST: usize = 4;

/// The value of a match: of the words that the mask has bits of, in the mask's order.
#[derive(Debug)]
struct Value {
    first: [u64; INLINE],
    rest: Option<Box<[u64; WORDS - INLINE]>>,
}

impl Value {
    fn new(mask: &Mask, key: &Key) -> Self {
        let mut all = [0; WORDS];
        mask.words().zip(&mut all).for_each(|(word, own)| *own = key.0[word]);
        let (first, rest) = all.split_first_chunk().unwrap_or((&[0; INLINE], &[]));
        let rest = rest.first_chunk().filter(|rest| **rest != [0; WORDS - INLINE]);
        Self { first: *first, rest: rest.map(|rest| Box::new(*rest)) }
    }
}

/// A flow entry: what it matches, and what is done then.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) mask: Arc<Mask>,
    value: Value,
    pub(crate) priority: u16,
    /// Where its counters are.
    pub(crate) counter: u32,
    /// Whether it is the table-miss entry: priority 0, and matches everything (OpenFlow 1.3.5, 5.4).
    pub(crate) is_miss: bool,
    pub(crate) table: u8,
    pub(crate) cookie: u64,
    pub(crate) program: Program,
}

impl Rule {
    /// A flow of a table with this match: the value has no bit that the mask does not have.
    pub(crate) fn new(table: u8, mask: Arc<Mask>, value: &Key, priority: u16, counter: u32) -> Self {
        let is_miss = priority == 0 && mask.is_empty();
        let value = Value::new(&mask, value);
        Self { mask, value, priority, counter, is_miss, table, cookie: 0, program: Program::default() }
    }

    /// The same with these instructions and this cookie.
    pub(crate) fn with(self, program: Program, cookie: u64) -> Self {
        Self { program, cookie, ..self }
    }

    #[inline]
    pub(crate) fn matches(&self, key: &Key) -> bool {
        let Value { first: [a, b, c, d, other @ ..], rest } = &self.value;
        self.mask.matches(key, &[*a, *b, *c, *d], 0)
            && (self.mask.len() <= MOST
                || self.mask.matches(key, other, MOST)
                    && rest.as_ref().is_none_or(|rest| self.mask.matches(key, rest, INLINE)))
    }

    /// Whether a key has this rule's value in the bits of `mask`, which this rule's mask has.
    #[inline]
    pub(crate) fn has_value_of(&self, key: &Key, mask: &Mask) -> bool {
        let Value { first, rest } = &self.value;
        self.mask.agrees(key, first, 0, mask)
            && rest.as_ref().is_none_or(|rest| self.mask.agrees(key, rest, INLINE, mask))
    }

    /// What it matches, with the bits of [`Self::mask`].
    pub(crate) fn value(&self) -> Key {
        let mut key = Key::ZERO;
        let rest = self.value.rest.iter().flat_map(|rest| rest.iter());
        self.mask.words().zip(self.value.first.iter().chain(rest)).for_each(|(word, own)| key.0[word] = *own);
        key
    }

    /// The same rule with another program and cookie.
    pub(crate) fn with_program(&self, program: Program, cookie: u64) -> Self {
        let Self { table, priority, counter, .. } = *self;
        Self::new(table, Arc::clone(&self.mask), &self.value(), priority, counter).with(program, cookie)
    }

    /// Whether both match the same.
    pub(crate) fn has_match_of(&self, other: &Self) -> bool {
        self.value.first == other.value.first
            && self.value.rest == other.value.rest
            && self.mask.key() == other.mask.key()
    }

    /// Whether a key can match another rule that has this rule's value in the bits of `mask`, which this rule's mask has.
    pub(crate) fn can_match_beside(&self, other: &Self, mask: &Mask) -> bool {
        let (own, its, its_mask) = (self.value(), other.value(), other.mask.key());
        mask.words().all(|word| (own.0[word] ^ its.0[word]) & mask.key().0[word] & its_mask.0[word] == 0)
    }

    /// Mask and value.
    pub(crate) fn match_key(&self) -> (Key, Key) {
        (*self.mask.key(), self.value())
    }
}

/// What a flow does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Program {
    /// Nothing.
    #[default]
    Drop,
    /// One output action, and no more.
    Output {
        port: u32,
        max_len: u16,
    },
    Many(Box<Instructions>),
}

/// Instructions in the order in which they are done (OpenFlow 1.3.5, 5.9), whatever the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instructions {
    pub(crate) meter: Option<u32>,
    pub(crate) apply: Box<[Action]>,
    pub(crate) clear: bool,
    pub(crate) write: Option<Box<SetPart>>,
    /// The bits of the metadata, and which of them are written.
    pub(crate) metadata: Option<(u64, u64)>,
    /// The next table.
    pub(crate) goto: Option<u8>,
}

impl Program {
    /// Each instruction is there once at most, and none of an experimenter: the caller has checked that.
    pub(crate) fn compile(instructions: &[Instruction]) -> Self {
        match instructions {
            [] => return Self::Drop,
            [Instruction::ApplyActions(actions)] => {
                if let [Action::Output { port, max_len }] = **actions {
                    return Self::Output { port, max_len };
                }
            }
            _ => {}
        }
        let mut all = Instructions::default();
        for instruction in instructions {
            match instruction {
                Instruction::Meter(meter) => all.meter = Some(*meter),
                Instruction::ApplyActions(actions) => all.apply = actions.clone(),
                Instruction::ClearActions => all.clear = true,
                Instruction::WriteActions(actions) => all.write = Some(Box::new(SetPart::compile(actions))),
                Instruction::WriteMetadata { metadata, mask } => {
                    all.metadata = Some((*metadata & mask, *mask))
                }
                Instruction::GotoTable(table) => all.goto = Some(*table),
                Instruction::Experimenter { .. } => {}
            }
        }
        Self::Many(Box::new(all))
    }
}
