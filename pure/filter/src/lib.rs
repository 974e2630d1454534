//! Which frames somebody wants to see: the everyday part of tcpdump's filter language (pcap-filter(7)), as a value.
//!
//! A text becomes a short list of steps, each a question about the frame and where to go on for either answer. Asking
//! allocates nothing and always ends. What a filter says of a frame is what tcpdump says of it, to the letter: `and` and `or`
//! have the same precedence and bind from the left, `not` binds closest, and a frame that ends before a byte that is asked
//! for is not wanted, whatever stands before it.
//!
//! Not taken over: names in place of numbers, `proto` and arithmetic on bytes, `vlan`, `gateway`, lengths. A frame with a
//! VLAN tag in it is of type 0x8100, as in tcpdump.

mod parse;
mod test;

pub use parse::{CONDITIONS_MAX, FilterError, TEXT_MAX};

use self::test::Test;

/// Go to no step: the frame is wanted, or not.
const WANTED: u16 = u16::MAX;
const UNWANTED: u16 = u16::MAX - 1;

/// A question, and the number of the next step for either answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    test: Test,
    yes: u16,
    no: u16,
}

/// Which frames are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    steps: Vec<Step>,
    first: u16,
}

impl Default for Filter {
    /// All of them.
    fn default() -> Self {
        Self { steps: Vec::new(), first: WANTED }
    }
}

impl Filter {
    /// Whether an Ethernet frame is wanted.
    #[must_use]
    pub fn wants(&self, frame: &[u8]) -> bool {
        let mut at = self.first;
        // A step leads to earlier ones only: it ends.
        while let Some(step) = self.steps.get(usize::from(at)) {
            match step.test.of(frame) {
                Some(true) => at = step.yes,
                Some(false) => at = step.no,
                None => return false,
            }
        }
        at == WANTED
    }

    /// Whether it wants every frame, unseen.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        self.first == WANTED
    }
}

#[cfg(test)]
mod tests;
