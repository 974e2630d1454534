//! What a user asks for, and the price of CPU that it comes to.
//!
//! The policy weighs latency against CPU by one number, the weight. A goal sets it by feedback: spent too much, the weight
//! rises; a budget left over, it falls. Each step is bounded, and so is the weight.

use twinpath_time::{Duration, Instant};

/// What the policy is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// A us of CPU spent waiting is worth so many us of a packet's latency.
    Weight(f32),
    /// 99 % of the packets are found within this, at the least CPU; where the machine can't, as near as it gets.
    Latency(Duration),
    /// At most this share of a core is spent waiting, in any second, where it shortens latency most.
    Cpu(f32),
}

impl std::fmt::Display for Goal {
    /// As `twinpath show workers` says it.
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

/// Of the budget of a second, what may be spent at once; the rest comes evenly. Together they are the budget.
const AT_ONCE: f32 = 0.2;

/// Under a bound set from outside, which interferes when it is reached: so much of it is used, and so much may be spent at once, ns.
const OF_BOUND: f32 = 0.9;
const BOUND_AT_ONCE: f32 = 800e3;

/// How often the weight that keeps to a share is adjusted.
const PERIOD: Duration = Duration::from_millis(50);

/// The share of packets that may be later than a latency goal.
const LATE_SHARE: f32 = 0.01;

/// CPU that may be spent: it comes in at a share of the time that passes.
#[derive(Clone, Copy, Debug)]
struct Purse {
    share: f32,
    most_ns: f32,
    /// What is in it, ns; what was spent beyond it is owed.
    left_ns: f32,
    filled: Instant,
}

impl Purse {
    const fn new(share: f32, most_ns: f32) -> Self {
        Self { share, most_ns, left_ns: most_ns, filled: Instant::ZERO }
    }

    /// Of a goal; none where it is all.
    fn of_goal(goal: Goal) -> Option<Self> {
        let Goal::Cpu(share) = goal else { return None };
        let share = share.clamp(0.0, 1.0);
        (share < 1.0).then(|| Self::new(share * (1.0 - AT_ONCE), share * AT_ONCE * 1e9))
    }

    /// Of a bound.
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

/// The controller: a value told what was spent and how late packets were.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    goal: Goal,
    /// What the goal asks for.
    log_weight: f32,
    /// The least that keeps to the shares of CPU.
    log_least: f32,
    /// By the goal, and by a bound.
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
            log_weight: weight.ln(),
            log_least: least.ln(),
            purses: [Purse::of_goal(goal), bound.and_then(Purse::of_bound)],
            period_end: Instant::ZERO,
            wanted_ns: 0.0,
        }
    }

    pub(crate) const fn goal(&self) -> Goal {
        self.goal
    }

    pub(crate) fn weight(&self) -> f32 {
        self.log_weight.max(self.log_least).exp()
    }

    /// How long may be spun from a time on, if nothing is spent until then; `None` without a limit.
    pub(crate) fn allowance(&self, from: Instant) -> Option<Duration> {
        let left = self.purses.iter().flatten().map(|purse| purse.at(from)).reduce(f32::min)?;
        // What comes in while it is spent is for the next time.
        Some(Duration::from_nanos(left.max(0.0) as u64))
    }

    /// So much CPU was spent waiting until `now`; without limits it would have been `wanted_ns`.
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
        // A long silence counts as one period: a quiet night is no reason to spin all morning.
        let passed = (now.nanos_since(self.period_end) + PERIOD.as_nanos() as u64) as f32;
        let passed = passed.min(20.0 * PERIOD.as_nanos() as f32);
        let used = self.wanted_ns / (passed * share).max(1.0);
        let step = 0.1 * used.max(1e-3).ln().clamp(-2.0, 2.0);
        // Not below what the goal asks for: it would have to come back up from there.
        let lowest = self.log_weight.max(WEIGHT_MIN.ln());
        self.log_least = (self.log_least.max(lowest) + step).clamp(lowest, WEIGHT_MAX.ln());
        self.period_end = now + PERIOD;
        self.wanted_ns = 0.0;
    }

    /// `count` packets of which `late` were found later than a latency goal.
    pub(crate) fn found(&mut self, count: u32, late: u32) {
        if let Goal::Latency(_) = self.goal {
            // At rest where the late are one in a hundred; kept below it, as the last to come may be the worst.
            let aim = LATE_SHARE * 0.7;
            let late = late.min(count).min(64) as f32;
            let count = count.min(64) as f32;
            self.step((0.05 * (aim * count - late)).clamp(-0.5, 0.05));
        }
    }

    fn step(&mut self, by: f32) {
        self.log_weight = (self.log_weight + by).clamp(WEIGHT_MIN.ln(), WEIGHT_MAX.ln());
    }
}
