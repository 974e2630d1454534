//! Decides which connection is polled without the epoll: one that has been the only busy one for a while.
//!
//! To ask the epoll costs a system call per turn that a lone busy connection does not need, and to be in it costs the kernel a call per
//! packet to say that somebody might wait. For the others the epoll is still looked at, every 20 microseconds; as soon as they have more
//! than a little to do, or the polled one falls silent, it goes back among them. Once polled, a connection may be read a little later than it
//! could be ([`ReadDelay`]).

use twinpath_time::{Duration, Instant};

use crate::read_delay::ReadDelay;

/// Looks in a row that found this connection and no other, before it is taken out of the epoll: the two system calls there
/// and back are little by then.
const STREAK: u32 = 16;
/// What work for another connection weighs against a read of the polled one.
const OTHERS_WEIGHT: u32 = 4;
/// Work for others, so weighed, at which polling ends.
const OTHERS_MAX: u32 = 64;
/// Bytes of one read from which on they are taken for several requests.
const PIPELINED_BYTES: u64 = 256;
/// Silence after which polling ends.
const SILENCE: Duration = Duration::from_micros(200);
/// Time without polling after which what was learnt of the connection is forgotten.
const FORGOTTEN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Polled {
    number: Option<u32>,
    last: u32,
    streak: u32,
    others: u32,
    worked: Instant,
    /// Bytes of the last read.
    last_bytes: u64,
    /// How long reads are delayed, and of which connection that was learnt.
    delay: ReadDelay,
    delay_of: u32,
}

impl Polled {
    /// The connection that is polled, if one is.
    #[inline]
    pub(crate) const fn number(&self) -> Option<u32> {
        self.number
    }

    /// The epoll named a connection. Says whether that one is to be polled from now on.
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
            // What was learnt of it before holds if it was away for a moment only.
            if self.delay_of != number || now > self.worked + FORGOTTEN {
                (self.delay, self.delay_of) = (ReadDelay::default(), number);
            }
            self.forget();
            (self.number, self.worked) = (Some(number), now);
        }
        chosen
    }

    /// Whether it is to be read now, or a little later.
    #[inline]
    pub(crate) fn may_read(&self, now: Instant) -> bool {
        self.delay.may_read(now)
    }

    /// Whether its requests come several at a time.
    #[inline]
    pub(crate) const fn pipelines(&self) -> bool {
        self.last_bytes >= PIPELINED_BYTES
    }

    /// It was read, and gave so many bytes.
    #[inline]
    pub(crate) fn was_read(&mut self, now: Instant, bytes: u64) {
        self.delay.was_read(now, bytes);
        if bytes > 0 {
            self.others = self.others.saturating_sub(1);
            (self.worked, self.last_bytes) = (now, bytes);
        }
    }

    /// Whether it is not to be polled any longer.
    #[inline]
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.others > OTHERS_MAX || now > self.worked + SILENCE
    }

    /// None is polled from now on, and what is to be polled next is found out anew. Called before each sleep.
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
