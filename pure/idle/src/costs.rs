//! What the choices cost on this machine, as the solver and the imaginary workers see it: all in us of latency.

use twinpath_time::Duration;

use crate::crowd::Crowd;
use crate::density::Leads;
use crate::gaps::{CLASSES, Decaying, class_of};
use crate::machine::{Learnt, Machine, POINTS};

/// What a packet later than a latency goal costs, us of latency.
const LATE_COST: f32 = 100.0;

/// Without a packet a worker spins for at most as long as this many of its wake-ups take. To spin for eight of them costs as much as
/// one wake-up at the usual weight. The bound is far above that, as with bursts that come irregularly it pays to spin through a long
/// gap in between: in replays, 64 wake-ups cost a fifth more there than never sleeping does.
pub const SPIN_MAX_WAKES: f32 = 256.0;

/// It never spins for longer than this without a packet, whatever a wake-up was found to take: beside busy processes that may be
/// any time.
pub const SPIN_MAX: Duration = Duration::from_millis(20);

/// A table of costs, made anew now and then from what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// What a us of CPU costs.
    pub(crate) weight: f32,
    /// What it costs in all to be asleep when the packet comes that ends a gap of this class: others are found late as well.
    pub(crate) sleep: [f32; CLASSES],
    /// What it costs that packet, and the wake-up's latency, us.
    pub(crate) alone: [f32; CLASSES],
    pub(crate) alone_us: [f32; CLASSES],
    /// Below this a latency costs nothing, above it as much as any other; `None`: each us counts.
    pub(crate) budget_us: Option<f32>,
    /// A wake-up's latency, us.
    pub(crate) wake_us: f32,
    /// The longest that a worker spins without a packet, us: [`SPIN_MAX_WAKES`] and [`SPIN_MAX`].
    pub(crate) spin_max_us: f32,
    /// CPU of a timer wake-up, and of entering and leaving sleep, us.
    pub(crate) timer_cpu_us: f32,
    pub(crate) sleep_cpu_us: f32,
    /// By how much a timer is late, us, ascending.
    pub(crate) overshoot_us: [f32; POINTS],
}

impl Costs {
    /// From what was learnt. A request is held until `release_us` after an arrival.
    pub(crate) fn of(
        machine: &Machine,
        learnt: &Learnt,
        crowd: &Crowd,
        weight: f32,
        budget_us: Option<f32>,
        release_us: f32,
    ) -> Self {
        let request = machine.wake_held_us.is_some();
        let wake = |class: usize| {
            let held = request && (class as f32 - 1.0).exp2() < release_us;
            &learnt.wake[usize::from(held)]
        };
        let alone_us: [f32; CLASSES] = std::array::from_fn(|class| wake(class).mean(class));
        let alone = match budget_us {
            Some(budget_us) => std::array::from_fn(|class| LATE_COST * wake(class).above(budget_us)),
            None => alone_us,
        };
        let sleep = std::array::from_fn(|class| match budget_us {
            Some(_) => alone[class],
            None => (alone[class] + crowd.more(class)).max(0.1 * alone[class]),
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

    /// What a us of lateness costs.
    #[inline]
    pub(crate) const fn slope(&self) -> f32 {
        if self.budget_us.is_some() { 0.0 } else { 1.0 }
    }

    /// How late an arrival may be found before that costs as much as sleeping.
    #[inline]
    pub(crate) fn late_limit(&self) -> f32 {
        self.budget_us.unwrap_or(self.wake_us)
    }

    /// What being so late costs a packet.
    #[inline]
    pub(crate) fn late(&self, late_us: f32) -> f32 {
        match self.budget_us {
            None => late_us,
            Some(budget_us) if late_us > budget_us => LATE_COST,
            Some(_) => 0.0,
        }
    }

    /// What it costs packets, one per gap, that come while one is being woken who is there `ahead_us` after the last one.
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

/// Until when, after an arrival, holding a latency request pays, us.
///
/// `price` is what holding it for a us costs, in us of latency; `timer` what the wake-up costs that lets it go.
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
    // Relative to never holding; half a gap is believed to be longer than all.
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
    // As one who knows nothing would, for a quarter as long: a change of the traffic costs little then.
    let unknowing = 0.25 * gain.max(0.0) / price.max(1e-9);
    best_us.max(unknowing)
}
