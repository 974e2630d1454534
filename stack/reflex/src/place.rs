//! Chooses the place of a new entry in its set.
//!
//! A table is an array of sets of [`SLOTS`] places; the low bits of an entry's hash select its set. So a program
//! looks at a fixed number of places, and an entry displaces one of its own set.

/// Places of a set.
pub const SLOTS: usize = 8;

/// The contents of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// An entry with the same key, which the new one replaces.
    Same,
    /// Nothing.
    Free,
    /// An entry that is withdrawn or expired.
    Void,
    /// An entry that has been used since it was put there, or since all of its set were marked unused.
    Used,
    /// An entry that has not been used.
    Unused,
}

/// The place for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The number of the place.
    pub slot: usize,
    /// The place after it, where the next choice begins: the set's hand.
    pub hand: u8,
    /// The places to be marked unused, one bit each.
    pub unused: u8,
    /// Whether a valid entry is evicted.
    pub evicts: bool,
}

/// Chooses the place for a new entry: the entry with the same key, else a free place, else a void entry, else the
/// first unused entry from the hand on. Used entries are evicted only if all of the set are used: then one is
/// evicted, and the others are marked unused. So entries in demand stay, and a flood of requests that nobody
/// repeats displaces its own.
#[must_use]
pub fn choose(set: &[SlotState; SLOTS], hand: u8) -> Choice {
    for wanted in [SlotState::Same, SlotState::Free, SlotState::Void] {
        if let Some(slot) = set.iter().position(|state| *state == wanted) {
            return Choice { slot, hand, unused: 0, evicts: false };
        }
    }
    let mut round = (0..SLOTS).map(|step| (usize::from(hand) + step) % SLOTS);
    let unused = round.find(|slot| set[*slot] == SlotState::Unused);
    let slot = unused.unwrap_or(usize::from(hand) % SLOTS);
    let cleared = if unused.is_some() { 0 } else { u8::MAX };
    Choice { slot, hand: ((slot + 1) % SLOTS) as u8, unused: cleared, evicts: true }
}

#[cfg(test)]
mod tests {
    use super::SlotState::{Free, Same, Unused, Used, Void};
    use super::*;

    #[test]
    fn an_entry_takes_the_place_that_costs_least() {
        let mut set = [Used; SLOTS];
        assert_eq!(choose(&set, 3), Choice { slot: 3, hand: 4, unused: 0xff, evicts: true });
        (set[1], set[6]) = (Unused, Unused);
        assert_eq!(choose(&set, 3), Choice { slot: 6, hand: 7, unused: 0, evicts: true });
        assert_eq!(choose(&set, 7), Choice { slot: 1, hand: 2, unused: 0, evicts: true });
        for better in [Void, Free, Same] {
            set[5] = better;
            assert_eq!(choose(&set, 3), Choice { slot: 5, hand: 3, unused: 0, evicts: false });
            set[4] = better;
        }
    }

    #[test]
    fn any_hand_is_within_the_set() {
        for hand in 0..=u8::MAX {
            let chosen = choose(&[Used; SLOTS], hand);
            assert!(chosen.slot < SLOTS && usize::from(chosen.hand) < SLOTS);
        }
    }
}
