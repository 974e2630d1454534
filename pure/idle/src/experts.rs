//! Several ways to believe when the next packet comes, each with a plan. For each there is an imaginary worker that follows its
//! plans through the very arrivals that were seen; the one that would have been cheapest lately is in charge.

use crate::beliefs::{Beliefs, Context};
use crate::costs::{Costs, POINTS};
use crate::density::Leads;
use crate::gaps::Decaying;
use crate::plan::{Plan, SHORTEST_NAP_US, Window};

/// Who may be in charge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expert {
    /// Knows nothing, and spins as long as a wake-up costs: never worse than twice the best without predictions.
    Unknowing,
    /// Spins for so long after each packet, us, then sleeps; 0 sleeps at once, infinity spins for as long as is ever allowed.
    Spin(f32),
    /// Expects the mean of the last eight gaps, is woken so long before it, and spins until as long after; in medians of the
    /// timer's lateness.
    Mean(f32),
    /// The last 24 gaps.
    Last24,
    /// The last 96.
    Last96,
    /// The last 512.
    Last512,
    /// A histogram of the last few thousand, fading.
    Histogram,
    /// The gaps that followed one as long as the last.
    AfterGap,
    /// The gaps at this place in a burst.
    InBurst,
}

impl Expert {
    /// All.
    pub const ALL: [Self; 28] = [
        Self::Unknowing,
        Self::Spin(0.0),
        Self::Spin(2.0),
        Self::Spin(4.0),
        Self::Spin(8.0),
        Self::Spin(16.0),
        Self::Spin(32.0),
        Self::Spin(64.0),
        Self::Spin(128.0),
        Self::Spin(256.0),
        Self::Spin(512.0),
        Self::Spin(1024.0),
        Self::Spin(4096.0),
        Self::Spin(f32::INFINITY),
        Self::Mean(0.35),
        Self::Mean(0.55),
        Self::Mean(0.8),
        Self::Mean(1.1),
        Self::Mean(1.4),
        Self::Mean(1.8),
        Self::Mean(2.5),
        Self::Mean(3.5),
        Self::Last24,
        Self::Last96,
        Self::Last512,
        Self::Histogram,
        Self::AfterGap,
        Self::InBurst,
    ];
}

const EXPERTS: usize = Expert::ALL.len();

/// The first of them only spin, so long, us. How long the unknowing does is known to the table of costs.
const SPINNERS: usize = 14;
const SPINS_US: [f32; SPINNERS] = {
    let mut spins_us = [0.0; SPINNERS];
    let mut at = 0;
    while at < SPINNERS {
        if let Expert::Spin(us) = Expert::ALL[at] {
            spins_us[at] = us;
        }
        at += 1;
    }
    spins_us
};

/// How far an expert may fall behind, in wake-ups: what a change of the traffic costs at most until another takes over.
const BEHIND_MAX: f32 = 40.0;

/// Sleeps lived through, at most, for packets that were found at once: the others say nothing new.
const ROUNDS: usize = 4;

/// An imaginary worker.
#[derive(Clone, Copy, Debug, Default)]
struct Follower {
    /// It finds what has come at this time after the last arrival: it is being woken. 0 if it was awake.
    ahead_us: f32,
    /// How far it is behind the best, us of latency.
    behind: f32,
}

impl Follower {
    /// `count` packets came, each after the same gap.
    fn live(&mut self, plan: &Plan, gap_us: f32, count: f32, costs: &Costs, overshoot_us: f32) {
        let mut left = count;
        for _ in 0..ROUNDS {
            if self.ahead_us >= gap_us {
                let found = if gap_us > 0.0 { (self.ahead_us / gap_us).floor().min(left) } else { left };
                self.behind += costs.late_packets(self.ahead_us, gap_us, found);
                self.ahead_us = (self.ahead_us - found * gap_us).max(0.0);
                left -= found;
            }
            if left <= 0.0 {
                break;
            }
            let (cost, late_us) = plan.live(gap_us, self.ahead_us, costs, overshoot_us);
            // Awake, one is as the other.
            let alike = if late_us > 0.0 { 1.0 } else { left };
            self.behind += cost * alike;
            self.ahead_us = late_us;
            left -= alike;
        }
    }
}

/// The experts.
#[derive(Clone, Debug)]
pub(crate) struct Experts {
    beliefs: Beliefs,
    followers: [Follower; EXPERTS],
    /// Mean of the last eight gaps, us.
    mean_us: f32,
    /// Draws how late timers are: all imaginary workers meet the same.
    chance: u64,
    gaps: u64,
}

