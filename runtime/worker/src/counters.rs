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
    /// Of these, by packets: on a port, or for a socket of the engine.
    pub woken_by_packet: Counter,
    /// Times its own timer woke it ahead of an expected packet.
    pub woken_by_prediction: Counter,
    /// Wake-ups by anything else: commands, deadlines, letting go of a latency request.
    pub woken_by_other: Counter,
    /// From the kernel's stamp on a packet until the turn that took it began, for each wake-up by a packet; without stamps it
    /// stays empty.
    pub wake_latency: Histogram,
    /// Stretches of spinning in mode `adaptive`.
    pub spins: Counter,
    /// Time spent in them, ns.
    pub spun_ns: Counter,
    /// Time asleep, ns.
    pub slept_ns: Counter,
    /// Of that, with a CPU latency request held, ns.
    pub held_ns: Counter,
    /// What the policy decided, as [`Summary::to_words`](twinpath_idle::Summary::to_words).
    pub decided: [Counter; twinpath_idle::Summary::WORDS],
    /// 1 while a CPU latency request is held.
    pub request_held: Counter,
    /// Times a latency request was refused by the system.
    pub request_refused: Counter,
    /// Times it slept because it had spun for its share of a shared CPU.
    pub guard_sleeps: Counter,
    /// Times it slept or paused because it had been awake without a packet for too long, whatever its policy said. Stays 0 unless
    /// something is wrong.
    pub spin_limit_sleeps: Counter,
    /// Times it paused because it had run for its share of a shared CPU.
    pub guard_pauses: Counter,
    /// 1 while it has the lower of its two priorities.
    pub priority_lower: Counter,
    /// Times it took the other one.
    pub priority_steps: Counter,
    /// 1 if the system refused it the higher one, which it had had.
    pub priority_refused: Counter,
    /// Kernel thread id.
    pub tid: Counter,
    /// Idle mode, as the number of [`Mode`](crate::idle::Mode).
    pub mode: Counter,
    /// Frames at home in the pool, as of the last sleep or thousandth turn.
    pub pool_free: Counter,
    /// Heap allocations made while serving, as of the last sleep or thousandth turn.
    pub allocations: Counter,
    /// Heap bytes that the worker's thread holds beyond those at its start, as of then.
    pub heap_bytes: Counter,
    /// Time frames spent inside: from the start of the turn that took their burst until what was to be sent was sent.
    pub service_time: Histogram,
    /// CPU time of the worker's thread per turn, with or without work, while [`Command::TimeTurns`] is on.
    ///
    /// [`Command::TimeTurns`]: crate::message::Command::TimeTurns
    pub turn_cpu: Histogram,
    /// Packets handed over to other workers, for ports that those have.
    pub handed_over: Counter,
    /// Packets that other workers handed over.
    pub handed_in: Counter,
    /// Times that another worker was signalled, as it slept.
    pub handoff_signals: Counter,
    /// Everything dropped above the ports, by reason.
    pub drops: Drops,
}

impl WorkerCounters {
    /// All turns so far. A worker is alive if this number grows, or if it sleeps and has nothing to do.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns_busy.get() + self.turns_empty.get()
    }
}
