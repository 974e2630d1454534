//! The memory of a direct ring: parts of two mappings that a BPF program writes, or the model checker's cells.

#[cfg(all(test, not(loom)))]
pub(super) use mapped::SlotHeader;
#[cfg(not(loom))]
pub(crate) use mapped::{Memory, state_long_word, state_word};
#[cfg(loom)]
pub(crate) use modelled::Memory;

#[cfg(not(loom))]
mod mapped {
    #![allow(
        unsafe_code,
        reason = "slots lie in memory mapped from the kernel, whose program owns them until their sequence says so"
    )]

    use std::ptr::NonNull;
    use std::slice;

    use twinpath_frame::Mapping;

    use crate::direct::{BadLayout, DirectFrame, HEADER_LEN, NO_VLAN, SLOT_LEN, STATE_LEN};
    use crate::sync::{Arc, AtomicU32, AtomicU64};

    /// The header of a slot, after its sequence number. A length of 0 means that the program could not read the frame.
    #[derive(Clone, Copy, Debug)]
    #[repr(C)]
    pub(in crate::direct) struct SlotHeader {
        pub(in crate::direct) len: u32,
        pub(in crate::direct) vlan: u16,
        pub(in crate::direct) is_cut: u16,
    }

    /// A word in the state of a ring, in the mapping of all states; `None` if it is beyond the end.
    pub(crate) fn state_word(states: &Mapping, queue: u32, at: usize) -> Option<&AtomicU32> {
        let at = (queue as usize).checked_mul(STATE_LEN)?.checked_add(at)?;
        let fits = at.is_multiple_of(4) && at.checked_add(4).is_some_and(|end| end <= states.len());
        // SAFETY: the mapping holds it, aligned to four as the mapping is to a page; a 32-bit atomic takes any bits.
        fits.then(|| unsafe { states.base().add(at).cast::<AtomicU32>().as_ref() })
    }

    /// As [`state_word`]: one of eight bytes.
    pub(crate) fn state_long_word(states: &Mapping, queue: u32, at: usize) -> Option<&AtomicU64> {
        let at = (queue as usize).checked_mul(STATE_LEN)?.checked_add(at)?;
        let fits = at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= states.len());
        // SAFETY: the mapping holds it, aligned to eight as the mapping is to a page; a 64-bit atomic takes any bits.
        fits.then(|| unsafe { states.base().add(at).cast::<AtomicU64>().as_ref() })
    }

    #[derive(Debug)]
    pub(crate) struct Memory {
        /// The states of all rings of a program, and the place of this one.
        states: Arc<Mapping>,
        state_at: usize,
        slots: Mapping,
        pub(in crate::direct) count: usize,
    }

    impl Memory {
        pub(in crate::direct) fn new(
            states: Arc<Mapping>,
            queue: u32,
            slots: Mapping,
            count: usize,
        ) -> Result<Self, BadLayout> {
            let state_at = (queue as usize).checked_mul(STATE_LEN).ok_or(BadLayout)?;
            let fits = count.is_power_of_two()
                && count > 1
                && count.checked_mul(SLOT_LEN).is_some_and(|bytes| bytes <= slots.len())
                && state_at.checked_add(STATE_LEN).is_some_and(|end| end <= states.len());
            if fits { Ok(Self { states, state_at, slots, count }) } else { Err(BadLayout) }
        }

        /// The mapping of all states, and the number of this one.
        pub(in crate::direct) fn states(&self) -> (Arc<Mapping>, u32) {
            (Arc::clone(&self.states), (self.state_at / STATE_LEN) as u32)
        }

        pub(in crate::direct) fn word(&self, at: usize) -> &AtomicU32 {
            debug_assert!(at + size_of::<u32>() <= STATE_LEN);
            // SAFETY: `new` checked that the states hold it, aligned to four; a 32-bit atomic takes any bits.
            unsafe { self.states.base().add(self.state_at + at).cast::<AtomicU32>().as_ref() }
        }

        pub(in crate::direct) fn long_word(&self, at: usize) -> &AtomicU64 {
            debug_assert!(at.is_multiple_of(8) && at + size_of::<u64>() <= STATE_LEN);
            // SAFETY: `new` checked that the states hold it, aligned to eight; a 64-bit atomic takes any bits.
            unsafe { self.states.base().add(self.state_at + at).cast::<AtomicU64>().as_ref() }
        }

        pub(in crate::direct) fn slot(&self, index: usize) -> NonNull<u8> {
            debug_assert!(index < self.count);
            // SAFETY: `new` checked that all slots lie in the mapping.
            unsafe { self.slots.base().add(index * SLOT_LEN) }
        }

        pub(in crate::direct) fn sequence(&self, index: usize) -> &AtomicU64 {
            // SAFETY: a slot starts with its sequence, aligned to eight; a 64-bit atomic takes any bits.
            unsafe { self.slot(index).cast::<AtomicU64>().as_ref() }
        }

        fn header(&self, index: usize) -> SlotHeader {
            // SAFETY: the header follows the sequence, which has given the slot to the reader; any bits are a value.
            unsafe { self.slot(index).add(size_of::<u64>()).cast::<SlotHeader>().read() }
        }

        /// Whether the program could not read the frame for which it took the slot.
        #[inline]
        pub(in crate::direct) fn is_unreadable(&self, index: usize) -> bool {
            self.header(index).len == 0
        }

        /// Passes the frame in a slot, which its sequence has given to the reader, to `see`.
        #[inline]
        pub(in crate::direct) fn read<R>(&self, index: usize, see: impl FnOnce(DirectFrame<'_>) -> R) -> R {
            let header = self.header(index);
            let len = (header.len as usize).min(SLOT_LEN - HEADER_LEN);
            // SAFETY: HEADER_LEN + len <= SLOT_LEN, so the bytes lie in this slot, which the program does not touch now.
            let bytes = unsafe { slice::from_raw_parts(self.slot(index).add(HEADER_LEN).as_ptr(), len) };
            let vlan_tci = (header.vlan != NO_VLAN).then_some(header.vlan);
            see(DirectFrame { bytes, vlan_tci, is_cut: header.is_cut != 0 })
        }

        /// Copies the bytes of a slot that another party may write at the same time. Returns how many bytes fit.
        pub(in crate::direct) fn copy(&self, index: usize, into: &mut [u8]) -> usize {
            let word = |at: usize| {
                debug_assert!(at.is_multiple_of(8) && at + 8 <= SLOT_LEN);
                // SAFETY: the word lies in the slot, aligned to eight as the slot is; a 64-bit atomic takes any bits.
                let word = unsafe { self.slot(index).add(at).cast::<AtomicU64>().as_ref() };
                word.load(crate::sync::Ordering::Relaxed).to_ne_bytes()
            };
            let [a, b, c, d, ..] = word(size_of::<u64>());
            let len = (u32::from_ne_bytes([a, b, c, d]) as usize).min(SLOT_LEN - HEADER_LEN).min(into.len());
            for (number, piece) in into[..len].chunks_mut(size_of::<u64>()).enumerate() {
                let bytes = word(HEADER_LEN + number * size_of::<u64>());
                piece.copy_from_slice(&bytes[..piece.len()]);
            }
            len
        }

        pub(in crate::direct) fn mapped_bytes(&self) -> usize {
            self.slots.len()
        }
    }
}

