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
//! filled. Positions are 63 bits wide and never wrap.
//!
//! The highest bit of the head says whether the ring is open, and only the worker changes it. A program takes a
//! position by an exchange of the whole word, so it takes none once the ring is closed, and the worker learns by
//! closing it how many positions were taken: when it has read them all, the ring stays empty until it opens it again.
//! Zeroed memory is an empty, closed ring.
#![allow(
    unsafe_code,
    reason = "slots lie in memory mapped from the kernel, whose program owns them until their sequence says so"
)]

use std::ptr::NonNull;
use std::slice;

use twinpath_frame::Mapping;

use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering};

const NO_VLAN: u16 = 0xffff;

/// Bytes of a slot, its header included.
pub const SLOT_LEN: usize = 2048;
/// Bytes in front of a frame in its slot: sequence, length, tag.
const HEADER_LEN: usize = 16;
/// Bytes of the state that a worker and the program share beside the slots.
pub const STATE_LEN: usize = 128;
/// Offset in the state of the word that says that the worker has no socket.
const WITHOUT_SOCKET_AT: usize = 0;
/// Offset in the state of the head: the next position, and [`OPEN`].
const HEAD_AT: usize = 64;
/// Offset in the state of the program's count of frames for which there was no slot.
const FULL_AT: usize = 72;
/// In the head: frames may be put into the ring.
const OPEN: u64 = 1 << 63;

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
    /// The states of all workers of an interface, and the place of this one.
    states: Arc<Mapping>,
    state_at: usize,
    slots: Mapping,
    count: usize,
    /// Position of the frame to be read next.
    next: u64,
    /// Where the ring ends, if it is closed: no position from here on is taken.
    end: Option<u64>,
    full_seen: u32,
}

/// The sizes do not fit the mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLayout;

impl DirectRing {
    /// The ring of queue `queue`, closed: `count` slots, a power of two and at least two. All memory must be zeroed: no
    /// frame may have been read from it before.
    ///
    /// # Errors
    /// [`BadLayout`].
    pub fn new(states: Arc<Mapping>, queue: u32, slots: Mapping, count: usize) -> Result<Self, BadLayout> {
        let state_at = (queue as usize).checked_mul(STATE_LEN).ok_or(BadLayout)?;
        let fits = count.is_power_of_two()
            && count > 1
            && count.checked_mul(SLOT_LEN).is_some_and(|bytes| bytes <= slots.len())
            && state_at.checked_add(STATE_LEN).is_some_and(|end| end <= states.len());
        let ring = Self { states, state_at, slots, count, next: 0, end: Some(0), full_seen: 0 };
        if fits { Ok(ring) } else { Err(BadLayout) }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + size_of::<u32>() <= STATE_LEN);
        // SAFETY: `new` checked that the states hold it, aligned to four; a 32-bit atomic takes any bits.
        unsafe { self.states.base().add(self.state_at + at).cast::<AtomicU32>().as_ref() }
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: `new` checked that the states hold it, aligned to eight; a 64-bit atomic takes any bits.
        unsafe { self.states.base().add(self.state_at + HEAD_AT).cast::<AtomicU64>().as_ref() }
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

    /// Says to the program whether the worker has no socket. If so, the program at tc ingress decides by itself instead
    /// of acting on what the socket's filter has decided.
    pub fn set_without_socket(&self, without: bool) {
        self.word(WITHOUT_SOCKET_AT).store(u32::from(without), Ordering::SeqCst);
    }

    /// From now on frames may be put into the ring. Only for a ring that [`Self::is_drained`]: what a socket received
    /// while the ring was closed must not come before what is left in it.
    pub fn open(&mut self) {
        debug_assert!(self.is_drained(), "frames are left");
        self.end = None;
        self.head().fetch_or(OPEN, Ordering::SeqCst);
    }

    /// From now on no frame takes a position. Those that have one are still to come.
    pub fn close(&mut self) {
        let head = self.head().fetch_and(!OPEN, Ordering::SeqCst);
        self.end = Some(head & !OPEN);
    }

    /// Whether frames may be put into the ring.
    #[inline]
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// Whether the ring is closed and everything in it has been read.
    #[inline]
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.end == Some(self.next)
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
