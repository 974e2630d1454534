//! Seeded replays: the policy meets the goals that users set.

use std::time::Duration;

use twinpath_idle::replay::fixed::{Setting, outcomes};
use twinpath_idle::replay::machine::Simulated;
use twinpath_idle::replay::oracle::oracle;
use twinpath_idle::replay::simulate::{Outcome, simulate};
use twinpath_idle::replay::table::{WEIGHTS, policy, rows};
use twinpath_idle::replay::traces::Trace;
use twinpath_idle::{Config, Decision, Goal, Policy};
use twinpath_time::Instant;

const SEED: u64 = 9_000;

fn trace(name: &str) -> Trace {
    Trace::all(SEED).into_iter().find(|trace| trace.name == name).expect("there is such a trace")
}

fn machine(name: &str) -> Simulated {
    Simulated::all().into_iter().find(|machine| machine.name == name).expect("there is such a machine")
}

fn replay(trace: &Trace, machine: &Simulated, goal: Goal) -> Outcome {
    simulate(trace, &mut policy(machine, goal), machine, true)
}

/// The most CPU spent in any second, share of it.
fn busiest_second(stretches: &[(u64, u64)]) -> f64 {
    let spent = |from: u64| {
        let to = from + 1_000_000_000;
        stretches.iter().map(|(start, end)| (*end).min(to).saturating_sub((*start).max(from))).sum::<u64>()
    };
    let starts = stretches.iter().step_by(stretches.len() / 200 + 1).map(|stretch| stretch.0);
    starts.map(spent).max().unwrap_or(0) as f64 / 1e9
}

#[test]
fn a_budget_of_cpu_is_never_exceeded() {
    for share in [0.05, 0.15] {
        for name in ["Poisson 350 us", "steady 100 us", "changing", "irregular bursts"] {
            let outcome = replay(&trace(name), &machine("refused"), Goal::Cpu(share));
            let busiest = busiest_second(&outcome.stretches);
            assert!(busiest <= f64::from(share) * 1.001, "{name}: {busiest} of a second for {share}");
        }
    }
}

#[test]
fn a_budget_of_cpu_buys_latency() {
    let (trace, machine) = (trace("Poisson 350 us"), machine("refused"));
    let spent = replay(&trace, &machine, Goal::Cpu(0.15));
    let asleep = replay(&trace, &machine, Goal::Weight(1000.0));
    assert!(
        spent.latency_us < 0.95 * asleep.latency_us,
        "{} against {}",
        spent.latency_us,
        asleep.latency_us
    );
}

#[test]
fn a_latency_is_kept_where_the_machine_can() {
    for (machine_name, name, budget_us) in [
        ("request", "Poisson 350 us", 20),
        ("refused", "steady 350 us", 20),
        ("refused", "Poisson 80 us", 20),
    ] {
        let goal = Goal::Latency(Duration::from_micros(budget_us));
        let outcome = replay(&trace(name), &machine(machine_name), goal);
        // The time before anything is known does not count.
        let later = &outcome.latencies[outcome.latencies.len() / 6..];
        let late = later.iter().filter(|latency| **latency > budget_us as f32).count();
        let share = late as f64 / later.len() as f64;
        assert!(share <= 0.0125, "{machine_name}, {name}: {share} are late");
    }
}

#[test]
fn silence_costs_nothing() {
    let (trace, machine) = (trace("silence"), machine("request"));
    let outcome = replay(&trace, &machine, Goal::Weight(0.1));
    assert_eq!((outcome.sleeps, outcome.timers, outcome.spun_us), (1, 0, 0.0));
    let after = self::trace("burst, then silence");
    let mut policy = policy(&machine, Goal::Weight(1.0));
    simulate(&after, &mut policy, &machine, false);
    let long_after = Instant::from_nanos(after.end_ns);
    assert!(!policy.holds(long_after), "no request is held a minute after the last packet");
    assert_eq!(policy.decide(long_after, Instant::NEVER), Decision::Sleep { until: Instant::NEVER });
}

