//! A bounded ring of slots to an untrusted peer: another thread, or another process, which may die or violate the
//! protocol at any instruction. Data are copied in and out.
//!
//! The ring holds slots rather than descriptors of frames. Nothing is lent to the peer, so nothing has to be
//! returned when it dies, and neither side can change bytes that the other has already checked. A packet is copied
//! out of its slot into private memory before any byte of it is examined. That costs a copy each way, tens of
//! nanoseconds for a small packet.
//!
//! What each side trusts:
//!
//! - Its own position is private: it publishes the position in shared memory, but never reads it back.
//! - The peer's position is read once and must be one that the peer can have reached; any other is
//!   [`Fault::Position`]: the ring is broken from then on.
//! - A length is read once and must fit the slot; else [`Fault::Length`]: that slot is dropped, and the next one is
//!   read as usual.
//! - The waiting word is a hint. With a wrong one, the peer costs us one wake-up call per burst, or loses its own
//!   wake-up.
//!
//! Positions are published once per burst, because each time their cache line moves between two CPUs. The producer
//! publishes with [`SlotProducer::publish`], or after some dozens of slots. The consumer gives slots back when it
//! has taken all that it knew of, or some dozens.
//!
//! Sleeping: the consumer [arms](SlotConsumer::arm), looks once more, and sleeps on a descriptor, which the caller
//! supplies. The producer [publishes](SlotProducer::publish) once per burst, and signals that descriptor if told
//! to. With one full fence on each side, either the consumer sees what was pushed or the producer sees it wait.

mod memory;

use self::memory::{Lines, Memory, NOTE_WORDS};
use crate::cursor::{ConsumerCursor, ProducerCursor};
use crate::sync::{Arc, Ordering, fence};

/// Maximum number of slots in a ring.
pub const SLOTS_MAX: u32 = 1 << 16;

/// The consumer prefetches memory from the producer's cache this many slots ahead, because one fetch takes longer
/// than copying a short packet.
const AHEAD: u32 = 16;

/// Maximum number of data bytes per slot: the largest frame that a device can deliver.
pub const SLOT_BYTES_MAX: u32 = 1 << 16;

/// The number of slots and their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    slots: u32,
    slot_bytes: u32,
}

/// Why a ring cannot have this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadShape {
    /// The number of slots is out of range.
    #[error("a ring of {0} slots is not possible: choose a power of two, at most {SLOTS_MAX}")]
    Slots(u32),
    /// The size of a slot is out of range.
    #[error("slots of {0} bytes are not possible: choose 1 to {SLOT_BYTES_MAX}")]
    SlotBytes(u32),
    /// The memory is too small for the ring, or not aligned to 128 bytes.
    #[error("the ring needs {needs} bytes at a multiple of 128, and there are {has}")]
    Memory {
        /// Bytes needed.
        needs: usize,
        /// Bytes available from the offset of the ring.
        has: usize,
    },
}

impl Shape {
    /// # Errors
    /// [`BadShape`] beyond the limits.
    pub const fn new(slots: u32, slot_bytes: u32) -> Result<Self, BadShape> {
        if !slots.is_power_of_two() || slots > SLOTS_MAX {
            return Err(BadShape::Slots(slots));
        }
        if slot_bytes == 0 || slot_bytes > SLOT_BYTES_MAX {
            return Err(BadShape::SlotBytes(slot_bytes));
        }
        Ok(Self { slots, slot_bytes })
    }

    /// Slots in the ring.
    #[must_use]
    pub const fn slots(self) -> u32 {
        self.slots
    }

    /// Bytes of data that a slot holds.
    #[must_use]
    pub const fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// After this many slots a position is published even in the middle of a burst: an eighth of the ring, and at
    /// most half a burst, so that both sides work on a burst at the same time.
    const fn moved_at_once(self) -> u32 {
        match self.slots / 8 {
            0 => 1,
            eighth if eighth > 32 => 32,
            eighth => eighth,
        }
    }
}

/// Metadata of a packet. Its meaning is up to the two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Length of the packet before it was cut to what was pushed.
    pub original_len: u32,
    /// A time, nanoseconds.
    pub time_ns: u64,
    /// Any number.
    pub tag: u32,
}

impl Note {
    #[inline]
    const fn to_words(self) -> [u64; NOTE_WORDS] {
        [self.time_ns, self.original_len as u64 | (self.tag as u64) << 32]
    }

    #[inline]
    const fn of_words(words: [u64; NOTE_WORDS]) -> Self {
        Self { original_len: words[1] as u32, time_ns: words[0], tag: (words[1] >> 32) as u32 }
    }

    /// The same, of a packet that was not cut.
    #[inline]
    const fn of_whole(self, len: u32) -> Self {
        Self { original_len: len, ..self }
    }
}

