//! The commonly used part of tcpdump's filter language (pcap-filter(7)), as a value that says which frames a
//! capture keeps.
//!
//! A filter text is compiled to a short list of steps. A step is one test of the frame and the number of the next
//! step for either result. Matching allocates nothing and always ends. The result is exactly tcpdump's: `and` and
//! `or` have the same precedence and associate to the left, `not` binds closest, and a frame that ends before a
//! byte that a test reads does not match, whatever operator precedes that test.
//!
//! Tags: the kernel shows a packet socket the outermost tag of 802.1Q or 802.1ad beside the frame, so tcpdump's
//! tests see what follows that tag ([`outermost_beside`]). `vlan` tests that tag, or else the next one within the
//! frame. Each `vlan` shifts the tests after it in the text by one more tag.
//!
//! Not supported: names in place of numbers, `proto` and arithmetic on bytes, `gateway`, lengths.

mod parse;
mod test;

pub use parse::{CONDITIONS_MAX, FilterError, TEXT_MAX};

use self::test::{TAG_LEN, Test, half, is_vlan};

/// Ends the list of steps: the frame matches (`WANTED`) or does not (`UNWANTED`).
const WANTED: u16 = u16::MAX;
const UNWANTED: u16 = u16::MAX - 1;

/// One test, and the number of the next step for either result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    test: Test,
    /// The number of `vlan` before it in the text.
    vlans: u8,
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
    /// Whether an Ethernet frame matches. `beside`: the control information of the outermost tag, if it is not in the frame.
    #[must_use]
    pub fn wants(&self, frame: &[u8], beside: Option<u16>) -> bool {
        let mut at = self.first;
        // A step leads only to steps of lower numbers, so the loop ends.
        while let Some(step) = self.steps.get(usize::from(at)) {
            match step.of(frame, beside) {
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

impl Step {
    /// The result; `None` if the frame ends before a byte that the test reads.
    fn of(self, frame: &[u8], beside: Option<u16>) -> Option<bool> {
        let vlans = usize::from(self.vlans);
        let within = match beside {
            None => vlans,
            Some(control) if vlans == 0 => {
                return match self.test {
                    Test::Vlan(wanted) => Some(is_vlan(control, wanted)),
                    _ => self.test.of(frame),
                };
            }
            // The first `vlan` was about the tag beside the frame.
            Some(_) => vlans - 1,
        };
        // No test reads the addresses, so a frame without its outermost tags is the same as one that begins that
        // many bytes later.
        self.test.of(frame.get(within * TAG_LEN..)?)
    }
}

/// A frame as the kernel shows it to a packet socket: an outermost tag of 802.1Q or 802.1ad is removed, and its
/// control information is returned beside it. The addresses in front are wrong then, but no test reads them.
#[must_use]
pub fn outermost_beside(frame: &[u8]) -> (&[u8], Option<u16>) {
    const TAKEN_OUT: [u16; 2] = [0x8100, 0x88a8];
    let control = half(frame, 12).filter(|kind| TAKEN_OUT.contains(kind)).and_then(|_| half(frame, 14));
    match (control, frame.get(TAG_LEN..)) {
        (Some(control), Some(rest)) => (rest, Some(control)),
        _ => (frame, None),
    }
}

#[cfg(test)]
mod tests;
