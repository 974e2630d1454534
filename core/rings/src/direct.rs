//! The direct ring. A BPF program (`stack/bpf/bpf/packet.c`, which has the same layout) fills its slots with frames
//! as they arrive, and the worker reads them without a system call.
//!
//! It is Dmitry Vyukov's bounded queue, with many producers and one consumer: the program may run on any CPU. Each
//! slot has a sequence number that says who may use it. With `lap` = position rounded down to a multiple of the
//! number of slots:
//!
//! - `lap`: the program may take the slot for this position, by moving the head;
//! - `lap + 1`: the slot holds a frame;
//! - the next lap: the worker has read the slot and given it back.
//!
//! A program that is held up between taking a slot and filling it keeps the slot. The others can fill the ring
//! meanwhile, but not overwrite that slot. Frames come in the order of their positions, and the worker waits for
//! one that is still being filled. Positions are 61 bits wide and never wrap.
//!
//! The highest bit of the head says whether the ring is open. Only the worker opens it. A program takes a position by
//! an exchange of the whole word, so it takes none once the ring is closed. By closing it, the worker learns how many
//! positions were taken. When it has read them all, the ring stays empty until the worker opens it again. The program
//! closes the ring when a frame comes that does not fit into a slot; the worker learns that by [`DirectRing::notice`].
//! Zeroed memory is an empty, closed ring.

#[cfg(not(loom))]
use twinpath_frame::Mapping;

#[cfg(not(loom))]
use crate::sync::Arc;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

pub(crate) mod layout;
pub(crate) mod memory;

use memory::Memory;

#[cfg(not(loom))]
use crate::layouts::{VLAN_NONE as NO_VLAN, slot::BYTES_AT as HEADER_LEN};
use layout::direct::{FULL_AT, WANTS_SOCKET_AT, WITHOUT_SOCKET_AT};

/// Bytes of a slot, its header included.
pub const SLOT_LEN: usize = layout::SLOT_LEN;
/// Bytes of the state that a worker and the program share beside the slots.
pub const STATE_LEN: usize = layout::direct::LEN;
/// Offset in the state of the head: the next position, and [`OPEN`]. The bits between these are used by a lease only
/// (`lease.rs`).
pub(crate) const HEAD_AT: usize = layout::direct::HEAD_AT;
pub(crate) use layout::{OPEN, POSITION};

/// A received frame, still in the ring.
#[derive(Debug)]
pub struct DirectFrame<'a> {
    /// The bytes, from the Ethernet header.
    pub bytes: &'a [u8],
    /// TCI of the 802.1Q tag that is not in the bytes.
    pub vlan_tci: Option<u16>,
    /// Whether it is a datagram that came coalesced with others. Its checksum is left to hardware.
    pub is_cut: bool,
}

/// The worker's end.
#[derive(Debug)]
pub struct DirectRing {
    memory: Memory,
    /// Position of the frame to be read next.
    next: u64,
    /// If the ring is closed, its end: no position from here on is taken.
    end: Option<u64>,
    full_seen: u32,
}

/// The sizes do not fit the mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLayout;

impl DirectRing {
    /// The ring of queue `queue`, closed: `count` slots, a power of two and at least two. All memory must be zeroed
    /// and unused.
    ///
    /// # Errors
    /// [`BadLayout`].
    #[cfg(not(loom))]
    pub fn new(states: Arc<Mapping>, queue: u32, slots: Mapping, count: usize) -> Result<Self, BadLayout> {
        Memory::new(states, queue, slots, count).map(Self::over)
    }

    pub(crate) const fn over(memory: Memory) -> Self {
        Self { memory, next: 0, end: Some(0), full_seen: 0 }
    }

    /// How many frames were read.
    pub(crate) const fn consumed(&self) -> u64 {
        self.next
    }

    /// How many slots there are.
    #[cfg(not(loom))]
    pub(crate) const fn slots(&self) -> u64 {
        self.memory.count as u64
    }

    /// The mapping of the states of all rings, and the number of this one.
    #[cfg(not(loom))]
    pub(crate) fn states(&self) -> (Arc<Mapping>, u32) {
        self.memory.states()
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        self.memory.word(at)
    }

    /// A word of eight bytes of the state.
    pub(crate) fn long_word(&self, at: usize) -> &AtomicU64 {
        self.memory.long_word(at)
    }

    pub(crate) fn head(&self) -> &AtomicU64 {
        self.memory.long_word(HEAD_AT)
    }

    /// The slot of the next frame, and its lap.
    const fn next_place(&self) -> (usize, u64) {
        let place = self.next & (self.memory.count as u64 - 1);
        (place as usize, self.next - place)
    }

    /// Tells the program whether the worker has no socket. If so, the program at tc ingress decides by itself
    /// instead of following the decision of the socket's filter.
    pub fn set_without_socket(&self, without: bool) {
        self.word(WITHOUT_SOCKET_AT).store(u32::from(without), Ordering::SeqCst);
    }

