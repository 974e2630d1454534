//! Reads the ring of a lease after its holder has left it: the holder's process has ended, or a thread that does
//! not know of the ring may wait on the socket.
//!
//! The reader is another process, or the holder's own process while no thread looks. The holder may have written
//! anything into the ring, and may still write. So each number is bounded, frames are copied before they are
//! examined, and at most three times as many frames are read as the ring has slots. An open ring continues to take
//! frames meanwhile. It is closed when it is empty, by an exchange that fails if it no longer is. So the frames
//! stay in order.

use std::hint::spin_loop;

use crate::direct::{DirectRing, OPEN, POSITION};
use crate::lease::SINGLE;
use crate::sync::Ordering;

/// How often to look at a slot that is being filled, which takes less than a microsecond. After some looks, this
/// CPU is yielded, because the program may run on it.
const LOOKS: u32 = 2_048;
const LOOKS_BEFORE_YIELD: u32 = 1_024;

/// The reader.
#[derive(Debug)]
pub struct Remains {
    ring: DirectRing,
    /// Maximum number of frames still to be read.
    left: u64,
    /// It was closed although it was not empty.
    is_cut: bool,
}

impl Remains {
    /// For a ring that nobody else reads.
    #[must_use]
    pub fn new(mut ring: DirectRing) -> Self {
        ring.resume();
        let left = ring.slots() * 2;
        Self { ring, left, is_cut: false }
    }

    /// Whether there is anything to read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.consumed() >= self.ring.head().load(Ordering::SeqCst) & POSITION
    }

    /// Copies the next frame, from its Ethernet header on. Returns its length; `None` if there is none. `yields`
    /// gives this CPU to others: the program that fills a slot may run on it.
    pub fn take(&mut self, into: &mut [u8], yields: impl Fn()) -> Option<usize> {
        while !self.is_empty() && self.left > 0 {
            self.left -= 1;
            for look in 0..LOOKS {
                if self.ring.look() {
                    break;
                }
                if look < LOOKS_BEFORE_YIELD { spin_loop() } else { yields() }
            }
            let is_filled = self.ring.look();
            let len = self.ring.take_copy(into);
            if is_filled && len > 0 {
                return Some(len);
            }
        }
        None
    }

    /// Closes the ring if it is empty, or if the maximum number of frames has been read. `false`: there is more to
    /// read.
    pub fn close(&mut self) -> bool {
        let head = self.ring.head();
        while self.left > 0 {
            let word = head.load(Ordering::SeqCst);
            if word & POSITION > self.ring.consumed() {
                return false;
            }
            let closed = word & !(OPEN | SINGLE);
            if word & OPEN == 0
                || head.compare_exchange(word, closed, Ordering::SeqCst, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            self.left -= 1;
        }
        head.fetch_and(!(OPEN | SINGLE), Ordering::SeqCst);
        self.left = if self.is_cut { 0 } else { self.ring.slots() };
        std::mem::replace(&mut self.is_cut, true)
    }
}
