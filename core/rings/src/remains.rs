//! What is in the ring of a lease whose holder has left it: its process has ended, or somebody may wait for the socket who knows
//! nothing of the ring.
//!
//! Who reads it is another process, or the holder's own while no thread looks. The holder may have written anything there, and may go on
//! with that: each number is bounded, frames are copied before they are looked at, and no more of them are read than three times as many as
//! the ring has slots. Frames that come meanwhile are taken by the ring as before, if it is open: it is closed when it is empty, by an exchange that
//! fails if it is not any more. So they stay in order.

use std::hint::spin_loop;

use crate::direct::{DirectRing, OPEN, POSITION};
use crate::lease::SINGLE;
use crate::sync::Ordering;

/// Looks at a slot that is about to be filled, which takes less than a microsecond; after some of them, this CPU may be the program's.
const LOOKS: u32 = 2_048;
const LOOKS_BEFORE_YIELD: u32 = 1_024;

/// The reader.
#[derive(Debug)]
pub struct Remains {
    ring: DirectRing,
    /// Frames that may be read yet.
    left: u64,
    /// It was closed although it is not empty.
    is_cut: bool,
}

impl Remains {
    /// Of a ring that nobody else reads.
    #[must_use]
    pub fn new(mut ring: DirectRing) -> Self {
        ring.resume();
        let left = ring.slots() * 2;
        Self { ring, left, is_cut: false }
    }

    /// Whether there is anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.consumed() >= self.ring.head().load(Ordering::SeqCst) & POSITION
    }

    /// Copies the next frame, from its Ethernet header on. Its length; `None` if there is none. `yields` gives this CPU to others: the
    /// program that fills a slot may run on it.
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

    /// Closes the ring if it is empty, or if so much has come that nobody waits for its end. `false`: there is more to be taken.
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
