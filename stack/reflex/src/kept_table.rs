//! Kept replies in memory that is shared with the kernel's programs, which repeat them (`stack/bpf/bpf/kept.h`, which
//! has the same layouts; [`Table`](crate::Table) is the model).
//!
//! Workers write, programs read. The sequence of an entry is odd while it is written and has a new value
//! afterwards, so a program that has copied an entry knows whether the copy is consistent (a seqlock). If several
//! workers want to write to one set, one does, and the others keep nothing: nobody waits. An entry carries the
//! generation that its name had before the reply's state was read. Programs compare it with the name's present
//! generation, which [`withdraw`](crate::withdraw) increments, after they have copied the reply.
#![allow(
    unsafe_code,
    reason = "entries and generations lie in memory mapped from the kernel, whose programs read it"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};

use twinpath_frame::Mapping;
use twinpath_rings::direct::BadLayout;
use twinpath_time::Instant;

use crate::layouts::{self, kept};
use crate::{
    GENERATIONS, Generations, HashKeys, Kept, NotKept, Publication, REPLY_MAX, REQUEST_WORDS, SLOTS, Shape,
    SlotState, Version, choose, hash,
};

/// Maximum number of services with kept replies.
pub const SERVICES_MAX: usize = layouts::KEPT_SERVICES;
/// Bytes of an entry in the map.
pub const ENTRY_LEN: usize = 8 * ENTRY_WORDS;
/// Bytes of the generations of all services.
pub const GENERATIONS_LEN: usize = 8 * GENERATIONS * SERVICES_MAX;

/// Words of an entry, and their positions.
const ENTRY_WORDS: usize = REQUEST_AT + REQUEST_WORDS + REPLY_WORDS;
const REPLY_WORDS: usize = REPLY_MAX / 8;
const SEQUENCE: usize = kept::SEQUENCE_AT / 8;
const HASH: usize = kept::HASH_AT / 8;
const GENERATION: usize = kept::GENERATION_AT / 8;
const UNTIL: usize = kept::UNTIL_NS_AT / 8;
/// The name in the lower half, above it service and shape.
const WHOSE: usize = kept::NAME_AT / 8;
/// The lengths of request and reply in the lower half; above it whether a program has used it.
const LENGTHS: usize = kept::REQUEST_LEN_AT / 8;
const REQUEST_AT: usize = kept::REQUEST_AT / 8;
const REPLY_AT: usize = kept::REPLY_AT / 8;
const USED: u64 = u64::MAX << 32;

// The layout is that of little-endian machines, for which the programs are compiled as well.
const _: () = {
    assert!(cfg!(target_endian = "little") && ENTRY_LEN == kept::LEN);
    assert!(kept::SERVICE_AT == kept::NAME_AT + 4 && kept::SHAPE_AT == kept::NAME_AT + 6);
    assert!(kept::REPLY_LEN_AT == kept::REQUEST_LEN_AT + 2 && kept::USED_AT == kept::REQUEST_LEN_AT + 4);
};
// Values defined in lower crates must equal those of the programs.
const _: () = {
    assert!(SLOTS == layouts::KEPT_SLOTS && GENERATIONS == layouts::KEPT_GENERATIONS);
    assert!(8 * REQUEST_WORDS == layouts::KEPT_REQUEST && REPLY_MAX == layouts::KEPT_REPLY);
};

/// State that one worker has to itself, for each set.
#[derive(Debug, Default)]
struct Set {
    taken: AtomicBool,
    hand: AtomicU8,
}

/// The kept replies of all services of an instance.
#[derive(Debug)]
pub struct KeptTable {
    entries: Mapping,
    words: Arc<Words>,
    sets: Box<[Set]>,
    keys: HashKeys,
    evictions: AtomicU64,
}

/// The generations of all services.
#[derive(Debug)]
struct Words(Mapping);

/// The generations of one service.
#[derive(Debug)]
pub struct ServiceWords {
    words: Arc<Words>,
    service: usize,
}

impl Generations for ServiceWords {
    fn words(&self) -> &[AtomicU64; GENERATIONS] {
        self.words.of(self.service)
    }
}

