//! Limits how long a worker is awake without a packet, whatever the idle policy says.
//!
//! The policy has a bound of its own ([`twinpath_idle::SPIN_MAX`]). This limit does not depend on the policy: a
//! mistake there, an engine whose deadline is always due, or a descriptor that is always readable but has nothing
//! must not cost a core. Only packets refill the budget; commands, deadlines and wake-ups without work do not.
//!
//! The limit is a value: it is told what happened, and the time.

use twinpath_time::{Duration, Instant};

/// The budget is at most this many times the measured cost of a wake-up.
const WAKES_MAX: u32 = twinpath_idle::SPIN_MAX_WAKES as u32;

/// The budget is at least the policy's own bound, so that this limit acts only if the policy fails, and at most
/// twice that bound.
const LEAST: Duration = twinpath_idle::SPIN_MAX;
const MOST: Duration = LEAST.saturating_mul(2);

/// When the budget is used up, a hundredth of the time asleep may be spent awake.
const ASLEEP_PER_AWAKE: u64 = 100;

/// A sleep shorter than this does not count as sleep if no packet ended it, because it takes about as much CPU time
/// as spinning.
const NAP: Duration = Duration::from_micros(100);

/// A turn that finds nothing takes no longer than this. If more time has passed, other threads had the CPU.
const TURN_MAX: Duration = Duration::from_micros(100);

/// The shortest sleep of a worker whose budget is used up.
pub const REST: Duration = Duration::from_millis(1);

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It found packets, or data on a kernel socket.
    Packets,
    /// It found other work.
    Work,
    /// It found nothing.
    Nothing,
}

/// What the limit allows a worker that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// To follow its policy.
    Anything,
    /// To sleep, for at least [`REST`].
    Sleep,
    /// To sleep for [`REST`] even if a descriptor becomes ready, because its sleeps end immediately without a
    /// packet.
    Pause,
}

/// The budget of one worker.
#[derive(Clone, Copy, Debug)]
pub struct SpinLimit {
    most_ns: u64,
    left_ns: u64,
    /// Time is accounted for up to here, when the last turn began; then the result of that turn.
    seen: Instant,
    found: Found,
    /// The last sleep was too short to count.
    in_vain: bool,
}

impl SpinLimit {
    /// For a machine where a wake-up takes `wake_us`, us. `spin`: how long the worker spins after a packet if the user has
    /// configured that.
    pub fn new(wake_us: f32, spin: Option<Duration>) -> Self {
        // What is not a number counts as 0.
        let wake = Duration::from_nanos((wake_us * 1e3) as u64);
        let most = wake.saturating_mul(WAKES_MAX).clamp(LEAST, MOST) + spin.unwrap_or_default();
        let most_ns = most.as_nanos() as u64;
        Self { most_ns, left_ns: most_ns, seen: Instant::ZERO, found: Found::Work, in_vain: false }
    }

    /// Accounts for a turn that began at `now` with this result. Returns what is allowed next.
    #[inline]
    pub fn turned(&mut self, now: Instant, found: Found) -> Allowed {
        if self.found == Found::Nothing {
            let spent_ns = now.nanos_since(self.seen).min(TURN_MAX.as_nanos() as u64);
            self.left_ns = self.left_ns.saturating_sub(spent_ns);
        }
        (self.seen, self.found) = (now, found);
        if found == Found::Packets {
            (self.left_ns, self.in_vain) = (self.most_ns, false);
        }
        match self.left_ns {
            0 if self.in_vain => Allowed::Pause,
            0 => Allowed::Sleep,
            _ => Allowed::Anything,
        }
    }

