//! A ring of slots that a BPF program fills (`io/steer_bpf/bpf/packet.c`, whose layout this repeats): each frame as it comes,
//! found without a system call.
//!
//! The program takes a slot only if it is free, and any CPU may: so slots become frames in order, but for those that are
//! still being filled, and the worker waits for these.
#![allow(
    unsafe_code,
    reason = "slots lie in memory mapped from the kernel, whose program owns them until their status says so"
)]

use std::ptr::NonNull;
use std::slice;

use twinpath_frame::Mapping;

use crate::sync::{AtomicU32, Ordering};

const STATUS_FREE: u32 = 0;
const STATUS_FRAME: u32 = 1;
const NO_VLAN: u16 = 0xffff;

/// Bytes of a slot, its header included.
pub const SLOT_LEN: usize = 2048;
/// Bytes in front of a frame in its slot: status, length, tag.
const HEADER_LEN: usize = 16;
/// Bytes of what worker and program say to each other beside the slots.
pub const STATE_LEN: usize = 128;
/// Where in it the program counts frames for which there was no slot.
const FULL_AT: usize = 68;

/// A slot behind its status word.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct SlotHeader {
    len: u32,
    vlan: u16,
}

/// A received frame, still in the ring.
#[derive(Debug)]
pub struct DirectFrame<'a> {
    /// The bytes, from the Ethernet header.
    pub bytes: &'a [u8],
    /// The 802.1Q tag beside the frame.
    pub vlan_tci: Option<u16>,
}

/// The worker's end.
#[derive(Debug)]
pub struct DirectRing {
    state: Mapping,
    slots: Mapping,
    count: usize,
    next: usize,
    full_seen: u32,
}

/// The sizes do not fit the mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLayout;

