//! Seeded replays must give the results committed in `committed.txt`, so that a change of the policy's decisions is
//! noticed and must be intended. A test that fails prints what to commit instead.

use std::fmt::Write as _;
use std::time::Duration;

use twinpath_idle::replay::machine::Simulated;
use twinpath_idle::replay::simulate::{Outcome, simulate};
use twinpath_idle::replay::table::policy;
use twinpath_idle::replay::traces::Trace;
use twinpath_idle::{Config, Goal, Policy};

const SEED: u64 = 77;
const COMMITTED: &str = include_str!("committed.txt");

/// Figures may differ by this fraction, or by one: logarithms are not the same to the last bit everywhere.
const TOLERANCE: f64 = 0.002;

/// Latency, CPU spent spinning and on timers, time with the request held, us; wake-ups by timers, sleeps.
fn figures(outcome: &Outcome) -> [f64; 6] {
    let Outcome { latency_us, spun_us, timers_us, held_us, timers, sleeps, .. } = *outcome;
    [latency_us, spun_us, timers_us, held_us, timers as f64, sleeps as f64].map(f64::round)
}

fn is_close(found: f64, committed: f64) -> bool {
    (found - committed).abs() <= (committed.abs() * TOLERANCE).max(1.0)
}

/// One line per replay: its name, then its figures.
fn check(section: &str, replays: impl Iterator<Item = (String, Outcome)>) {
    let committed = |name: &str| {
        let line = COMMITTED.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().map(|figure| figure.parse().ok()).collect::<Option<Vec<f64>>>()
    };
    let (mut lines, mut wrong) = (String::new(), Vec::new());
    for (name, outcome) in replays {
        let (name, figures) = (format!("{section}, {name}"), figures(&outcome));
        let same = committed(&name).is_some_and(|committed| {
            committed.len() == figures.len() && figures.iter().zip(committed).all(|(a, b)| is_close(*a, b))
        });
        if !same {
            wrong.push(name.clone());
        }
        let figures = figures.map(|figure| format!(" {figure}")).concat();
        writeln!(lines, "{name}:{figures}").expect("a string takes it");
    }
    assert!(wrong.is_empty(), "{wrong:#?} differ. If that is meant, commit:\n{lines}");
}

#[test]
fn each_trace_on_each_machine_costs_what_is_committed() {
    let goals = [
        Goal::Weight(1.0),
        Goal::Latency(Duration::from_micros(30)),
        Goal::Weight(0.1),
        Goal::Cpu(0.05),
        Goal::Weight(10.0),
    ];
    let traces = Trace::all(SEED);
    let machines = Simulated::all();
    // Each trace on two of the four machines, and each goal on some of them.
    let runs = traces.iter().enumerate().flat_map(|(at, trace)| {
        let machines = machines.iter().enumerate().filter(move |(other, _)| (at + other) % 2 == 0);
        machines.map(move |(other, machine)| (trace, machine, goals[(at + other / 2) % goals.len()]))
    });
    check(
        "plain",
        runs.map(|(trace, machine, goal)| {
            let outcome = simulate(trace, &mut policy(machine, goal), machine, false);
            (format!("{} on {}, {goal:?}", trace.name, machine.name), outcome)
        }),
    );
}

#[test]
fn a_bounded_share_a_fixed_spin_and_a_busy_cpu_cost_what_is_committed() {
    let traces = Trace::all(SEED);
    let names = ["jittered 350 us", "irregular bursts", "Poisson 80 us", "changing", "two flows"];
    let runs = names.iter().flat_map(|name| {
        let trace = traces.iter().find(|trace| trace.name == *name).expect("there is such a trace");
        let [helped, refused, ..] = Simulated::all();
        let config = |machine: &Simulated| Config { machine: machine.told(), ..Config::default() };
        let bounded = Config { spin_share: Some(0.1), ..config(&refused) };
        let fixed = Config {
            spin: Some(Duration::from_micros(40)),
            linger: Some(Duration::from_millis(2)),
            ..config(&helped)
        };
        let (stolen, busy) = (refused.stolen(10_000.0), refused.beside_busy());
        [
            (*name, "a share of 0.1", bounded, refused),
            (*name, "a fixed spin and linger", fixed, helped),
            (*name, "a CPU that is stolen", config(&stolen), stolen),
            (*name, "beside a busy process", config(&busy), busy),
        ]
        .map(|run| (trace, run))
    });
    check(
        "settings",
        runs.map(|(trace, (name, how, config, machine))| {
            (format!("{name}, {how}"), simulate(trace, &mut Policy::new(config), &machine, false))
        }),
    );
}