    /// Whether the program has seen a frame for this worker that only a socket takes, while the worker had none.
    #[must_use]
    pub fn wants_socket(&self) -> bool {
        self.word(WANTS_SOCKET_AT).load(Ordering::Relaxed) != 0
    }

    /// From now on frames may be put into the ring. Only for a ring that [`Self::is_drained`]: frames that a socket
    /// received while the ring was closed must not overtake those left in it.
    pub fn open(&mut self) {
        debug_assert!(self.is_drained(), "frames are left");
        self.end = None;
        self.head().fetch_or(OPEN, Ordering::SeqCst);
    }

    /// The ring was opened by an exchange of its head.
    pub(crate) const fn was_opened(&mut self) {
        self.end = None;
    }

    /// The ring was closed: the head as it was then.
    pub(crate) const fn was_closed(&mut self, head: u64) {
        self.end = Some(head & POSITION);
    }

    /// The ring was closed with the frame that was read last.
    pub(crate) const fn was_last(&mut self) {
        self.end = Some(self.next);
    }

    /// From now on no frame takes a position. Frames that have a position are still to come.
    pub fn close(&mut self) {
        let head = self.head().fetch_and(!OPEN, Ordering::SeqCst);
        self.was_closed(head);
    }

    /// Looks whether the program has closed the ring. Returns whether it is closed; the worker then knows its end, as
    /// after [`Self::close`].
    pub fn notice(&mut self) -> bool {
        let head = self.head().load(Ordering::SeqCst);
        let is_closed = head & OPEN == 0;
        if is_closed {
            self.was_closed(head);
        }
        is_closed
    }

    /// Whether frames may be put into the ring, as far as the worker has noticed.
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
        // Acquire: the program wrote the slot before it set the slot's sequence number by an exchange.
        self.memory.sequence(place).load(Ordering::Acquire) == lap + 1
    }

    /// Passes the oldest frame to `see`, then gives its slot back. `None` if no frame is waiting.
    #[inline]
    pub fn take<R>(&mut self, see: impl FnOnce(DirectFrame<'_>) -> R) -> Option<R> {
        while self.look() {
            let (place, _) = self.next_place();
            if self.memory.is_unreadable(place) {
                self.free();
                continue;
            }
            let result = self.memory.read(place, see);
            self.free();
            return Some(result);
        }
        None
    }

    /// As [`Self::take`], but leaves the frame there.
    pub fn peek<R>(&mut self, see: impl FnOnce(DirectFrame<'_>) -> R) -> Option<R> {
        while self.look() {
            let (place, _) = self.next_place();
            if !self.memory.is_unreadable(place) {
                return Some(self.memory.read(place, see));
            }
            self.free();
        }
        None
    }

    fn free(&mut self) {
        let (place, lap) = self.next_place();
        // Release: our reads are done before the program may write again.
        self.memory.sequence(place).store(lap + self.memory.count as u64, Ordering::Release);
        self.next += 1;
    }

    /// Another reader may have read: continues after the slots that were given back.
    pub(crate) fn catch_up(&mut self) {
        let head = self.head().load(Ordering::Acquire) & POSITION;
        while self.next < head {
            let (place, lap) = self.next_place();
            // If the other reader has read a whole lap, the slot may have been filled again.
            if self.memory.sequence(place).load(Ordering::Acquire) < lap + self.memory.count as u64 {
                return;
            }
            self.next += 1;
        }
    }

    /// Discards all unread frames. The ring must be closed.
    pub(crate) fn discard(&mut self) {
        self.catch_up();
        while !self.is_drained() {
            let (place, lap) = self.next_place();
            if self.memory.sequence(place).load(Ordering::Acquire) == lap {
                // A program is just filling it.
                crate::sync::pause();
            } else {
                self.free();
            }
        }
    }

    /// Continues where the former reader ended, according to the slots. That reader may have written anything
    /// there.
    #[cfg(not(loom))]
    pub(crate) fn resume(&mut self) {
        let head = self.head().load(Ordering::SeqCst) & POSITION;
        let count = self.memory.count as u64;
        self.next = head;
        while self.next > 0 && head - self.next < count {
            let at = self.next - 1;
            let place = at & (count - 1);
            let (lap, sequence) = (at - place, self.memory.sequence(place as usize).load(Ordering::Acquire));
            if sequence != lap && sequence != lap + 1 {
                break;
            }
            self.next = at;
        }
        self.end = None;
    }

    /// As [`Self::take`], for a ring whose memory another party may write: copies the frame and returns its length,
    /// or 0 if it could not be read.
    #[cfg(not(loom))]
    pub(crate) fn take_copy(&mut self, into: &mut [u8]) -> usize {
        let (place, _) = self.next_place();
        let len = self.memory.copy(place, into);
        self.free();
        len
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
        self.memory.mapped_bytes()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
