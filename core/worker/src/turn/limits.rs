//! Keeps a worker within its share of the CPU, whatever its policy decides. There are two limits: on being awake
//! without a packet, and the guard of a shared CPU.

use twinpath_idle::Contention;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use super::Worker;
use crate::engine::Engine;
use crate::idle::Mode;
use crate::thread::guard::{Guard, Step, Verdict};
use crate::thread::spin_limit::{Allowed, Found, REST};

/// The record of waiting is read again before a sleep if it is older than this.
const WAITED_READ_AGAIN: Duration = Duration::from_millis(1);

impl<E: Engine> Worker<E> {
    /// Applies the limit on being awake without a packet, after a turn. Not in mode `poll`.
    pub(super) fn allowed(&mut self, now: Instant, busy: bool) -> Allowed {
        let found = match busy {
            _ if std::mem::take(&mut self.found_packets) => Found::Packets,
            true => Found::Work,
            false => Found::Nothing,
        };
        let allowed = self.spin_limit.turned(now, found);
        if self.idle.mode() == Mode::Poll { Allowed::Anything } else { allowed }
    }

    /// Sleeps although the policy decided otherwise, until `until` or for [`REST`]: the worker was awake without a packet for
    /// too long.
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

    /// Applies the guard after a turn: pauses or changes the priority if it says so. Returns until when to sleep
    /// instead of spinning.
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

    /// Takes the other priority. If the system refuses it, the worker keeps the present one from then on.
    pub(super) fn step(&mut self, step: Step) {
        let Some([high, low]) = self.priorities else { return };
        let (priority, lower) = if step == Step::High { (high, 0) } else { (low, 1) };
        self.fresh = Instant::ZERO;
        if priority.resume().is_ok() {
            self.counters.priority_lower.set(lower);
            self.counters.priority_steps.add(1);
        } else {
            // A worker that has to stay at the higher priority yields, because nothing else would leave the CPU to
            // others.
            self.priorities = None;
            match (step, &mut self.guard) {
                (Step::Low, Some(guard)) => guard.yields(),
                _ => self.guard = None,
            }
            self.counters.priority_refused.set(1);
        }
    }

    /// Whether the scheduler treats this worker and others on its CPU alike.
    fn is_fair(&self) -> bool {
        self.guard.as_ref().is_none_or(Guard::is_low)
    }

    /// Notes, before a sleep, how long the worker has waited for its CPU so far. Only a worker that may spin needs it. A value
    /// that is younger than [`WAITED_READ_AGAIN`] is kept, so that many short sleeps cost no system call each.
    pub(super) fn before_sleep(&mut self, now: Instant) {
        self.idle.set_contended(self.is_fair() && self.contention.is_there(now));
        match &self.run_delay {
            Some(account) if self.idle.mode() == Mode::Adaptive && self.contention.is_suspected(now) => {
                if self.waited_before.is_none_or(|(read, _)| now.since(read) >= WAITED_READ_AGAIN) {
                    self.waited_before = account.read().map(|waited| (now, waited));
                }
            }
            _ => self.waited_before = None,
        }
    }

    /// Judges a wake-up at `now` that came `late` after its cause, to find out whether others want this CPU.
    /// Without the kernel's record of waiting nothing is concluded, because a hypervisor that takes the CPU delays
    /// wake-ups too.
    #[inline]
    pub(crate) fn woken_after(&mut self, now: Instant, late: Duration) {
        if !Contention::is_late(late) || !self.is_fair() {
            return;
        }
        let Some(account) = &self.run_delay else { return };
        // Taken, so that a timer and packets at the same time count as one wake-up.
        let before = self.waited_before.take();
        let waited = before.and_then(|(_, before)| Some(account.read()?.saturating_sub(before)));
        self.contention.woken(now, late, waited);
    }

    /// Accounts for a sleep that ended at `now`. `worked`: work was found on waking.
    pub(super) fn slept(&mut self, now: Instant, worked: bool) {
        self.spin_limit.slept(now);
        if let Some(guard) = &mut self.guard {
            guard.slept(now, worked);
        }
    }
}
