//! The table of costs on this machine, in us of latency, that the solver and the simulated workers use.

use twinpath_time::Duration;

use crate::density::Leads;
use crate::during_wakeup::DuringWakeup;
use crate::gaps::{CLASSES, Decaying, class_of, shortest_us};
use crate::machine::{Learnt, Machine, POINTS};

/// The cost of a packet that is later than a latency goal, us of latency.
const LATE_COST: f32 = 100.0;

/// Without a packet, a worker spins for at most the duration of this many wake-ups. At the default weight, spinning
/// for eight of them costs as much as one wake-up. The bound is far higher, because with irregular bursts it pays
/// to spin through a long gap within a burst: in replays, a bound of 64 cost a fifth more there than never
/// sleeping.
pub const SPIN_MAX_WAKES: f32 = 256.0;

/// A worker never spins for longer than this without a packet, whatever duration of a wake-up was measured: beside
/// busy processes it can be arbitrarily long.
pub const SPIN_MAX: Duration = Duration::from_millis(20);

/// The costs, recomputed now and then from measurements.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// The price of a us of CPU.
    pub(crate) weight: f32,
    /// The total cost of being asleep when the packet comes that ends a gap of this class: packets that arrive during
    /// the wake-up are late as well.
    pub(crate) sleep: [f32; CLASSES],
    /// The cost for that packet alone, by class: the wake-up's latency, us.
    pub(crate) alone: [f32; CLASSES],
    pub(crate) alone_us: [f32; CLASSES],
    /// A latency below this costs nothing, and any above it costs the same; `None`: each us counts.
    pub(crate) budget_us: Option<f32>,
    /// A wake-up's latency, us.
    pub(crate) wake_us: f32,
    /// The longest that a worker spins without a packet, us: [`SPIN_MAX_WAKES`] and [`SPIN_MAX`].
    pub(crate) spin_max_us: f32,
    /// CPU of a timer wake-up, and of entering and leaving sleep, us.
    pub(crate) timer_cpu_us: f32,
    pub(crate) sleep_cpu_us: f32,
    /// How late timers are, us, ascending.
    pub(crate) overshoot_us: [f32; POINTS],
}

impl Costs {
    /// Computes the table from what was learnt. A request is held until `release_us` after an arrival.
    pub(crate) fn of(
        machine: &Machine,
        learnt: &Learnt,
        during_wakeup: &DuringWakeup,
        weight: f32,
        budget_us: Option<f32>,
        release_us: f32,
    ) -> Self {
        let request = machine.wake_held_us.is_some();
        let wake = |class: usize| {
            let held = request && shortest_us(class) < release_us;
            &learnt.wake[usize::from(held)]
        };
        let alone_us: [f32; CLASSES] = std::array::from_fn(|class| wake(class).mean(class));
        let alone = match budget_us {
            Some(budget_us) => std::array::from_fn(|class| LATE_COST * wake(class).above(budget_us)),
            None => alone_us,
        };
        let sleep = std::array::from_fn(|class| match budget_us {
            Some(_) => alone[class],
            None => (alone[class] + during_wakeup.more(class)).max(0.1 * alone[class]),
        });
        let wake_us = learnt.wake[usize::from(request)].overall().max(0.1);
        Self {
            weight,
            sleep,
            alone,
            alone_us,
            budget_us,
            wake_us,
            spin_max_us: (SPIN_MAX_WAKES * wake_us).min(SPIN_MAX.as_micros() as f32),
            timer_cpu_us: machine.timer_cpu_us,
            sleep_cpu_us: machine.sleep_cpu_us,
            overshoot_us: learnt.overshoot[usize::from(request)].points(),
        }
    }

    #[inline]
    pub(crate) fn sleep(&self, gap_us: f32) -> f32 {
        self.sleep[class_of(gap_us)]
    }

    #[inline]
    pub(crate) fn alone(&self, gap_us: f32) -> f32 {
        self.alone[class_of(gap_us)]
    }

