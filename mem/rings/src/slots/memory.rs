//! The memory of a ring of slots: a part of a mapping, or the model checker's cells.
//!
//! All access to shared memory is atomic, also to the bytes of slots, as relaxed 64-bit words. A plain read that
//! races with another process's write would be undefined behaviour, and a `&[u8]` would promise the compiler that the
//! bytes do not change. Words may be torn against each other; no value is used before it is private.

/// Words of a slot's note.
pub(super) const NOTE_WORDS: usize = 3;

#[cfg(not(loom))]
pub(super) use mapped::{Memory, bytes};
#[cfg(loom)]
pub(super) use modelled::Memory;

#[cfg(not(loom))]
mod mapped {
    #![allow(
        unsafe_code,
        reason = "positions and slots lie in memory that another process may write at any time"
    )]

    #[cfg(target_arch = "x86_64")]
    use std::arch::asm;
    use std::slice;

    use twinpath_frame::Mapping;

    use super::NOTE_WORDS;
    use crate::slots::{BadShape, Shape};
    use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering};

    /// Each of the three words is on cache lines of its own (128 bytes: adjacent lines are fetched in pairs). So is
    /// the waiting word, or the producer would fetch the consumer's position with it after every burst.
    const HEAD: usize = 0;
    const TAIL: usize = 128;
    const WAITING: usize = 256;
    const NOTES: usize = 384;

    const WORD: usize = size_of::<u64>();
    const LINE: usize = 64;

    /// Where the data begin, behind the notes of all slots. A note in front of its data would take a second line for the
    /// shortest frames, and lines that move between two CPUs are what a short frame costs.
    const fn data_at(slots: u32) -> usize {
        (NOTES + slots as usize * NOTE_WORDS * WORD).next_multiple_of(LINE)
    }

    /// Bytes from the data of one slot to those of the next: an odd number of cache lines, as the first lines of all slots would
    /// have few places in a cache otherwise.
    const fn stride(slot_bytes: u32) -> usize {
        ((slot_bytes as usize).div_ceil(LINE) | 1) * LINE
    }

    pub(in crate::slots) const fn bytes(slots: u32, slot_bytes: u32) -> usize {
        (data_at(slots) + slots as usize * stride(slot_bytes)).next_multiple_of(128)
    }

    /// The last `rest` bytes, fewer than a word, as the word that they are the beginning of.
    ///
    /// Not by copying them onto the stack and reading a word there: a CPU cannot pass on several short writes to one long
    /// read, so the read waits until all earlier writes have left, among them those to slots, whose lines come from another
    /// CPU.
    #[inline]
    fn last_word(bytes: &[u8], rest: usize) -> u64 {
        let word = match bytes.last_chunk::<WORD>() {
            Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD - rest)),
            None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        word.to_le()
    }

    /// One ring's part of a mapping.
    #[derive(Debug)]
    pub(in crate::slots) struct Memory {
        mapping: Arc<Mapping>,
        offset: usize,
        data_at: usize,
        stride: usize,
        slots: usize,
    }

    impl Memory {
        pub(in crate::slots) fn new(
            mapping: Arc<Mapping>,
            offset: usize,
            shape: Shape,
        ) -> Result<Self, BadShape> {
            let (needs, has) = (shape.bytes(), mapping.len().saturating_sub(offset));
            if !offset.is_multiple_of(128) || needs > has {
                return Err(BadShape::Memory { needs, has });
            }
            let (data_at, stride) = (data_at(shape.slots()), stride(shape.slot_bytes()));
            Ok(Self { mapping, offset, data_at, stride, slots: shape.slots() as usize })
        }

        fn word(&self, at: usize) -> &AtomicU32 {
            // SAFETY: `new` checked that the ring, of which `at` is one of the three places above, lies in the mapping, and
            // that it is aligned. A 32-bit atomic takes any bits, and any changes of them.
            unsafe { self.mapping.base().add(self.offset + at).cast::<AtomicU32>().as_ref() }
        }

        pub(in crate::slots) fn head(&self) -> &AtomicU32 {
            self.word(HEAD)
        }

        pub(in crate::slots) fn tail(&self) -> &AtomicU32 {
            self.word(TAIL)
        }

        pub(in crate::slots) fn waiting(&self) -> &AtomicU32 {
            self.word(WAITING)
        }

        /// So many words at a place of the ring.
        ///
        /// # Safety
        /// They must lie within the ring, and `at` must be a multiple of 8.
        #[inline]
        unsafe fn words(&self, at: usize, count: usize) -> &[AtomicU64] {
            // SAFETY: `new` checked that the ring lies in the mapping, and is aligned. Atomic words take any bits and any changes of
            // them by anybody: this is no `&[u8]`, which would forbid them.
            unsafe {
                let first = self.mapping.base().add(self.offset + at).cast::<AtomicU64>();
                slice::from_raw_parts(first.as_ptr(), count)
            }
        }

        /// The note of a slot.
        #[inline]
        fn note_words(&self, index: usize) -> &[AtomicU64] {
            debug_assert!(index < self.slots);
            // SAFETY: an index is masked by the number of slots, for each of which there is a note.
            unsafe { self.words(NOTES + index * NOTE_WORDS * WORD, NOTE_WORDS) }
        }

        /// The data of a slot.
        #[inline]
        fn data(&self, index: usize) -> &[AtomicU64] {
            debug_assert!(index < self.slots);
            // SAFETY: as above, and each has `stride` bytes behind the notes.
            unsafe { self.words(self.data_at + index * self.stride, self.stride / WORD) }
        }

        #[inline]
        pub(in crate::slots) fn write(&self, index: usize, note: [u64; NOTE_WORDS], bytes: &[u8]) {
            for (word, value) in self.note_words(index).iter().zip(note) {
                word.store(value, Ordering::Relaxed);
            }
            let data = self.data(index);
            let (whole, rest) = bytes.as_chunks::<WORD>();
            for (word, value) in data.iter().zip(whole) {
                word.store(u64::from_ne_bytes(*value), Ordering::Relaxed);
            }
            if !rest.is_empty() {
                data[whole.len()].store(last_word(bytes, rest.len()), Ordering::Relaxed);
            }
        }

        #[inline]
        pub(in crate::slots) fn note(&self, index: usize) -> [u64; NOTE_WORDS] {
            let words = self.note_words(index);
            std::array::from_fn(|at| words[at].load(Ordering::Relaxed))
        }

        /// Begins to fetch what a short packet takes of a slot, to be read soon. For writing that gains nothing: writes wait beside
        /// what follows them.
        #[inline]
        pub(in crate::slots) fn will_read(&self, index: usize) {
            #[cfg(target_arch = "x86_64")]
            for line in [self.note_words(index), self.data(index)].map(<[AtomicU64]>::as_ptr) {
                // SAFETY: a prefetch changes no value and never faults.
                unsafe { asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly)) };
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = index;
        }

        #[inline]
        pub(in crate::slots) fn read(&self, index: usize, into: &mut [u8]) {
            let data = self.data(index);
            let (whole, rest) = into.as_chunks_mut::<WORD>();
            for (value, word) in whole.iter_mut().zip(data) {
                *value = word.load(Ordering::Relaxed).to_ne_bytes();
            }
            if !rest.is_empty() {
                let last = data[whole.len()].load(Ordering::Relaxed).to_ne_bytes();
                rest.iter_mut().zip(last).for_each(|(byte, value)| *byte = value);
            }
        }
    }
}

