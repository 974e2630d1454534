//! The cost of an oracle that knows every arrival, on average over the machine's wake-ups.

use super::machine::Simulated;
use super::traces::Trace;

/// The least cost of choosing for each gap whether to spin or to sleep. All arrivals are known in advance; the
/// duration of a wake-up is known only when it is over.
///
/// Exact, computed backwards: when a packet comes, a worker that has found all earlier ones is either asleep or has
/// spun until then.
#[must_use]
pub fn oracle(trace: &Trace, machine: &Simulated, weight: f64) -> f64 {
    let times: Vec<f64> = trace.arrivals_ns.iter().map(|time| *time as f64 / 1e3).collect();
    let wakes = machine.wake_points();
    // For each packet, the cost of all later ones: for a worker that sleeps when it comes, and for one that spins
    // from then on.
    let mut asleep = vec![0.0f64; times.len()];
    let mut spinning = vec![0.0f64; times.len()];
    for at in (1..times.len()).rev() {
        let awake = |next: usize, now: f64| {
            if next == times.len() { 0.0 } else { asleep[next].min(spinning[next] - weight * now) }
        };
        let gap = times[at] - times[at - 1];
        let points = &wakes[machine.depth(gap)];
        let woken = |wake: &f64| {
            let found = times[at] + wake;
            let (mut cost, mut next) = (0.0, at);
            while next < times.len() && times[next] <= found {
                cost += found - times[next];
                next += 1;
            }
            cost + awake(next, found)
        };
        let slept = points.iter().map(woken).sum::<f64>() / points.len() as f64;
        let spun = weight * times[at] + awake(at + 1, times[at]);
        (asleep[at], spinning[at]) = (slept, spun);
    }
    // The first packet is found at once.
    match times[..] {
        [first, _, ..] => asleep[1].min(spinning[1] - weight * first),
        _ => 0.0,
    }
}
