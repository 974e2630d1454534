//! A flow as workers see it.

use std::sync::Arc;

use twinpath_openflow::{Action, Instruction, number};

use crate::action_set::SetPart;
use crate::hash::Mask;
use crate::key::Key;

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

/// A flow entry: what it matches, and what is done then. The words that most matches have are one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Rule {
    pub(crate) value: Key,
    pub(crate) mask: Arc<Mask>,
    pub(crate) priority: u16,
    /// Where its counters are.
    pub(crate) counter: u32,
    /// Whether it is the table-miss entry: priority 0, and matches everything (OpenFlow 1.3.5, 5.4).
    pub(crate) is_miss: bool,
    pub(crate) cookie: u64,
    pub(crate) program: Program,
}

impl Rule {
    #[inline]
    pub(crate) fn matches(&self, key: &Key) -> bool {
        self.mask.matches(key, &self.value)
    }

    /// The same rule with another program and cookie.
    pub(crate) fn with_program(&self, program: Program, cookie: u64) -> Self {
        let Self { value, ref mask, priority, counter, is_miss, .. } = *self;
        Self { value, mask: Arc::clone(mask), priority, counter, is_miss, cookie, program }
    }

    /// Whether both match the same.
    pub(crate) fn has_match_of(&self, other: &Self) -> bool {
        self.value == other.value && self.mask.key() == other.mask.key()
    }

    /// Mask and value.
    pub(crate) fn match_key(&self) -> (Key, Key) {
        (*self.mask.key(), self.value)
    }
}

/// Instructions in the order in which they are done (OpenFlow 1.3.5, 5.9), whatever the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// The port, if all that is done is one output to a port by its number.
    pub(crate) only_output: Option<u32>,
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
        let mut program = Self::default();
        for instruction in instructions {
            match instruction {
                Instruction::Meter(meter) => program.meter = Some(*meter),
                Instruction::ApplyActions(actions) => program.apply = actions.clone(),
                Instruction::ClearActions => program.clear = true,
                Instruction::WriteActions(actions) => {
                    program.write = Some(Box::new(SetPart::compile(actions)))
                }
                Instruction::WriteMetadata { metadata, mask } => {
                    program.metadata = Some((*metadata & mask, *mask))
                }
                Instruction::GotoTable(table) => program.goto = Some(*table),
                Instruction::Experimenter { .. } => {}
            }
        }
        program.only_output = program.find_only_output();
        program
    }

    fn find_only_output(&self) -> Option<u32> {
        let Self {
            only_output: _,
            meter: None,
            apply,
            clear: false,
            write: None,
            metadata: None,
            goto: None,
        } = self
        else {
            return None;
        };
        match **apply {
            [Action::Output { port, .. }] if port <= number::port::MAX => Some(port),
            _ => None,
        }
    }
}
