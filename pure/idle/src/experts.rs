//! Several ways to believe what the next gap will be, each with a plan, and each charged for every gap what its plan would
//! have cost. The one that was cheapest lately is in charge.

use crate::costs::Costs;
use crate::density::{Density, Leads};
use crate::gaps::{CLASSES, Decaying, Ring, class_of};
use crate::plan::Plan;
use crate::solve::solve;

/// Who may be in charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Expert {
    /// Knows nothing, and spins as long as a wake-up costs: never worse than twice the best without predictions.
    Unknowing,
    /// Sleeps at once.
    Sleeper,
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
    /// All, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Unknowing,
        Self::Sleeper,
        Self::Last24,
        Self::Last96,
        Self::Last512,
        Self::Histogram,
        Self::AfterGap,
        Self::InBurst,
    ];

    /// The name users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknowing => "unknowing",
            Self::Sleeper => "sleeper",
            Self::Last24 => "last 24 gaps",
            Self::Last96 => "last 96 gaps",
            Self::Last512 => "last 512 gaps",
            Self::Histogram => "histogram",
            Self::AfterGap => "after such a gap",
            Self::InBurst => "place in burst",
        }
    }

    const fn remembers(self) -> usize {
        match self {
            Self::Last24 => 24,
            Self::Last96 => 96,
            _ => 512,
        }
    }
}

const EXPERTS: usize = Expert::ALL.len();

/// Gaps remembered overall, and per context.
const LAST: usize = 512;
const PER_CONTEXT: usize = 40;

/// Places in a burst that are told apart.
const PLACES: usize = 40;

/// How far an expert may fall behind, in wake-ups: what a change of the traffic costs at most until another takes over.
const BEHIND_MAX: f32 = 40.0;

/// Where a gap stands among others: what the next one may depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    class: u8,
    place: u8,
}

impl Context {
    /// The context after a gap. A gap much longer than the one before starts a burst anew.
    #[inline]
    pub(crate) fn after(self, gap_us: f32) -> Self {
        let class = class_of(gap_us) as u8;
        let place = if class >= self.class + 2 { 0 } else { (self.place + 1).min(PLACES as u8 - 1) };
        Self { class, place }
    }
}

/// The gaps of one context, and the plan made from them.
#[derive(Clone, Debug)]
struct Branch {
    gaps: Ring<PER_CONTEXT>,
    plan: Option<Plan>,
    /// Gaps since the plan was made.
    fresh: u16,
}

impl Branch {
    const EMPTY: Self = Self { gaps: Ring::new(), plan: None, fresh: 0 };
}

/// The experts.
#[derive(Clone, Debug)]
pub(crate) struct Experts {
    last: Ring<LAST>,
    histogram: Decaying,
    plans: [Plan; EXPERTS],
    /// What the plan promised to cost per gap.
    promised: [f32; EXPERTS],
    fresh: [u16; EXPERTS],
    /// How far each is behind the best, us of latency.
    behind: [f32; EXPERTS],
    classes: [Branch; CLASSES],
    places: [Branch; PLACES],
    gaps: u64,
}

impl Experts {
    pub(crate) fn new() -> Self {
        Self {
            last: Ring::new(),
            histogram: Decaying::new(4096.0),
            plans: [Plan::SLEEP; EXPERTS],
            promised: [0.0; EXPERTS],
            fresh: [0; EXPERTS],
            behind: [0.0; EXPERTS],
            classes: [Branch::EMPTY; CLASSES],
            places: [Branch::EMPTY; PLACES],
            gaps: 0,
        }
    }

    pub(crate) const fn gaps(&self) -> u64 {
        self.gaps
    }

    pub(crate) const fn histogram(&self) -> &Decaying {
        &self.histogram
    }

    pub(crate) const fn behind(&self) -> &[f32; EXPERTS] {
        &self.behind
    }

    pub(crate) const fn promised(&self) -> &[f32; EXPERTS] {
        &self.promised
    }

