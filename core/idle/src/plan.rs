//! A plan for one idle time: when to spin, when to wake, and the cost of both for a given gap.

use crate::costs::Costs;

/// Windows per plan. More have never been worth anything.
const WINDOWS: usize = 4;

/// The shortest sleep that a timer is set for, us.
pub(crate) const SHORTEST_NAP_US: f32 = 0.3;

/// A part of an idle time in which it pays to be awake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// A worker that is awake at or after this, us since the last arrival, goes on spinning.
    pub from_us: f32,
    /// A sleeping worker sets a timer for this; infinite if a wake-up of its own does not pay.
    pub wake_us: f32,
    /// The end of the spinning.
    pub until_us: f32,
}

/// Windows in ascending order. Outside of them the worker sleeps, and after the last one it sleeps until something
/// comes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IdlePlan {
    windows: [Option<Window>; WINDOWS],
}

impl IdlePlan {
    /// Sleeps at once.
    pub const SLEEP: Self = Self { windows: [None; WINDOWS] };

    /// Spins for this long, then sleeps.
    #[must_use]
    pub const fn spin(until_us: f32) -> Self {
        Self::of(Window { from_us: 0.0, wake_us: f32::INFINITY, until_us })
    }

    /// A plan of one window.
    #[must_use]
    pub const fn of(window: Window) -> Self {
        Self { windows: [Some(window), None, None, None] }
    }

    /// The same plan with a limit on the total time of spinning, cut off at the end.
    #[must_use]
    pub(crate) fn within(mut self, most_us: f32) -> Self {
        let mut left_us = most_us;
        for slot in &mut self.windows {
            *slot = slot.filter(|_| left_us > 0.0).map(|window| {
                // A sleeping worker is awake at `wake_us` at the earliest, and one that is still awake at `from_us`.
                let from_us = window.from_us.min(window.wake_us);
                let until_us = window.until_us.min(from_us + left_us);
                left_us -= until_us - from_us;
                Window { until_us, ..window }
            });
        }
        self
    }

    /// Adds a window after all others. Returns whether there was room.
    pub(crate) fn push(&mut self, window: Window) -> bool {
        let free = self.windows.iter_mut().find(|window| window.is_none());
        free.map(|free| *free = Some(window)).is_some()
    }

    /// The windows, ascending.
    pub fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.windows.iter().map_while(|window| *window)
    }

    /// Until when to spin, for a worker that is awake at this time since the last arrival.
    #[must_use]
    pub fn spin_until(&self, awake_us: f32) -> Option<f32> {
        let here = self.windows().find(|window| window.until_us > awake_us)?;
        (here.from_us <= awake_us).then_some(here.until_us)
    }

    /// The window to wake for, for a worker that goes to sleep at this time since the last arrival.
    pub(crate) fn ahead(&self, asleep_us: f32) -> Option<Window> {
        self.windows().find(|window| window.wake_us > asleep_us && window.wake_us.is_finite())
    }

    /// When to wake, for such a worker.
    #[must_use]
    pub fn wake_at(&self, asleep_us: f32) -> Option<f32> {
        Some(self.ahead(asleep_us)?.wake_us)
    }

    /// Simulates an idle time that a packet ends after `gap_us`, for a worker that is awake from `awake_us` on, with
    /// timers late by `overshoot_us`. Returns the cost, us of latency, and how late the packet is found.
    pub(crate) fn live(&self, gap_us: f32, awake_us: f32, costs: &Costs, overshoot_us: f32) -> (f32, f32) {
        let woken_us = costs.alone_us(gap_us);
        let (mut cost, mut at, mut awake) = (0.0, awake_us, true);
        for window in self.windows() {
            if window.until_us <= at {
                continue;
            }
            if awake && at < window.from_us {
                cost += costs.sleep_cpu();
                awake = false;
            }
            if !awake {
                if window.wake_us <= at || window.wake_us == f32::INFINITY {
                    continue;
                }
                if gap_us < window.wake_us {
                    break;
                }
                at = window.wake_us + overshoot_us;
                if gap_us + woken_us <= at {
                    // The packet's own wake-up came first, and was the only one.
                    break;
                }
                cost += costs.timer_cpu();
                if gap_us < at {
                    return (cost + costs.late(at - gap_us), at - gap_us);
                }
            }
            if gap_us < window.until_us {
                return (cost + costs.spin(gap_us - at), 0.0);
            }
            if at < window.until_us {
                cost += costs.spin(window.until_us - at);
                at = window.until_us;
            }
            awake = true;
        }
        if awake {
            cost += costs.sleep_cpu();
        }
        (cost + costs.alone(gap_us), woken_us)
    }
}
