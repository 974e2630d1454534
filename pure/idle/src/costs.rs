//! What the choices cost on this machine, as the solver and the scoring of plans see it: all in us of latency.

use crate::gaps::{CLASSES, class_of};

/// Points that stand for the timer's overshoot, of equal weight.
pub(crate) const POINTS: usize = 6;

/// A table of costs, rebuilt now and then from what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// What a us of CPU costs.
    pub(crate) weight: f32,
    /// What it costs to be asleep when the packet comes that ends a gap of this class.
    pub(crate) sleep: [f32; CLASSES],
    /// Latency that counts for nothing if found so soon after a timer; above it, it costs as if asleep. 0 and `slope` 1
    /// count every us.
    pub(crate) free_us: f32,
    /// What a us of lateness costs below the wake-up's own latency.
    pub(crate) slope: f32,
    /// A wake-up's latency, us: nobody is later than that.
    pub(crate) wake_us: f32,
    /// CPU of a timer wake-up, and of entering and leaving sleep, us.
    pub(crate) timer_cpu_us: f32,
    pub(crate) sleep_cpu_us: f32,
    /// By how much a timer is late, us, ascending.
    pub(crate) overshoot_us: [f32; POINTS],
    pub(crate) overshoot_mean_us: f32,
}

impl Costs {
    #[inline]
    pub(crate) fn sleep(&self, gap_us: f32) -> f32 {
        self.sleep[class_of(gap_us)]
    }

    #[inline]
    pub(crate) fn spin(&self, us: f32) -> f32 {
        self.weight * us
    }

    #[inline]
    pub(crate) fn timer_cpu(&self) -> f32 {
        self.weight * self.timer_cpu_us
    }

    #[inline]
    pub(crate) fn sleep_cpu(&self) -> f32 {
        self.weight * self.sleep_cpu_us
    }

    #[inline]
    pub(crate) fn overshoot_mean(&self) -> f32 {
        self.overshoot_mean_us
    }

    /// How late an arrival may be found before that costs as much as sleeping.
    #[inline]
    pub(crate) fn late_limit(&self) -> f32 {
        if self.slope > 0.0 { self.wake_us } else { self.free_us }
    }

    /// What being `late_us` late costs for a packet that ends a gap of `gap_us`.
    #[inline]
    fn late(&self, late_us: f32, gap_us: f32) -> f32 {
        if late_us >= self.late_limit() { self.sleep(gap_us) } else { self.slope * late_us }
    }

    /// An arrival `after_us` after the time a timer was set for: expected cost of being late, and expected time spun.
    #[inline]
    pub(crate) fn timer(&self, after_us: f32, gap_us: f32) -> (f32, f32) {
        if after_us >= self.overshoot_us[POINTS - 1] {
            return (0.0, after_us - self.overshoot_mean_us);
        }
        let (mut late, mut early) = (0.0, 0.0);
        for overshoot in self.overshoot_us {
            if overshoot > after_us {
                late += self.late(overshoot - after_us, gap_us);
            } else {
                early += after_us - overshoot;
            }
        }
        (late / POINTS as f32, early / POINTS as f32)
    }
}
