//! The direct ring: slots that a BPF program (`io/steer_bpf/bpf/packet.c`, which has the same layout) fills with
//! frames as they arrive, and that the worker reads without a system call.
//!
//! It is Dmitry Vyukov's bounded queue, with many producers and one consumer: the program may run on any CPU, and
//! each slot has a sequence number that says who may use it. With `lap` = position rounded down to a multiple of the
//! number of slots:
//!
//! - `lap`: the program may take the slot for this position, which it does by moving the head;
//! - `lap + 1`: the slot holds a frame;
//! - the next lap: the worker has read the slot and given it back.
//!
//! So a program that is held up between taking a slot and filling it keeps the slot, however far the others get: they
//! find the ring full. Frames come in the order of their positions, and the worker waits for one that is still being
//! filled. Positions are 64 bits wide and never wrap. Zeroed memory is an empty ring.
#![allow(
    unsafe_code,
    reason = "slots lie in memory mapped from the kernel, whose program owns them until their sequence says so"
)]

use std::ptr::NonNull;
use std::slice;

use twinpath_frame::Mapping;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

const NO_VLAN: u16 = 0xffff;

/// Bytes of a slot, its header included.
pub const SLOT_LEN: usize = 2048;
/// Bytes in front of a frame in its slot: sequence, length, tag.
const HEADER_LEN: usize = 16;
/// Bytes of the state that worker and program share beside the slots.
pub const STATE_LEN: usize = 128;
/// Offset in the state of the program's count of frames for which there was no slot.
const FULL_AT: usize = 72;

/// The header of a slot, after its sequence number. A length of 0 means that the program could not read the frame.
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
    /// TCI of the 802.1Q tag that is not in the bytes.
    pub vlan_tci: Option<u16>,
}

/// The worker's end.
#[derive(Debug)]
pub struct DirectRing {
    state: Mapping,
    slots: Mapping,
    count: usize,
    /// Position of the frame to be read next.
    next: u64,
    full_seen: u32,
}

/// The sizes do not fit the mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLayout;

impl DirectRing {
    /// A ring of `count` slots, a power of two and at least two. All memory must be zeroed: no frame may have been
    /// read from it before.
    ///
    /// # Errors
    /// [`BadLayout`].
    pub fn new(state: Mapping, slots: Mapping, count: usize) -> Result<Self, BadLayout> {
        let fits = count.is_power_of_two()
            && count > 1
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

    fn sequence(&self, index: usize) -> &AtomicU64 {
        // SAFETY: a slot starts with its sequence, aligned to eight; a 64-bit atomic takes any bits.
        unsafe { self.slot(index).cast::<AtomicU64>().as_ref() }
    }

    /// The slot of the next frame, and its lap.
    const fn next_place(&self) -> (usize, u64) {
        let place = self.next & (self.count as u64 - 1);
        (place as usize, self.next - place)
    }

    /// Tells the program to put frames into the ring from now on, or to stop. A program run that has begun may still
    /// put its frame after a stop.
    pub fn set_on(&self, on: bool) {
        self.word(0).store(u32::from(on), Ordering::SeqCst);
    }

    /// Whether the program is to put frames into the ring.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.word(0).load(Ordering::Relaxed) != 0
    }

    /// Whether a frame is waiting.
    #[inline]
    #[must_use]
    pub fn look(&self) -> bool {
        let (place, lap) = self.next_place();
        // Acquire: the program wrote the slot before its sequence, which it sets by an exchange.
        self.sequence(place).load(Ordering::Acquire) == lap + 1
    }

    /// Passes the oldest frame to `see`, then gives its slot back. `None` if no frame is waiting.
    #[inline]
    pub fn take<R>(&mut self, see: impl FnOnce(DirectFrame<'_>) -> R) -> Option<R> {
        while self.look() {
            let (place, _) = self.next_place();
            let base = self.slot(place);
            // SAFETY: the slot is ours until we set its sequence; the header follows that, and any bits are a value.
            let header = unsafe { base.add(size_of::<u64>()).cast::<SlotHeader>().read() };
            if header.len == 0 {
                self.free();
                continue;
            }
            let len = (header.len as usize).min(SLOT_LEN - HEADER_LEN);
            // SAFETY: HEADER_LEN + len <= SLOT_LEN, so the bytes lie in this slot, which the program does not touch now.
            let bytes = unsafe { slice::from_raw_parts(base.add(HEADER_LEN).as_ptr(), len) };
            let result =
                see(DirectFrame { bytes, vlan_tci: (header.vlan != NO_VLAN).then_some(header.vlan) });
            self.free();
            return Some(result);
        }
        None
    }

    fn free(&mut self) {
        let (place, lap) = self.next_place();
        // Release: our reads are done before the program may write again.
        self.sequence(place).store(lap + self.count as u64, Ordering::Release);
        self.next += 1;
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
mod tests;
