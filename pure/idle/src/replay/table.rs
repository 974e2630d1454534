//! The policy against the best fixed setting and the clairvoyants: the table.

use super::clairvoyant::clairvoyant;
use super::fixed::{Setting, outcomes};
use super::machine::Simulated;
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
    /// Whether the clairvoyant counts.
    pub regular: bool,
    /// Price of a us of CPU.
    pub weight: f64,
    /// Cost per packet, us.
    pub policy: f64,
    /// Of the best fixed setting, and which.
    pub fixed: f64,
    /// Which.
    pub setting: (Setting, bool),
    /// Of one who knows the arrivals and spins or sleeps.
    pub clairvoyant: f64,
    /// Who was in charge at the end.
    pub leader: Expert,
}

impl Row {
    /// Against the best fixed setting.
    #[must_use]
    pub fn vs_fixed(&self) -> f64 {
        ratio(self.policy, self.fixed)
    }

    /// Against the clairvoyant.
    #[must_use]
    pub fn vs_clairvoyant(&self) -> f64 {
        ratio(self.policy, self.clairvoyant)
    }
}

/// Nothing against nothing is 1.
fn ratio(cost: f64, least: f64) -> f64 {
    if cost == least { 1.0 } else { cost / least }
}

/// The policy as the comparison takes it.
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
            clairvoyant: clairvoyant(trace, machine, weight) / packets,
            leader: policy.explain().leader,
        }
    };
    WEIGHTS.into_iter().map(row).collect()
}