impl Experts {
    pub(crate) fn new() -> Self {
        Self {
            beliefs: Beliefs::new(),
            followers: [Follower::default(); EXPERTS],
            mean_us: 0.0,
            chance: 0,
            gaps: 0,
        }
    }

    pub(crate) const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Mean of the last eight gaps, us.
    pub(crate) const fn mean_us(&self) -> f32 {
        self.mean_us
    }

    pub(crate) const fn histogram(&self) -> &Decaying {
        self.beliefs.histogram()
    }

    pub(crate) fn behind(&self) -> [f32; EXPERTS] {
        self.followers.map(|follower| follower.behind)
    }

    /// A plan, which keeps to the bound on spinning.
    fn plan(&self, expert: Expert, context: Context, costs: &Costs) -> Plan {
        let plan = match expert {
            Expert::Unknowing => Plan::spin(costs.wake_us / costs.weight),
            Expert::Spin(us) => Plan::spin(us),
            Expert::Mean(share) => {
                let lead = share * costs.overshoot_us[POINTS / 2];
                let wake_us = (self.mean_us - lead).max(SHORTEST_NAP_US);
                Plan::of(Window { from_us: wake_us, wake_us, until_us: self.mean_us + lead })
            }
            believer => self.beliefs.plan(believer, context),
        };
        plan.within(costs.spin_max_us)
    }

    /// Who is in charge, and its plan.
    pub(crate) fn leader(&self, context: Context, costs: &Costs) -> (Expert, Plan) {
        let mut best = 0;
        for (at, follower) in self.followers.iter().enumerate() {
            if follower.behind < self.followers[best].behind {
                best = at;
            }
        }
        let expert = Expert::ALL[best];
        (expert, self.plan(expert, context, costs))
    }

    /// `count` packets came, each `gap_us` after the one before: all live through it, then remember it.
    pub(crate) fn learn(&mut self, context: Context, gap_us: f32, count: f32, costs: &Costs) {
        // By chance, as a fixed order would fall in step with regular arrivals; one of Knuth's generators.
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let overshoot_us = costs.overshoot_us[(self.chance >> 33) as usize % POINTS];
        let spinners = if count > 1.0 { 0 } else { SPINNERS };
        if spinners > 0 {
            self.spinners_live(gap_us, costs);
        }
        for at in spinners..EXPERTS {
            let plan = self.plan(Expert::ALL[at], context, costs);
            self.followers[at].live(&plan, gap_us, count, costs, overshoot_us);
        }
        let behind = self.followers.iter().map(|follower| follower.behind);
        let least = behind.fold(f32::INFINITY, f32::min);
        let most = BEHIND_MAX * costs.wake_us.max(1.0);
        self.followers.iter_mut().for_each(|follower| follower.behind = (follower.behind - least).min(most));
        self.gaps += count as u64;
        let rate = if self.mean_us == 0.0 { 1.0 } else { 1.0 - 0.875f32.powf(count) };
        self.mean_us += (gap_us - self.mean_us) * rate;
        self.beliefs.learn(context, gap_us, count);
    }

    /// One packet came: [`Follower::live`] for all that only spin, at once.
    fn spinners_live(&mut self, gap_us: f32, costs: &Costs) {
        let slept = (costs.sleep_cpu() + costs.alone(gap_us), costs.alone_us(gap_us));
        let mut spins_us = SPINS_US;
        spins_us[0] = costs.wake_us / costs.weight;
        for (follower, until_us) in self.followers.iter_mut().zip(spins_us) {
            let until_us = until_us.min(costs.spin_max_us);
            let ahead_us = follower.ahead_us;
            let (cost, late_us) = if ahead_us >= gap_us {
                (costs.late(ahead_us - gap_us), ahead_us - gap_us)
            } else if gap_us < until_us {
                (costs.spin(gap_us - ahead_us), 0.0)
            } else {
                (costs.spin((until_us - ahead_us).max(0.0)) + slept.0, slept.1)
            };
            follower.behind += cost;
            follower.ahead_us = late_us;
        }
    }

    /// Makes a plan anew if one is due. Says whether one was.
    pub(crate) fn replan(&mut self, context: Context, costs: &Costs, leads: Leads) -> bool {
        self.beliefs.replan(context, costs, leads)
    }

    /// The price of CPU moved: all plans are made anew as their turn comes.
    pub(crate) fn forget_plans(&mut self) {
        self.beliefs.forget_plans();
    }
}
