//! The reference model of a table of kept replies.

use std::sync::atomic::AtomicU64;

use twinpath_time::Instant;

use crate::hash::{HashKeys, hash};
use crate::limits::{REQUEST_MAX, SHAPES_MAX};
use crate::name::{GENERATIONS, Version};
use crate::place::{SLOTS, SlotState, choose};
use crate::publication::Publication;
use crate::shape::Shape;
use crate::why_not::{NotKept, WhyNot};

/// Entries of a table, unless another number is configured.
pub const ENTRIES_DEFAULT: u32 = 4096;

/// Maximum number of entries in a table: about 100 MB.
pub const ENTRIES_MAX: u32 = 65_536;

/// The result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It has an entry of its own.
    New,
    /// It has replaced the entry for the same request.
    Again,
    /// The entry for the same request stays: it has the same reply, and is valid for long enough.
    Covered,
    /// It has an entry, and a valid one of another request was evicted.
    Evicting,
}

struct Entry {
    service: u32,
    number: u8,
    /// The request, with the bytes that vary as zero.
    key: Box<[u8]>,
    reply: Box<[u8]>,
    version: Version,
    until: Instant,
    used: bool,
}

#[derive(Default)]
struct Set {
    slots: [Option<Entry>; SLOTS],
    hand: u8,
}

/// Kept replies of the services of an instance, found by request.
///
/// ```
/// use twinpath_reflex::{
///     Generations as _, Name, Publication, Shape, Table, Version, WhyNot, generations, withdraw,
/// };
/// use twinpath_time::Instant;
///
/// const SHAPES: [Shape; 1] = [Shape::EXACT.copying(0, 2, 0)];
/// let (mut table, words) = (Table::new(4096, 0), generations());
/// let (words, name) = (words.words(), Name::of(b"www"));
/// // The version is read before the state that the reply is made from.
/// let version = Version::now(words, name);
/// let kept = Publication {
///     request: b"\x00\x01www?",
///     reply: b"\x00\x01192.0.2.1",
///     shape: &SHAPES[0],
///     version,
///     until: Instant::from_nanos(1_000),
/// };
/// table.publish(Instant::ZERO, 0, &SHAPES, words, &kept).expect("a reply that can be kept");
///
/// let mut reply = Vec::new();
/// assert_eq!(table.find(Instant::ZERO, 0, &SHAPES, words, b"\x77\x88www?", &mut reply), Ok(()));
/// assert_eq!(reply, b"\x77\x88192.0.2.1");
/// withdraw(words, name);
/// let found = table.find(Instant::ZERO, 0, &SHAPES, words, b"\x77\x88www?", &mut reply);
/// assert_eq!(found, Err(WhyNot::Withdrawn));
/// ```
pub struct Table {
    sets: Box<[Set]>,
    keys: HashKeys,
}

impl Table {
    /// A table with room for `entries`, rounded up to a power of two of at least [`SLOTS`] and at most
    /// [`ENTRIES_MAX`]. No peer should be able to guess `seed`, so that nobody can choose requests of one set.
    #[must_use]
    pub fn new(entries: u32, seed: u64) -> Self {
        let sets = entries.min(ENTRIES_MAX).div_ceil(SLOTS as u32).next_power_of_two();
        Self { sets: (0..sets).map(|_| Set::default()).collect(), keys: HashKeys::new(seed) }
    }

    /// The number of entries, including void ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.iter().map(|set| set.slots.iter().flatten().count()).sum()
    }

    /// Whether it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Maximum number of entries.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.sets.len() * SLOTS
    }

    /// Keeps a reply of `service`, which has these shapes and generations.
    ///
    /// # Errors
    /// Why it cannot be kept; nothing has changed then.
    pub fn publish(
        &mut self,
        now: Instant,
        service: u32,
        shapes: &[Shape],
        words: &[AtomicU64; GENERATIONS],
        publication: &Publication<'_>,
    ) -> Result<Kept, NotKept> {
        let number = publication.check(now, shapes, words)?;
        let Publication { request, reply, shape, version, until } = *publication;
        let mut key = Box::<[u8]>::from(request);
        shape.clear(&mut key);
        let set = self.set(hash(&self.keys, service, number, shape, request));
        let state = |slot: &Option<Entry>| match slot {
            None => SlotState::Free,
            Some(entry) if entry.is_for(service, number, &key) => SlotState::Same,
            // Whether an entry of another service is withdrawn depends on that service's generations.
            Some(entry) if entry.until <= now => SlotState::Void,
            Some(entry) if entry.service == service && !entry.version.is_current(words) => SlotState::Void,
            Some(entry) if entry.used => SlotState::Used,
            Some(_) => SlotState::Unused,
        };
        let mut same = set.slots.iter().flatten().filter(|entry| entry.is_for(service, number, &key));
        if same.next().is_some_and(|entry| publication.is_covered_by(now, entry.version, entry.until)) {
            return Ok(Kept::Covered);
        }
        let slots: [SlotState; SLOTS] = std::array::from_fn(|slot| state(&set.slots[slot]));
        let chosen = choose(&slots, set.hand);
        set.hand = chosen.hand;
        for (slot, entry) in set.slots.iter_mut().enumerate() {
            if let Some(entry) = entry.as_mut().filter(|_| chosen.unused & 1 << slot != 0) {
                entry.used = false;
            }
        }
        set.slots[chosen.slot] =
            Some(Entry { service, number, key, reply: reply.into(), version, until, used: false });
        Ok(match slots[chosen.slot] {
            SlotState::Same => Kept::Again,
            _ if chosen.evicts => Kept::Evicting,
            _ => Kept::New,
        })
    }

    /// Looks for the kept reply to a request, and replaces the contents of `reply` by it.
    ///
    /// # Errors
    /// Why there is none; `reply` is unchanged.
    pub fn find(
        &mut self,
        now: Instant,
        service: u32,
        shapes: &[Shape],
        words: &[AtomicU64; GENERATIONS],
        request: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<(), WhyNot> {
        if request.len() > REQUEST_MAX {
            return Err(WhyNot::RequestTooLong);
        }
        let mut why_not = WhyNot::Unknown;
        for (number, shape) in (0_u8..).zip(shapes.iter().take(SHAPES_MAX)) {
            let mut key = request.to_vec();
            shape.clear(&mut key);
            let set = self.set(hash(&self.keys, service, number, shape, request));
            let same = |entry: &&mut Entry| entry.is_for(service, number, &key);
            let Some(entry) = set.slots.iter_mut().flatten().find(same) else { continue };
            let found = if !entry.version.is_current(words) {
                WhyNot::Withdrawn
            } else if entry.until <= now {
                WhyNot::Expired
            } else {
                entry.used = true;
                reply.clear();
                reply.extend_from_slice(&entry.reply);
                for (bytes, to) in shape.copies(request) {
                    reply[to..to + bytes.len()].copy_from_slice(bytes);
                }
                return Ok(());
            };
            why_not = why_not.max(found);
        }
        Err(why_not)
    }

    fn set(&mut self, hash: u64) -> &mut Set {
        // The number of sets is a power of two.
        let place = hash as usize & (self.sets.len() - 1);
        &mut self.sets[place]
    }
}

impl Entry {
    fn is_for(&self, service: u32, number: u8, key: &[u8]) -> bool {
        self.service == service && self.number == number && *self.key == *key
    }
}

#[cfg(test)]
mod tests;
