//! Decides which connection is polled, that is, read without asking the epoll first: one that has been the
//! only busy one for a while.
//!
//! Asking the epoll costs a system call per turn, and a watched socket costs the kernel a callback per
//! packet. A single busy connection needs neither. The epoll is still asked every 20 microseconds, for the
//! other connections. Once those have more than a little to do, or the polled connection falls silent, the
//! epoll watches the polled one again. Reads of a polled connection may be delayed ([`ReadDelay`]).
//!
//! Events of the fast path's engine cost no system call. There the only busy connection is chosen in the same way, and its
//! reads may be delayed. But events still announce its bytes, and the worker may sleep.

use twinpath_time::{Duration, Instant};

use crate::streams::read_delay::ReadDelay;

/// Number of successive events for one connection after which it is polled. Adding it to the epoll and
/// removing it costs two system calls, which is little for this many events.
const STREAK: u32 = 16;
/// An event of another connection weighs as much as this number of reads of the polled one.
const OTHERS_WEIGHT: u32 = 4;
/// Polling ends when the weighed events of others exceed this number.
const OTHERS_MAX: u32 = 64;
/// A read of at least this many bytes is taken for several requests.
const PIPELINED_BYTES: u64 = 256;
/// Polling ends after this time without bytes.
const SILENCE: Duration = Duration::from_micros(200);
/// After this time without polling, the learnt read delay is forgotten.
const FORGOTTEN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Polled {
    number: Option<u32>,
    last: u32,
    streak: u32,
    others: u32,
    worked: Instant,
    /// Bytes of the last read that found any.
    last_bytes: u64,
    /// How long reads are delayed, and the connection for which that was learnt.
    delay: ReadDelay,
    delay_of: u32,
}

impl Polled {
    /// The number of the polled connection, if there is one.
    #[inline]
    pub(crate) const fn number(&self) -> Option<u32> {
        self.number
    }

    /// Records an epoll event for a connection. Returns whether that connection is polled from now on.
    #[inline]
    pub(crate) fn named(&mut self, number: u32, now: Instant) -> bool {
        if self.number.is_some() {
            self.others += OTHERS_WEIGHT;
            return false;
        }
        self.streak = if number == self.last { self.streak + 1 } else { 1 };
        self.last = number;
        let chosen = self.streak >= STREAK;
        if chosen {
            // What was learnt of the same connection still holds after a short break.
            if self.delay_of != number || now > self.worked + FORGOTTEN {
                (self.delay, self.delay_of) = (ReadDelay::default(), number);
            }
            self.forget();
            (self.number, self.worked) = (Some(number), now);
        }
        chosen
    }

    /// Whether the connection may be read now, or its read is still delayed.
    #[inline]
    pub(crate) fn may_read(&self, now: Instant) -> bool {
        self.delay.may_read(now)
    }

    /// When the connection may be read.
    #[inline]
    pub(crate) const fn next_read(&self) -> Instant {
        self.delay.next_read()
    }

    /// Whether the peer seems to send several requests at a time.
    #[inline]
    pub(crate) const fn pipelines(&self) -> bool {
        self.last_bytes >= PIPELINED_BYTES
    }

    /// Records a read that returned `bytes` bytes.
    #[inline]
    pub(crate) fn was_read(&mut self, now: Instant, bytes: u64) {
        self.delay.was_read(now, bytes);
        if bytes > 0 {
            self.others = self.others.saturating_sub(1);
            (self.worked, self.last_bytes) = (now, bytes);
        }
    }

    /// Whether polling this connection should end.
    #[inline]
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.others > OTHERS_MAX || now > self.worked + SILENCE
    }

    /// Ends polling, and forgets the events that were counted. Called before each sleep.
    #[inline]
    pub(crate) const fn forget(&mut self) {
        (self.number, self.streak, self.others, self.last_bytes) = (None, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000);

    fn chosen() -> Polled {
        let mut polled = Polled::default();
        assert_eq!((1..=STREAK).filter(|_| polled.named(7, NOW)).count(), 1);
        assert_eq!(polled.number(), Some(7));
        polled
    }

    #[test]
    fn it_is_the_one_that_was_alone_and_silence_ends_it() {
        let mut polled = Polled::default();
        for round in 0..1_000 {
            assert!(!polled.named(round % 2, NOW), "two take turns");
        }
        let polled = chosen();
        assert!(!polled.is_over(NOW + SILENCE));
        assert!(polled.is_over(NOW + SILENCE + Duration::from_nanos(1)));
    }

    #[test]
    fn others_end_it_once_they_are_many() {
        let mut polled = chosen();
        for _ in 0..10_000 {
            for _ in 0..OTHERS_WEIGHT {
                polled.was_read(NOW, 1);
            }
            assert!(!polled.named(8, NOW));
        }
        assert!(!polled.is_over(NOW));
        for _ in 0..OTHERS_MAX {
            polled.named(8, NOW);
        }
        assert!(polled.is_over(NOW));
    }
}