    /// Accounts for a sleep that ended at `now` and began with the last turn.
    #[inline]
    pub fn slept(&mut self, now: Instant) {
        let passed_ns = now.nanos_since(self.seen);
        self.in_vain = passed_ns < NAP.as_nanos() as u64;
        self.left_ns = if self.in_vain {
            self.left_ns.saturating_sub(passed_ns)
        } else {
            (self.left_ns + passed_ns / ASLEEP_PER_AWAKE).min(self.most_ns)
        };
        (self.seen, self.found) = (now, Found::Nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A worker whose policy always says that it spins, and whose sleeps end after at most `nap_ns`. Returns how
    /// long it was awake and asleep, ns, within `for_ns` without a packet.
    fn lied_to(limit: &mut SpinLimit, start: u64, for_ns: u64, nap_ns: u64) -> (u64, u64) {
        let (mut now, mut awake, mut asleep) = (start, 0, 0);
        while now < start + for_ns {
            let rest = REST.as_nanos() as u64;
            let passed = match limit.turned(Instant::from_nanos(now), Found::Nothing) {
                Allowed::Anything => {
                    (now, awake) = (now + 1_000, awake + 1_000);
                    continue;
                }
                Allowed::Sleep => nap_ns.min(for_ns),
                Allowed::Pause => rest,
            };
            // The CPU time of going to sleep and waking up is not charged to a rest.
            let cpu = passed.min(8_000);
            (now, awake, asleep) = (now + passed, awake + cpu, asleep + passed - cpu);
            limit.slept(Instant::from_nanos(now));
        }
        (awake, asleep)
    }

    #[test]
    fn a_policy_that_always_says_spin_costs_no_core() {
        for (wake_us, most_ms) in
            [(0.0, 21), (50.0, 21), (142.0, 37), (f32::MAX, 41), (f32::NAN, 21), (-1.0, 21)]
        {
            let mut limit = SpinLimit::new(wake_us, None);
            let (awake, _) = lied_to(&mut limit, 1, 60 * SECOND, u64::MAX);
            assert!(awake <= most_ms * 1_000_000, "{wake_us}: awake for {awake} ns of a silent minute");
        }
    }

    #[test]
    fn sleeps_that_end_at_once_for_nothing_become_pauses() {
        for nap_ns in [0, 2_000, 90_000] {
            let mut limit = SpinLimit::new(50.0, None);
            lied_to(&mut limit, 1, SECOND, nap_ns);
            let (awake, asleep) = lied_to(&mut limit, SECOND, 10 * SECOND, nap_ns);
            assert!(awake < 10 * SECOND / 30 && asleep > 8 * SECOND, "{nap_ns}: {awake} ns, {asleep} ns");
        }
    }

    #[test]
    fn packets_renew_it_and_nothing_else_does() {
        let at = Instant::from_nanos;
        let turns = |limit: &mut SpinLimit, us: std::ops::Range<u64>| {
            let turns = us.step_by(50).map(|us| limit.turned(at(1 + us * 1_000), Found::Nothing));
            turns.last()
        };
        let mut limit = SpinLimit::new(50.0, None);
        assert_eq!(turns(&mut limit, 0..15_000), Some(Allowed::Anything));
        assert_eq!(turns(&mut limit, 15_000..999_000), Some(Allowed::Sleep));
        assert_eq!(
            limit.turned(at(SECOND + 1), Found::Work),
            Allowed::Sleep,
            "work is done, and renews nothing"
        );
        assert_eq!(limit.turned(at(SECOND + 2), Found::Packets), Allowed::Anything);
        // Time with work does not count as spinning.
        let mut limit = SpinLimit::new(50.0, None);
        for ms in 1..1_000 {
            assert_eq!(limit.turned(at(ms * 1_000_000), Found::Work), Allowed::Anything);
        }
        // The time that a user has set may be used up completely.
        let mut limit = SpinLimit::new(50.0, Some(Duration::from_secs(1)));
        assert_eq!(turns(&mut limit, 0..1_000_000), Some(Allowed::Anything));
        assert_eq!(turns(&mut limit, 1_000_000..1_100_000), Some(Allowed::Sleep));
        // Others had the CPU for most of that time.
        let mut limit = SpinLimit::new(50.0, None);
        for turn in 0..100 {
            assert_eq!(limit.turned(at(1 + turn * SECOND), Found::Nothing), Allowed::Anything);
        }
    }
}
