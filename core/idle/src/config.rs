//! The configuration of a policy.

use twinpath_time::Duration;

use crate::goal::Goal;
use crate::machine::Machine;

/// The settings of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The goal of the policy.
    pub goal: Goal,
    /// The costs known of the machine at start.
    pub machine: Machine,
    /// For expert users: spin for exactly this long after each arrival, and predict nothing.
    pub spin: Option<Duration>,
    /// For expert users: hold the latency request for exactly this long after each arrival.
    pub linger: Option<Duration>,
    /// At most this share of the time may be spent spinning, in pieces of less than a millisecond, whatever the goal,
    /// because a guard would interfere otherwise. `None` or 1: no bound.
    pub spin_share: Option<f32>,
    /// The cost of holding the latency request for a us (power), in us of latency. It decides when the request is
    /// released.
    pub held_price: f32,
}

impl Default for Config {
    /// A us of CPU is worth a us of latency. Holding a request for 10 s may cost as much as saving 100 us once.
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
