//! What one who knows every arrival would pay, on average over the machine's wake-ups.

use super::machine::Simulated;
use super::traces::Trace;

/// The least cost at which packets up to one are served, by where the worker stands then.
#[derive(Clone, Copy)]
struct Reached {
    /// The least cost.
    cost: f64,
    /// The least of cost less what spinning from the last arrival to when it was found would have cost: for one who spins on.
    spinning: f64,
}

const UNREACHED: Reached = Reached { cost: f64::INFINITY, spinning: f64::INFINITY };

/// The least cost, choosing for each gap to spin or to sleep, and, if it may, to be woken ahead by a timer set with full
/// knowledge of the arrival (not of the timer's overshoot).
#[must_use]
pub fn clairvoyant(trace: &Trace, machine: &Simulated, weight: f64, timers: bool) -> f64 {
    let times: Vec<f64> = trace.arrivals_ns.iter().map(|time| *time as f64 / 1e3).collect();
    let points = machine.overshoot_points();
    let mut reached = vec![UNREACHED; times.len() + 1];
    // Before the first packet it sleeps, or is not there yet: all pay alike.
    reached[0] = Reached { cost: 0.0, spinning: f64::INFINITY };
    for at in 0..times.len() {
        let Reached { cost, spinning } = reached[at];
        let gap = if at == 0 { f64::INFINITY } else { times[at] - times[at - 1] };
        let mut spun = spinning + weight * gap;
        if timers && at > 0 {
            let wake = machine.wake_mean_us(gap);
            spun = spun.min(cost + best_timer(&points, weight, wake, machine.timer_cpu_us));
        }
        let next = &mut reached[at + 1];
        next.cost = next.cost.min(spun);
        next.spinning = next.spinning.min(spun);
        let wake = machine.wake_mean_us(gap);
        let found = times[at] + wake;
        let (mut slept, mut end) = (cost, at);
        while end < times.len() && times[end] <= found {
            slept += found - times[end];
            end += 1;
        }
        let next = &mut reached[end];
        next.cost = next.cost.min(slept);
        next.spinning = next.spinning.min(slept - weight * (found - times[end - 1]));
    }
    reached[times.len()].cost
}

/// The least cost of a timer for a known arrival.
fn best_timer(points: &[f64], weight: f64, wake_us: f64, cpu_us: f64) -> f64 {
    let cost = |lead: f64| {
        let each = points
            .iter()
            .map(|over| if *over > lead { (over - lead).min(wake_us) } else { weight * (lead - over) });
        weight * cpu_us + each.sum::<f64>() / points.len() as f64
    };
    points.iter().map(|lead| cost(*lead)).fold(f64::INFINITY, f64::min)
}
