//! Entries by which the kernel forwards frames between the ports of a switch (`bpf/offload.h`): adding and removing
//! them, and reading their counts.
//!
//! An entry is in force once it has been added. It is void as soon as no starting program can find it: immediately
//! when it is removed, at its deadline, or when all entries are made void by one store. So a frame that arrives
//! after [`Offload::remove`] or [`Offload::void_all`] has returned is not forwarded by it, and a barrier need not
//! wait. Programs that found it before may still be running. [`Offload::settle`] returns when there are none: from
//! then on the entry's count is final, and its number can be reused.

use std::collections::HashMap as StdMap;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use aya::maps::of_maps::ArrayOfMaps;
use aya::maps::{Array, HashMap, Map, MapData};
use aya::{Ebpf, EbpfLoader};
use twinpath_time::{Duration, Instant};

use crate::SteerError;
use crate::layouts::{
    BY_XDP, COPIES, EntryWords, KeyWords, LEARNED, MASK_WORD, MASKS, PortWords, TIMED, WORDS, offload,
    passing,
};
use crate::mapped::Mapped;
use crate::maps::{failed, gone, typed, wrote};
use crate::moves::{MoveWords, Unmoved};

/// Words of a key.
pub const OFFLOAD_WORDS: usize = WORDS;

/// Maximum number of masks that the programs try.
pub const OFFLOAD_MASKS: usize = MASKS;

/// Words of the state.
const GENERATION: usize = offload::GENERATION_AT / 8;
const VERSION: usize = offload::VERSION_AT / 8;
const FIRST_MASK: usize = offload::MASKS_AT / 8;

/// Maximum number of counts of all CPUs together: they occupy 16 bytes each.
const COUNTS_MAX: u32 = 1 << 21;

/// How many times the words of programs that have found an entry are read before the kernel is asked. Programs take
/// microseconds, unless they lose their CPU; this many reads take about a millisecond.
const LOOKS: u32 = 1 << 15;

/// The longest step of the clock that the programs read: entries end earlier by this time.
const TICK_MAX: Duration = Duration::from_millis(10);

/// Where the frames of an entry go, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadEntry {
    /// The number under which they are counted. No entry has had it since the last [`Offload::settle`].
    pub number: u32,
    /// The interface that they leave by, in the network namespace of the ports.
    pub ifindex: u32,
    /// The address of the other end of this interface, if it is a veth pair whose other end is in another network
    /// namespace. Frames to this address, and to groups, are delivered there directly. Others leave through the
    /// interface.
    pub peer: Option<[u8; 6]>,
    /// Bytes of the longest frame that the interface sends, without a tag.
    pub frame_len_max: u32,
    /// The interface accepts frames from XDP programs: a port with such a program
    /// ([`PortPrograms::attach_xdp`](crate::PortPrograms::attach_xdp)) sends its frames there.
    pub by_xdp: bool,
    /// The time from which it is void.
    pub deadline: Option<Instant>,
    /// It is void when none of its frames has come for this time.
    pub idle: Option<Duration>,
    /// It is void when one of its frames' two addresses has moved to another port.
    pub unmoved: Option<Unmoved>,
}

/// The counts under a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadCount {
    /// Packets; for a super-frame, the packets that it becomes on a wire.
    pub packets: u64,
    /// Bytes of the frames.
    pub bytes: u64,
}

impl OffloadCount {
    const fn plus(self, more: Self) -> Self {
        Self { packets: self.packets.wrapping_add(more.packets), bytes: self.bytes.wrapping_add(more.bytes) }
    }
}

/// An entry in force that a former process has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptEntry {
    /// The entry. Its deadline is not later than the end of the lease.
    pub entry: OffloadEntry,
    /// The interface on which its frames arrive; `None`: it is no longer a port.
    pub from: Option<u32>,
    /// The number of its mask.
    pub mask: u8,
    /// The bits that the mask has.
    pub bits: [u64; OFFLOAD_WORDS],
    /// The value that its frames have under the mask.
    pub value: [u64; OFFLOAD_WORDS],
    /// The counts under its number until the former process ended.
    pub counted: OffloadCount,
}

