//! Detects whether other threads compete for a worker's CPU under a fair scheduler.
//!
//! Linux's scheduler (EEVDF) lets a woken thread preempt the running one only if the woken thread is eligible, that
//! is, if it has not had more than its share of CPU time (Documentation/scheduler/sched-eevdf.rst: lag). A worker
//! gets ahead of its share by running, spinning or not. If it is woken while ahead, it waits until the next tick,
//! up to 4 ms, and so do all its packets. Beside a busy process, a worker that spun for a twentieth of the time had
//! to wait twice as often as one that slept, and was never preempted while it spun. So sleeping pays where others
//! compete for the CPU.
//!
//! The sign of it is a wake-up that takes longer than usual. It looks the same when a hypervisor had the CPU, but
//! there spinning pays. So a late wake-up only raises a suspicion, and at the next wake-ups the kernel is asked
//! whether the thread waited for its CPU. A single wait proves little, because some other thread runs from time to
//! time. Several in a row prove a competing process. That result holds for a while, and for longer each time it is
//! confirmed.
//!
//! This is a value: the caller passes in events and the time.

use twinpath_time::{Duration, Instant};

/// A wake-up that takes longer has waited for something: idle states take less, and ticks come every 1 to 10 ms.
const LATE: Duration = Duration::from_micros(300);

/// A suspicion lasts this long after each late wake-up that waited for the CPU. Meanwhile the kernel is asked before
/// each sleep.
const SUSPECTED: Duration = Duration::from_secs(1);

/// This many such wake-ups in a row prove contention.
const PROOF: u8 = 3;

/// How long contention is assumed to last, at first and at most. Each check whether it still exists costs a few late
/// wake-ups.
const BELIEVED_MIN: Duration = Duration::from_secs(10);
const BELIEVED_MAX: Duration = Duration::from_secs(160);

/// The state of one worker's contention detection.
#[derive(Clone, Copy, Debug)]
pub struct Contention {
    suspected_until: Instant,
    /// Late wake-ups that waited for the CPU since the suspicion began.
    waits: u8,
    believed_until: Instant,
    /// How long contention will be assumed the next time it is proven.
    believed_next: Duration,
}

impl Default for Contention {
    /// No contention is known.
    fn default() -> Self {
        let never = Instant::ZERO;
        Self { suspected_until: never, waits: 0, believed_until: never, believed_next: BELIEVED_MIN }
    }
}

impl Contention {
    /// Whether a wake-up that took this long has waited for something.
    #[inline]
    #[must_use]
    pub fn is_late(late: Duration) -> bool {
        late >= LATE
    }

    /// The worker is awake at `now`, `late` after the event that was to wake it (a packet, or its timer). `waited`: for
    /// how long it waited for its CPU since it went to sleep, if the kernel was asked.
    #[inline]
    pub fn woken(&mut self, now: Instant, late: Duration, waited: Option<Duration>) {
        if Self::is_late(late) && now >= self.believed_until {
            self.woken_late(now, waited);
        }
    }

    #[cold]
    fn woken_late(&mut self, now: Instant, waited: Option<Duration>) {
        if !self.is_suspected(now) {
            self.waits = 0;
        }
        match waited {
            Some(waited) if waited < LATE / 2 => return,
            Some(_) => self.waits += 1,
            None => {}
        }
        self.suspected_until = now + SUSPECTED;
        if self.waits < PROOF {
            return;
        }
        // If others were absent for as long as contention had been assumed, a new proof is of a different process.
        let again = now.nanos_since(self.believed_until) < self.believed_next.as_nanos() as u64;
        let believed = if again { self.believed_next } else { BELIEVED_MIN };
        self.believed_until = now + believed;
        self.believed_next = (2 * believed).min(BELIEVED_MAX);
        self.suspected_until = now;
    }

