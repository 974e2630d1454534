//! Several threads wait for the same socket. One leads: it spins for all of them, while the others sleep in the kernel.
//! One of those keeps watch: it looks at the ring now and then, for a datagram that the leader was told of but does not
//! read, as it is busy with something else or has ended.
//!
//! Nothing here waits, and no thread keeps a role for longer than it has announced. If a thread leaves its call by a
//! jump out of a signal handler, or is stopped, others follow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use twinpath_time::{Duration, Instant};

/// A thread leads for this time after it last said so.
const LEAD: Duration = Duration::from_millis(10);
/// A leader that sleeps for longer gives the lead to others.
const LEADS_ASLEEP: Duration = Duration::from_millis(20);
/// How long a thread that keeps watch sleeps between two looks.
const LOOKS_EVERY: Duration = Duration::from_millis(5);
/// The look may be this late.
const LATE: Duration = Duration::from_millis(5);
/// Nobody keeps watch once no thread has wanted to spin for this time.
const WANTED_FOR: Duration = Duration::from_millis(50);

/// The threads that wait for a socket.
#[derive(Debug, Default)]
pub(crate) struct Leading {
    /// Until when a thread leads, ns; 0: none does.
    led_until: AtomicU64,
    /// The leader has decided to sleep, and no thread has told how that sleep ended.
    is_asleep: AtomicBool,
    /// Until when a thread keeps watch, ns; 0: none does.
    watched_until: AtomicU64,
    /// When a thread last wanted to spin, ns.
    wanted: AtomicU64,
}

/// That a thread leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead(u64);

/// That a thread keeps watch over the one that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    until: u64,
    /// When it is to look.
    pub look_at: Instant,
}

impl Leading {
    pub(crate) const fn new() -> Self {
        Self {
            led_until: AtomicU64::new(0),
            is_asleep: AtomicBool::new(false),
            watched_until: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
        }
    }

    /// For another socket, or in a child.
    pub(crate) fn forget(&self) {
        self.led_until.store(0, Ordering::Relaxed);
        self.is_asleep.store(false, Ordering::Relaxed);
        self.watched_until.store(0, Ordering::Relaxed);
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// Whether the calling thread leads from now on, or still if it does already; `None` while another one does.
    pub(crate) fn lead(&self, lead: Option<Lead>, now: Instant) -> Option<Lead> {
        let led_until = self.led_until.load(Ordering::Acquire);
        let is_own = lead == Some(Lead(led_until));
        if led_until > now.as_nanos() {
            if !is_own {
                return None;
            }
            // Not with each look, as others read it.
            if led_until > (now + LEAD / 2).as_nanos() {
                return lead;
            }
        }
        let until = (now + LEAD).as_nanos();
        replace(&self.led_until, led_until, until).then_some(Lead(until))
    }

    /// The leader sleeps, until then at most: whether it still leads.
    pub(crate) fn sleeps(&self, lead: Lead, now: Instant, until: Instant) -> Option<Lead> {
        self.is_asleep.store(true, Ordering::Relaxed);
        if until > now + LEADS_ASLEEP {
            self.follow(lead);
            return None;
        }
        let until = (until + LEAD).as_nanos();
        replace(&self.led_until, lead.0, until).then_some(Lead(until))
    }

    /// A thread was woken: whether it is the one to tell the policy so. Others were woken by the same datagram.
    pub(crate) fn ends_sleep(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed)
    }

    /// The thread leads no longer.
    pub(crate) fn follow(&self, lead: Lead) {
        replace(&self.led_until, lead.0, 0);
    }

    /// The leader wants to spin: another thread is to keep watch.
    pub(crate) fn want(&self, now: Instant) {
        let wanted = Instant::from_nanos(self.wanted.load(Ordering::Relaxed));
        if now > wanted + LEAD {
            self.wanted.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Whether a thread has wanted to spin lately.
    pub(crate) fn is_wanted(&self, now: Instant) -> bool {
        now <= Instant::from_nanos(self.wanted.load(Ordering::Relaxed)) + WANTED_FOR
    }

    /// Whether another thread keeps watch.
    pub(crate) fn is_watched(&self, now: Instant) -> bool {
        self.watched_until.load(Ordering::SeqCst) > now.as_nanos()
    }

    /// A thread that does not lead is about to sleep: whether it keeps watch meanwhile.
    pub(crate) fn watch(&self, now: Instant) -> Option<Watch> {
        let before = self.watched_until.load(Ordering::Relaxed);
        if !self.is_wanted(now) || before > now.as_nanos() {
            return None;
        }
        let look_at = now + LOOKS_EVERY;
        let until = (look_at + LATE).as_nanos();
        replace(&self.watched_until, before, until).then_some(Watch { until, look_at })
    }

    /// It no longer does.
    pub(crate) fn end_watch(&self, watch: Watch) {
        replace(&self.watched_until, watch.until, 0);
    }
}

fn replace(word: &AtomicU64, from: u64, to: u64) -> bool {
    word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + us * 1_000)
    }

    #[test]
    fn one_thread_leads_until_it_follows_or_is_silent() {
        let leading = Leading::new();
        let first = leading.lead(None, at(0)).expect("nobody leads");
        assert_eq!(leading.lead(None, at(1)), None);
        assert_eq!(leading.lead(Some(first), at(2)), Some(first));
        let renewed = leading.lead(Some(first), at(6_000)).expect("it still leads");
        assert_ne!(renewed, first);
        leading.follow(first);
        assert_eq!(leading.lead(None, at(6_001)), None, "that is no longer what it has");
        leading.follow(renewed);
        let second = leading.lead(None, at(6_002)).expect("nobody leads");
        // Silent for too long.
        let third = leading.lead(None, at(16_003)).expect("nobody leads");
        assert_eq!(leading.lead(Some(second), at(16_004)), None);
        leading.follow(second);
        assert_eq!(leading.lead(Some(third), at(16_005)), Some(third));
    }

    #[test]
    fn a_leader_leads_through_a_short_sleep_and_one_thread_tells_how_it_ended() {
        let leading = Leading::new();
        let lead = leading.lead(None, at(0)).expect("nobody leads");
        assert!(!leading.ends_sleep());
        let lead = leading.sleeps(lead, at(1), at(400)).expect("a short sleep");
        assert_eq!(leading.lead(None, at(400)), None);
        assert!(leading.ends_sleep() && !leading.ends_sleep());
        assert_eq!(leading.lead(Some(lead), at(401)), Some(lead));
        assert_eq!(leading.sleeps(lead, at(402), Instant::NEVER), None);
        assert!(leading.lead(None, at(403)).is_some());
    }

    #[test]
    fn one_thread_keeps_watch_while_another_one_wants_to_spin() {
        let leading = Leading::new();
        assert_eq!(leading.watch(at(0)), None, "for whom?");
        leading.want(at(0));
        let watch = leading.watch(at(1)).expect("it is wanted");
        assert_eq!((watch.look_at, leading.watch(at(2))), (at(5_001), None));
        assert!(leading.is_watched(at(9_999)) && !leading.is_watched(at(10_001)));
        leading.end_watch(watch);
        assert!(!leading.is_watched(at(3)));
        let again = leading.watch(at(4)).expect("nobody does");
        // A thread that is late is not waited for.
        assert!(leading.watch(at(20_000)).is_some());
        leading.end_watch(again);
        assert!(leading.is_watched(at(20_001)));
        assert_eq!(leading.watch(at(60_000)), None, "it is wanted no longer");
    }
}
