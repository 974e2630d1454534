//! What a worker counts; written by it, read by control.

use twinpath_inspect::{Counter, Drops, Histogram};

/// Counters of one worker.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    /// Turns that found work.
    pub turns_busy: Counter,
    /// Turns that found none.
    pub turns_empty: Counter,
    /// Times it went to sleep.
    pub sleeps: Counter,
    /// Times it was woken by something other than its own deadline.
    pub wakeups: Counter,
    /// 1 while a CPU latency request is held.
    pub request_held: Counter,
    /// Times a latency request was refused by the system.
    pub request_refused: Counter,
    /// Times it slept because it had spun for its share of a shared CPU.
    pub guard_sleeps: Counter,
    /// Times it paused because it had run for its share of a shared CPU.
    pub guard_pauses: Counter,
    /// Kernel thread id.
    pub tid: Counter,
    /// Idle mode, as the number of [`Mode`](crate::idle::Mode).
    pub mode: Counter,
    /// Frames at home in the pool, as of the last sleep or thousandth turn.
    pub pool_free: Counter,
    /// Heap allocations made while serving, as of the last sleep or thousandth turn.
    pub allocations: Counter,
    /// Time frames spent inside: from the start of the turn that took their burst until what was to be sent was sent.
    pub service_time: Histogram,
    /// Everything dropped above the ports, by reason.
    pub drops: Drops,
}
