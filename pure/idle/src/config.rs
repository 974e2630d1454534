//! The configuration of a policy.

use twinpath_time::Duration;

use crate::goal::Goal;
use crate::machine::Machine;

/// What the policy is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// What it is to reach.
    pub goal: Goal,
    /// What is known of the machine.
    pub machine: Machine,
    /// For experts: spin for just so long after each arrival, predict nothing.
    pub spin: Option<Duration>,
    /// For experts: hold the latency request for just so long after each arrival.
    pub linger: Option<Duration>,
    /// At most this share of the time may be spent spinning, in pieces of less than a millisecond, whatever the goal: a guard
    /// would interfere. `None` or 1: no bound.
    pub spin_share: Option<f32>,
    /// What holding the latency request for a us costs, in us of latency: power. It decides when to let go.
    pub held_price: f32,
}

impl Default for Config {
    /// A us of CPU is worth a us of latency. To hold a request for 10 s may cost as much as it takes to save 100 us once.
    fn default() -> Self {
        Self {
            goal: Goal::Weight(1.0),
            machine: Machine::default(),
            spin: None,
            linger: None,
            spin_share: None,
            held_price: 1e-5,
        }
    }
}
