//! The everyday part of tcpdump's filter language (pcap-filter(7)), as a value: it says which frames a capture keeps.
//!
//! A filter text is compiled to a short list of steps. A step is one test of the frame and the number of the next
//! step for either result. Matching allocates nothing and always ends. The result is tcpdump's, to the letter: `and`
//! and `or` have the same precedence and bind from the left, `not` binds closest, and a frame that ends before a byte
//! that a test reads does not match, whatever stands in front of that test.
//!
//! Not supported: names in place of numbers, `proto` and arithmetic on bytes, `vlan`, `gateway`, lengths. A frame
//! with a VLAN tag in it has EtherType 0x8100, as in tcpdump.

mod parse;
mod test;

pub use parse::{CONDITIONS_MAX, FilterError, TEXT_MAX};

use self::test::Test;

/// Ends the list of steps: the frame matches (`WANTED`) or does not (`UNWANTED`).
const WANTED: u16 = u16::MAX;
const UNWANTED: u16 = u16::MAX - 1;

/// One test, and the number of the next step for either result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    test: Test,
    yes: u16,
    no: u16,
}

/// A compiled filter: which frames are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    steps: Vec<Step>,
    first: u16,
}

impl Default for Filter {
    /// The filter that every frame matches.
    fn default() -> Self {
        Self { steps: Vec::new(), first: WANTED }
    }
}

impl Filter {
    /// Whether an Ethernet frame matches.
    #[must_use]
    pub fn wants(&self, frame: &[u8]) -> bool {
        let mut at = self.first;
        // A step leads only to steps of lower numbers, so the loop ends.
        while let Some(step) = self.steps.get(usize::from(at)) {
            match step.test.of(frame) {
                Some(true) => at = step.yes,
                Some(false) => at = step.no,
                None => return false,
            }
        }
        at == WANTED
    }

    /// Whether every frame matches, so that no frame has to be read.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        self.first == WANTED
    }
}

#[cfg(test)]
mod tests;
