//! The two words of an entry.
//!
//! The *name* holds what must change as one: the stored part of the address, and its port. The *age* holds the time of
//! the last frame, and the generation of the port. It names the port too, so that it is never taken for the age of
//! another entry that was in the same place.

use crate::learning::table::place::Place;

const PORT_BITS: u32 = 12;
const PORT_MASK: u64 = (1 << PORT_BITS) - 1;
const CHOICE: u64 = 1 << PORT_BITS;
const STATIC: u64 = CHOICE << 1;
/// Every entry has this bit, so that nothing matches an empty place.
const VALID: u64 = STATIC << 1;
const UPPER_SHIFT: u32 = PORT_BITS + 3;

const GENERATION_BITS: u32 = 20;

/// No entry.
pub(crate) const EMPTY: u64 = 0;

/// The stored part of an address, with its port; or [`EMPTY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) u64);

impl Name {
    /// The name of a learned address on a port up to 4094. `choice`: in its first or second bucket.
    #[inline]
    pub(crate) fn new(place: &Place, choice: usize, port: u16) -> Self {
        Self(Self::wanted(place, choice) | u64::from(port) & PORT_MASK)
    }

    /// The bits that are the same for all entries of this address in this bucket.
    #[inline]
    pub(crate) fn wanted(place: &Place, choice: usize) -> u64 {
        place.upper << UPPER_SHIFT | VALID | if choice == 0 { 0 } else { CHOICE }
    }

    /// Whether it is of the address that has these bits.
    #[inline]
    pub(crate) const fn is(self, wanted: u64) -> bool {
        self.0 & !(PORT_MASK | STATIC) == wanted
    }

    #[inline]
    pub(crate) const fn with_port(self, port: u16) -> Self {
        Self(self.0 & !PORT_MASK | port as u64 & PORT_MASK)
    }

    pub(crate) const fn into_static(self) -> Self {
        Self(self.0 | STATIC)
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == EMPTY
    }

    #[inline]
    pub(crate) const fn is_static(self) -> bool {
        self.0 & STATIC != 0
    }

    /// The port. Only for names that are not empty.
    #[inline]
    pub(crate) const fn port(self) -> u16 {
        (self.0 & PORT_MASK) as u16
    }

    pub(crate) const fn upper(self) -> u64 {
        self.0 >> UPPER_SHIFT
    }

    pub(crate) const fn choice(self) -> usize {
        (self.0 & CHOICE != 0) as usize
    }
}

/// When a frame came last, and on which generation of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) u64);

impl Age {
    #[inline]
    pub(crate) const fn new(port: u16, generation: u32, tick: u32) -> Self {
        let generation = generation as u64 & ((1 << GENERATION_BITS) - 1);
        Self((port as u64 + 1) << (32 + GENERATION_BITS) | generation << 32 | tick as u64)
    }

    /// How many ticks ago a frame came, if the age is that of an entry of this port and generation. Workers read the
    /// clock at different times, so that a frame may seem to come from the future: it is new then.
    #[inline]
    pub(crate) const fn ticks(self, port: u16, generation: u32, now: u32) -> Option<u32> {
        if self.0 >> 32 != Self::new(port, generation, 0).0 >> 32 {
            return None;
        }
        let ticks = now.wrapping_sub(self.0 as u32);
        Some(if ticks > i32::MAX as u32 { 0 } else { ticks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_parts_and_nothing_matches_an_empty_place() {
        // The largest upper part that a table of the fewest buckets has.
        let place = Place { upper: (1 << 49) - 1, buckets: [0, 1] };
        for (choice, port) in [(0, 0), (1, 4094), (0, 4094), (1, 0)] {
            let name = Name::new(&place, choice, port);
            assert_eq!((name.upper(), name.choice(), name.port()), (place.upper, choice, port));
            assert!(name.is(Name::wanted(&place, choice)) && !name.is(Name::wanted(&place, 1 - choice)));
            assert!(!name.is_static() && name.into_static().is_static());
            assert!(name.into_static().is(Name::wanted(&place, choice)));
            assert_eq!(name.with_port(7).port(), 7);
        }
        let first = Place { upper: 0, buckets: [0, 1] };
        assert!(!Name(EMPTY).is(Name::wanted(&first, 0)) && Name(EMPTY).is_empty());
        assert!(!Name::new(&first, 0, 0).is_empty());
    }

    #[test]
    fn an_age_counts_only_for_its_port_and_generation() {
        let age = Age::new(7, 3, 100);
        assert_eq!(age.ticks(7, 3, 130), Some(30));
        assert_eq!((age.ticks(8, 3, 130), age.ticks(7, 4, 130), age.ticks(6, 3, 130)), (None, None, None));
        assert_eq!(age.ticks(7, 3, 99), Some(0), "from a worker whose clock was read later");
        assert_eq!(Age::new(7, 3, u32::MAX).ticks(7, 3, 4), Some(5), "ticks wrap");
        assert_eq!(Age::new(7, 3 + (1 << 20), 1).ticks(7, 3, 1), Some(0), "generations wrap after a million");
        assert_eq!(Age(0).ticks(0, 0, 0), None, "no age is that of no port");
    }
}