impl KeptEntry {
    /// The number of the port on which its frames arrive, as `bpf/offload.h` has it in keys.
    pub(crate) const fn in_port(&self) -> u16 {
        (self.value[0] >> 16) as u16
    }
}

/// The entries for frames between the ports that [`PortPrograms`](crate::PortPrograms) hold. It belongs to one thread.
pub struct Offload {
    offloaded: HashMap<MapData, KeyWords, EntryWords>,
    ports: HashMap<MapData, u32, PortWords>,
    /// The same, for XDP programs.
    port_words: PortPlaces,
    grace: ArrayOfMaps<MapData, Array<MapData, u32>>,
    grace_token: Array<MapData, u32>,
    /// The generation, and the masks.
    state: Mapped,
    counts: Mapped,
    used: Mapped,
    passing: Mapped,
    moves: MoveWords,
    capacity: u32,
    cpus: u32,
    generation: u64,
    /// Counts all additions and removals.
    version: u64,
    /// Nothing has changed since the last wait for programs.
    settled: bool,
    /// How many times the kernel had to be asked.
    grace_periods: u64,
    /// The counts under a number while there was no process.
    alone: StdMap<u32, OffloadCount>,
}

impl std::fmt::Debug for Offload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offload").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// The maximum number of entries, and the number of CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) capacity: u32,
    pub(crate) cpus: u32,
    /// Frames are counted separately while there is no process.
    pub(crate) keeps: bool,
}

impl Sizes {
    /// For up to `entries` entries; fewer if this machine can have very many CPUs.
    ///
    /// # Errors
    /// [`SteerError::Map`] if the kernel does not say how many CPUs it may have.
    pub(crate) fn of(entries: u32, keeps: bool) -> Result<Self, SteerError> {
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| failed("passing", "sizing", error))? as u32;
        Ok(Self { capacity: entries.min(COUNTS_MAX / cpus.max(1)), cpus, keeps })
    }

    /// Counts of all CPUs, including those while there is no process.
    const fn counts(self) -> u32 {
        self.capacity * self.cpus * if self.keeps { 2 } else { 1 }
    }

    /// Makes the object load with maps of these sizes.
    pub(crate) fn apply<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        loader.override_global("entries_max", &self.capacity, true);
        loader.override_global("cpus", &self.cpus, true);
        loader.map_max_entries("offloaded", self.capacity);
        loader.map_max_entries("counts", self.counts());
        loader.map_max_entries("used", self.capacity);
        loader.map_max_entries("passing", self.cpus);
        loader.map_max_entries("copies", COPIES * self.cpus);
    }
}

/// The same map with another descriptor.
fn again(map: &MapData, name: &'static str) -> Result<MapData, SteerError> {
    let own = map.fd().as_fd().try_clone_to_owned().map_err(|error| failed(name, "holding", error))?;
    MapData::from_fd(own).map_err(wrote(name))
}

/// The properties of ports, indexed by the lower bits of their interface indexes (`port_words` of bpf/offload.h).
pub(crate) struct PortPlaces(Array<MapData, u64>);

impl PortPlaces {
    pub(crate) fn new(map: MapData) -> Result<Self, SteerError> {
        Ok(Self(Array::try_from(Map::Array(map)).map_err(wrote("port_words"))?))
    }

    const fn word(ifindex: u32, number: u16, masks: u16) -> u64 {
        (ifindex as u64) << 32 | (number as u64) << 16 | masks as u64
    }

    /// Puts a port in its place. If another port has that place, programs find it in the map of ports.
    fn set(&mut self, ifindex: u32, PortWords { number, masks, .. }: PortWords) -> Result<(), SteerError> {
        let word = Self::word(ifindex, number, masks);
        self.0.set(ifindex % self.0.len(), word, 0).map_err(wrote("port_words"))
    }

    /// Programs no longer look for entries for a port.
    pub(crate) fn clear(&mut self, ifindex: u32) -> Result<(), SteerError> {
        let place = ifindex % self.0.len();
        let is_its = self.0.get(&place, 0).is_ok_and(|word| word >> 32 == u64::from(ifindex));
        if is_its { self.0.set(place, 0, 0).map_err(wrote("port_words")) } else { Ok(()) }
    }
}