impl Words {
    /// Those of a service below [`SERVICES_MAX`].
    fn of(&self, service: usize) -> &[AtomicU64; GENERATIONS] {
        let at = 8 * GENERATIONS * (service % SERVICES_MAX);
        // SAFETY: `KeptTable::new` checked the length of the mapping, which begins with a page and lives as long as the borrow;
        // 64-bit atomics take any bits.
        unsafe { self.0.base().add(at).cast::<[AtomicU64; GENERATIONS]>().as_ref() }
    }
}

impl KeptTable {
    /// A table in the memory of the maps: `entries` of them, a power of two of at least [`SLOTS`], and all
    /// generations. `seed` must be that of the programs.
    ///
    /// # Errors
    /// [`BadLayout`]: the mappings do not have these lengths.
    pub fn new(entries: Mapping, words: Mapping, count: u32, seed: u64) -> Result<Self, BadLayout> {
        let count = count as usize;
        let fits = entries.len() >= count * ENTRY_LEN && words.len() >= GENERATIONS_LEN;
        if !fits || !count.is_power_of_two() || count < SLOTS {
            return Err(BadLayout);
        }
        let sets = (0..count / SLOTS).map(|_| Set::default()).collect();
        Ok(Self {
            entries,
            words: Arc::new(Words(words)),
            sets,
            keys: HashKeys::new(seed),
            evictions: AtomicU64::new(0),
        })
    }

    /// The generations of a service.
    #[must_use]
    pub fn generations(&self, service: u32) -> ServiceWords {
        ServiceWords { words: Arc::clone(&self.words), service: service as usize }
    }

    /// Maximum number of entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.sets.len() * SLOTS
    }

    /// How many valid entries of other requests were evicted since the start.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// The number of valid entries of each service. It reads a word of every entry.
    #[must_use]
    pub fn entries(&self, now: Instant) -> [u32; SERVICES_MAX] {
        let mut counts = [0; SERVICES_MAX];
        let entries = (0..self.sets.len() * SLOTS).map(|number| self.entry(number));
        for entry in entries.filter(|entry| entry[SEQUENCE].load(Ordering::Relaxed) != 0) {
            let service = (entry[WHOSE].load(Ordering::Relaxed) >> 32) as u16;
            counts[usize::from(service) % SERVICES_MAX] += u32::from(self.is_valid(now, entry));
        }
        counts
    }

    /// Whether an entry is neither too old nor withdrawn.
    fn is_valid(&self, now: Instant, entry: &Entry) -> bool {
        let at = |word: usize| entry[word].load(Ordering::Relaxed);
        let (name, service) = (at(WHOSE) & NAME, (at(WHOSE) >> 32) as u16);
        let words = self.words.of(usize::from(service));
        let current = words[name as usize % GENERATIONS].load(Ordering::Relaxed);
        at(UNTIL) > now.as_nanos() && current == at(GENERATION)
    }

    /// Keeps a reply of `service`, which has these shapes. Programs repeat it from then on.
    ///
    /// # Errors
    /// Why it cannot be kept; nothing has changed then.
    pub fn publish(
        &self,
        now: Instant,
        service: u32,
        shapes: &[Shape],
        publication: &Publication<'_>,
    ) -> Result<Kept, NotKept> {
        let number = publication.check(now, shapes, self.words.of(service as usize))?;
        let hash = hash(&self.keys, service, number, publication.shape, publication.request);
        let place = hash as usize & (self.sets.len() - 1);
        let set = &self.sets[place];
        if set.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(NotKept::Busy);
        }
        let key = Key { hash, whose: whose(service, number), publication };
        // Between the check above and the exchange, the name may have been withdrawn and published again by another
        // worker. That worker's entry must stay.
        let is_current = publication.version.is_current(self.words.of(service as usize));
        let kept = is_current.then(|| self.put(now, set, place * SLOTS, &key));
        set.taken.store(false, Ordering::Release);
        kept.ok_or(NotKept::Withdrawn)
    }

    /// Puts a publication into a set whose slots begin with `first`.
    fn put(&self, now: Instant, set: &Set, first: usize, key: &Key<'_>) -> Kept {
        let slots: [SlotState; SLOTS] =
            std::array::from_fn(|slot| self.state(now, self.entry(first + slot), key));
        if let Some(same) = slots.iter().position(|slot| *slot == SlotState::Same) {
            let at = |word: usize| self.entry(first + same)[word].load(Ordering::Relaxed);
            let version = Version::of((at(WHOSE) & NAME) as u32, at(GENERATION));
            if key.publication.is_covered_by(now, version, Instant::from_nanos(at(UNTIL))) {
                return Kept::Covered;
            }
        }
        let chosen = choose(&slots, set.hand.load(Ordering::Relaxed));
        set.hand.store(chosen.hand, Ordering::Relaxed);
        for slot in (0..SLOTS).filter(|slot| chosen.unused & 1 << slot != 0) {
            self.entry(first + slot)[LENGTHS].fetch_and(!USED, Ordering::Relaxed);
        }
        write(self.entry(first + chosen.slot), key);
        match slots[chosen.slot] {
            SlotState::Same => Kept::Again,
            _ if chosen.evicts => {
                self.evictions.fetch_add(1, Ordering::Relaxed);
                Kept::Evicting
            }
            _ => Kept::New,
        }
    }

    fn state(&self, now: Instant, entry: &Entry, key: &Key<'_>) -> SlotState {
        let at = |word: usize| entry[word].load(Ordering::Relaxed);
        if at(SEQUENCE) == 0 {
            return SlotState::Free;
        }
        if at(HASH) == key.hash && at(WHOSE) & !NAME == key.whose && key.is_request_of(entry) {
            return SlotState::Same;
        }
        match at(LENGTHS) & USED {
            _ if !self.is_valid(now, entry) => SlotState::Void,
            0 => SlotState::Unused,
            _ => SlotState::Used,
        }
    }

    fn entry(&self, number: usize) -> &Entry {
        let at = number % (self.sets.len() * SLOTS) * ENTRY_LEN;
        // SAFETY: `new` checked the length of the mapping, which begins with a page and lives as long as the borrow; 64-bit
        // atomics take any bits.
        unsafe { self.entries.base().add(at).cast::<Entry>().as_ref() }
    }
}

