//! The user's goals, and the controller that finds the price of CPU for them.
//!
//! The policy weighs latency against CPU by one number, the weight. A controller adjusts it by feedback: if too much
//! CPU was spent, the weight rises; if budget is left over, it falls. Each step is bounded, and so is the weight.

use libm::{expf, logf};
use twinpath_time::{Duration, Instant};

/// What the policy must achieve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// A us of CPU spent waiting is worth this many us of a packet's latency.
    Weight(f32),
    /// 99 % of the packets are found within this time, at the least CPU; if the machine cannot do that, as close as
    /// possible.
    Latency(Duration),
    /// At most this share of a core is spent waiting in any second, where it shortens latency most.
    Cpu(f32),
}

impl std::fmt::Display for Goal {
    /// Formats it as `twinpath show workers` prints it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Weight(_) => f.write_str("latency and CPU are weighed"),
            Self::Latency(budget) => write!(f, "latency {}us", budget.as_micros()),
            Self::Cpu(share) => write!(f, "cpu {}%", (share * 1e3).round() / 10.0),
        }
    }
}

impl Goal {
    /// The latency that most packets must not exceed, us.
    pub(crate) fn budget_us(self) -> Option<f32> {
        match self {
            Self::Latency(budget) => Some(budget.as_nanos() as f32 / 1e3),
            Self::Weight(_) | Self::Cpu(_) => None,
        }
    }
}

/// The weight's bounds.
pub(crate) const WEIGHT_MIN: f32 = 1e-3;
pub(crate) const WEIGHT_MAX: f32 = 1e3;

/// The part of a second's budget that may be spent at once; the rest is granted evenly. Together they are the budget.
const AT_ONCE: f32 = 0.2;

/// For a bound set from outside, whose enforcement would interfere: the fraction of it that is used, and how much
/// may be spent in one go, ns.
const OF_BOUND: f32 = 0.9;
const BOUND_AT_ONCE: f32 = 800e3;

/// How often the weight is adjusted to keep to a share of CPU.
const PERIOD: Duration = Duration::from_millis(50);

/// The share of packets that may be later than a latency goal.
const LATE_SHARE: f32 = 0.01;

/// A budget of CPU time (a token bucket): it fills at a share of the time that passes.
#[derive(Clone, Copy, Debug)]
struct Purse {
    share: f32,
    most_ns: f32,
    /// The time left, ns; negative if more was spent.
    left_ns: f32,
    filled: Instant,
}

impl Purse {
    const fn new(share: f32, most_ns: f32) -> Self {
        Self { share, most_ns, left_ns: most_ns, filled: Instant::ZERO }
    }

    /// The budget of a goal; `None` if the goal allows the whole CPU.
    fn of_goal(goal: Goal) -> Option<Self> {
        let Goal::Cpu(share) = goal else { return None };
        let share = share.clamp(0.0, 1.0);
        (share < 1.0).then(|| Self::new(share * (1.0 - AT_ONCE), share * AT_ONCE * 1e9))
    }

    /// The budget of a bound.
    fn of_bound(share: f32) -> Option<Self> {
        (share < 1.0).then(|| Self::new(share.max(0.0) * OF_BOUND, BOUND_AT_ONCE))
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.nanos_since(self.filled) as f32;
        self.filled = self.filled.max(now);
        self.left_ns = (self.left_ns + passed * self.share).min(self.most_ns);
    }

    fn at(mut self, now: Instant) -> f32 {
        self.fill(now);
        self.left_ns
    }
}

/// The controller: a value that is told how much CPU was spent and how late packets were.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    goal: Goal,
    /// The weight that the goal asks for.
    log_weight: f32,
    /// The lowest weight that keeps to the shares of CPU.
    log_least: f32,
    /// One for the goal, and one for a bound.
    purses: [Option<Purse>; 2],
    period_end: Instant,
    wanted_ns: f32,
}

impl Controller {
    pub(crate) fn new(goal: Goal, bound: Option<f32>) -> Self {
        let (weight, least) = match goal {
            Goal::Weight(weight) => (weight.clamp(WEIGHT_MIN, WEIGHT_MAX), WEIGHT_MIN),
            Goal::Latency(_) => (1.0, WEIGHT_MIN),
            Goal::Cpu(_) => (WEIGHT_MIN, 1.0),
        };
        Self {
            goal,
            log_weight: logf(weight),
            log_least: logf(least),
            purses: [Purse::of_goal(goal), bound.and_then(Purse::of_bound)],
            period_end: Instant::ZERO,
            wanted_ns: 0.0,
        }
    }

    pub(crate) const fn goal(&self) -> Goal {
        self.goal
    }

    pub(crate) fn weight(&self) -> f32 {
        expf(self.log_weight.max(self.log_least))
    }

    /// How long the worker may spin from a time on if it spends nothing until then; `None` without a limit.
    pub(crate) fn allowance(&self, from: Instant) -> Option<Duration> {
        let left = self.purses.iter().flatten().map(|purse| purse.at(from)).reduce(f32::min)?;
        // Budget that is granted meanwhile is kept for the next time.
        Some(Duration::from_nanos(left.max(0.0) as u64))
    }

    /// Reports CPU time spent waiting until `now`; without limits it would have been `wanted_ns`.
    pub(crate) fn spent(&mut self, now: Instant, spent_ns: u64, wanted_ns: u64) {
        let Some(share) = self.purses.iter().flatten().map(|purse| purse.share).reduce(f32::min) else {
            return;
        };
        for purse in self.purses.iter_mut().flatten() {
            purse.fill(now);
            purse.left_ns -= spent_ns as f32;
        }
        self.wanted_ns += wanted_ns.max(spent_ns) as f32;
        if now < self.period_end {
            return;
        }
        // A long silence counts as one period: otherwise a night without traffic would allow spinning all morning.
        let passed = (now.nanos_since(self.period_end) + PERIOD.as_nanos() as u64) as f32;
        let passed = passed.min(20.0 * PERIOD.as_nanos() as f32);
        let used = self.wanted_ns / (passed * share).max(1.0);
        let step = 0.1 * logf(used.max(1e-3)).clamp(-2.0, 2.0);
        // Not below what the goal asks for: the weight would have to climb back from there.
        let lowest = self.log_weight.max(logf(WEIGHT_MIN));
        self.log_least = (self.log_least.max(lowest) + step).clamp(lowest, logf(WEIGHT_MAX));
        self.period_end = now + PERIOD;
        self.wanted_ns = 0.0;
    }

    /// `count` packets were found, `late` of them later than a latency goal.
    pub(crate) fn found(&mut self, count: u32, late: u32) {
        if let Goal::Latency(_) = self.goal {
            // The weight is stable where this share is late: somewhat below the limit, because the next packets may be
            // worse.
            let aim = LATE_SHARE * 0.7;
            let late = late.min(count).min(64) as f32;
            let count = count.min(64) as f32;
            self.step((0.05 * (aim * count - late)).clamp(-0.5, 0.05));
        }
    }

    fn step(&mut self, by: f32) {
        self.log_weight = (self.log_weight + by).clamp(logf(WEIGHT_MIN), logf(WEIGHT_MAX));
    }
}