fn ends_ns(deadline: Instant) -> u64 {
    deadline.as_nanos().saturating_sub(TICK_MAX.as_nanos() as u64)
}

const fn key_of(mask: u8, value: &[u64; OFFLOAD_WORDS]) -> KeyWords {
    let mut words = *value;
    words[MASK_WORD] |= mask as u64;
    KeyWords { words }
}

impl Offload {
    pub(crate) fn take(
        object: &mut Ebpf,
        [ports, port_words]: [&MapData; 2],
        sizes: Sizes,
    ) -> Result<Self, SteerError> {
        let Sizes { capacity, cpus, .. } = sizes;
        let ports = again(ports, "ports")?;
        let port_words = again(port_words, "port_words")?;
        let state = Mapped::take(object, "offload", offload::LEN)?;
        let stored = |word| state.word(word).map_or(0, |word| word.load(Ordering::Relaxed));
        let (generation, version) = (stored(GENERATION), stored(VERSION));
        Ok(Self {
            offloaded: typed(object, "offloaded")?,
            ports: HashMap::try_from(Map::HashMap(ports)).map_err(wrote("ports"))?,
            port_words: PortPlaces::new(port_words)?,
            grace: typed(object, "offload_grace")?,
            grace_token: typed(object, "offload_grace_token")?,
            state,
            counts: Mapped::take(object, "counts", 16 * sizes.counts() as usize)?,
            used: Mapped::take(object, "used", 8 * capacity as usize)?,
            passing: Mapped::take(object, "passing", passing::LEN * cpus as usize)?,
            moves: MoveWords::take(object)?,
            capacity,
            cpus,
            generation,
            version,
            settled: true,
            grace_periods: 0,
            alone: StdMap::new(),
        })
    }

    /// Maximum number of entries; numbers are below that.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The moves that the programs use.
    #[must_use]
    pub const fn moves(&self) -> &MoveWords {
        &self.moves
    }

    /// The same, to set how addresses are mixed.
    pub const fn moves_mut(&mut self) -> &mut MoveWords {
        &mut self.moves
    }

