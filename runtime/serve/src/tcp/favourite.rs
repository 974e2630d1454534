//! The connection that is asked directly, without the epoll: the one that has been alone for a while.
//!
//! Asking the epoll costs a system call per turn that a lone busy connection does not need, and being in it costs the kernel a
//! call per packet to say that somebody might wait. Others still have the epoll looked at, every 20 microseconds; as soon as
//! they are more than a few, or the favourite falls silent, it goes back among them.

use twinpath_time::{Duration, Instant};

use super::gather::Gather;

/// Looks in a row that found this connection and no other, before it is taken out of the epoll: two system calls there and
/// back are little by then.
const STREAK: u32 = 16;
/// What work found for another connection weighs against a turn's of the favourite.
const OTHER: u32 = 4;
/// Work of others, so weighed, at which it stops being one.
const CROWD_MAX: u32 = 64;
/// Bytes of one read from which on they are taken for several requests.
const BURST_BYTES: u64 = 256;
/// Silence after which it stops being one.
const SILENCE: Duration = Duration::from_micros(200);
/// Absence after which it begins anew.
const FORGOTTEN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct Favourite {
    number: Option<u32>,
    last: u32,
    streak: u32,
    crowd: u32,
    worked: Instant,
    /// What it gave last.
    last_bytes: u64,
    /// When it is asked; of which connection that was learnt.
    gather: Gather,
    gather_of: u32,
}

impl Favourite {
    /// The one, if there is one.
    #[inline]
    pub(crate) const fn number(&self) -> Option<u32> {
        self.number
    }

    /// The epoll named a connection. Says whether that one is to be the favourite from now on.
    #[inline]
    pub(crate) fn named(&mut self, number: u32, now: Instant) -> bool {
        if self.number.is_some() {
            self.crowd += OTHER;
            return false;
        }
        self.streak = if number == self.last { self.streak + 1 } else { 1 };
        self.last = number;
        let chosen = self.streak >= STREAK;
        if chosen {
            // What was learnt of it before holds if it was away for a moment only.
            let same = self.gather_of == number && now <= self.worked + FORGOTTEN;
            let gather = if same { std::mem::take(&mut self.gather) } else { Gather::default() };
            *self = Self { number: Some(number), worked: now, gather_of: number, gather, ..Self::default() };
        }
        chosen
    }

    /// Whether it is to be asked now: it may be let ask more first.
    #[inline]
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        self.gather.may_ask(now)
    }

    /// Whether its requests come several at a time.
    #[inline]
    pub(crate) const fn asks_in_bursts(&self) -> bool {
        self.last_bytes >= BURST_BYTES
    }

    /// It was asked, and gave so many bytes.
    #[inline]
    pub(crate) fn asked(&mut self, now: Instant, bytes: u64) {
        self.gather.asked(now, bytes);
        if bytes > 0 {
            self.crowd = self.crowd.saturating_sub(1);
            (self.worked, self.last_bytes) = (now, bytes);
        }
    }

    /// Whether it is not to be one any longer.
    #[inline]
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.crowd > CROWD_MAX || now > self.worked + SILENCE
    }

    /// There is none from now on.
    pub(crate) fn forget(&mut self) {
        let Self { worked, gather_of, .. } = *self;
        *self = Self { worked, gather_of, gather: std::mem::take(&mut self.gather), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000);

    fn chosen() -> Favourite {
        let mut favourite = Favourite::default();
        assert_eq!((1..=STREAK).filter(|_| favourite.named(7, NOW)).count(), 1);
        assert_eq!(favourite.number(), Some(7));
        favourite
    }

    #[test]
    fn it_is_the_one_that_was_alone_and_silence_ends_it() {
        let mut favourite = Favourite::default();
        for round in 0..1_000 {
            assert!(!favourite.named(round % 2, NOW), "two take turns");
        }
        let favourite = chosen();
        assert!(!favourite.is_over(NOW + SILENCE));
        assert!(favourite.is_over(NOW + SILENCE + Duration::from_nanos(1)));
    }

    #[test]
    fn others_end_it_once_they_are_many() {
        let mut favourite = chosen();
        for _ in 0..10_000 {
            for _ in 0..OTHER {
                favourite.asked(NOW, 1);
            }
            assert!(!favourite.named(8, NOW));
        }
        assert!(!favourite.is_over(NOW));
        for _ in 0..CROWD_MAX {
            favourite.named(8, NOW);
        }
        assert!(favourite.is_over(NOW));
    }
}