/// In the head of a slot, beside the length: the packet was not cut, and the rest of its note equals the previous
/// packet's. Within a burst it usually does.
const SAME_NOTE: u32 = 1 << 31;

/// Why nothing was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The ring is full.
    #[error("the ring is full")]
    Full,
    /// The bytes do not fit into a slot.
    #[error("the data are larger than a slot")]
    TooLarge,
    /// The consumer violated the protocol.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// How the peer violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It published a position that it cannot have reached. The ring is broken.
    #[error("the other side of the ring claims a position it cannot have: the ring is broken")]
    Position,
    /// A slot's length exceeds the size of a slot. The slot was dropped.
    #[error("a slot claims more bytes than it has: it was dropped")]
    Length,
}

/// What is known about a slot that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Bytes that it held. More than were copied, if the buffer was shorter.
    pub len: usize,
    /// The packet's metadata.
    pub note: Note,
}

/// Takes slots, for [`SlotConsumer::pop_each`]. A trait and not a closure, because a method can be marked as always
/// inlined, which keeps the slot's properties in registers.
pub trait TakeSlot {
    /// Takes a slot, or learns that it was dropped or that the ring is broken.
    fn take(&mut self, slot: Result<Taken<'_>, Fault>);
}

/// Copies one slot.
struct CopyOne<'a> {
    into: &'a mut [u8],
    popped: Option<Result<Slot, Fault>>,
}

impl TakeSlot for CopyOne<'_> {
    #[inline(always)]
    fn take(&mut self, slot: Result<Taken<'_>, Fault>) {
        self.popped = Some(slot.map(|slot| slot.copy_into(self.into)));
    }
}

/// A slot that is being taken, for the length of a call of [`TakeSlot::take`].
#[derive(Debug)]
pub struct Taken<'a> {
    memory: &'a Memory,
    lines: Lines<'a>,
    index: usize,
    /// The first word of its memory, which is not read a second time.
    first: u64,
    slot: Slot,
}

impl Taken<'_> {
    /// The properties of the slot.
    #[inline]
    #[must_use]
    pub const fn slot(&self) -> Slot {
        self.slot
    }

    /// Copies as much of it as fits into `into`. Up to 60 bytes of `into` may change even if the packet is shorter.
    #[inline(always)]
    pub fn copy_into(self, into: &mut [u8]) -> Slot {
        let Self { memory, lines, index, first, slot } = self;
        lines.read(index, first, slot.len, into, |rest| memory.read_rest(index, rest));
        slot
    }
}

/// The writing end.
#[derive(Debug)]
pub struct SlotProducer {
    memory: Arc<Memory>,
    shape: Shape,
    cursor: ProducerCursor,
    /// Slots that are written and not published.
    unpublished: u32,
    /// The note that was written last.
    noted: Note,
    broken: bool,
}

/// The reading end.
#[derive(Debug)]
pub struct SlotConsumer {
    memory: Arc<Memory>,
    shape: Shape,
    cursor: ConsumerCursor,
    /// Slots that are taken and not given back.
    taken: u32,
    /// The note that was read last.
    noted: Note,
    broken: bool,
    armed: bool,
}

impl SlotProducer {
    fn new(memory: Arc<Memory>, shape: Shape) -> Self {
        let cursor = ProducerCursor::new(shape.slots, 0);
        Self { memory, shape, cursor, unpublished: 0, noted: Note::default(), broken: false }
    }

    /// Copies `bytes` into the next slot. Call [`Self::publish`] after the last one of a burst.
    ///
    /// # Errors
    /// [`Refused`]; nothing was pushed then.
    #[inline]
    pub fn push(&mut self, note: Note, bytes: &[u8]) -> Result<(), Refused> {
        self.push_each([(note, bytes)]).1.map_or(Ok(()), Err)
    }

