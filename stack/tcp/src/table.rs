//! What each tuple stands for. The tuples lie with what they stand for, not in the table: an idle connection costs it 9
//! bytes a bucket.

use core::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::segment::Tuple;

/// What a tuple, or a local end, stands for, by its number: below 2^30.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Connection(u32),
    HalfOpen(u32),
    TimeWait(u32),
}

/// Bits of [`Place::packed`] that hold the number; the kind is above them.
const NUMBER_BITS: u32 = 30;
const NUMBER: u32 = (1 << NUMBER_BITS) - 1;

#[derive(Clone, Copy, Debug)]
struct Place {
    /// So that a table that grows looks at no tuple.
    hash: u32,
    packed: u32,
}

impl Place {
    const fn new(hash: u32, entry: Entry) -> Self {
        let (kind, number) = match entry {
            Entry::Connection(number) => (0, number),
            Entry::HalfOpen(number) => (1, number),
            Entry::TimeWait(number) => (2, number),
        };
        debug_assert!(number <= NUMBER);
        Self { hash, packed: kind << NUMBER_BITS | number }
    }

    const fn entry(self) -> Entry {
        let number = self.packed & NUMBER;
        match self.packed >> NUMBER_BITS {
            0 => Entry::Connection(number),
            1 => Entry::HalfOpen(number),
            _ => Entry::TimeWait(number),
        }
    }

    /// The table wants bits at both ends.
    const fn spread(self) -> u64 {
        (self.hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    places: HashTable<Place>,
    state: FixedState,
}

impl Table {
    /// An empty one; places follow from `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { places: HashTable::new(), state: FixedState::with_seed(seed) }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    fn hash(&self, tuple: &Tuple) -> u32 {
        self.state.hash_one(tuple) as u32
    }

    /// What `tuple` stands for. `owner` gives the tuple of what is in the table.
    #[inline]
    pub(crate) fn get<'a>(&self, tuple: &Tuple, owner: impl Fn(Entry) -> Option<&'a Tuple>) -> Option<Entry> {
        let wanted = Place { hash: self.hash(tuple), packed: 0 };
        let is_it = |place: &Place| {
            place.hash == wanted.hash && owner(place.entry()).is_some_and(|other| other == tuple)
        };
        self.places.find(wanted.spread(), is_it).map(|place| place.entry())
    }

    /// Adds what `tuple`, which stands for nothing, stands for from now on.
    pub(crate) fn add(&mut self, tuple: &Tuple, entry: Entry) {
        let place = Place::new(self.hash(tuple), entry);
        self.places.insert_unique(place.spread(), place, |place| place.spread());
    }

    /// Removes `entry`, which may be gone, from what `tuple` stands for. Returns whether it did.
    pub(crate) fn remove(&mut self, tuple: &Tuple, entry: Entry) -> bool {
        let place = Place::new(self.hash(tuple), entry);
        match self.places.find_entry(place.spread(), |other| other.packed == place.packed) {
            Ok(found) => {
                found.remove();
                true
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;

    #[test]
    fn entries_are_found_by_the_tuples_of_their_owners_and_removed_without_them() {
        let end = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        let tuples: Vec<_> = (0..3000).map(|port| Tuple::new(end(80), end(port))).collect();
        let kinds = [Entry::Connection, Entry::HalfOpen, Entry::TimeWait];
        let entry_of = |index: usize| kinds[index % 3](index as u32);
        let owner = |entry| match entry {
            Entry::Connection(index) | Entry::HalfOpen(index) | Entry::TimeWait(index) => {
                tuples.get(index as usize)
            }
        };
        let mut table = Table::new(7);
        for (index, tuple) in tuples.iter().enumerate() {
            assert_eq!(table.get(tuple, owner), None);
            table.add(tuple, entry_of(index));
        }
        for (index, tuple) in tuples.iter().enumerate() {
            assert_eq!(table.get(tuple, owner), Some(entry_of(index)));
            assert!(!table.remove(tuple, entry_of(index + 1)), "another one's");
        }
        for (index, tuple) in tuples.iter().enumerate() {
            assert!(table.remove(tuple, entry_of(index)));
            assert!(!table.remove(tuple, entry_of(index)));
        }
        assert_eq!(table.len(), 0);
    }
}
