//! Counts how often learned addresses have moved, in words that the programs read (`moves` of bpf/offload.h).
//! Entries for frames from or to an address become void as soon as a worker has counted its move, without control
//! and without a system call.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aya::Ebpf;
use twinpath_wire::Mac;

use crate::SteerError;
use crate::layouts::{BRIDGED, MOVE_WORDS};
use crate::mapped::Mapped;

/// Bits of the place of an address among the words.
const WORD_BITS: u32 = MOVE_WORDS.ilog2();

/// Proof that the two addresses of an entry have not moved since this was read, and that no frame was left to a
/// bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unmoved {
    pub(crate) stations: [u16; 2],
    pub(crate) moves: u32,
}

/// The words of one network namespace's programs. Any thread may count a move.
#[derive(Clone)]
pub struct MoveWords {
    words: Arc<Mapped>,
    /// Determines the places of addresses.
    secret: [u64; 2],
}

impl std::fmt::Debug for MoveWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MoveWords").finish_non_exhaustive()
    }
}

impl MoveWords {
    pub(crate) fn take(object: &mut Ebpf) -> Result<Self, SteerError> {
        let words = Arc::new(Mapped::take(object, "moves", 8 * (BRIDGED + 1))?);
        Ok(Self { words, secret: [0; 2] })
    }

    /// Nobody who does not know this secret can guess the places of addresses. To be called before any move.
    pub const fn keep_secret(&mut self, secret: [u64; 2]) {
        self.secret = secret;
    }

    /// The place of an address in a VLAN. Several addresses may share one: a move of one of them then makes the
    /// entries of all void.
    fn place([first, second]: [u64; 2], mac: Mac, vlan: u16) -> u16 {
        let [a, b, c, d, e, f] = mac.0;
        let [high, low] = vlan.to_be_bytes();
        let number = u64::from_be_bytes([high, low, a, b, c, d, e, f]);
        // Fibonacci hashing, twice, because addresses of one vendor differ only in their last bits.
        let mixed = (number ^ first).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ second << 1);
        ((mixed ^ mixed >> 32).wrapping_mul(0xc2b2_ae3d_27d4_eb4f) >> (64 - WORD_BITS)) as u16
    }

    fn word(&self, place: usize) -> u64 {
        self.words.word(place).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The address has moved to another port. The MAC table must already say so.
    pub fn moved(&self, mac: Mac, vlan: u16) {
        if let Some(word) = self.words.word(Self::place(self.secret, mac, vlan).into()) {
            word.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// To be read before the addresses are looked up, so that no move in between is missed.
    #[must_use]
    pub fn unmoved(&self, [from, to]: [Mac; 2], vlan: u16) -> Unmoved {
        let stations = [from, to].map(|mac| Self::place(self.secret, mac, vlan));
        Unmoved { stations, moves: self.sum(stations) }
    }

    /// Whether no move of the addresses was counted since, and no frame was left to a bridge.
    #[must_use]
    pub fn holds(&self, unmoved: &Unmoved) -> bool {
        self.sum(unmoved.stations) == unmoved.moves
    }

    /// Only its lower half: an address does not move 2^32 times during the life of an entry.
    fn sum(&self, stations: [u16; 2]) -> u32 {
        let words = stations.map(usize::from).into_iter().chain([BRIDGED]).map(|place| self.word(place));
        words.fold(0, u64::wrapping_add) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn addresses_that_differ_little_have_different_places() {
        let places_of = |secret| -> Vec<u16> {
            (0..1000_u16).map(|number| MoveWords::place(secret, mac_of(number), 1)).collect()
        };
        for secret in [[0, 0], [1, 2], [u64::MAX, u64::MAX]] {
            let places: BTreeSet<u16> = places_of(secret).into_iter().collect();
            assert!(places.len() > 900, "{}", places.len());
            assert!(places.iter().all(|place| *place < 1 << WORD_BITS));
            assert_ne!(MoveWords::place(secret, mac_of(1), 1), MoveWords::place(secret, mac_of(1), 2));
        }
        assert_ne!(places_of([1, 2]), places_of([1, 3]));
    }

    fn mac_of(number: u16) -> Mac {
        let [high, low] = number.to_be_bytes();
        Mac([2, 0, 0, 0, high, low])
    }
}