#[test]
fn hindsight_is_hardly_better() {
    for name in ["steady 350 us", "bursts of 16, 5 us", "Poisson 80 us", "heavy-tailed"] {
        for row in rows(&trace(name), &machine("refused")) {
            assert!(row.vs_fixed() <= 1.05, "{name} w={}: {} against {}", row.weight, row.policy, row.fixed);
            let regular = !row.regular || row.vs_oracle() <= 1.3;
            assert!(regular, "{name} w={}: {} against {}", row.weight, row.policy, row.oracle);
        }
    }
}

#[test]
fn a_policy_is_small() {
    // It has no heap memory, so its size is all of it.
    assert!(size_of::<twinpath_idle::Policy>() < 64 << 10, "{}", size_of::<twinpath_idle::Policy>());
}

#[test]
fn no_setting_without_timers_beats_the_oracle() {
    for name in ["bursts of 16, 5 us", "bursts of 4, 2 us", "Poisson 20 us", "two flows"] {
        for machine in Simulated::all() {
            let trace = trace(name);
            let least = WEIGHTS.map(|weight| oracle(&trace, &machine, weight));
            let spinners = outcomes(&trace, &machine).into_iter();
            for (setting, _, outcome) in spinners.filter(|it| !matches!(it.0, Setting::Predict(_))) {
                for (weight, least) in WEIGHTS.into_iter().zip(least) {
                    let cost = outcome.cost(weight);
                    // Random draws of twelve thousand wake-ups differ from their mean by up to this.
                    assert!(cost > 0.99 * least, "{name} w={weight}: {setting:?} {cost} against {least}");
                }
            }
        }
    }
}

/// The least level, us, of a budget of 1 ms that fills at this share of the time and pays for all spinning.
fn least_left(stretches: &[(u64, u64)], share: f64) -> f64 {
    let (mut left, mut least, mut seen) = (1e6f64, 1e6f64, 0);
    for (from, to) in stretches {
        left = (left + (from - seen) as f64 * share).min(1e6) - (to - from) as f64 * (1.0 - share);
        (least, seen) = (least.min(left), *to);
    }
    least / 1e3
}

#[test]
fn a_bound_on_spinning_is_kept() {
    let machine = machine("refused");
    let goals =
        [Goal::Weight(0.1), Goal::Cpu(0.5), Goal::Latency(Duration::from_micros(20)), Goal::Cpu(0.02)];
    for share in [0.04, 0.1] {
        for name in ["jittered 350 us", "Poisson 350 us", "steady 10 us", "irregular bursts", "changing"] {
            let trace = trace(name);
            for goal in goals {
                let config =
                    Config { goal, machine: machine.told(), spin_share: Some(share), ..Config::default() };
                let outcome = simulate(&trace, &mut Policy::new(config), &machine, true);
                let left = least_left(&outcome.stretches, f64::from(share));
                assert!(left > 0.0, "{name}, {goal:?}: {left} us left of {share}");
            }
        }
    }
}

#[test]
fn what_a_bound_leaves_is_used_well() {
    let machine = machine("refused");
    let replay = |name, share| {
        let goal = Goal::Weight(0.1);
        let config = Config { goal, machine: machine.told(), spin_share: Some(share), ..Config::default() };
        simulate(&trace(name), &mut Policy::new(config), &machine, true)
    };
    // Enough for every packet that can be predicted, where a sleeping worker is 80 us late.
    let predicted = replay("jittered 350 us", 0.04);
    assert!(predicted.latency_us < 2.0 * predicted.latencies.len() as f64, "{}", predicted.latency_us);
    // Far too little: then most of it is spent.
    let flood = replay("steady 10 us", 0.1);
    assert!(flood.spun_us > 0.07 * flood.length_us, "{} of {}", flood.spun_us, flood.length_us);
}

#[test]
fn another_goal_holds_from_then_on() {
    let mut policy = Policy::new(Config::default());
    for goal in [Goal::Cpu(0.1), Goal::Weight(2.0), Goal::Latency(Duration::from_micros(50))] {
        policy.set_goal(goal);
        assert_eq!(policy.goal(), goal);
    }
}
