//! Compares the policy with the best fixed setting and the oracle, as a table.

use super::fixed::{Setting, outcomes};
use super::machine::Simulated;
use super::oracle::oracle;
use super::simulate::simulate;
use super::traces::Trace;
use crate::{Config, Expert, Goal, Policy};

/// The weights of the comparison.
pub const WEIGHTS: [f64; 3] = [0.1, 1.0, 10.0];

/// One trace, one machine, one weight.
#[derive(Clone, Debug)]
pub struct Row {
    /// The machine's name.
    pub machine: &'static str,
    /// The trace's name.
    pub trace: &'static str,
    /// Whether the oracle is a fair comparison.
    pub regular: bool,
    /// Price of a us of CPU.
    pub weight: f64,
    /// Cost per packet, us.
    pub policy: f64,
    /// The cost of the best fixed setting.
    pub fixed: f64,
    /// That setting.
    pub setting: (Setting, bool),
    /// The cost of an oracle that knows the arrivals and spins or sleeps.
    pub oracle: f64,
    /// The leading expert at the end.
    pub leader: Expert,
}

impl Row {
    /// The ratio to the best fixed setting.
    #[must_use]
    pub fn vs_fixed(&self) -> f64 {
        ratio(self.policy, self.fixed)
    }

    /// The ratio to the oracle.
    #[must_use]
    pub fn vs_oracle(&self) -> f64 {
        ratio(self.policy, self.oracle)
    }
}

/// Zero against zero is 1.
fn ratio(cost: f64, least: f64) -> f64 {
    if cost == least { 1.0 } else { cost / least }
}

/// The policy as it is configured for the comparison.
#[must_use]
pub fn policy(machine: &Simulated, goal: Goal) -> Policy {
    Policy::new(Config { goal, machine: machine.told(), ..Config::default() })
}

/// The rows of one trace on one machine.
#[must_use]
pub fn rows(trace: &Trace, machine: &Simulated) -> Vec<Row> {
    let fixed = outcomes(trace, machine);
    let packets = trace.arrivals_ns.len().max(1) as f64;
    let row = |weight: f64| {
        let mut policy = policy(machine, Goal::Weight(weight as f32));
        let outcome = simulate(trace, &mut policy, machine, false);
        let best = fixed.iter().min_by(|a, b| a.2.cost(weight).total_cmp(&b.2.cost(weight)));
        let (setting, request, best) = best.expect("there are settings");
        Row {
            machine: machine.name,
            trace: trace.name,
            regular: trace.regular,
            weight,
            policy: outcome.cost(weight) / packets,
            fixed: best.cost(weight) / packets,
            setting: (*setting, *request),
            oracle: oracle(trace, machine, weight) / packets,
            leader: policy.explain().leader,
        }
    };
    WEIGHTS.into_iter().map(row).collect()
}
