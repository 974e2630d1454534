//! Computes the cheapest plan for a density of gaps, exactly, in one backward pass over its cells.
//!
//! Each edge has two values, both multiplied by the probability of getting there: the future cost of an awake
//! worker and of a sleeping one. An awake worker either spins through the cell, which costs CPU for all gaps that
//! last longer, or goes to sleep. A sleeping worker either stays asleep, which costs a wake-up for gaps that end in
//! the cell, or has set a timer for the edge, which costs CPU. Packets that come before this timer fires are found
//! late; afterwards the worker is awake.

use crate::costs::Costs;
use crate::density::{CELLS, Density};
use crate::machine::POINTS;
use crate::plan::{IdlePlan, SHORTEST_NAP_US, Window};

/// Sums over the cells below an edge: of gaps, and of gaps times their length.
#[derive(Clone, Debug)]
struct Sums {
    mass: Vec<f32>,
    moment: Vec<f64>,
    /// The cost of those gaps for a sleeping worker.
    slept: Vec<f32>,
}

/// A position in the density that only moves down.
#[derive(Clone, Copy)]
struct Place {
    cell: usize,
}

impl Sums {
    fn new() -> Self {
        Self { mass: vec![0.0; CELLS + 1], moment: vec![0.0; CELLS + 1], slept: vec![0.0; CELLS + 1] }
    }

    /// The first ones stay zero.
    fn add_up(&mut self, density: &Density, costs: &Costs) {
        for at in 0..density.cells {
            let middle = f64::midpoint(f64::from(density.edges[at]), f64::from(density.edges[at + 1]));
            self.mass[at + 1] = self.mass[at] + density.mass[at];
            self.moment[at + 1] = self.moment[at] + f64::from(density.mass[at]) * middle;
            self.slept[at + 1] = self.slept[at] + density.mass[at] * costs.sleep(middle as f32);
        }
    }

    /// The number of gaps below `at_us`, and the sum of their lengths.
    fn below(&self, density: &Density, place: &mut Place, at_us: f32) -> (f32, f64) {
        while place.cell > 0 && density.edges[place.cell] > at_us {
            place.cell -= 1;
        }
        let cell = place.cell;
        if cell >= density.cells {
            return (self.mass[density.cells], self.moment[density.cells]);
        }
        let (lo, hi) = (density.edges[cell], density.edges[cell + 1]);
        let share = ((at_us - lo) / (hi - lo)).clamp(0.0, 1.0);
        let mass = density.mass[cell] * share;
        let middle = f64::from(lo) + f64::from(hi - lo) * f64::from(share) / 2.0;
        (self.mass[cell] + mass, self.moment[cell] + f64::from(mass) * middle)
    }
}

/// Timers per plan: after this many missed predictions, none follows.
pub(crate) const TIMERS: usize = 2;

/// Values by the number of timers left, at one edge.
type Left = [f32; TIMERS + 1];

/// The results of the pass at each edge.
#[derive(Clone, Debug)]
struct PassResults {
    /// The future cost of a sleeping worker that may have set a timer for this edge or later.
    asleep: Vec<Left>,
    /// The future cost of an awake worker, of all gaps that last this long.
    awake: Vec<Left>,
    /// The extra cost of spinning on, compared with going to sleep, per gap that lasts this long; spin where it is
    /// negative.
    dearer: Vec<Left>,
    /// Whether a sleeping worker has set a timer for this edge.
    timer: Vec<[bool; TIMERS + 1]>,
}

/// Memory in which plans are made, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Solver {
    sums: Sums,
    found: PassResults,
}

impl Solver {
    pub(crate) fn new() -> Self {
        let zeros = || vec![[0.0; TIMERS + 1]; CELLS + 1];
        let timer = vec![[false; TIMERS + 1]; CELLS + 1];
        Self {
            sums: Sums::new(),
            found: PassResults { asleep: zeros(), awake: zeros(), dearer: zeros(), timer },
        }
    }

    /// The cheapest plan, and its cost per gap for a worker that is awake when the gap starts.
    pub(crate) fn solve(&mut self, density: &Density, costs: &Costs) -> (IdlePlan, f32) {
        self.sums.add_up(density, costs);
        solve(density, costs, &self.sums, &mut self.found)
    }
}

/// Earlier contents of a solver do not matter: each value is written before it is read.
fn solve(density: &Density, costs: &Costs, sums: &Sums, found: &mut PassResults) -> (IdlePlan, f32) {
    let cells = density.cells;
    let mut alive = density.tail;
    found.asleep[cells] = [alive * costs.sleep(density.edges[cells]); TIMERS + 1];
    found.awake[cells] = found.asleep[cells].map(|asleep| asleep + alive * costs.sleep_cpu());
    let mut rested = cells;
    let mut fired = [Place { cell: cells }; POINTS];
    let mut missed = [Place { cell: cells }; POINTS];
    for at in (0..cells).rev() {
        let (lo, hi) = (density.edges[at], density.edges[at + 1]);
        let mass = density.mass[at];
        let through = costs.spin((hi - lo) * (alive + mass / 2.0));
        alive += mass;
        let spin = found.awake[at + 1].map(|awake| awake + through);
        found.awake[at] = spin;
        let late = timer_late(density, costs, sums, at, &mut fired, &mut missed);
        let slept = sums.slept[at + 1] - sums.slept[at];
        for left in (0..=TIMERS).rev() {
            let stay = slept + found.asleep[at + 1][left];
            found.asleep[at][left] = stay;
            if left > 0 {
                let then = fired.iter().zip(costs.overshoot_us);
                let then = then.map(|(place, over)| awake_at(density, found, *place, lo + over, left - 1));
                let timer = alive * costs.timer_cpu() + late + then.sum::<f32>() / POINTS as f32;
                found.timer[at][left] = timer < stay;
                found.asleep[at][left] = timer.min(stay);
            }
        }
        while rested > at + 1 && density.edges[rested - 1] >= lo + SHORTEST_NAP_US {
            rested -= 1;
        }
        let nap = sums.slept[rested] - sums.slept[at];
        for (left, spin) in spin.into_iter().enumerate() {
            let rest = nap + found.asleep[rested][left] + alive * costs.sleep_cpu();
            found.dearer[at][left] = (spin - rest) / alive;
            found.awake[at][left] = spin.min(rest);
        }
    }
    (plan_of(density, costs, found), found.awake[0][TIMERS] / density.total().max(f32::MIN_POSITIVE))
}