    /// Whether the caller should ask the kernel, before the next sleep and after it, for how long the thread has waited
    /// for its CPU.
    #[inline]
    #[must_use]
    pub fn is_suspected(&self, now: Instant) -> bool {
        now < self.suspected_until
    }

    /// Whether other threads compete for the CPU.
    #[inline]
    #[must_use]
    pub fn is_there(&self, now: Instant) -> bool {
        now < self.believed_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(1 + ms * 1_000_000)
    }

    /// Reports late wake-ups from `ms` on that waited for the CPU, as many as prove contention; returns the time of the
    /// last one.
    fn proof(seen: &mut Contention, ms: u64) -> u64 {
        seen.woken(at(ms), 3 * MS, None);
        for wait in 1..=u64::from(PROOF) {
            assert!(seen.is_suspected(at(ms)) && !seen.is_there(at(ms + wait)), "{wait}");
            seen.woken(at(ms + wait), 3 * MS, Some(3 * MS));
        }
        ms + u64::from(PROOF)
    }

    #[test]
    fn late_wake_ups_are_looked_into_and_several_that_waited_for_the_cpu_are_believed() {
        let mut seen = Contention::default();
        seen.woken(at(5), 50 * MS / 1_000, Some(MS));
        assert!(!seen.is_suspected(at(5)) && !seen.is_there(at(5)), "it was not late");
        let last = proof(&mut seen, 10);
        assert!(!seen.is_suspected(at(last + 1)) && seen.is_there(at(last + 1)));
        assert!(seen.is_there(at(last + 9_999)) && !seen.is_there(at(last + 10_001)));
    }

    #[test]
    fn a_hypervisor_that_takes_the_cpu_and_a_thread_now_and_then_do_not_compete() {
        let mut seen = Contention::default();
        for ms in 0..60_000 {
            let waited = seen.is_suspected(at(ms)).then_some(MS / 100);
            seen.woken(at(ms), 3 * MS, waited);
        }
        // One wait in two seconds: each raises its own suspicion.
        for ms in (100_000..200_000).step_by(2_000) {
            seen.woken(at(ms), 3 * MS, None);
            seen.woken(at(ms + 10), 3 * MS, Some(3 * MS));
        }
        assert!(!seen.is_there(at(200_000)));
    }

    #[test]
    fn a_suspicion_ends_by_itself_and_what_was_counted_with_it() {
        let mut seen = Contention::default();
        for second in 0..10 {
            let ms = 3_000 * second;
            seen.woken(at(ms), 3 * MS, None);
            assert!(seen.is_suspected(at(ms + 999)) && !seen.is_suspected(at(ms + 1_001)));
            seen.woken(at(ms + 500), 3 * MS, Some(3 * MS));
            seen.woken(at(ms + 501), 3 * MS, Some(3 * MS));
            assert!(!seen.is_there(at(ms + 502)));
        }
    }

    #[test]
    fn others_who_stay_are_believed_in_for_longer_each_time_and_who_comes_back_late_is_new() {
        let mut seen = Contention::default();
        let mut now = 0;
        for seconds in [10, 20, 40, 80, 160, 160] {
            now = proof(&mut seen, now);
            assert!(seen.is_there(at(now + seconds * 1_000 - 1)), "{seconds} s");
            assert!(!seen.is_there(at(now + seconds * 1_000 + 1)), "{seconds} s");
            now += seconds * 1_000 + 500;
        }
        now = proof(&mut seen, now + 200_000);
        assert!(!seen.is_there(at(now + 10_001)));
    }

    #[test]
    fn while_they_are_believed_in_nothing_more_is_learnt() {
        let mut seen = Contention::default();
        let last = proof(&mut seen, 0);
        (last..last + 100).for_each(|ms| seen.woken(at(ms), MS, Some(MS)));
        assert!(!seen.is_there(at(last + 10_001)), "one belief, of the first length");
        seen.woken(at(last + 50), MS, None);
        assert!(!seen.is_suspected(at(last + 51)));
    }
}
