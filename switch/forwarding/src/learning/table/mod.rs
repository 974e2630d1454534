//! The MAC table: which address is on which port. All workers of a switch read and write the same one.
//!
//! Nothing blocks: there is no lock, a reader never retries, and a writer gives up if another one was first. An entry
//! is two words ([`entry`]), and each step of a change is one store:
//!
//! - To enter an address, a worker swaps the name into a free place (empty, too old, or of a former generation of its
//!   port) and then writes the age. In between, the age in that place either belongs to another port or generation, or
//!   is true. So a reader either does not find the address yet, or finds it rightly.
//! - A reader reads the name, the age, and the name again. If the name has changed it knows nothing, and the frame is
//!   flooded. If it has not, the address was on that port at that time.
//! - Two workers may enter the same address in two places. After entering, each looks for another entry, and both remove
//!   the same one of the two.
//!
//! An address that is too old is not found, and its place is reused for the next one. [`MacTable::sweep`] frees such
//! places earlier, on control's thread: until then they count against the port's limit of addresses.
//!
//! Memory: 16 bytes per place and two places per address of the capacity, allocated at once. At that load, about one
//! address in 2,000 finds no free place in its two buckets; it is not learned, and frames to it are flooded.

mod control;
mod entry;
mod place;

use twinpath_time::{Duration, Instant};
use twinpath_wire::Mac;

use crate::learning::arrival::number_of;
use crate::learning::config::PORT_MAX;
use crate::learning::sync::{AtomicU32, AtomicU64, Lines, Ordering, fence};

pub use self::control::{Entry, NoPlace};
use self::entry::{Age, EMPTY, Name};
use self::place::{BITS_MAX, BITS_MIN, Places};
pub(crate) use self::place::{Place, SipHash13};

/// Entries per bucket: the names of a bucket are one cache line.
const WIDTH: usize = 8;

/// Addresses that are looked up together: enough to hide the time that memory takes.
pub(crate) const BATCH: usize = 64;

/// Default capacity, in addresses.
pub const CAPACITY: u32 = 65_536;

/// The largest capacity.
pub const CAPACITY_MAX: u32 = (WIDTH as u32) << (BITS_MAX - 1);

/// Bits of nanoseconds in a tick of the table's time: a tick is a little more than a second.
const TICK_BITS: u32 = 30;

/// An age is renewed when it is more than this share of the ageing time, so that most frames write nothing.
const RENEWALS: u32 = 32;

/// How often a worker tries to remove the second entry of an address that others move at the same time.
const REMOVE_TRIES: usize = 8;

/// The tick of a point in time.
#[inline]
pub(crate) const fn tick_of(now: Instant) -> u32 {
    (now.as_nanos() >> TICK_BITS) as u32
}

/// The ageing time in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ageing {
    /// An age of more ticks is too old.
    max: u32,
    /// An age of this many ticks is renewed by the next frame.
    renew: u32,
}

impl Ageing {
    /// An address is kept for this time after its last frame, plus at most 1/32 of it and a tick.
    pub(crate) fn new(time: Duration) -> Self {
        let ticks = u32::try_from(time.as_nanos() >> TICK_BITS).unwrap_or(u32::MAX / 4).min(u32::MAX / 4) + 1;
        let renew = (ticks / RENEWALS).max(1);
        Self { max: ticks + renew, renew }
    }
}

/// A bucket: two cache lines that follow each other.
#[derive(Clone, Copy)]
struct Bucket<'a> {
    names: &'a [AtomicU64; WIDTH],
    ages: &'a [AtomicU64; WIDTH],
}

/// What the table knows of each port, beside its entries.
#[derive(Debug, Default)]
struct PortState {
    /// Entries of learned addresses, including those that are too old but not yet replaced.
    entries: AtomicU32,
    generation: AtomicU32,
}

