//! Values by key, in bounded memory.
//!
//! If there is no room for a value, others are evicted: a hand goes round all values and removes each that
//! has expired or was not read since the hand passed last, until there is room ("second chance"). Reading
//! only sets a mark, so it needs no exclusive access.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use twinpath::Instant;

/// The overhead of a value besides the bytes of its key and its own: its slot, its entry in the index, and
/// the allocator's overhead.
const OVERHEAD: usize = 192;

/// A value.
#[derive(Clone)]
pub(crate) struct Item {
    /// The client's own flags.
    pub(crate) flags: u32,
    /// The CAS number: different for each change of any value.
    pub(crate) cas: u64,
    /// When it expires.
    pub(crate) until: Instant,
    pub(crate) value: Arc<[u8]>,
}

struct Stored {
    key: Arc<[u8]>,
    item: Item,
    /// It was read since the hand passed last.
    read: AtomicBool,
}

impl Stored {
    fn bytes(&self) -> usize {
        bytes(&self.key, &self.item)
    }
}

/// The memory that an item takes.
fn bytes(key: &[u8], item: &Item) -> usize {
    OVERHEAD + key.len() + item.value.len()
}

/// Values by key.
pub(crate) struct Table {
    places: HashMap<Arc<[u8]>, usize>,
    slots: Vec<Option<Stored>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
    bytes_max: usize,
}

impl Table {
    /// Holds at most this many bytes, which must be enough for any single item.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let (places, slots, free) = (HashMap::new(), Vec::new(), Vec::new());
        Self { places, slots, free, hand: 0, bytes: 0, bytes_max }
    }

    /// The item of a key, unless it has expired.
    pub(crate) fn get(&self, now: Instant, key: &[u8]) -> Option<&Item> {
        let slot = self.slots[*self.places.get(key)?].as_ref().filter(|slot| slot.item.until > now)?;
        // Most are marked already: writing again would take the cache line away from other readers.
        if !slot.read.load(Ordering::Relaxed) {
            slot.read.store(true, Ordering::Relaxed);
        }
        Some(&slot.item)
    }

    /// Sets the item of a key. Calls `gone` with each key that was evicted for it.
    pub(crate) fn put(&mut self, now: Instant, key: &[u8], item: Item, gone: impl FnMut(&[u8])) {
        self.remove(key);
        self.make_room(now, bytes(key, &item), gone);
        let slot = Stored { key: key.into(), item, read: AtomicBool::new(false) };
        self.bytes += slot.bytes();
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.places.insert(Arc::clone(&slot.key), place);
        self.slots[place] = Some(slot);
    }

    /// Removes a key; returns its item, which may have expired.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Item> {
        let place = self.places.remove(key)?;
        self.empty(place).map(|slot| slot.item)
    }

    /// Removes all.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.bytes_max);
    }

    fn empty(&mut self, place: usize) -> Option<Stored> {
        let slot = self.slots[place].take()?;
        self.bytes -= slot.bytes();
        self.free.push(place);
        Some(slot)
    }

    fn make_room(&mut self, now: Instant, len: usize, mut gone: impl FnMut(&[u8])) {
        while self.bytes + len > self.bytes_max && self.bytes > 0 {
            let place = self.hand;
            self.hand = (place + 1) % self.slots.len();
            let Some(slot) = &mut self.slots[place] else { continue };
            let has_chance = std::mem::take(slot.read.get_mut()) && slot.item.until > now;
            if !has_chance && let Some(slot) = self.empty(place) {
                self.places.remove(&slot.key);
                gone(&slot.key);
            }
        }
    }
}