    /// Makes the programs look for an entry for frames of a port under these masks (one bit each). The port has
    /// this number in keys. Without masks, its frames are not examined. An interface that is not a port is left as
    /// it is.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn look_for_entries(&mut self, ifindex: u32, number: u16, masks: u8) -> Result<(), SteerError> {
        // A port that is being returned to the kernel must not become a port again.
        const BPF_EXIST: u64 = 2;
        let Ok(words) = self.ports.get(&ifindex, 0) else { return Ok(()) };
        let words = PortWords { number, masks: masks.into(), ..words };
        gone(self.ports.insert(ifindex, words, BPF_EXIST), "ports")?;
        self.port_words.set(ifindex, words)
    }

    /// Sets the bits of a mask. If they change, no entry may use the mask.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn set_mask(&mut self, mask: u8, bits: &[u64; OFFLOAD_WORDS]) -> Result<(), SteerError> {
        // A program that has read some of the former bits would find entries by a mixture of both.
        self.settle()?;
        let at = FIRST_MASK + usize::from(mask) * OFFLOAD_WORDS;
        for (number, bits) in (at..).zip(bits) {
            if let Some(word) = self.state.word(number) {
                word.store(*bits, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Adds an entry for frames that have this value under the mask. The lower half of the fourth word must be zero
    /// in all masks and values. `now` is when its frames came last, if known.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn put(
        &mut self,
        mask: u8,
        value: &[u64; OFFLOAD_WORDS],
        entry: &OffloadEntry,
        now: Instant,
    ) -> Result<(), SteerError> {
        if let Some(used) = self.used.word(entry.number as usize) {
            used.store(now.as_nanos(), Ordering::Relaxed);
        }
        self.put_again(mask, value, entry)
    }

    /// Replaces the entry with the same number. Its idle time continues.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn put_again(
        &mut self,
        mask: u8,
        value: &[u64; OFFLOAD_WORDS],
        entry: &OffloadEntry,
    ) -> Result<(), SteerError> {
        // For this entry, the kernel may reuse the memory of a removed one, which a program may still be reading.
        self.settle()?;
        let idle_ns = entry.idle.map_or(u64::MAX, |idle| u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
        let peer = entry.peer.map_or(0, |[a, b, c, d, e, f]| u64::from_be_bytes([a, b, c, d, e, f, 0, 0]));
        let is_timed = entry.deadline.is_some() || entry.idle.is_some();
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags =
            flag(entry.by_xdp, BY_XDP) | flag(is_timed, TIMED) | flag(entry.unmoved.is_some(), LEARNED);
        let Unmoved { stations, moves } = entry.unmoved.unwrap_or_default();
        let words = EntryWords {
            generation: self.generation,
            deadline_ns: entry.deadline.map_or(u64::MAX, ends_ns),
            // The programs compare signed numbers, because another CPU may have written a later time.
            idle_ns: idle_ns.min(i64::MAX as u64),
            peer,
            number: entry.number,
            ifindex: entry.ifindex,
            frame_len_max: entry.frame_len_max,
            flags,
            stations,
            moves,
        };
        let put = self.offloaded.insert(key_of(mask, value), words, 0).map_err(wrote("offloaded"));
        self.changed();
        put
    }

    /// Entries were added, removed or made void. Copies of entries are void from now on, and programs that found
    /// one before may still be running.
    fn changed(&mut self) {
        self.version += 1;
        self.settled = false;
        if let Some(word) = self.state.word(VERSION) {
            word.store(self.version, Ordering::SeqCst);
        }
    }

    /// Makes the entries left by a former process end no later than this time, and returns those in force. The
    /// others are removed.
    pub(crate) fn keep_until(&mut self, ends: Instant, now: Instant) -> Result<Vec<KeptEntry>, SteerError> {
        let listed: Result<Vec<(KeyWords, EntryWords)>, _> = self.offloaded.iter().collect();
        let listed = listed.map_err(|error| SteerError::Map {
            map: "offloaded",
            action: "reading",
            error: Box::new(error),
        })?;
        let mut kept = Vec::new();
        for (key, words) in listed {
            let used = self.used(words.number);
            let idle = Duration::from_nanos(words.idle_ns);
            let is_over = words.generation != self.generation
                || words.number >= self.capacity
                || words.deadline_ns <= now.as_nanos()
                || now.since(used) > idle;
            self.settle()?;
            if is_over {
                gone(self.offloaded.remove(&key), "offloaded")?;
                self.changed();
                // Its counts since then must not go to the next entry with that number.
                self.settle()?;
                if words.number < self.capacity {
                    self.forget_alone(words.number);
                }
                continue;
            }
            let deadline_ns = words.deadline_ns.min(ends.as_nanos());
            let words = EntryWords { deadline_ns, flags: words.flags | TIMED, ..words };
            self.offloaded.insert(key, words, 0).map_err(wrote("offloaded"))?;
            self.changed();
            kept.push(self.kept_entry(key, words));
        }
        Ok(kept)
    }

    fn kept_entry(&self, KeyWords { words: mut value }: KeyWords, words: EntryWords) -> KeptEntry {
        let mask = value[MASK_WORD] as u8;
        value[MASK_WORD] &= !u64::from(u32::MAX);
        let at = FIRST_MASK + usize::from(mask) * OFFLOAD_WORDS;
        let bit = |word: usize| self.state.word(at + word).map_or(0, |word| word.load(Ordering::Relaxed));
        let [a, b, c, d, e, f, ..] = words.peer.to_be_bytes();
        let entry = OffloadEntry {
            number: words.number,
            ifindex: words.ifindex,
            peer: (words.peer != 0).then_some([a, b, c, d, e, f]),
            frame_len_max: words.frame_len_max,
            deadline: Some(Instant::from_nanos(words.deadline_ns)),
            by_xdp: words.flags & BY_XDP != 0,
            idle: (words.idle_ns < i64::MAX as u64).then(|| Duration::from_nanos(words.idle_ns)),
            unmoved: (words.flags & LEARNED != 0)
                .then_some(Unmoved { stations: words.stations, moves: words.moves }),
        };
        let counted = self.counted(words.number, 0);
        KeptEntry { entry, from: None, mask, bits: std::array::from_fn(bit), value, counted }
    }

    /// Takes over the counts made while there was no process. Programs no longer count that way.
    pub(crate) fn take_alone(&mut self, numbers: impl Iterator<Item = u32>) -> Result<(), SteerError> {
        self.settled = false;
        self.settle()?;
        for number in numbers {
            let count = self.counted(number, 1);
            self.forget_alone(number);
            self.alone.insert(number, count);
        }
        Ok(())
    }

    fn forget_alone(&self, number: u32) {
        self.counts_of(number, 1).flatten().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Removes an entry, which may be gone already. Frames that arrive after this has returned are not forwarded by
    /// it.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn remove(&mut self, mask: u8, value: &[u64; OFFLOAD_WORDS]) -> Result<(), SteerError> {
        let removed = gone(self.offloaded.remove(&key_of(mask, value)), "offloaded");
        self.changed();
        removed
    }

    /// Makes all entries void, by one store. They occupy their places until they are removed.
    pub fn void_all(&mut self) {
        self.generation += 1;
        self.settled = false;
        if let Some(word) = self.state.word(GENERATION) {
            word.store(self.generation, Ordering::SeqCst);
        }
    }

    /// Returns when no program uses an entry that was removed or made void before. It reads one word of each CPU,
    /// and waits microseconds for running programs. If a CPU has stopped within one, it waits for an RCU grace
    /// period. If nothing was removed, there is nothing to do.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn settle(&mut self) -> Result<(), SteerError> {
        if std::mem::replace(&mut self.settled, true) {
            return Ok(());
        }
        // Either a program that starts now finds the entry gone, or its word is seen to be odd here.
        fence(Ordering::SeqCst);
        let passing = |cpu: u32| {
            self.passing.word(cpu as usize * passing::LEN / 8).map(|word| word.load(Ordering::Acquire))
        };
        let is_odd = |(_, word): &(u32, u64)| word % 2 == 1;
        let mut inside: Vec<_> =
            (0..self.cpus).filter_map(|cpu| Some((cpu, passing(cpu)?))).filter(is_odd).collect();
        if inside.is_empty() {
            return Ok(());
        }
        for _ in 0..LOOKS {
            inside.retain(|(cpu, word)| passing(*cpu) == Some(*word));
            if inside.is_empty() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.grace_periods += 1;
        self.grace.set(0, &self.grace_token, 0).map_err(wrote("offload_grace"))
    }

    /// How often [`Self::settle`] had to ask the kernel.
    #[must_use]
    pub const fn grace_periods(&self) -> u64 {
        self.grace_periods
    }

    /// The counts under a number since the programs were loaded, without a system call.
    #[must_use]
    pub fn count(&self, number: u32) -> OffloadCount {
        let alone = self.alone.get(&number).copied().unwrap_or_default();
        self.counted(number, 0).plus(alone)
    }

    /// The words of a number's counts; `part` is 1 for those made while there was no process.
    fn counts_of(&self, number: u32, part: u32) -> impl Iterator<Item = [&AtomicU64; 2]> {
        let at = move |cpu: u32| {
            2 * ((part * self.cpus + cpu) as usize * self.capacity as usize + number as usize)
        };
        (0..self.cpus)
            .filter_map(move |cpu| Some([self.counts.word(at(cpu))?, self.counts.word(at(cpu) + 1)?]))
    }

    fn counted(&self, number: u32, part: u32) -> OffloadCount {
        self.counts_of(number, part).fold(OffloadCount::default(), |sum, [packets, bytes]| {
            let [packets, bytes] = [packets, bytes].map(|word| word.load(Ordering::Relaxed));
            sum.plus(OffloadCount { packets, bytes })
        })
    }

    /// Assumes that a frame of an entry has come now, so that the entry is not void for having been idle.
    pub fn used_at(&self, number: u32, now: Instant) {
        if let Some(used) = self.used.word(number as usize) {
            used.fetch_max(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// When a frame came last under a number, at most some milliseconds too early.
    #[must_use]
    pub fn used(&self, number: u32) -> Instant {
        Instant::from_nanos(self.used.word(number as usize).map_or(0, |word| word.load(Ordering::Relaxed)))
    }
}