/// The cost of gaps that end between the time a timer was set for, the edge `at`, and the time at which it fires.
fn timer_late(
    density: &Density,
    costs: &Costs,
    sums: &Sums,
    at: usize,
    fired: &mut [Place; POINTS],
    missed: &mut [Place; POINTS],
) -> f32 {
    let lo = density.edges[at];
    let mut cost = 0.0;
    for (point, overshoot) in costs.overshoot_us.into_iter().enumerate() {
        let up = lo + overshoot;
        let (mass_up, moment_up) = sums.below(density, &mut fired[point], up);
        let limit = up - costs.late_limit();
        let (mass_limit, moment_limit) = if limit > lo {
            sums.below(density, &mut missed[point], limit)
        } else {
            (sums.mass[at], sums.moment[at])
        };
        let late = f64::from(up) * f64::from(mass_up - mass_limit) - (moment_up - moment_limit);
        // If the packet came this early, it woke the worker, not the timer.
        let spared = costs.sleep(lo) - costs.timer_cpu();
        cost += costs.slope() * late as f32 + (mass_limit - sums.mass[at]) * spared;
    }
    cost / POINTS as f32
}

/// The future cost of a worker that is awake within a cell.
fn awake_at(density: &Density, found: &PassResults, place: Place, at_us: f32, left: usize) -> f32 {
    let cell = place.cell;
    if cell >= density.cells {
        return found.awake[density.cells][left];
    }
    let (lo, hi) = (density.edges[cell], density.edges[cell + 1]);
    let share = ((at_us - lo) / (hi - lo)).clamp(0.0, 1.0);
    let (from, to) = (found.awake[cell][left], found.awake[cell + 1][left]);
    from + (to - from) * share
}

/// Extracts the windows, in ascending order.
fn plan_of(density: &Density, costs: &Costs, found: &PassResults) -> IdlePlan {
    let mut plan = IdlePlan::SLEEP;
    let (mut at, mut left) = (0, TIMERS);
    let mut rested_us = SHORTEST_NAP_US;
    // Until a timer has fired: parts in which a worker that happens to be awake spins, too.
    while at < density.cells {
        if found.dearer[at][left] < 0.0 && left == TIMERS {
            let from_us = first_to_spin(density, found, at);
            let mut timer = None;
            while at < density.cells && found.dearer[at][left] < 0.0 {
                if density.edges[at] >= rested_us && found.timer[at][left] {
                    timer = Some(at);
                    break;
                }
                at += 1;
            }
            let Some(edge) = timer else {
                let window = Window { from_us, wake_us: f32::INFINITY, until_us: density.edges[at] };
                if !plan.push(window) {
                    break;
                }
                rested_us = density.edges[at] + SHORTEST_NAP_US;
                continue;
            };
            at = edge;
        }
        if at >= density.cells {
            break;
        }
        if left == 0 || density.edges[at] < rested_us || !found.timer[at][left] {
            at += 1;
            continue;
        }
        let wake_us = density.edges[at];
        let from_us = if left == TIMERS && found.dearer[at][left] < 0.0 {
            let mut first = at;
            while first > 0 && found.dearer[first - 1][left] < 0.0 {
                first -= 1;
            }
            first_to_spin(density, found, first).min(wake_us)
        } else {
            wake_us
        };
        left -= 1;
        at = spin_end(density, costs, found, at, left);
        let until_us = density.edges[at].max(wake_us + SHORTEST_NAP_US);
        rested_us = until_us + SHORTEST_NAP_US;
        if !plan.push(Window { from_us, wake_us, until_us }) {
            break;
        }
    }
    plan
}

/// The edge at which a worker goes back to sleep after a timer set for the edge `timer` has woken it, with this
/// many timers `left`. It is the end of the first part in which spinning pays and for which the timer, however
/// late, may be in time.
fn spin_end(density: &Density, costs: &Costs, found: &PassResults, timer: usize, left: usize) -> usize {
    let pays = |at: usize| found.dearer[at][left] < 0.0;
    let wake_us = density.edges[timer];
    let mut at = timer;
    while at + 1 < density.cells && density.edges[at + 1] <= wake_us + costs.overshoot_us[0] {
        at += 1;
    }
    let mut first = at;
    while first < density.cells && !pays(first) {
        first += 1;
    }
    if first < density.cells && density.edges[first] < wake_us + costs.overshoot_us[POINTS - 1] {
        at = first;
        while at < density.cells && pays(at) {
            at += 1;
        }
    }
    at
}

/// The time within the previous cell at which spinning starts to pay, if it pays from the start of this cell.
fn first_to_spin(density: &Density, found: &PassResults, first: usize) -> f32 {
    let hi = density.edges[first];
    let Some(before) = first.checked_sub(1) else { return hi };
    let (far, near) = (found.dearer[before][TIMERS], found.dearer[first][TIMERS]);
    if far < 0.0 {
        return hi;
    }
    hi - (hi - density.edges[before]) * (near / (near - far)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests;
