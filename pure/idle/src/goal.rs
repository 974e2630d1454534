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

/// How often a CPU budget's weight is adjusted.
const PERIOD: Duration = Duration::from_millis(50);

/// The share of packets that may be later than a latency goal.
const LATE_SHARE: f32 = 0.01;

/// The controller: a value told what was spent and how late packets were.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    goal: Goal,
    log_weight: f32,
    /// CPU that may be spent now, ns, under a CPU goal.
    tokens: f32,
    filled: Instant,
    period_end: Instant,
    spent_ns: f32,
    wanted_ns: f32,
}

impl Controller {
    pub(crate) fn new(goal: Goal) -> Self {
        let weight = match goal {
            Goal::Weight(weight) => weight.clamp(WEIGHT_MIN, WEIGHT_MAX),
            Goal::Latency(_) | Goal::Cpu(_) => 1.0,
        };
        let mut controller = Self {
            goal,
            log_weight: weight.ln(),
            tokens: 0.0,
            filled: Instant::ZERO,
            period_end: Instant::ZERO,
            spent_ns: 0.0,
            wanted_ns: 0.0,
        };
        controller.tokens = controller.tokens_max();
        controller
    }

    pub(crate) const fn goal(&self) -> Goal {
        self.goal
    }

    pub(crate) fn weight(&self) -> f32 {
        self.log_weight.exp()
    }

    fn share(&self) -> f32 {
        if let Goal::Cpu(share) = self.goal { share.clamp(0.0, 1.0) } else { 1.0 }
    }

    fn tokens_max(&self) -> f32 {
        self.share() * AT_ONCE * 1e9
    }

    /// How long may be spun from `now` on; `None` without a bound.
    pub(crate) fn allowance(&mut self, now: Instant) -> Option<Duration> {
        let Goal::Cpu(share) = self.goal else { return None };
        if share >= 1.0 {
            return None;
        }
        self.fill(now);
        // What comes in while it is spent is for the next time.
        Some(Duration::from_nanos(self.tokens.max(0.0) as u64))
    }

    /// How long may be spun from a later time on, if nothing is spent until then.
    pub(crate) fn allowance_at(&self, later: Instant) -> Option<Duration> {
        self.clone().allowance(later)
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.nanos_since(self.filled) as f32;
        self.filled = self.filled.max(now);
        let rate = self.share() * (1.0 - AT_ONCE);
        self.tokens = (self.tokens + passed * rate).min(self.tokens_max());
    }

    /// So much CPU was spent waiting until `now`; it would have been `wanted_ns` without the budget.
    pub(crate) fn spent(&mut self, now: Instant, spent_ns: u64, wanted_ns: u64) {
        let Goal::Cpu(share) = self.goal else { return };
        self.fill(now);
        self.tokens -= spent_ns as f32;
        self.spent_ns += spent_ns as f32;
        self.wanted_ns += wanted_ns.max(spent_ns) as f32;
        if now < self.period_end {
            return;
        }
        // A long silence counts as one period: a quiet night is no reason to spin all morning.
        let passed = (now.nanos_since(self.period_end) + PERIOD.as_nanos() as u64) as f32;
        let passed = passed.min(20.0 * PERIOD.as_nanos() as f32);
        let used = self.wanted_ns / (passed * share * (1.0 - AT_ONCE)).max(1.0);
        self.step(0.1 * used.max(1e-3).ln().clamp(-2.0, 2.0));
        self.period_end = now + PERIOD;
        (self.spent_ns, self.wanted_ns) = (0.0, 0.0);
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
