//! The estimates of the next gap, and the plans made from them: by the last gaps, by a histogram, by the gap before, by
//! the place in a burst.

use crate::costs::Costs;
use crate::density::{Density, Leads};
use crate::expert::Expert;
use crate::gaps::{Decaying, Ring, class_of};
use crate::plan::IdlePlan;
use crate::solve::Solver;

/// Gaps remembered overall, and per context.
const LAST: usize = 512;
const PER_CONTEXT: usize = 40;

/// Places in a burst that are distinguished.
const PLACES: usize = 40;

/// Of packets found at once, at most this many gaps are remembered one by one.
const ALIKE: f32 = 16.0;

/// Where a gap is in a burst, and the class of the gap before it: what the next gap may depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context {
    class: u8,
    place: u8,
}

impl Context {
    /// The context after `count` such gaps. A gap much longer than the one before starts a new burst.
    pub(crate) fn after(self, gap_us: f32, count: u32) -> Self {
        let class = class_of(gap_us) as u8;
        let last = PLACES as u8 - 1;
        let before = count.saturating_sub(1).min(u32::from(last)) as u8;
        let place = if class >= self.class + 2 { 0 } else { (self.place + 1).min(last) };
        Self { class, place: (place + before).min(last) }
    }
}

/// The gaps of one context, and the plan made from them.
#[derive(Clone, Debug)]
struct Branch {
    gaps: Ring<PER_CONTEXT>,
    plan: Option<IdlePlan>,
    /// Gaps since the plan was made.
    fresh: u16,
}

impl Branch {
    const EMPTY: Self = Self { gaps: Ring::new(), plan: None, fresh: 0 };

    fn replan(&mut self, room: &mut Room, costs: &Costs, leads: Leads) -> bool {
        let due = is_due(self.fresh, self.gaps.len(), 16);
        if due {
            let count = self.gaps.last(PER_CONTEXT, &mut room.gaps);
            self.plan = Some(room.plan_of_gaps(count, costs, leads));
            self.fresh = 0;
        }
        due
    }
}

/// The experts whose estimates do not depend on the context.
const OVERALL: [(Expert, usize); 3] =
    [(Expert::Last24, 24), (Expert::Last512, LAST), (Expert::Histogram, LAST)];

/// Memory in which plans are made: 18 KiB, which a thread may not have on its stack.
#[derive(Clone, Debug)]
struct Room {
    gaps: Vec<f32>,
    density: Density,
    solver: Solver,
}

impl Room {
    fn new() -> Self {
        Self { gaps: vec![0.0; LAST], density: Density::new(), solver: Solver::new() }
    }

    /// Makes it from the first `count` gaps.
    fn plan_of_gaps(&mut self, count: usize, costs: &Costs, leads: Leads) -> IdlePlan {
        self.density.be_of_gaps(&mut self.gaps[..count], leads);
        self.solver.solve(&self.density, costs).0
    }

    fn plan_of_histogram(&mut self, histogram: &Decaying, costs: &Costs, leads: Leads) -> IdlePlan {
        self.density.be_of_histogram(histogram, leads);
        self.solver.solve(&self.density, costs).0
    }
}

/// All estimates.
#[derive(Clone, Debug)]
pub(crate) struct Beliefs {
    room: Room,
    last: Ring<LAST>,
    histogram: Decaying,
    overall: [(IdlePlan, u16); OVERALL.len()],
    places: [Branch; PLACES],
    /// The estimate that is checked next for a due plan.
    turn: usize,
}

impl Beliefs {
    pub(crate) fn new() -> Self {
        Self {
            room: Room::new(),
            last: Ring::new(),
            histogram: Decaying::new(4096.0),
            overall: [(IdlePlan::SLEEP, 0); OVERALL.len()],
            places: [Branch::EMPTY; PLACES],
            turn: 0,
        }
    }

    pub(crate) const fn histogram(&self) -> &Decaying {
        &self.histogram
    }

    /// The plan of an expert. At a place in a burst that was never seen, it comes from the last 24 gaps.
    pub(crate) fn plan(&self, expert: Expert, context: Context) -> IdlePlan {
        let placed = match expert {
            Expert::InBurst => self.places[usize::from(context.place)].plan,
            _ => None,
        };
        placed.unwrap_or_else(|| {
            let at = OVERALL.iter().position(|(overall, _)| *overall == expert);
            self.overall[at.unwrap_or(0)].0
        })
    }

    /// `count` packets came, each `gap_us` after the one before.
    pub(crate) fn learn(&mut self, context: Context, gap_us: f32, count: f32) {
        let fresh = count.min(ALIKE) as u16;
        (0..fresh).for_each(|_| self.last.push(gap_us));
        self.histogram.add(gap_us, count);
        self.overall.iter_mut().for_each(|(_, since)| *since = since.saturating_add(fresh));
        let mut at = context;
        for _ in 0..fresh {
            let branch = &mut self.places[usize::from(at.place)];
            branch.gaps.push(gap_us);
            branch.fresh = branch.fresh.saturating_add(1);
            at = at.after(gap_us, 1);
        }
    }

    pub(crate) fn forget_plans(&mut self) {
        self.overall.iter_mut().for_each(|(_, fresh)| *fresh = u16::MAX);
        self.places.iter_mut().for_each(|branch| branch.fresh = u16::MAX);
    }

    /// Makes one plan anew if one is due; the estimates take turns. Returns whether one was made.
    pub(crate) fn replan(&mut self, context: Context, costs: &Costs, leads: Leads) -> bool {
        (0..=OVERALL.len()).any(|_| {
            self.turn = (self.turn + 1) % (OVERALL.len() + 1);
            match self.turn.checked_sub(1) {
                None => self.places[usize::from(context.place)].replan(&mut self.room, costs, leads),
                Some(overall) => self.replan_overall(overall, costs, leads),
            }
        })
    }

    fn replan_overall(&mut self, at: usize, costs: &Costs, leads: Leads) -> bool {
        let (expert, remembers) = OVERALL[at];
        if !is_due(self.overall[at].1, self.last.len().min(remembers), (remembers / 4).min(128) as u16) {
            return false;
        }
        let plan = if expert == Expert::Histogram {
            self.room.plan_of_histogram(&self.histogram, costs, leads)
        } else {
            let count = self.last.last(remembers, &mut self.room.gaps);
            self.room.plan_of_gaps(count, costs, leads)
        };
        self.overall[at] = (plan, 0);
        true
    }
}

/// Whether a plan must be made anew: once the number of gaps held has grown by a third, and at the latest after `most`
/// gaps.
fn is_due(fresh: u16, held: usize, most: u16) -> bool {
    held > 0 && fresh > 0 && usize::from(fresh) * 4 > held.min(usize::from(most) * 4)
}