    fn plan(&self, expert: Expert, context: Context) -> &Plan {
        let branch = match expert {
            Expert::AfterGap => self.classes[usize::from(context.class)].plan.as_ref(),
            Expert::InBurst => self.places[usize::from(context.place)].plan.as_ref(),
            _ => None,
        };
        // A context never met: what the last gaps say.
        let fallback = match expert {
            Expert::AfterGap | Expert::InBurst => Expert::Last96,
            other => other,
        };
        branch.unwrap_or(&self.plans[fallback as usize])
    }

    /// Who is in charge, and its plan.
    pub(crate) fn leader(&self, context: Context) -> (Expert, Plan) {
        let mut best = Expert::Unknowing;
        for expert in Expert::ALL {
            if self.behind[expert as usize] < self.behind[best as usize] {
                best = expert;
            }
        }
        (best, *self.plan(best, context))
    }

    /// An idle time ended after `gap_us`, of which the worker was awake from `awake_us` on: charges all, then remembers it.
    pub(crate) fn learn(&mut self, context: Context, gap_us: f32, awake_us: f32, count: f32, costs: &Costs) {
        let mut least = f32::INFINITY;
        for expert in Expert::ALL {
            let cost = self.plan(expert, context).cost(gap_us, awake_us, costs) * count;
            let behind = &mut self.behind[expert as usize];
            *behind += cost;
            least = least.min(*behind);
        }
        let most = BEHIND_MAX * costs.wake_us.max(1.0);
        self.behind.iter_mut().for_each(|behind| *behind = (*behind - least).min(most));
        for _ in 0..(count as u32).min(8) {
            self.last.push(gap_us);
        }
        self.histogram.add(gap_us, count);
        for branch in
            [&mut self.classes[usize::from(context.class)], &mut self.places[usize::from(context.place)]]
        {
            branch.gaps.push(gap_us);
            branch.fresh = branch.fresh.saturating_add(1);
        }
        self.fresh.iter_mut().for_each(|fresh| *fresh = fresh.saturating_add(1));
        self.gaps += count as u64;
    }

    /// All plans are made anew as their turn comes.
    pub(crate) fn costs_changed(&mut self, costs: &Costs) {
        self.plans[Expert::Unknowing as usize] = Plan::spin(costs.wake_us / costs.weight);
        self.fresh.fill(u16::MAX);
        for branch in self.classes.iter_mut().chain(&mut self.places) {
            branch.fresh = u16::MAX;
        }
    }

    /// Makes plans anew that are due: all while little is known, then one at a time.
    pub(crate) fn replan(&mut self, context: Context, costs: &Costs, leads: Leads) {
        let most = if self.gaps < 100 { EXPERTS } else { 1 };
        for _ in 0..most {
            if !self.replan_one(context, costs, leads) {
                break;
            }
        }
    }

    fn replan_one(&mut self, context: Context, costs: &Costs, leads: Leads) -> bool {
        let mut scratch = [0.0; LAST];
        for branch in
            [&mut self.classes[usize::from(context.class)], &mut self.places[usize::from(context.place)]]
        {
            let held = branch.gaps.len();
            if is_due(branch.fresh, held, 16) {
                let count = branch.gaps.last(PER_CONTEXT, &mut scratch);
                branch.plan = Some(solve(&Density::of_gaps(&mut scratch[..count], leads), costs).0);
                branch.fresh = 0;
                return true;
            }
        }
        for expert in [Expert::Last24, Expert::Last96, Expert::Last512, Expert::Histogram] {
            let at = expert as usize;
            let held = self.last.len().min(expert.remembers());
            if !is_due(self.fresh[at], held, (expert.remembers() / 4).min(128) as u16) {
                continue;
            }
            let density = if expert == Expert::Histogram {
                Density::of_histogram(&self.histogram, leads)
            } else {
                let count = self.last.last(expert.remembers(), &mut scratch);
                Density::of_gaps(&mut scratch[..count], leads)
            };
            (self.plans[at], self.promised[at]) = solve(&density, costs);
            self.fresh[at] = 0;
            return true;
        }
        false
    }
}

/// Whether a plan is to be made anew: when what is held has grown by a third, and at last every so many gaps.
fn is_due(fresh: u16, held: usize, most: u16) -> bool {
    held > 0 && fresh > 0 && usize::from(fresh) * 4 > held.min(usize::from(most) * 4)
}
