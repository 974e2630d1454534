//! A plan for one idle time: when to spin, when to be woken, and what that costs if the gap is so long.

use crate::costs::Costs;

/// Windows per plan. What a further one could win has never shown.
const WINDOWS: usize = 4;

/// A stretch of an idle time in which it pays to be awake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Who is awake at or after this, us since the last arrival, spins on.
    pub from_us: f32,
    /// Who sleeps sets a timer for this; infinite if a wake-up of its own does not pay.
    pub wake_us: f32,
    /// Spinning ends here.
    pub until_us: f32,
}

/// Windows in ascending order; outside of them the worker sleeps, and after the last it sleeps until something comes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Plan {
    windows: [Option<Window>; WINDOWS],
}

impl Plan {
    /// Sleeps at once.
    pub const SLEEP: Self = Self { windows: [None; WINDOWS] };

    /// Spins for so long, then sleeps.
    #[must_use]
    pub const fn spin(until_us: f32) -> Self {
        let window = Window { from_us: 0.0, wake_us: f32::INFINITY, until_us };
        Self { windows: [Some(window), None, None, None] }
    }

    /// Adds a window after all others. Says whether there was room.
    pub(crate) fn push(&mut self, window: Window) -> bool {
        let free = self.windows.iter_mut().find(|window| window.is_none());
        free.map(|free| *free = Some(window)).is_some()
    }

    /// Its windows.
    pub fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.windows.iter().map_while(|window| *window)
    }

    /// Until when to spin, for a worker that is awake at this time since the last arrival.
    #[must_use]
    pub fn spin_until(&self, awake_us: f32) -> Option<f32> {
        let here = self.windows().find(|window| window.until_us > awake_us)?;
        (here.from_us <= awake_us).then_some(here.until_us)
    }

    /// When to be woken, for a worker that goes to sleep at this time since the last arrival.
    #[must_use]
    pub fn wake_at(&self, asleep_us: f32) -> Option<f32> {
        let ahead = self.windows().find(|window| window.wake_us > asleep_us && window.wake_us.is_finite())?;
        Some(ahead.wake_us)
    }

    /// What an idle time of `gap_us` costs under this plan, us of latency: expected over the machine's wake-ups.
    #[must_use]
    pub(crate) fn cost(&self, gap_us: f32, awake_us: f32, costs: &Costs) -> f32 {
        let mut cost = 0.0;
        let mut at = awake_us;
        let mut awake = true;
        for window in self.windows() {
            if window.until_us <= at {
                continue;
            }
            let mut start = at;
            if awake && at < window.from_us {
                cost += costs.sleep_cpu();
                awake = false;
            }
            if !awake {
                if window.wake_us < at || window.wake_us == f32::INFINITY {
                    continue;
                }
                if gap_us < window.wake_us {
                    return cost + costs.sleep(gap_us);
                }
                // Late by the timer's overshoot, or early by what it left over.
                cost += costs.timer_cpu();
                let (late, early) = costs.timer(gap_us - window.wake_us, gap_us);
                cost += late;
                if gap_us < window.until_us {
                    return cost + costs.spin(early);
                }
                start = window.wake_us + costs.overshoot_mean();
            }
            if gap_us < window.until_us {
                return cost + costs.spin(gap_us - start);
            }
            cost += costs.spin((window.until_us - start).max(0.0)) + costs.sleep_cpu();
            at = window.until_us;
            awake = false;
        }
        if awake {
            cost += costs.sleep_cpu();
        }
        cost + costs.sleep(gap_us)
    }
}
