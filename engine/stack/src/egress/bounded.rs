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