    /// Pushes packets as [`Self::push`] does, until one is refused. Returns how many were pushed, and why the next
    /// one was not.
    ///
    /// Faster for several packets: stores to cache lines of another CPU overlap, unless a store to this CPU's own
    /// memory stands between them. So nothing else is stored in between here, nor should `packets` store anything.
    #[inline(always)]
    pub fn push_each<'a>(
        &mut self,
        packets: impl IntoIterator<Item = (Note, &'a [u8])>,
    ) -> (usize, Option<Refused>) {
        let mut packets = packets.into_iter();
        let mut next = packets.next();
        let mut before = 0;
        while let Some((note, bytes)) = next {
            let most = self.shape.slot_bytes as usize;
            if bytes.len() > most {
                return (before, Some(Refused::TooLarge));
            }
            let room = match self.room() {
                Ok(slots) => slots,
                Err(reason) => return (before, Some(reason)),
            };
            // All state is in local variables, and the loop has one exit, so the compiler needs no stack.
            let (lines, mut noted, mut pushed) = (self.memory.lines(), self.noted, 0);
            let (first, mask) = (self.cursor.index(0), self.shape.slots as usize - 1);
            let mut packet = (note, bytes);
            loop {
                let (note, bytes) = packet;
                let (index, len) = ((first + pushed as usize) & mask, bytes.len() as u32);
                let has_same_note = note == noted.of_whole(len);
                match bytes.split_first_chunk() {
                    Some((short, [])) if has_same_note => lines.write(index, len | SAME_NOTE, short),
                    _ => self.memory.write(
                        index,
                        if has_same_note { len | SAME_NOTE } else { len },
                        (!has_same_note).then(|| note.to_words()),
                        bytes,
                    ),
                }
                noted = if has_same_note { noted } else { note };
                pushed += 1;
                next = packets.next();
                match next {
                    Some(another) if pushed < room && another.1.len() <= most => packet = another,
                    _ => break,
                }
            }
            self.noted = noted;
            self.advance(pushed);
            before += pushed as usize;
        }
        (before, None)
    }

    /// Moves on by this many slots, and publishes them if they are many.
    #[inline]
    fn advance(&mut self, count: u32) {
        self.cursor.advance(count);
        self.unpublished += count;
        if self.unpublished >= self.shape.moved_at_once() {
            self.move_head();
        }
    }

    /// How many slots, at least one, can be written until the position has to be published.
    #[inline]
    fn room(&mut self) -> Result<u32, Refused> {
        match self.free(1)? {
            0 => Err(Refused::Full),
            free => Ok(free.min(self.shape.moved_at_once() - self.unpublished)),
        }
    }

    #[inline]
    fn move_head(&mut self) {
        if std::mem::take(&mut self.unpublished) > 0 {
            // Release: the slots are written before the position says so.
            self.memory.head().store(self.cursor.advance(0), Ordering::Release);
        }
    }

    /// Whether this many slots are free.
    #[must_use]
    pub fn has_room(&mut self, slots: u32) -> bool {
        self.free(slots).is_ok_and(|free| free >= slots)
    }

    /// Free slots. Returns fewer than `want` only after reading the consumer's position.
    #[inline]
    fn free(&mut self, want: u32) -> Result<u32, Fault> {
        if self.broken {
            return Err(Fault::Position);
        }
        // Acquire: the consumer's reads of the slot are done before we write it again.
        let free = self.cursor.checked_free(want, || self.memory.tail().load(Ordering::Acquire));
        free.ok_or_else(|| {
            self.broken = true;
            Fault::Position
        })
    }

    /// Publishes what was pushed. Returns whether the consumer sleeps and must be signalled through its descriptor:
    /// true once per sleep.
    #[inline]
    #[must_use = "a consumer that waits is not woken by this"]
    pub fn publish(&mut self) -> bool {
        self.move_head();
        // This fence is between publishing and this read. The consumer's is between its announcement and its last
        // look (`SlotConsumer::arm`). So at least one of the two sees what the other wrote.
        fence(Ordering::SeqCst);
        let waiting = self.memory.waiting();
        waiting.load(Ordering::Relaxed) == 1
            && waiting.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether the consumer published an impossible position.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// The ring's shape.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }
}

impl SlotConsumer {
    fn new(memory: Arc<Memory>, shape: Shape) -> Self {
        let cursor = ConsumerCursor::new(shape.slots, 0);
        Self { memory, shape, cursor, taken: 0, noted: Note::default(), broken: false, armed: false }
    }

    /// Takes the oldest slot and copies as much of it into `into` as fits there. Up to 60 bytes of `into` may
    /// change even if the packet is shorter.
    ///
    /// # Errors
    /// [`Fault::Length`]: that slot was dropped; continue. [`Fault::Position`]: returned once; a broken ring reads as
    /// empty.
    // A result that is returned through memory is assembled there by stores that the CPU cannot forward to the
    // caller's loads. The loads would wait until all earlier stores have drained, some of them to cache lines of
    // another CPU.
    #[inline(always)]
    pub fn pop_into(&mut self, into: &mut [u8]) -> Option<Result<Slot, Fault>> {
        let mut copy = CopyOne { into, popped: None };
        self.pop_each(1, &mut copy);
        copy.popped
    }