type Entry = [AtomicU64; ENTRY_WORDS];

/// The lower half of [`WHOSE`].
const NAME: u64 = u32::MAX as u64;

const fn whose(service: u32, number: u8) -> u64 {
    (service as u64 & 0xffff) << 32 | (number as u64) << 48
}

/// A publication, and its place.
struct Key<'a> {
    hash: u64,
    whose: u64,
    publication: &'a Publication<'a>,
}

impl Key<'_> {
    /// The words of the request, with varying bytes as zero, and padded with zeros.
    fn words(&self) -> impl Iterator<Item = u64> {
        let shape = self.publication.shape;
        let chunks = self.publication.request.chunks(8).map(word);
        let words = chunks.enumerate().map(|(at, word)| word & shape.mask(at));
        words.chain(std::iter::repeat(0)).take(REQUEST_WORDS)
    }

    fn is_request_of(&self, entry: &Entry) -> bool {
        let len = entry[LENGTHS].load(Ordering::Relaxed) as u16;
        let same = |(word, at): (u64, usize)| entry[at].load(Ordering::Relaxed) == word;
        usize::from(len) == self.publication.request.len() && self.words().zip(REQUEST_AT..).all(same)
    }
}

/// Up to 8 bytes as a little-endian word, padded with zeros.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Replaces an entry.
fn write(entry: &Entry, key: &Key<'_>) {
    let Publication { request, reply, version, until, .. } = *key.publication;
    let sequence = entry[SEQUENCE].load(Ordering::Relaxed) | 1;
    // A program that reads a word that is written below afterwards finds the entry odd, or changed.
    entry[SEQUENCE].store(sequence, Ordering::Relaxed);
    fence(Ordering::Release);
    let put = |at: usize, word: u64| entry[at].store(word, Ordering::Relaxed);
    put(HASH, key.hash);
    put(GENERATION, version.generation());
    put(UNTIL, until.as_nanos());
    let service = key.whose >> 32 & 0xffff;
    put(WHOSE, key.whose | (u64::from(version.name().place()) + service * GENERATIONS as u64));
    put(LENGTHS, request.len() as u64 | (reply.len() as u64) << 16);
    key.words().zip(REQUEST_AT..).for_each(|(word, at)| put(at, word));
    reply.chunks(8).zip(REPLY_AT..).for_each(|(bytes, at)| put(at, word(bytes)));
    entry[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use crate::{Name, Version, withdraw};

    use super::*;

    const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);
    const COUNT: u32 = 64;

    fn table() -> KeptTable {
        let memory =
            |len: usize| Mapping::of_memfd("kept-test", len.next_multiple_of(4096)).expect("memory").0;
        KeptTable::new(memory(COUNT as usize * ENTRY_LEN), memory(GENERATIONS_LEN), COUNT, 7)
            .expect("it fits")
    }

    fn publish(table: &KeptTable, service: u32, key: &[u8]) -> Result<Kept, NotKept> {
        let words = table.generations(service);
        let (request, reply) = ([b"01", key].concat(), [b"01", key, b" is it"].concat());
        let publication = Publication {
            request: &request,
            reply: &reply,
            shape: &BY_ID,
            version: Version::now(words.words(), Name::of(key)),
            until: Instant::from_nanos(1_000),
        };
        table.publish(Instant::ZERO, service, &[BY_ID], &publication)
    }

    #[test]
    fn an_entry_is_replaced_by_the_same_and_goes_when_its_set_is_full() {
        let table = table();
        assert_eq!(publish(&table, 1, b"key"), Ok(Kept::New));
        assert_eq!(publish(&table, 1, b"key"), Ok(Kept::Covered));
        assert_eq!(publish(&table, 2, b"key"), Ok(Kept::New), "another service's");
        let kept = (0..4 * COUNT).map(|number| publish(&table, 1, &number.to_le_bytes()));
        let evicting = kept.filter(|kept| *kept == Ok(Kept::Evicting)).count();
        assert!(evicting > COUNT as usize, "{evicting}");
        let sequences: Vec<u64> =
            (0..COUNT as usize).map(|number| table.entry(number)[SEQUENCE].load(Ordering::Relaxed)).collect();
        assert!(sequences.iter().all(|sequence| sequence % 2 == 0), "nobody writes: {sequences:?}");
        let entries = table.entries(Instant::ZERO);
        assert_eq!((entries.iter().sum::<u32>(), table.evictions()), (COUNT, evicting as u64), "{entries:?}");
        assert_eq!(table.entries(Instant::from_nanos(1_000)).iter().sum::<u32>(), 0, "too old");
    }

    #[test]
    fn an_entry_holds_for_no_longer_than_the_last_reply_to_its_request() {
        let table = table();
        let words = table.generations(2);
        // An entry with half of its time left is not rewritten, unless it would last too long.
        for (until, holds) in [(1_000, 1_000), (600, 600), (500, 500), (900, 500), (1_200, 1_200)] {
            let publication = Publication {
                request: b"01key",
                reply: b"01value",
                shape: &BY_ID,
                version: Version::now(words.words(), Name::of(b"key")),
                until: Instant::from_nanos(until),
            };
            table.publish(Instant::ZERO, 2, &[BY_ID], &publication).expect("it can be kept");
            let found = |now: u64| table.entries(Instant::from_nanos(now))[2];
            assert_eq!((found(holds - 1), found(holds)), (1, 0), "{until}");
        }
    }

    #[test]
    fn what_is_withdrawn_gives_way_and_what_is_late_is_refused() {
        let table = table();
        let words = table.generations(3);
        let version = Version::now(words.words(), Name::of(b"key"));
        withdraw(words.words(), Name::of(b"key"));
        let publication = Publication {
            request: b"01key",
            reply: b"01old",
            shape: &BY_ID,
            version,
            until: Instant::from_nanos(1_000),
        };
        let late = table.publish(Instant::ZERO, 3, &[BY_ID], &publication);
        assert_eq!(late, Err(NotKept::Withdrawn));
        let other = table.generations(4);
        assert_eq!(Version::now(other.words(), Name::of(b"key")).generation(), 0, "each service has its own");
        table.sets.iter().for_each(|set| set.taken.store(true, Ordering::Relaxed));
        assert_eq!(publish(&table, 3, b"key"), Err(NotKept::Busy));
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        let memory = |len: usize| Mapping::of_memfd("kept-test", len).expect("memory").0;
        assert!(KeptTable::new(memory(4096), memory(GENERATIONS_LEN), 8, 0).is_err());
        assert!(KeptTable::new(memory(1 << 20), memory(4096), 8, 0).is_err());
        assert!(KeptTable::new(memory(1 << 20), memory(GENERATIONS_LEN), 24, 0).is_err());
    }
}
