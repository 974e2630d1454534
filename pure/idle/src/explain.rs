//! What the policy decided, and why, for a user to read.

use crate::experts::Expert;
use crate::plan::Plan;

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets told of.
    pub packets: u64,
    /// Stretches of spinning.
    pub spins: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Wake-ups by a packet.
    pub woken_by_packet: u64,
    /// Wake-ups ahead of a predicted arrival.
    pub woken_by_prediction: u64,
    /// Wake-ups by anything else: commands, other deadlines, the release of a latency request.
    pub woken_by_other: u64,
    /// Time spent spinning, ns.
    pub spun_ns: u64,
    /// Time spent asleep, ns.
    pub slept_ns: u64,
    /// Of that with the latency request held, ns.
    pub held_ns: u64,
    /// Plans made.
    pub plans: u64,
    /// How often another expert took over.
    pub leader_changes: u64,
}

/// A picture of the policy's mind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Explanation {
    /// Whose plan is followed.
    pub leader: Expert,
    /// What it says for an idle time that would begin now.
    pub plan: Plan,
    /// What a us of CPU is worth, in us of latency.
    pub weight: f32,
    /// How far each expert is behind the best, us of latency, in the order of [`Expert::ALL`].
    pub behind_us: [f32; Expert::ALL.len()],
    /// How long after an arrival the latency request is held, us; 0 if not at all.
    pub release_us: f32,
    /// Wake-up latency without and with a request: median and p99, us.
    pub wake_us: [[f32; 2]; 2],
    /// How late timers are, likewise.
    pub overshoot_us: [[f32; 2]; 2],
    /// Counted since the start.
    pub counts: Counts,
}
