//! The memory of a ring of slots: a part of a mapping, or the model checker's cells.
//!
//! All access to shared memory is atomic, including the bytes of slots, which are accessed as relaxed 64-bit words.
//! A plain read that races with another process's write would be undefined behaviour, and a `&[u8]` would promise
//! the compiler that the bytes do not change. Two words may come from different writes, but no value is used before
//! it is private.

/// Words of a slot's note.
pub(super) const NOTE_WORDS: usize = 2;

/// Bytes of a packet that are in its slot's first line, behind the head.
pub(super) const SHORT: usize = 60;

#[cfg(not(loom))]
pub(super) use mapped::{Lines, Memory, bytes};
#[cfg(loom)]
pub(super) use modelled::{Lines, Memory};

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

    use super::{NOTE_WORDS, SHORT};
    use crate::slots::{BadShape, Shape};
    use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering};

    /// Each of the three words has cache lines of its own (128 bytes: adjacent lines are fetched in pairs). If the
    /// waiting word shared one, the producer would fetch the consumer's position with it after every burst.
    const HEAD: usize = 0;
    const TAIL: usize = 128;
    const WAITING: usize = 256;
    const LINES: usize = 384;

    const WORD: usize = size_of::<u64>();
    const LINE: usize = 64;
    const LINE_WORDS: usize = LINE / WORD;
    /// Bytes of a packet that are in the first word, behind the head.
    const IN_FIRST: usize = WORD - size_of::<u32>();

    /// Where the notes begin: after the first lines of all slots. The cost of a short packet is the cache lines
    /// that move between two CPUs. So it takes one line, the next packet's line is adjacent, where the CPU
    /// prefetches it, and a note is read only if it differs from the previous one.
    const fn notes_at(slots: u32) -> usize {
        LINES + slots as usize * LINE
    }

    /// Where the rests of packets begin, which do not fit into their first lines.
    const fn rests_at(slots: u32) -> usize {
        (notes_at(slots) + slots as usize * NOTE_WORDS * WORD).next_multiple_of(LINE)
    }

    /// Bytes from the rest of one slot to the rest of the next. An odd number of cache lines, because otherwise the
    /// first lines of all rests would map to few sets of a cache.
    const fn stride(slot_bytes: u32) -> usize {
        match (slot_bytes as usize).saturating_sub(SHORT) {
            0 => 0,
            rest => (rest.div_ceil(LINE) | 1) * LINE,
        }
    }

    pub(in crate::slots) const fn bytes(slots: u32, slot_bytes: u32) -> usize {
        (rests_at(slots) + slots as usize * stride(slot_bytes)).next_multiple_of(128)
    }

    /// The last `rest` bytes, fewer than a word, as the low bytes of a little-endian word.
    ///
    /// Not by copying them onto the stack and reading a word there: a CPU cannot forward several short writes to
    /// one long read, so the read would wait until all earlier writes have drained, including those to slots, whose
    /// lines come from another CPU.
    #[inline]
    fn last_word(bytes: &[u8], rest: usize) -> u64 {
        match bytes.last_chunk::<WORD>() {
            Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD - rest)),
            None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        }
    }

    /// Stores bytes as words, from the first of `words` on.
    #[inline(always)]
    fn store(words: &[AtomicU64], bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<WORD>();
        // Not an iterator over pairs: its parts would become calls when a crate with several codegen units inlines
        // this.
        for at in 0..whole.len().min(words.len()) {
            words[at].store(u64::from_le_bytes(whole[at]), Ordering::Relaxed);
        }
        if !rest.is_empty()
            && let Some(word) = words.get(whole.len())
        {
            word.store(last_word(bytes, rest.len()), Ordering::Relaxed);
        }
    }

    /// Loads bytes from words, from the first of `words` on.
    #[inline]
    fn load(words: &[AtomicU64], into: &mut [u8]) {
        let (whole, rest) = into.as_chunks_mut::<WORD>();
        // As in `store`.
        for at in 0..whole.len().min(words.len()) {
            whole[at] = words[at].load(Ordering::Relaxed).to_le_bytes();
        }
        if !rest.is_empty()
            && let Some(word) = words.get(whole.len())
        {
            let last = word.load(Ordering::Relaxed).to_le_bytes();
            rest.iter_mut().zip(last).for_each(|(byte, value)| *byte = value);
        }
    }

    /// Writes a line: the head, and as many bytes as fit after it. It writes words of 16 bytes, which halves their
    /// number. No atomic type is that wide, so this is assembly. Nobody reads a slot before its position is
    /// published.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn store_line(line: &Line, head: u32, bytes: &[u8; SHORT]) {
        // SAFETY: reads the 60 bytes and writes the 64 of the line, and nothing else; the last two words overlap. The compiler
        // takes the instructions for any access to memory, so others may access the line at the same time.
        unsafe {
            asm!(
                "movups {a}, [{bytes}]",
                "movups {b}, [{bytes} + 16]",
                "movups {c}, [{bytes} + 32]",
                "movups {d}, [{bytes} + 44]",
                "mov dword ptr [{line}], {head:e}",
                "movups [{line} + 4], {a}",
                "movups [{line} + 20], {b}",
                "movups [{line} + 36], {c}",
                "movups [{line} + 48], {d}",
                bytes = in(reg) bytes,
                line = in(reg) line,
                head = in(reg) head,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Reads the part of a line after the head, as [`store_line`] writes it.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn load_line(line: &Line, into: &mut [u8; SHORT]) {
        // SAFETY: reads bytes 4 to 63 of the line and writes the 60 of `into`, and nothing else. As in `store_line`.
        unsafe {
            asm!(
                "movups {a}, [{line} + 4]",
                "movups {b}, [{line} + 20]",
                "movups {c}, [{line} + 36]",
                "movups {d}, [{line} + 48]",
                "movups [{into}], {a}",
                "movups [{into} + 16], {b}",
                "movups [{into} + 32], {c}",
                "movups [{into} + 44], {d}",
                into = in(reg) into,
                line = in(reg) line,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Writes a line: the head, and as many bytes as fit behind it.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn store_line(line: &Line, head: u32, bytes: &[u8; SHORT]) {
        let [a, b, c, d, others @ ..] = bytes;
        let four = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
        line[0].store(u64::from(head) | four << 32, Ordering::Relaxed);
        store(&line[1..], others);
    }

    /// Reads the part of a line after the head.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    fn load_line(line: &Line, into: &mut [u8; SHORT]) {
        let (beginning, others) = into.split_at_mut(IN_FIRST);
        beginning.copy_from_slice(&((line[0].load(Ordering::Relaxed) >> 32) as u32).to_le_bytes());
        load(&line[1..], others);
    }

    /// One ring's part of a mapping.
    #[derive(Debug)]
    pub(in crate::slots) struct Memory {
        mapping: Arc<Mapping>,
        offset: usize,
        notes_at: usize,
        rests_at: usize,
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
            let slots = shape.slots();
            let (notes_at, rests_at, stride) = (notes_at(slots), rests_at(slots), stride(shape.slot_bytes()));
            Ok(Self { mapping, offset, notes_at, rests_at, stride, slots: slots as usize })
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

        /// This many words at an offset of the ring.
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

        /// The first lines of all slots.
        #[inline]
        pub(in crate::slots) fn lines(&self) -> Lines<'_> {
            // SAFETY: `new` checked that the ring lies in the mapping, with a line for each slot. As in `words`.
            unsafe {
                let first = self.mapping.base().add(self.offset + LINES).cast::<Line>();
                Lines(slice::from_raw_parts(first.as_ptr(), self.slots))
            }
        }

        /// The note of a slot.
        #[inline]
        fn note_words(&self, index: usize) -> &[AtomicU64] {
            debug_assert!(index < self.slots);
            // SAFETY: as above, there is a note for each behind the lines.
            unsafe { self.words(self.notes_at + index * NOTE_WORDS * WORD, NOTE_WORDS) }
        }

        /// The part of a packet after its first line.
        #[inline]
        fn rest(&self, index: usize) -> &[AtomicU64] {
            debug_assert!(index < self.slots);
            // SAFETY: as above, and each has `stride` bytes behind the notes.
            unsafe { self.words(self.rests_at + index * self.stride, self.stride / WORD) }
        }

        /// Writes a slot: its head, its note if it has one of its own, and the packet.
        // A call would store on the stack between two slots (`SlotProducer::push_each`).
        #[inline(always)]
        pub(in crate::slots) fn write(
            &self,
            index: usize,
            head: u32,
            note: Option<[u64; NOTE_WORDS]>,
            bytes: &[u8],
        ) {
            if let Some([first, second]) = note {
                let words = self.note_words(index);
                words[0].store(first, Ordering::Relaxed);
                words[1].store(second, Ordering::Relaxed);
            }
            let line = self.lines().at(index);
            if let Some((short, rest)) = bytes.split_first_chunk::<SHORT>() {
                store_line(line, head, short);
                store(self.rest(index), rest);
            } else {
                let (four, others) = bytes.split_at(bytes.len().min(IN_FIRST));
                let four = last_word(four, four.len());
                line[0].store(u64::from(head) | four << 32, Ordering::Relaxed);
                store(&line[1..], others);
            }
        }

        #[inline]
        pub(in crate::slots) fn note(&self, index: usize) -> [u64; NOTE_WORDS] {
            let words = self.note_words(index);
            [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)]
        }

        /// Copies the part of a packet after its first line.
        #[inline]
        pub(in crate::slots) fn read_rest(&self, index: usize, into: &mut [u8]) {
            load(self.rest(index), into);
        }
    }

    /// The first line of a slot: the head, and the first bytes of the packet.
    type Line = [AtomicU64; LINE_WORDS];

    /// The first lines of all slots, determined once for a burst.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::slots) struct Lines<'a>(&'a [Line]);

    impl<'a> Lines<'a> {
        #[inline]
        fn at(self, index: usize) -> &'a Line {
            // An index is masked by the number of slots, for each of which there is a line.
            &self.0[index]
        }

        /// Writes a slot whose packet takes all of its first line and no more.
        #[inline(always)]
        pub(in crate::slots) fn write(self, index: usize, head: u32, bytes: &[u8; SHORT]) {
            store_line(self.at(index), head, bytes);
        }

        /// The first word of a slot: its head, and the first bytes of the packet.
        #[inline]
        pub(in crate::slots) fn first(self, index: usize) -> u64 {
            self.at(index)[0].load(Ordering::Relaxed)
        }

        /// Prefetches the first line of a slot for a read. For a write this gains nothing, because writes wait in
        /// the store buffer.
        #[inline]
        pub(in crate::slots) fn will_read(self, index: usize) {
            // SAFETY: a prefetch changes no value and never faults.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                asm!("prefetcht0 [{}]", in(reg) self.at(index), options(nostack, preserves_flags, readonly));
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = index;
        }

        /// Copies a packet of `len` bytes, whose first word has been read, up to the length of `into`; `more`
        /// copies the part after the first line. If there is room for a whole line, the bytes after a shorter
        /// packet change.
        #[inline(always)]
        pub(in crate::slots) fn read(
            self,
            index: usize,
            first: u64,
            len: usize,
            into: &mut [u8],
            more: impl FnOnce(&mut [u8]),
        ) {
            let line = self.at(index);
            if let Some((short, rest)) = into.split_first_chunk_mut::<SHORT>() {
                load_line(line, short);
                if len > SHORT {
                    let len = (len - SHORT).min(rest.len());
                    more(&mut rest[..len]);
                }
            } else {
                let four = ((first >> 32) as u32).to_le_bytes();
                let copied = into.len().min(len);
                let (beginning, others) = into[..copied].split_at_mut(copied.min(IN_FIRST));
                beginning.iter_mut().zip(four).for_each(|(byte, value)| *byte = value);
                load(&line[1..], others);
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

    use super::{NOTE_WORDS, SHORT};
    use crate::slots::Shape;
    use crate::sync::{AtomicU32, UnsafeCell};

    /// Head, note, and packet.
    type Cell = UnsafeCell<(u32, [u64; NOTE_WORDS], Vec<u8>)>;

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
            let slots =
                (0..shape.slots()).map(|_| UnsafeCell::new((0, [0; NOTE_WORDS], Vec::new()))).collect();
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

        pub(in crate::slots) fn write(
            &self,
            index: usize,
            head: u32,
            note: Option<[u64; NOTE_WORDS]>,
            bytes: &[u8],
        ) {
            // SAFETY: the model checker fails if another thread touches the slot meanwhile.
            self.slots[index].with_mut(|slot| unsafe {
                (*slot).0 = head;
                (*slot).1 = note.unwrap_or((*slot).1);
                (*slot).2 = bytes.to_vec();
            });
        }

        pub(in crate::slots) fn lines(&self) -> Lines<'_> {
            Lines(self)
        }

        pub(in crate::slots) fn note(&self, index: usize) -> [u64; NOTE_WORDS] {
            // SAFETY: as in `write`.
            self.slots[index].with(|slot| unsafe { (*slot).1 })
        }

        pub(in crate::slots) fn read_rest(&self, _index: usize, _into: &mut [u8]) {}
    }

    #[derive(Clone, Copy, Debug)]
    pub(in crate::slots) struct Lines<'a>(&'a Memory);

    impl Lines<'_> {
        pub(in crate::slots) fn write(self, index: usize, head: u32, bytes: &[u8; SHORT]) {
            self.0.write(index, head, None, bytes);
        }

        pub(in crate::slots) fn first(self, index: usize) -> u64 {
            // SAFETY: as in `write`.
            self.0.slots[index].with(|slot| unsafe { u64::from((*slot).0) })
        }

        pub(in crate::slots) fn will_read(self, _index: usize) {}

        pub(in crate::slots) fn read(
            self,
            index: usize,
            _first: u64,
            len: usize,
            into: &mut [u8],
            _more: impl FnOnce(&mut [u8]),
        ) {
            let copied = into.len().min(len);
            // SAFETY: as in `write`.
            self.0.slots[index]
                .with(|slot| unsafe { into[..copied].copy_from_slice(&(&(*slot).2)[..copied]) });
        }
    }
}
