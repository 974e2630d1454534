//! The counters of a worker: written by it, read by control.

use twinpath_inspect::{Computed, Counter, Drops, Histogram, counters};

counters! {
    /// Counters of one worker.
    pub struct WorkerCounters {
        /// What a worker has counted, in a report.
        #[derive(PartialEq, Eq)]
        WorkerCounts {
            /// Turns that found work.
            turns_busy: Counter => counter("twinpath_worker_turns"), about(TURNS), label("found", "work"),
                column("busy turns");
            /// Turns that found none (spins).
            turns_empty: Counter => counter("twinpath_worker_turns"), about(TURNS), label("found", "nothing"),
                column("empty turns");
            /// Times the worker went to sleep.
            sleeps: Counter => counter("twinpath_worker_sleeps"), column("sleeps");
            /// Times it was woken by something other than its own deadline.
            wakeups: Counter => counter("twinpath_worker_wakeups"), column("wake-ups");
            /// CPU time of the worker's thread.
            cpu_ns: Computed => counter("twinpath_worker_cpu_seconds"), ns(), column("CPU time"),
                cell(|counts: &WorkerCounts| format!("{:.3} s", counts.cpu_ns as f64 / 1e9));
            /// Free frames of its pool.
            pool_free: Counter => gauge("twinpath_worker_pool_frames_free");
            /// Heap allocations of its thread while serving: it makes none per packet.
            allocations: Counter => counter("twinpath_worker_allocations"), column("allocations");
            /// Heap bytes that its thread holds beyond those at its start.
            heap_bytes: Counter => gauge("twinpath_worker_heap_bytes");
            /// Packets that it handed over to other workers, for ports that those have.
            handed_over: Counter;
            /// Packets that other workers handed over to it.
            handed_in: Counter;
            /// How often it signalled another worker that slept while something was handed over to it.
            handoff_signals: Counter;
            /// Time of answered frames inside: from the start of the turn that received them until their replies left.
            service_time: Histogram => histogram("twinpath_worker_service_time_seconds");
            /// CPU time of the worker's thread per turn, with or without work, while `set` had `turn_times` on.
            turn_cpu: Histogram;
        }
        /// What a worker has counted of how it idles, in a report.
        #[derive(PartialEq, Eq)]
        IdleCounts {
            /// Wake-ups by packets: on a port, or for a socket of the engine.
            woken_by_packet: Counter => counter("twinpath_worker_wakeups_by_cause"), about(CAUSES),
                label("cause", "packet");
            /// Wake-ups by its own timer ahead of an expected packet.
            woken_by_prediction: Counter => counter("twinpath_worker_wakeups_by_cause"), about(CAUSES),
                label("cause", "prediction");
            /// Other wake-ups: commands, deadlines, the release of a latency request.
            woken_by_other: Counter => counter("twinpath_worker_wakeups_by_cause"), about(CAUSES),
                label("cause", "other");
            /// Stretches of spinning in mode adaptive.
            spins: Counter => counter("twinpath_worker_spins");
            /// Time spent spinning, in mode adaptive, ns.
            spun_ns: Counter;
            /// Time asleep, ns.
            slept_ns: Counter;
            /// The part of that with a CPU latency request held, ns.
            held_ns: Counter;
            /// How often it was made to sleep because it had been awake without a packet for too long, whatever its
            /// policy decided. More than 0 is a fault worth reporting.
            spin_limit_sleeps: Counter;
            /// From the kernel's time stamp of a packet until a sleeping worker received it; only packets with stamps.
            wake_latency: Histogram => histogram("twinpath_worker_wake_latency_seconds");
        }
        /// What a worker has counted of its use of a shared CPU, in a report.
        #[derive(Copy, PartialEq, Eq)]
        GuardCounts {
            /// How often it slept because its share of spinning was used up; work wakes it.
            #[serde(rename = "sleeps")]
            guard_sleeps: Counter => counter("twinpath_worker_guard_stops"), about(STOPS), label("had", "spun");
            /// How often it paused because its share of running was used up.
            #[serde(rename = "pauses")]
            guard_pauses: Counter => counter("twinpath_worker_guard_stops"), about(STOPS), label("had", "ran");
            /// Changes between its two priorities, as its share of the CPU rose or fell.
            #[serde(rename = "steps")]
            priority_steps: Counter => counter("twinpath_worker_priority_steps");
        }
    } and {
        /// What the policy decided, as [`Summary::to_words`](twinpath_idle::Summary::to_words).
        pub decided: [Counter; twinpath_idle::Summary::WORDS],
        /// 1 while a CPU latency request is held.
        pub request_held: Counter,
        /// Times a latency request was refused by the system.
        pub request_refused: Counter,
        /// 1 while it has the lower of its two priorities.
        pub priority_lower: Counter,
        /// 1 if the system refused to restore the higher one.
        pub priority_refused: Counter,
        /// Kernel thread id.
        pub tid: Counter,
        /// Idle mode, as the number of [`Mode`](crate::idle::Mode).
        pub mode: Counter,
        /// Everything dropped above the ports, by reason.
        pub drops: Drops,
    }
}

const TURNS: &str = "Turns of the worker, by whether they found work.";
const CAUSES: &str = "Wake-ups, by cause.";
const STOPS: &str =
    "Times it slept because it had spun, or paused because it had run, for its share of a CPU.";

impl WorkerCounters {
    /// All turns so far. A worker is alive if this number grows, or if it sleeps and has nothing to do.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns_busy.get() + self.turns_empty.get()
    }
}