/// What came of an attempt to learn an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// It was known on that port; the age was renewed if that was due.
    Known,
    /// It is new.
    New,
    /// It was on another port.
    Moved {
        /// That port.
        from: u16,
    },
    /// It is a static entry, of this port or another one.
    Static,
    /// It is not learned: the port has as many as it may.
    Limited,
    /// It is not learned: its buckets are full.
    Full,
    /// It is not learned: another worker changed the same place in that moment. The next frame tries again.
    Busy,
}

/// There is no memory for the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for a MAC table of {bytes} bytes: configure a smaller capacity")]
pub struct NoMemory {
    /// Bytes that it would occupy.
    pub bytes: usize,
}

/// Where an entry was found.
struct Found<'a> {
    name: Name,
    name_at: &'a AtomicU64,
    age_at: &'a AtomicU64,
}

/// The MAC table of a switch.
#[derive(Debug)]
pub struct MacTable {
    places: Places,
    /// Two per bucket: names and ages.
    lines: Lines,
    ports: Box<[PortState]>,
}

impl MacTable {
    /// An empty table with room for `capacity` addresses, rounded up to a power of two, 8192 to [`CAPACITY_MAX`]. `seed`
    /// is random and secret.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(capacity: u32, seed: [u64; 2]) -> Result<Self, NoMemory> {
        let buckets = (capacity.min(CAPACITY_MAX) as usize * 2).div_ceil(WIDTH);
        let bits = buckets.next_power_of_two().ilog2().clamp(BITS_MIN, BITS_MAX);
        Self::with_size(bits, PORT_MAX + 1, seed)
    }

    fn with_size(bits: u32, ports: u16, seed: [u64; 2]) -> Result<Self, NoMemory> {
        let lines = Lines::new(2 << bits).map_err(|_| NoMemory { bytes: 2 << bits << 6 })?;
        let ports = (0..ports).map(|_| PortState::default()).collect();
        Ok(Self { places: Places::new(seed, bits), lines, ports })
    }

    #[inline]
    fn bucket(&self, number: u32) -> Bucket<'_> {
        let (buckets, _) = self.lines.as_slice().as_chunks::<2>();
        let [names, ages] = &buckets[number as usize];
        Bucket { names: &names.0, ages: &ages.0 }
    }

    /// The most addresses that it can hold: all of its places, two for each address of the capacity.
    #[must_use]
    pub fn places(&self) -> usize {
        self.lines.as_slice().len() / 2 * WIDTH
    }

    /// Bytes that it occupies.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.lines.as_slice()) + size_of_val(&*self.ports)
    }

    /// Addresses that were learned on a port and still have a place, with those that are too old and not yet replaced.
    #[must_use]
    pub fn learned_on(&self, port: u16) -> u32 {
        self.ports.get(usize::from(port)).map_or(0, |state| state.entries.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn place(&self, mac: u64, vlan: u16) -> Place {
        self.places.of(mac, vlan)
    }

    /// Reads the cache lines that look-ups of these addresses will most likely need, so that their fetches overlap.
    #[inline]
    pub(crate) fn fetch<'a>(&self, places: impl Iterator<Item = &'a Place>) {
        let read = places.fold(0, |read, place| {
            let Bucket { names, ages } = self.bucket(place.buckets[0]);
            read ^ names[0].load(Ordering::Relaxed) ^ ages[0].load(Ordering::Relaxed)
        });
        // Keeps the compiler from leaving the reads out.
        std::hint::black_box(read);
    }

    #[inline]
    fn generation(&self, port: u16) -> u32 {
        self.ports.get(usize::from(port)).map_or(0, |state| state.generation.load(Ordering::Acquire))
    }

    /// How many ticks ago a frame came from an address; `None` if it is of a former generation of its port, or just being
    /// entered.
    #[inline]
    fn ticks(&self, name: Name, age: Age, tick: u32) -> Option<u32> {
        age.ticks(name.port(), self.generation(name.port()), tick)
    }

    #[inline]
    fn find(&self, place: &Place) -> Option<Found<'_>> {
        self.find_in(place, 0).or_else(|| self.find_in(place, 1))
    }

    /// Compares all names of one of the two buckets, without a branch: which of them matches cannot be predicted.
    #[inline]
    fn find_in(&self, place: &Place, choice: usize) -> Option<Found<'_>> {
        let wanted = Name::wanted(place, choice);
        let Bucket { names, ages } = self.bucket(place.buckets[choice]);
        let mut found = 0_u32;
        for (number, name_at) in names.iter().enumerate() {
            found |= u32::from(Name(name_at.load(Ordering::Relaxed)).is(wanted)) << number;
        }
        if found == 0 {
            return None;
        }
        let at = found.trailing_zeros() as usize % WIDTH;
        let name = Name(names[at].load(Ordering::Acquire));
        // Another worker may have changed it since.
        name.is(wanted).then_some(Found { name, name_at: &names[at], age_at: &ages[at] })
    }

    /// The port of an address; `None` if it is not known, too old, or being changed.
    #[inline]
    pub(crate) fn lookup(&self, place: &Place, tick: u32, ageing: Ageing) -> Option<u16> {
        let Found { name, name_at, age_at } = self.find(place)?;
        if name.is_static() {
            return Some(name.port());
        }
        let age = Age(age_at.load(Ordering::Acquire));
        let young = self.ticks(name, age, tick).is_some_and(|ticks| ticks <= ageing.max);
        // Compared after the age was read: only then does the age belong to this name.
        let same = name_at.load(Ordering::Relaxed) == name.0;
        (young && same).then_some(name.port())
    }

    /// Until when an address is known to be on a port if no frame comes from it; [`Instant::NEVER`] for a static entry. `None`:
    /// it is not known to be there.
    pub(crate) fn known_until(
        &self,
        place: &Place,
        port: u16,
        now: Instant,
        ageing: Ageing,
    ) -> Option<Instant> {
        let Found { name, name_at, age_at } = self.find(place).filter(|found| found.name.port() == port)?;
        if name.is_static() {
            return Some(Instant::NEVER);
        }
        let age = Age(age_at.load(Ordering::Acquire));
        let ticks = self.ticks(name, age, tick_of(now)).filter(|ticks| *ticks <= ageing.max)?;
        // A worker that takes the place after the next look sees this age, and says that the address is gone (`enter`).
        fence(Ordering::SeqCst);
        // As in `lookup`.
        let is_same = name_at.load(Ordering::Relaxed) == name.0;
        let left = u64::from(ageing.max - ticks) + 1;
        is_same.then(|| Instant::from_nanos(((now.as_nanos() >> TICK_BITS) + left) << TICK_BITS))
    }

    /// Notes that a frame from an address bypassed the workers at this time. Returns whether the address is known to be
    /// on this port, or has a static entry.
    pub(crate) fn heard(&self, place: &Place, port: u16, at: Instant, now: Instant, ageing: Ageing) -> bool {
        let Some(found) = self.find(place) else { return false };
        if found.name.is_static() {
            return true;
        }
        let age = Age(found.age_at.load(Ordering::Acquire));
        let ticks = self.ticks(found.name, age, tick_of(now)).filter(|ticks| *ticks <= ageing.max);
        let Some(ticks) = ticks.filter(|_| found.name.port() == port) else { return false };
        let (at, since) = (tick_of(at), tick_of(now).wrapping_sub(tick_of(at)));
        if since < ticks {
            let newer = Age::new(port, self.generation(port), at);
            // If a worker was first, it wrote an age that is just as new, or another address.
            let _ = found.age_at.compare_exchange(age.0, newer.0, Ordering::AcqRel, Ordering::Relaxed);
        }
        true
    }

    /// Calls `each` with the ports of addresses, in their order, as frames find them now. Their memory is fetched together, as
    /// that of a burst is.
    pub fn ports_of(
        &self,
        macs: &[Mac],
        vlan: u16,
        now: Instant,
        ageing: Duration,
        mut each: impl FnMut(Option<u16>),
    ) {
        let (tick, ageing) = (tick_of(now), Ageing::new(ageing));
        let mut places = [Place { upper: 0, buckets: [0, 0] }; BATCH];
        for macs in macs.chunks(BATCH) {
            let places = &mut places[..macs.len()];
            for (place, mac) in places.iter_mut().zip(macs) {
                *place = self.place(number_of(*mac), vlan);
            }
            self.fetch(places.iter());
            places.iter().for_each(|place| each(self.lookup(place, tick, ageing)));
        }
    }

    /// Learns that an address is on a port, up to 4094. At most `limit` addresses are learned there. `gone` is called
    /// with an address, its VLAN and its port when the table no longer has it there. Another thread may have looked it
    /// up a moment before.
    #[inline]
    pub(crate) fn learn(
        &self,
        place: &Place,
        port: u16,
        (tick, ageing): (u32, Ageing),
        limit: u32,
        gone: impl Fn(u64, u16, u16),
    ) -> Learned {
        let Some(found) = self.find(place) else {
            return self.enter(place, port, (tick, ageing), limit, gone);
        };
        if found.name.is_static() {
            return Learned::Static;
        }
        let age = Age(found.age_at.load(Ordering::Acquire));
        let ticks = self.ticks(found.name, age, tick).filter(|ticks| *ticks <= ageing.max);
        match ticks {
            Some(ticks) if found.name.port() == port && ticks < ageing.renew => Learned::Known,
            _ if found.name.port() == port => self.renew(&found, age, ticks.is_some(), tick),
            was_known => {
                let gone = |from| self.is_gone(place, from, gone);
                self.move_to(&found, port, tick, limit, was_known.is_some(), gone)
            }
        }
    }

    /// The address is on the port that the entry names: only its age is new.
    #[cold]
    fn renew(&self, found: &Found<'_>, age: Age, was_known: bool, tick: u32) -> Learned {
        let port = found.name.port();
        let now = Age::new(port, self.generation(port), tick);
        // If another worker was first, it wrote an age that is just as new, or entered another address.
        let written = found.age_at.compare_exchange(age.0, now.0, Ordering::AcqRel, Ordering::Relaxed);
        match (was_known, written) {
            (true, _) => Learned::Known,
            (false, Ok(_)) => Learned::New,
            (false, Err(_)) => Learned::Busy,
        }
    }

    /// The entry names another port.
    #[cold]
    fn move_to(
        &self,
        found: &Found<'_>,
        port: u16,
        tick: u32,
        limit: u32,
        was_known: bool,
        gone: impl FnOnce(u16),
    ) -> Learned {
        if !self.reserve(port, limit) {
            return Learned::Limited;
        }
        let generation = self.generation(port);
        let moved = found.name.with_port(port);
        let exchanged =
            found.name_at.compare_exchange(found.name.0, moved.0, Ordering::AcqRel, Ordering::Relaxed);
        if exchanged.is_err() {
            self.free(port);
            return Learned::Busy;
        }
        found.age_at.store(Age::new(port, generation, tick).0, Ordering::Release);
        let from = found.name.port();
        self.free(from);
        // Also if it was not known there: the worker that entered it may have written the age since it was read here.
        gone(from);
        if was_known { Learned::Moved { from } } else { Learned::New }
    }

    /// The address has no entry.
    #[cold]
    fn enter(
        &self,
        place: &Place,
        port: u16,
        (tick, ageing): (u32, Ageing),
        limit: u32,
        gone: impl Fn(u64, u16, u16),
    ) -> Learned {
        if !self.reserve(port, limit) {
            return Learned::Limited;
        }
        let generation = self.generation(port);
        for (choice, number) in place.buckets.into_iter().enumerate() {
            let name = Name::new(place, choice, port);
            let bucket = self.bucket(number);
            for (name_at, age_at) in bucket.names.iter().zip(bucket.ages) {
                let former = Name(name_at.load(Ordering::Acquire));
                if !self.is_free(former, age_at, tick, ageing)
                    || name_at
                        .compare_exchange(former.0, name.0, Ordering::AcqRel, Ordering::Relaxed)
                        .is_err()
                {
                    continue;
                }
                if !former.is_empty() {
                    self.free(former.port());
                    // Since its age was read here, another worker may have entered it or renewed its age (`known_until`).
                    fence(Ordering::SeqCst);
                    if former.with_port(port) == name || !self.is_free(former, age_at, tick, ageing) {
                        let (mac, vlan) = self.places.back(former.upper(), number, former.choice());
                        gone(mac, vlan, former.port());
                    }
                }
                age_at.store(Age::new(port, generation, tick).0, Ordering::Release);
                self.remove_double(place, name_at, name, |from| self.is_gone(place, from, &gone));
                return Learned::New;
            }
        }
        self.free(port);
        Learned::Full
    }

    /// Says that the address of a place is not on a port any more.
    #[cold]
    fn is_gone(&self, place: &Place, from: u16, gone: impl FnOnce(u64, u16, u16)) {
        let (mac, vlan) = self.places.back(place.upper, place.buckets[0], 0);
        gone(mac, vlan, from);
    }

    /// Whether another address may take the place.
    #[inline]
    fn is_free(&self, name: Name, age_at: &AtomicU64, tick: u32, ageing: Ageing) -> bool {
        if name.is_empty() || name.is_static() {
            return name.is_empty();
        }
        let age = Age(age_at.load(Ordering::Acquire));
        self.ticks(name, age, tick).is_none_or(|ticks| ticks > ageing.max)
    }

    /// Of two entries of the same address, removes the one that a look-up would find second; static ones stay. Calls `gone` for
    /// the port of each that it removes, as a look-up may have found it meanwhile.
    fn remove_double(&self, place: &Place, entered_at: &AtomicU64, entered: Name, gone: impl Fn(u16)) {
        // Of two workers that enter an address at the same time, at least one sees the other's entry here.
        fence(Ordering::SeqCst);
        let mut passed_own = false;
        for (choice, bucket) in place.buckets.into_iter().enumerate() {
            let wanted = Name::wanted(place, choice);
            for name_at in self.bucket(bucket).names {
                if std::ptr::eq(name_at, entered_at) {
                    passed_own = true;
                    continue;
                }
                let name = Name(name_at.load(Ordering::Acquire));
                if !name.is(wanted) {
                    continue;
                }
                if entered.is_static() || passed_own && !name.is_static() {
                    self.remove_at(name_at, wanted).into_iter().for_each(&gone);
                } else {
                    let own = Name::wanted(place, entered.choice());
                    return self.remove_at(entered_at, own).into_iter().for_each(gone);
                }
            }
        }
    }

    /// Empties a place if a learned entry of this address is there, on whichever port: another worker may move it meanwhile.
    /// Returns its port.
    fn remove_at(&self, name_at: &AtomicU64, wanted: u64) -> Option<u16> {
        for _ in 0..REMOVE_TRIES {
            let name = Name(name_at.load(Ordering::Acquire));
            if !name.is(wanted) || name.is_static() {
                return None;
            }
            if self.remove_name(name_at, name) {
                return Some(name.port());
            }
        }
        None
    }

    /// Empties a place if it still has this name.
    fn remove_name(&self, name_at: &AtomicU64, name: Name) -> bool {
        let removed = name_at.compare_exchange(name.0, EMPTY, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if removed && !name.is_static() {
            self.free(name.port());
        }
        removed
    }

    /// Counts one more address on a port, if it may have one more.
    fn reserve(&self, port: u16, limit: u32) -> bool {
        let Some(state) = self.ports.get(usize::from(port)) else { return false };
        if state.entries.fetch_add(1, Ordering::Relaxed) < limit {
            return true;
        }
        state.entries.fetch_sub(1, Ordering::Relaxed);
        false
    }

    fn free(&self, port: u16) {
        if let Some(state) = self.ports.get(usize::from(port)) {
            state.entries.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