#[cfg(loom)]
mod modelled {
    #![allow(
        unsafe_code,
        reason = "the model checker's cells find out whether two sides touch a slot at once"
    )]

    use super::NOTE_WORDS;
    use crate::slots::Shape;
    use crate::sync::{AtomicU32, UnsafeCell};

    type Cell = UnsafeCell<([u64; NOTE_WORDS], Vec<u8>)>;

    #[derive(Debug)]
    pub(in crate::slots) struct Memory {
        head: AtomicU32,
        tail: AtomicU32,
        waiting: AtomicU32,
        slots: Vec<Cell>,
    }

    // SAFETY: only the model uses it, and it is what checks the claim.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(in crate::slots) fn new(shape: Shape) -> Self {
            let slots = (0..shape.slots()).map(|_| UnsafeCell::new(([0; NOTE_WORDS], Vec::new()))).collect();
            Self { head: AtomicU32::new(0), tail: AtomicU32::new(0), waiting: AtomicU32::new(0), slots }
        }

        pub(in crate::slots) fn head(&self) -> &AtomicU32 {
            &self.head
        }

        pub(in crate::slots) fn tail(&self) -> &AtomicU32 {
            &self.tail
        }

        pub(in crate::slots) fn waiting(&self) -> &AtomicU32 {
            &self.waiting
        }

        pub(in crate::slots) fn write(&self, index: usize, note: [u64; NOTE_WORDS], bytes: &[u8]) {
            // SAFETY: the model checker fails if another thread touches the slot meanwhile.
            self.slots[index].with_mut(|slot| unsafe { *slot = (note, bytes.to_vec()) });
        }

        pub(in crate::slots) fn note(&self, index: usize) -> [u64; NOTE_WORDS] {
            // SAFETY: as in `write`.
            self.slots[index].with(|slot| unsafe { (*slot).0 })
        }

        pub(in crate::slots) fn will_read(&self, _index: usize) {}

        pub(in crate::slots) fn read(&self, index: usize, into: &mut [u8]) {
            // SAFETY: as in `write`.
            self.slots[index].with(|slot| unsafe { into.copy_from_slice(&(&(*slot).1)[..into.len()]) });
        }
    }
}
