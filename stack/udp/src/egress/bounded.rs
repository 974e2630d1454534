//! A map of peers with a fixed capacity, in which new entries can replace old ones at a bounded cost.

use std::collections::HashMap;
use std::net::IpAddr;

/// Entries examined to find one to replace: the cost of an insertion while the map is full.
const LOOKS: usize = 8;

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// Index of its key in `keys`.
    place: u32,
}

/// The map. It allocates all its memory when it is made.
#[derive(Debug)]
pub(super) struct Bounded<V> {
    entries: HashMap<IpAddr, Entry<V>>,
    /// Every key once, so that entries can be examined in turn.
    keys: Vec<IpAddr>,
    /// Where the next search begins.
    hand: usize,
    max: usize,
}

impl<V> Bounded<V> {
    /// An empty map for `max` entries.
    pub(super) fn new(max: usize) -> Self {
        // Twice the limit: a map at most half full removes its tombstones in place and never allocates again.
        Self { entries: HashMap::with_capacity(2 * max), keys: Vec::with_capacity(max), hand: 0, max }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.keys.len() >= self.max
    }

    #[inline]
    pub(super) fn get_mut(&mut self, peer: &IpAddr) -> Option<&mut V> {
        self.entries.get_mut(peer).map(|entry| &mut entry.value)
    }

    /// Adds a peer that is not there yet. The map must not be full.
    pub(super) fn insert(&mut self, peer: IpAddr, value: V) {
        debug_assert!(!self.is_full() && !self.entries.contains_key(&peer));
        let place = self.keys.len() as u32;
        self.keys.push(peer);
        self.entries.insert(peer, Entry { value, place });
    }

    /// Removes a peer; returns whether it was there.
    pub(super) fn remove(&mut self, peer: &IpAddr) -> bool {
        let Some(Entry { place, .. }) = self.entries.remove(peer) else { return false };
        self.keys.swap_remove(place as usize);
        if let Some(moved) = self.keys.get(place as usize).and_then(|key| self.entries.get_mut(key)) {
            moved.place = place;
        }
        true
    }

    /// Makes room for an entry, if necessary by dropping one for which `gives_way` is true. It examines a few entries
    /// each time, and continues where it stopped. Returns whether there is room.
    pub(super) fn make_room(&mut self, gives_way: impl Fn(&V) -> bool) -> bool {
        if !self.is_full() {
            return true;
        }
        for _ in 0..LOOKS {
            self.hand = if self.hand + 1 < self.keys.len() { self.hand + 1 } else { 0 };
            let Some(peer) = self.keys.get(self.hand).copied() else { return false };
            if self.entries.get(&peer).is_some_and(|entry| gives_way(&entry.value)) {
                return self.remove(&peer);
            }
        }
        false
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.keys.clear();
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> (usize, usize) {
        (self.entries.capacity(), self.keys.capacity())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(number))
    }

    /// Any operations, from a seed, on this map and on one without a limit.
    #[test]
    fn it_has_what_a_plain_map_has_and_drops_only_what_gives_way() {
        const MAX: usize = 20;
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut model: HashMap<IpAddr, u32> = HashMap::new();
            let mut map = Bounded::new(MAX);
            for step in 0..2_000 {
                let key = peer(random.u32(0..40));
                match random.u8(0..20) {
                    0..10 if !map.is_full() && !model.contains_key(&key) => {
                        map.insert(key, step);
                        model.insert(key, step);
                    }
                    10..13 => assert_eq!(map.remove(&key), model.remove(&key).is_some(), "seed {seed}"),
                    13..18 => {
                        let looks = Cell::new(0);
                        let limit = random.u32(0..4_000);
                        let made = map.make_room(|value| {
                            looks.set(looks.get() + 1);
                            *value < limit
                        });
                        assert!(looks.get() <= LOOKS && (looks.get() == 0) == (model.len() < MAX));
                        assert_eq!(made, !map.is_full(), "seed {seed}");
                        let gone = |key: &IpAddr| !map.entries.contains_key(key);
                        let dropped: Vec<IpAddr> = model.keys().copied().filter(gone).collect();
                        assert_eq!(dropped.len(), usize::from(looks.get() > 0 && made), "seed {seed}");
                        assert!(dropped.iter().all(|key| model.remove(key) < Some(limit)), "seed {seed}");
                    }
                    18 if random.u8(0..50) == 0 => {
                        map.clear();
                        model.clear();
                    }
                    _ => {}
                }
                assert_eq!((map.len(), map.is_full()), (model.len(), model.len() == MAX), "seed {seed}");
                for number in 0..40 {
                    let found = map.get_mut(&peer(number)).copied();
                    assert_eq!(found, model.get(&peer(number)).copied(), "seed {seed}, step {step}");
                }
            }
        }
    }

    #[test]
    fn every_entry_is_looked_at_before_one_is_again() {
        let max = 20;
        for only in 0..max {
            let mut map = Bounded::new(max as usize);
            (0..max).for_each(|number| map.insert(peer(number), number));
            let tries = (0..10).take_while(|_| !map.make_room(|value| *value == only)).count();
            assert!(tries <= max as usize / LOOKS, "{only}: {tries} in vain");
            assert_eq!(map.get_mut(&peer(only)), None);
        }
    }
}