#[cfg(loom)]
mod modelled {
    #![allow(
        unsafe_code,
        reason = "the model checker's cells find out whether two sides touch a slot at once"
    )]

    use crate::direct::{DirectFrame, STATE_LEN};
    use crate::sync::{Arc, AtomicU32, AtomicU64, UnsafeCell};

    #[derive(Debug)]
    struct ModelSlot {
        sequence: AtomicU64,
        frame: UnsafeCell<Vec<u8>>,
    }

    #[derive(Debug)]
    struct Words {
        words: Vec<AtomicU32>,
        long_words: Vec<AtomicU64>,
        slots: Vec<ModelSlot>,
    }

    /// Each side has one.
    #[derive(Clone, Debug)]
    pub(crate) struct Memory {
        shared: Arc<Words>,
        pub(in crate::direct) count: usize,
    }

    // SAFETY: only the model uses it, and it is what checks the claim.
    unsafe impl Send for Memory {}

    impl Memory {
        pub(crate) fn new(count: usize) -> Self {
            let slot = |_| ModelSlot { sequence: AtomicU64::new(0), frame: UnsafeCell::new(Vec::new()) };
            let shared = Words {
                words: (0..STATE_LEN / 4).map(|_| AtomicU32::new(0)).collect(),
                long_words: (0..STATE_LEN / 8).map(|_| AtomicU64::new(0)).collect(),
                slots: (0..count).map(slot).collect(),
            };
            Self { shared: Arc::new(shared), count }
        }

        pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
            &self.shared.words[at / 4]
        }

        pub(crate) fn long_word(&self, at: usize) -> &AtomicU64 {
            &self.shared.long_words[at / 8]
        }

        pub(crate) fn sequence(&self, index: usize) -> &AtomicU64 {
            &self.shared.slots[index].sequence
        }

        pub(in crate::direct) fn is_unreadable(&self, index: usize) -> bool {
            // SAFETY: the model checker fails if another thread touches the slot meanwhile.
            self.shared.slots[index].frame.with(|bytes| unsafe { (*bytes).is_empty() })
        }

        pub(in crate::direct) fn read<R>(&self, index: usize, see: impl FnOnce(DirectFrame<'_>) -> R) -> R {
            // SAFETY: as above.
            self.shared.slots[index]
                .frame
                .with(|bytes| unsafe { see(DirectFrame { bytes: &*bytes, vlan_tci: None, is_cut: false }) })
        }

        /// Does the same as the program after it has taken the slot.
        pub(crate) fn write(&self, index: usize, bytes: &[u8]) {
            // SAFETY: as above.
            self.shared.slots[index].frame.with_mut(|slot| unsafe { *slot = bytes.to_vec() });
        }

        pub(in crate::direct) const fn mapped_bytes(&self) -> usize {
            0
        }
    }
}