impl DirectRing {
    /// Over `count` slots, a power of two.
    ///
    /// # Errors
    /// [`BadLayout`].
    pub fn new(state: Mapping, slots: Mapping, count: usize) -> Result<Self, BadLayout> {
        let fits = count.is_power_of_two()
            && count.checked_mul(SLOT_LEN).is_some_and(|bytes| bytes <= slots.len())
            && state.len() >= STATE_LEN;
        if fits { Ok(Self { state, slots, count, next: 0, full_seen: 0 }) } else { Err(BadLayout) }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + size_of::<u32>() <= STATE_LEN);
        // SAFETY: `new` checked that the state holds it, aligned to four; a 32-bit atomic takes any bits.
        unsafe { self.state.base().add(at).cast::<AtomicU32>().as_ref() }
    }

    fn slot(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.count);
        // SAFETY: `new` checked that all slots lie in the mapping.
        unsafe { self.slots.base().add(index * SLOT_LEN) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a slot starts with its status word, aligned; a 32-bit atomic takes any bits.
        unsafe { self.slot(index).cast::<AtomicU32>().as_ref() }
    }

    /// Has the program put frames here from now on, or no longer. One that is at it may still put its frame.
    pub fn set_on(&self, on: bool) {
        self.word(0).store(u32::from(on), Ordering::SeqCst);
    }

    /// Whether the program puts frames here.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.word(0).load(Ordering::Relaxed) != 0
    }

    /// Whether a frame is waiting.
    #[inline]
    #[must_use]
    pub fn look(&self) -> bool {
        self.status(self.next).load(Ordering::Acquire) != STATUS_FREE
    }

    /// Shows the oldest frame to `see`, then gives its slot back. `None` if none is waiting.
    #[inline]
    pub fn take<R>(&mut self, see: impl FnOnce(DirectFrame<'_>) -> R) -> Option<R> {
        // Acquire: the program wrote the slot before its status, which it sets by an exchange.
        let mut status = self.status(self.next).load(Ordering::Acquire);
        while status != STATUS_FRAME {
            if status == STATUS_FREE {
                return None;
            }
            // A frame that the program could not read to its end.
            self.free();
            status = self.status(self.next).load(Ordering::Acquire);
        }
        let base = self.slot(self.next);
        // SAFETY: the slot is ours until we set its status; the header follows the status word, and any bits are a value.
        let header = unsafe { base.add(size_of::<u32>()).cast::<SlotHeader>().read() };
        let len = (header.len as usize).min(SLOT_LEN - HEADER_LEN);
        // SAFETY: HEADER_LEN + len <= SLOT_LEN, so the bytes lie in this slot, which the program does not touch now.
        let bytes = unsafe { slice::from_raw_parts(base.add(HEADER_LEN).as_ptr(), len) };
        let result = see(DirectFrame { bytes, vlan_tci: (header.vlan != NO_VLAN).then_some(header.vlan) });
        self.free();
        Some(result)
    }

    fn free(&mut self) {
        // Release: our reads are done before the program may write again.
        self.status(self.next).store(STATUS_FREE, Ordering::Release);
        self.next = (self.next + 1) & (self.count - 1);
    }

    /// Frames lost since the last call because no slot was free.
    pub fn lost(&mut self) -> u32 {
        let full = self.word(FULL_AT).load(Ordering::Relaxed);
        let lost = full.wrapping_sub(self.full_seen);
        self.full_seen = full;
        lost
    }

    /// Bytes of ring memory.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(slots: usize) -> DirectRing {
        let memory = |len| Mapping::of_memfd("direct-test", len).expect("memory").0;
        DirectRing::new(memory(4096), memory(slots * SLOT_LEN), slots).expect("layout")
    }

    /// Writes a frame as the program does: bytes, length, tag, then status.
    fn deliver(ring: &DirectRing, index: usize, status: u32, len: u32, vlan: u16, bytes: &[u8]) {
        let base = ring.slot(index);
        // SAFETY: the test writes within one slot, and nobody reads it before the status is set.
        unsafe {
            base.add(size_of::<u32>()).cast::<SlotHeader>().write(SlotHeader { len, vlan });
            base.add(HEADER_LEN).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
        ring.status(index).store(status, Ordering::Release);
    }

    #[test]
    fn frames_come_in_order_slots_go_back_and_one_still_being_filled_is_waited_for() {
        let mut ring = ring(2);
        assert!(!ring.look());
        for round in 0..5u8 {
            let index = usize::from(round) % 2;
            // The other slot is ready, and does not overtake.
            deliver(&ring, 1 - index, STATUS_FRAME, 1, NO_VLAN, &[round + 1]);
            assert!(!ring.look() || round > 0);
            deliver(&ring, index, STATUS_FRAME, 3, 5, &[round, 1, 2]);
            assert_eq!(
                ring.take(|frame| (frame.bytes.to_vec(), frame.vlan_tci)),
                Some((vec![round, 1, 2], Some(5)))
            );
            assert_eq!(ring.status(index).load(Ordering::Relaxed), STATUS_FREE);
        }
    }

    #[test]
    fn what_could_not_be_read_is_passed_over_and_a_length_is_bounded() {
        let mut ring = ring(4);
        deliver(&ring, 0, 2, 9, NO_VLAN, &[]);
        assert!(ring.look());
        assert_eq!(ring.take(|_| ()), None);
        deliver(&ring, 1, 2, 9, NO_VLAN, &[]);
        deliver(&ring, 2, STATUS_FRAME, u32::MAX, NO_VLAN, &[7]);
        let seen = ring.take(|frame| (frame.bytes.len(), frame.bytes[0], frame.vlan_tci));
        assert_eq!(seen, Some((SLOT_LEN - HEADER_LEN, 7, None)));
        assert!((0..4).all(|index| ring.status(index).load(Ordering::Relaxed) == STATUS_FREE));
    }

    #[test]
    fn lost_frames_are_told_once_and_a_layout_beyond_the_mapping_is_refused() {
        let mut ring = ring(2);
        ring.word(FULL_AT).store(7, Ordering::Relaxed);
        assert_eq!((ring.lost(), ring.lost()), (7, 0));
        ring.set_on(true);
        assert!(ring.is_on());
        let memory = |len| Mapping::of_memfd("direct-test", len).expect("memory").0;
        for (slots, count) in [(2 * SLOT_LEN, 4), (3 * SLOT_LEN, 3), (SLOT_LEN, 0), (SLOT_LEN, usize::MAX)] {
            assert!(DirectRing::new(memory(4096), memory(slots), count).is_err());
        }
    }
}
