//! What keeps a worker from taking more of its CPU than it may, whatever its policy decides: the limit on being awake without a packet, and
//! the guard of a CPU that it shares.

use twinpath_idle::Contention;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use super::Worker;
use crate::engine::Engine;
use crate::guard::{Guard, Step, Verdict};
use crate::idle::Mode;
use crate::spin_limit::{Allowed, Found, REST};

impl<E: Engine> Worker<E> {
    /// What the limit on being awake without a packet says after a turn. Who asked for `poll` gets it.
    pub(super) fn allowed(&mut self, now: Instant, busy: bool) -> Allowed {
        let found = match busy {
            _ if std::mem::take(&mut self.found_packets) => Found::Packets,
            true => Found::Work,
            false => Found::Nothing,
        };
        let allowed = self.spin_limit.turned(now, found);
        if self.idle.mode() == Mode::Poll { Allowed::Anything } else { allowed }
    }

    /// It has been awake without a packet for too long: sleeps, whatever was decided, until `until` or a little.
    pub(super) fn overrule(&mut self, now: Instant, until: Instant, allowed: Allowed) {
        self.counters.spin_limit_sleeps.add(1);
        if allowed == Allowed::Pause {
            self.sleeper.pause(now + REST);
            self.fresh = Instant::ZERO;
            self.slept(clock::now(), false);
        } else {
            self.sleep(now, until.max(now + REST));
        }
    }

    /// What the guard says after a turn: until when to sleep instead of spinning. A pause is made here, and so is a step.
    pub(super) fn guarded(&mut self, now: Instant, busy: bool) -> Option<Instant> {
        let polls = self.idle.mode() == Mode::Poll;
        match self.guard.as_mut()?.turned(now, busy, polls) {
            Verdict::Free => None,
            Verdict::Step(step) => {
                self.step(step);
                None
            }
            Verdict::Sleep { until } => Some(until),
            Verdict::Pause { until } => {
                self.counters.guard_pauses.add(1);
                self.sleeper.pause(until);
                self.fresh = Instant::ZERO;
                self.slept(clock::now(), false);
                None
            }
        }
    }

    /// Takes the other priority. Refused once, it keeps what it has: only the higher one can be, which keeps others off its CPU.
    pub(super) fn step(&mut self, step: Step) {
        let Some([high, low]) = self.priorities else { return };
        let (priority, lower) = if step == Step::High { (high, 0) } else { (low, 1) };
        self.fresh = Instant::ZERO;
        if priority.resume().is_ok() {
            self.counters.priority_lower.set(lower);
            self.counters.priority_steps.add(1);
        } else {
            // Should it be the lower one that is refused, it yields at the higher one, which nobody else could make it do.
            self.priorities = None;
            match (step, &mut self.guard) {
                (Step::Low, Some(guard)) => guard.yields(),
                _ => self.guard = None,
            }
            self.counters.priority_refused.set(1);
        }
    }

    /// Whether the scheduler decides between this worker and others on its CPU as between any two.
    fn is_fair(&self) -> bool {
        self.guard.as_ref().is_none_or(Guard::is_low)
    }

    /// It is about to sleep.
    pub(super) fn before_sleep(&mut self, now: Instant) {
        self.idle.set_contended(self.is_fair() && self.contention.is_there(now));
        self.waited_before = match &self.run_delay {
            Some(account) if self.contention.is_suspected(now) => account.read(),
            _ => None,
        };
    }

    /// It is awake at `now`, so long after what was to wake it had come. Where the kernel keeps no account of waiting nothing is
    /// concluded: who runs where a hypervisor takes the CPU is late as well.
    #[inline]
    pub(crate) fn woken_after(&mut self, now: Instant, late: Duration) {
        if !Contention::is_late(late) || !self.is_fair() {
            return;
        }
        let Some(account) = &self.run_delay else { return };
        // Taken: packets that come with the alarm are one wake-up.
        let before = self.waited_before.take();
        let waited = before.and_then(|before| Some(account.read()?.saturating_sub(before)));
        self.contention.woken(now, late, waited);
    }

    pub(super) fn slept(&mut self, now: Instant, worked: bool) {
        self.spin_limit.slept(now);
        if let Some(guard) = &mut self.guard {
            guard.slept(now, worked);
        }
    }
}