    #[inline]
    pub(crate) fn alone_us(&self, gap_us: f32) -> f32 {
        self.alone_us[class_of(gap_us)]
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

    /// The cost of a us of lateness.
    #[inline]
    pub(crate) const fn slope(&self) -> f32 {
        if self.budget_us.is_some() { 0.0 } else { 1.0 }
    }

    /// How late an arrival may be found before that costs as much as sleeping.
    #[inline]
    pub(crate) fn late_limit(&self) -> f32 {
        self.budget_us.unwrap_or(self.wake_us)
    }

    /// The cost of a packet that is found this late.
    #[inline]
    pub(crate) fn late(&self, late_us: f32) -> f32 {
        match self.budget_us {
            None => late_us,
            Some(budget_us) if late_us > budget_us => LATE_COST,
            Some(_) => 0.0,
        }
    }

    /// The cost of packets, one per gap, that come while a worker is being woken that will be awake `ahead_us` after
    /// the last one.
    #[inline]
    pub(crate) fn late_packets(&self, ahead_us: f32, gap_us: f32, count: f32) -> f32 {
        match self.budget_us {
            None => count * ahead_us - gap_us * count * (count + 1.0) / 2.0,
            Some(budget_us) => {
                let late = (ahead_us - budget_us) / gap_us.max(0.01);
                LATE_COST * late.floor().clamp(0.0, count)
            }
        }
    }

    /// How long before an arrival a timer may be set.
    pub(crate) fn leads(&self) -> Leads {
        let points = self.overshoot_us;
        let last = points[POINTS - 1];
        let share = |eighths: usize| {
            let at = eighths * POINTS / 8;
            f32::midpoint(points[at - 1], points[at])
        };
        [
            last * 1.3,
            last,
            f32::midpoint(last, points[POINTS - 2]),
            share(7),
            share(6),
            share(4),
            share(2),
            points[0],
        ]
    }
}

/// The time after an arrival until which it pays to hold a latency request, us.
///
/// `price` is the cost of holding it for a us, in us of latency; `timer` the cost of the wake-up that releases it.
pub(crate) fn best_release(
    histogram: &Decaying,
    learnt: &Learnt,
    budget_us: Option<f32>,
    price: f32,
    timer: f32,
) -> f32 {
    let wakes = &learnt.wake;
    let gain = match budget_us {
        Some(budget_us) => LATE_COST * (wakes[0].above(budget_us) - wakes[1].above(budget_us)),
        None => wakes[0].overall() - wakes[1].overall(),
    };
    // Relative to never holding. Half a gap is assumed to be longer than all seen.
    let mut alive = histogram.total() + 0.5;
    let (mut value, mut best, mut best_us, mut from) = (0.0, 0.0, 0.0, 0.0);
    for (_, hi, mass) in histogram.buckets() {
        let hi = hi * 1.05;
        value += gain * mass - price * (hi - from) * (alive - mass / 2.0);
        alive -= mass;
        from = hi;
        let value = value - timer * alive;
        if value > best {
            (best, best_us) = (value, hi);
        }
    }
    // Hold for at least a quarter of the time that would be right without any data, so that a change of the traffic
    // costs little.
    let unknowing = 0.25 * gain.max(0.0) / price.max(1e-9);
    best_us.max(unknowing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is gained by holding until each gap of a bucket up to `last` ends, and until that bucket's end where it does not
    /// end before: gap by gap.
    fn naive(buckets: &[(f32, f32)], last: usize, gain: f32, price: f32, timer: f32) -> f32 {
        let end_us = |at: usize| buckets[at].0 * 1.05;
        let ended = (0..=last).map(|at| {
            let from_us = if at == 0 { 0.0 } else { end_us(at - 1) };
            buckets[at].1 * (gain - price * f32::midpoint(from_us, end_us(at)))
        });
        let longer = buckets[last + 1..].iter().map(|(_, count)| count).sum::<f32>() + 0.5;
        ended.sum::<f32>() - longer * (price * end_us(last) + timer)
    }

    #[test]
    fn a_request_is_held_until_the_bucket_where_most_is_gained() {
        let machine = Machine { wake_us: 60.0, wake_held_us: Some(10.0), ..Machine::default() };
        let learnt = Learnt::new(&machine);
        let gain = learnt.wake[0].overall() - learnt.wake[1].overall();
        let mut many_ends = std::collections::BTreeSet::new();
        for gaps in [
            &[(20.0, 50.0), (300.0, 10.0), (5_000.0, 40.0)][..],
            &[(20.0, 5.0), (300.0, 90.0), (5_000.0, 5.0)],
            &[(100.0, 1.0)],
            &[(1.0, 10.0), (2.0, 10.0), (400.0, 80.0), (900.0, 30.0)],
        ] {
            let mut histogram = Decaying::new(1e6);
            gaps.iter().for_each(|(us, count)| histogram.add(*us, *count));
            let buckets: Vec<_> = histogram.buckets().map(|(_, hi, count)| (hi, count)).collect();
            for price in [0.001, 0.01, 0.03, 0.1, 0.5, 2.0] {
                for timer in [0.0, 1.0, 5.0, 40.0] {
                    let value = |at: usize| naive(&buckets, at, gain, price, timer);
                    let best = (0..buckets.len()).max_by(|a, b| value(*a).total_cmp(&value(*b)));
                    let best = best.filter(|at| value(*at) > 0.0);
                    let best_us = best.map_or(0.0, |at| buckets[at].0 * 1.05);
                    let least_us = 0.25 * gain / price;
                    let release_us = best_release(&histogram, &learnt, None, price, timer);
                    let what = format!("{gaps:?}, {price}, {timer}: {release_us} us, {best_us} us");
                    assert!((release_us - best_us.max(least_us)).abs() < 0.01 * release_us, "{what}");
                    many_ends.insert(best_us as u32);
                }
            }
        }
        assert!(many_ends.len() > 5, "{many_ends:?}");
    }
}
