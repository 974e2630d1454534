//! Producer and consumer positions of a ring of a power of two, counted modulo 2^32, with a cached copy of the peer's
//! position.

/// The producer's positions: they tell how many entries can be written.
#[derive(Debug)]
pub(crate) struct ProducerCursor {
    /// Next entry to write.
    head: u32,
    /// The consumer's position when it was last read; it can only have advanced since.
    tail: u32,
    len: u32,
}

/// The consumer's positions: they tell how many entries can be read.
#[derive(Debug)]
pub(crate) struct ConsumerCursor {
    /// Next entry to read.
    tail: u32,
    /// The producer's position when it was last read; it can only have advanced since.
    head: u32,
    len: u32,
}

impl ProducerCursor {
    /// `len` must be a power of two; both positions start at `at`.
    pub(crate) const fn new(len: u32, at: u32) -> Self {
        assert!(len.is_power_of_two());
        Self { head: at, tail: at, len }
    }

    /// Entries that can be written now. Reads the peer's position only if the cached one leaves fewer than `want`.
    ///
    /// An invalid peer position, which the peer cannot have reached, yields 0, so that no unread entry is
    /// overwritten.
    #[inline]
    pub(crate) fn free(&mut self, want: u32, peer: impl FnOnce() -> u32) -> u32 {
        if self.cached() < want {
            self.tail = peer();
        }
        self.cached()
    }

    /// As [`Self::free`], for an untrusted peer: `None` if its position cannot be reached from its last one.
    #[inline]
    pub(crate) fn checked_free(&mut self, want: u32, peer: impl FnOnce() -> u32) -> Option<u32> {
        if self.cached() < want {
            let tail = peer();
            // The consumer may have advanced up to our position, but no further.
            if tail.wrapping_sub(self.tail) > self.head.wrapping_sub(self.tail) {
                return None;
            }
            self.tail = tail;
        }
        Some(self.cached())
    }

    #[inline]
    const fn cached(&self) -> u32 {
        self.len.saturating_sub(self.head.wrapping_sub(self.tail))
    }

    /// Index of the `nth` entry to be written.
    #[inline]
    pub(crate) const fn index(&self, nth: u32) -> usize {
        (self.head.wrapping_add(nth) & (self.len - 1)) as usize
    }

    /// Advances by `count`; returns the position to publish.
    #[inline]
    pub(crate) const fn advance(&mut self, count: u32) -> u32 {
        self.head = self.head.wrapping_add(count);
        self.head
    }
}

impl ConsumerCursor {
    /// `len` must be a power of two; both positions start at `at`.
    pub(crate) const fn new(len: u32, at: u32) -> Self {
        assert!(len.is_power_of_two());
        Self { tail: at, head: at, len }
    }

    /// Entries that can be read now. Reads the peer's position only if the cached one gives fewer than `want`.
    ///
    /// An invalid peer position (more entries than the ring has) yields 0, so that no stale entry is read twice.
    #[inline]
    pub(crate) fn available(&mut self, want: u32, peer: impl FnOnce() -> u32) -> u32 {
        if self.cached() < want {
            self.head = peer();
        }
        self.cached()
    }

    /// As [`Self::available`], for an untrusted peer: `None` if its position cannot be reached from its last one.
    #[inline]
    pub(crate) fn checked_available(&mut self, want: u32, peer: impl FnOnce() -> u32) -> Option<u32> {
        let cached = self.cached();
        if cached < want {
            let head = peer();
            let available = head.wrapping_sub(self.tail);
            // The producer may have advanced until the ring is full, but no further.
            if available < cached || available > self.len {
                return None;
            }
            self.head = head;
        }
        Some(self.cached())
    }

    #[inline]
    const fn cached(&self) -> u32 {
        let available = self.head.wrapping_sub(self.tail);
        if available > self.len { 0 } else { available }
    }

    /// Index of the `nth` entry to be read.
    #[inline]
    pub(crate) const fn index(&self, nth: u32) -> usize {
        (self.tail.wrapping_add(nth) & (self.len - 1)) as usize
    }

    /// Advances by `count`; returns the position to publish.
    #[inline]
    pub(crate) const fn advance(&mut self, count: u32) -> u32 {
        self.tail = self.tail.wrapping_add(count);
        self.tail
    }

    /// Whether there are entries to read, judged by the peer's position alone.
    #[inline]
    pub(crate) fn peek(&self, peer: impl FnOnce() -> u32) -> bool {
        self.cached() > 0 || peer() != self.tail
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks the cursors against a simple model: a queue of numbers, from any starting position, across the wrap
        /// at 2^32.
        #[test]
        fn cursors_agree_with_a_queue(
            at in prop_oneof![Just(0), Just(u32::MAX - 5), any::<u32>()],
            len_bits in 0u32..6,
            steps in prop::collection::vec((any::<bool>(), 1u32..9), 1..200),
        ) {
            let len = 1 << len_bits;
            let mut producer = ProducerCursor::new(len, at);
            let mut consumer = ConsumerCursor::new(len, at);
            let (mut head, mut tail) = (at, at);
            let mut slots = vec![None; len as usize];
            let mut model = std::collections::VecDeque::new();
            let mut next = 0u32;
            for (produce, want) in steps {
                if produce {
                    let count = producer.free(want, || tail).min(want);
                    prop_assert_eq!(count, want.min(len - model.len() as u32));
                    for nth in 0..count {
                        slots[producer.index(nth)] = Some(next);
                        model.push_back(next);
                        next += 1;
                    }
                    head = producer.advance(count);
                } else {
                    let count = consumer.available(want, || head).min(want);
                    prop_assert_eq!(count, want.min(model.len() as u32));
                    for nth in 0..count {
                        prop_assert_eq!(slots[consumer.index(nth)].take(), model.pop_front());
                    }
                    tail = consumer.advance(count);
                }
            }
        }

        /// A peer that writes an invalid position can stop the ring but never corrupt it.
        #[test]
        fn an_invalid_peer_position_yields_no_entries(at in any::<u32>(), lie in any::<u32>()) {
            let mut producer = ProducerCursor::new(8, at);
            prop_assert!(producer.free(8, || lie) <= 8);
            let mut consumer = ConsumerCursor::new(8, at);
            prop_assert!(consumer.available(8, || lie) <= 8);
            let free = ProducerCursor::new(8, at).checked_free(9, || lie);
            prop_assert_eq!(free, (lie == at).then_some(8), "nothing was written that could have been read");
            let available = ConsumerCursor::new(8, at).checked_available(9, || lie);
            let ahead = lie.wrapping_sub(at);
            prop_assert_eq!(available, (ahead <= 8).then_some(ahead));
        }
    }
}