    /// Takes up to `most` of the oldest slots, as [`Self::pop_into`] takes one; `each` copies them. Cheaper per
    /// slot if there are several.
    #[inline(always)]
    pub fn pop_each(&mut self, most: usize, each: &mut impl TakeSlot) {
        if self.broken {
            return;
        }
        let Self { memory, shape, cursor, taken, broken, .. } = self;
        // Acquire: the producer's write of the slots is seen before we read them.
        let Some(mut known) = cursor.checked_available(1, || memory.head().load(Ordering::Acquire)) else {
            *broken = true;
            return each.take(Err(Fault::Position));
        };
        let count = u32::try_from(most).map_or(known, |most| known.min(most));
        let (lines, slot_bytes) = (memory.lines(), shape.slot_bytes);
        // In a local variable, so that it stays in registers.
        let mut noted = self.noted;
        let (mut left, mask) = (count, shape.slots as usize - 1);
        while left > 0 {
            let moved = left.min(shape.moved_at_once() - *taken);
            let begin = cursor.index(0);
            for nth in 0..moved {
                let index = (begin + nth as usize) & mask;
                if nth + AHEAD < known {
                    lines.will_read((index + AHEAD as usize) & mask);
                }
                // Read once: the value checked is the value used.
                let first = lines.first(index);
                let (head, len) = (first as u32, first as u32 & !SAME_NOTE);
                noted = if head & SAME_NOTE == 0 {
                    Note::of_words(memory.note(index))
                } else {
                    noted.of_whole(len)
                };
                if len <= slot_bytes {
                    let slot = Slot { len: len as usize, note: noted };
                    each.take(Ok(Taken { memory, lines, index, first, slot }));
                } else {
                    each.take(Err(Fault::Length));
                }
            }
            let next = cursor.advance(moved);
            known -= moved;
            left -= moved;
            *taken += moved;
            if known == 0 || *taken >= shape.moved_at_once() {
                *taken = 0;
                // Release: the slots are read before the position says so.
                memory.tail().store(next, Ordering::Release);
            }
        }
        self.noted = noted;
    }

    /// Whether there is something to take, without taking it.
    #[inline]
    #[must_use]
    pub fn look(&self) -> bool {
        !self.broken && self.cursor.peek(|| self.memory.head().load(Ordering::Acquire))
    }

    /// Announces that the consumer is about to sleep, so that the producer signals the next burst.
    /// [Look](Self::look) again before sleeping, and drain the descriptor only before arming or after disarming.
    pub fn arm(&mut self) {
        self.armed = true;
        self.memory.waiting().store(1, Ordering::Relaxed);
        // See `SlotProducer::publish`.
        fence(Ordering::SeqCst);
    }

    /// Ends the announcement. Returns whether the producer has seen it, so that a signal has come or will come.
    pub fn disarm(&mut self) -> bool {
        std::mem::take(&mut self.armed) && self.memory.waiting().swap(0, Ordering::Relaxed) == 0
    }

    /// Whether the producer published an impossible position.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// The ring's shape.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }
}

#[cfg(not(loom))]
pub use shared::{consumer, producer, ring};

#[cfg(not(loom))]
mod shared {
    use rustix::io::Errno;
    use twinpath_frame::Mapping;

    use super::{Arc, BadShape, Memory, Shape, SlotConsumer, SlotProducer, memory};

    impl Shape {
        /// Bytes of memory that a ring of this shape takes; a multiple of 128.
        #[must_use]
        pub const fn bytes(self) -> usize {
            memory::bytes(self.slots, self.slot_bytes)
        }
    }

    /// The writing end of a ring at `offset` (a multiple of 128) of fresh zeroed memory. A ring has one of each end.
    ///
    /// # Errors
    /// [`BadShape::Memory`].
    pub fn producer(mapping: Arc<Mapping>, offset: usize, shape: Shape) -> Result<SlotProducer, BadShape> {
        Ok(SlotProducer::new(Arc::new(Memory::new(mapping, offset, shape)?), shape))
    }

    /// The reading end of a ring at `offset` (a multiple of 128) of fresh zeroed memory. A ring has one of each end.
    ///
    /// # Errors
    /// [`BadShape::Memory`].
    pub fn consumer(mapping: Arc<Mapping>, offset: usize, shape: Shape) -> Result<SlotConsumer, BadShape> {
        Ok(SlotConsumer::new(Arc::new(Memory::new(mapping, offset, shape)?), shape))
    }

    /// Both ends of a ring within this process.
    ///
    /// # Errors
    /// What taking the memory returns.
    pub fn ring(shape: Shape) -> Result<(SlotProducer, SlotConsumer), Errno> {
        let (mapping, _memfd) = Mapping::of_memfd("twinpath-slots", shape.bytes())?;
        let memory = Memory::new(Arc::new(mapping), 0, shape).map_err(|_| Errno::INVAL)?;
        let memory = Arc::new(memory);
        Ok((SlotProducer::new(Arc::clone(&memory), shape), SlotConsumer::new(memory, shape)))
    }
}

#[cfg(test)]
mod tests;
