//! The choice among the experts. A simulated worker follows each expert's plans through the real arrivals; the policy
//! follows the expert whose simulated worker has cost least lately.

use libm::powf;

use crate::beliefs::{Beliefs, Context};
use crate::costs::Costs;
use crate::density::Leads;
use crate::expert::Expert;
use crate::gaps::Decaying;
use crate::machine::POINTS;
use crate::plan::{IdlePlan, SHORTEST_NAP_US, Window};

const EXPERTS: usize = Expert::ALL.len();

/// How far an expert may fall behind, in wake-ups. This bounds the cost of a change of the traffic until another
/// expert leads.
const BEHIND_MAX: f32 = 40.0;

/// Maximum number of simulated sleeps for packets that were found together; further ones give the same result.
const ROUNDS: usize = 4;

/// A simulated worker.
#[derive(Clone, Copy, Debug, Default)]
struct Follower {
    /// It will find packets at this time after the last arrival, because it is being woken; 0 if it was awake.
    ahead_us: f32,
    /// How far it is behind the best, us of latency.
    behind: f32,
}

impl Follower {
    /// `count` packets came, each after the same gap.
    fn live(&mut self, plan: &IdlePlan, gap_us: f32, count: f32, costs: &Costs, overshoot_us: f32) {
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
            // An awake worker finds all of them equally late.
            let alike = if late_us > 0.0 { 1.0 } else { left };
            self.behind += cost * alike;
            self.ahead_us = late_us;
            left -= alike;
        }
    }
}

/// The experts, their simulated workers and their estimates.
#[derive(Clone, Debug)]
pub(crate) struct Experts {
    beliefs: Beliefs,
    followers: [Follower; EXPERTS],
    /// Mean of the last eight gaps, us.
    mean_us: f32,
    /// Random state for the lateness of timers: it is the same for all simulated workers.
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

    pub(crate) const fn mean_us(&self) -> f32 {
        self.mean_us
    }

    pub(crate) const fn histogram(&self) -> &Decaying {
        self.beliefs.histogram()
    }

    pub(crate) fn behind(&self) -> [f32; EXPERTS] {
        self.followers.map(|follower| follower.behind)
    }

    /// An expert's plan, cut to the bound on spinning.
    fn plan(&self, expert: Expert, context: Context, costs: &Costs) -> IdlePlan {
        let plan = match expert {
            Expert::Unknowing => IdlePlan::spin(costs.wake_us / costs.weight),
            Expert::Spin(us) => IdlePlan::spin(us),
            Expert::Mean(share) => {
                let lead = share * costs.overshoot_us[POINTS / 2];
                let wake_us = (self.mean_us - lead).max(SHORTEST_NAP_US);
                IdlePlan::of(Window { from_us: wake_us, wake_us, until_us: self.mean_us + lead })
            }
            believer => self.beliefs.plan(believer, context),
        };
        plan.within(costs.spin_max_us)
    }

    /// The leading expert and its plan.
    pub(crate) fn leader(&self, context: Context, costs: &Costs) -> (Expert, IdlePlan) {
        let mut best = 0;
        for (at, follower) in self.followers.iter().enumerate() {
            if follower.behind < self.followers[best].behind {
                best = at;
            }
        }
        let expert = Expert::ALL[best];
        (expert, self.plan(expert, context, costs))
    }

    /// `count` packets came, each `gap_us` after the one before: all simulated workers handle them, then the gaps are
    /// remembered.
    pub(crate) fn learn(&mut self, context: Context, gap_us: f32, count: f32, costs: &Costs) {
        // At random, because a fixed order would fall in step with regular arrivals; one of Knuth's generators.
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let overshoot_us = costs.overshoot_us[(self.chance >> 33) as usize % POINTS];
        for (at, expert) in Expert::ALL.into_iter().enumerate() {
            let plan = self.plan(expert, context, costs);
            self.followers[at].live(&plan, gap_us, count, costs, overshoot_us);
        }
        let behind = self.followers.iter().map(|follower| follower.behind);
        let least = behind.fold(f32::INFINITY, f32::min);
        let most = BEHIND_MAX * costs.wake_us.max(1.0);
        self.followers.iter_mut().for_each(|follower| follower.behind = (follower.behind - least).min(most));
        self.gaps += count as u64;
        let rate = if self.mean_us == 0.0 { 1.0 } else { 1.0 - powf(0.875, count) };
        self.mean_us += (gap_us - self.mean_us) * rate;
        self.beliefs.learn(context, gap_us, count);
    }

    /// Makes a plan anew if one is due. Returns whether one was made.
    pub(crate) fn replan(&mut self, context: Context, costs: &Costs, leads: Leads) -> bool {
        self.beliefs.replan(context, costs, leads)
    }

    /// The price of CPU changed: all plans are made anew in turn.
    pub(crate) fn forget_plans(&mut self) {
        self.beliefs.forget_plans();
    }
}
