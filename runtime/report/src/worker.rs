//! Workers in a report: how they idle, their priority and latency requests.

use serde::{Deserialize, Serialize};
use twinpath_idle::{Goal, Summary};
use twinpath_inspect::Counter;
use twinpath_sys::clock;
use twinpath_worker::WorkerCounters;
use twinpath_worker::idle::Mode;

use crate::Times;

/// One worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Worker {
    /// Number, from 0.
    pub worker: u32,
    /// CPU it is pinned to, if any.
    pub cpu: Option<u32>,
    /// `poll`, `adaptive` or `interrupt`.
    pub mode: String,
    /// Present priority of its thread: `normal`, `slice:100`, `nice:-20`, `fifo:1`.
    #[serde(default)]
    pub priority: String,
    /// The reason for that priority.
    #[serde(default)]
    pub priority_why: String,
    /// The limit on its use of the CPU, if it keeps to one.
    #[serde(default)]
    pub guard: Option<Guard>,
    /// The CPU latency request: its setting, and its measured effect.
    pub latency_request: LatencyRequest,
    /// Turns that found work.
    pub turns_busy: u64,
    /// Turns that found none (spins).
    pub turns_empty: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Wake-ups, by any cause.
    pub wakeups: u64,
    /// How it idles, and the reason.
    #[serde(default)]
    pub idle: Idle,
    /// CPU time of the thread, ns.
    pub cpu_ns: u64,
    /// Frames received on the fast path.
    pub frames_in: u64,
    /// Frames sent on the fast path.
    pub frames_out: u64,
    /// Packets that it handed over to other workers, for ports that those have.
    #[serde(default)]
    pub handed_over: u64,
    /// Packets that other workers handed over to it.
    #[serde(default)]
    pub handed_in: u64,
    /// How often it signalled another worker that slept while something was handed over to it.
    #[serde(default)]
    pub handoff_signals: u64,
    /// If it is stuck: for how long frames have been waiting for it; meanwhile the kernel serves, ms.
    #[serde(default)]
    pub stuck_ms: Option<u64>,
    /// How often that happened.
    #[serde(default)]
    pub times_stuck: u64,
    /// Requests that came through kernel sockets.
    pub kernel_requests: u64,
    /// Replies that left through kernel sockets.
    pub kernel_replies: u64,
    /// Time that answered frames spent inside: from the start of the turn that received them until the turn's replies
    /// had left. The time in the receive ring before that is not included.
    #[serde(default)]
    pub service_time: Times,
    /// CPU time of the worker's thread per turn, with or without work, while `set` had `turn_times` on.
    #[serde(default)]
    pub turn_cpu: Times,
    /// Heap allocations made by the worker's thread since it started to serve.
    pub allocations: u64,
    /// TCP connections open on it.
    pub connections: u64,
    /// Heap bytes beyond those at its start: connections and their queues.
    pub heap_bytes: u64,
    /// Frame memory, MiB.
    pub pool_mib: f64,
    /// Frames in the pool.
    pub pool_frames: u32,
    /// Free frames.
    pub pool_free: u32,
}

/// How a worker idles: its behaviour, and its policy's decisions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Idle {
    /// The goal of `adaptive`: `latency 20us`, `cpu 5%`, or a weight of both.
    pub goal: String,
    /// The last decision of `adaptive` and its reason, in a sentence; empty in the other modes.
    pub decided: String,
    /// Stretches of spinning, in `adaptive`.
    pub spins: u64,
    /// Wake-ups by packets.
    pub woken_by_packet: u64,
    /// Wake-ups by its own timer ahead of an expected packet.
    pub woken_by_prediction: u64,
    /// Other wake-ups: commands, deadlines, the release of a latency request.
    pub woken_by_other: u64,
    /// Time spent spinning, in `adaptive`, ns.
    pub spun_ns: u64,
    /// Time asleep, ns.
    pub slept_ns: u64,
    /// The part of that with a CPU latency request held, ns.
    pub held_ns: u64,
    /// How often it was made to sleep because it had been awake without a packet for too long, whatever its policy
    /// decided. More than 0 is a fault worth reporting.
    pub spin_limit_sleeps: u64,
    /// From the kernel's time stamp of a packet until the worker received it, for each wake-up by a packet; empty if
    /// packets have no stamps.
    pub wake_latency: Times,
}

impl Worker {
    /// Fills in the fields that the counters and the idle policy determine; the caller adds the others.
    pub fn of(counters: &WorkerCounters, mode: Mode, goal: Goal, mut request: LatencyRequest) -> Self {
        request.held = counters.request_held.get() != 0;
        if counters.request_refused.get() != 0 {
            request.verdict =
                "refused by the system: /dev/cpu_dma_latency cannot be opened for writing".to_owned();
        }
        Self {
            mode: mode.name().to_owned(),
            latency_request: request,
            turns_busy: counters.turns_busy.get(),
            turns_empty: counters.turns_empty.get(),
            sleeps: counters.sleeps.get(),
            wakeups: counters.wakeups.get(),
            idle: Idle::of(counters, mode, goal),
            cpu_ns: thread_cpu_ns(counters.tid.get()),
            handed_over: counters.handed_over.get(),
            handed_in: counters.handed_in.get(),
            handoff_signals: counters.handoff_signals.get(),
            service_time: counters.service_time.read().into(),
            turn_cpu: counters.turn_cpu.read().into(),
            allocations: counters.allocations.get(),
            heap_bytes: counters.heap_bytes.get(),
            pool_free: counters.pool_free.get() as u32,
            ..Self::default()
        }
    }
}

impl Idle {
    fn of(counters: &WorkerCounters, mode: Mode, goal: Goal) -> Self {
        let decided = Summary::of_words(counters.decided.each_ref().map(Counter::get));
        Self {
            goal: goal.to_string(),
            decided: if mode == Mode::Adaptive { decided.said_at(clock::now()) } else { String::new() },
            spins: counters.spins.get(),
            woken_by_packet: counters.woken_by_packet.get(),
            woken_by_prediction: counters.woken_by_prediction.get(),
            woken_by_other: counters.woken_by_other.get(),
            spun_ns: counters.spun_ns.get(),
            slept_ns: counters.slept_ns.get(),
            held_ns: counters.held_ns.get(),
            spin_limit_sleeps: counters.spin_limit_sleeps.get(),
            wake_latency: counters.wake_latency.read().into(),
        }
    }
}

/// A worker's limit on its use of a CPU that the scheduler would let it have completely.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Guard {
    /// Largest share of time spent spinning.
    pub spin_share_max: f64,
    /// Largest share of time spent running, with work or without.
    pub run_share_max: f64,
    /// How often it slept because its share of spinning was used up; work wakes it.
    pub sleeps: u64,
    /// How often it paused because its share of running was used up.
    pub pauses: u64,
    /// The lower priority that it takes instead of sleeping or pausing.
    pub lower: Option<String>,
    /// How often it changed between its two priorities.
    pub steps: u64,
}

/// A CPU latency request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LatencyRequest {
    /// `auto`, `always` or `never`.
    pub setting: String,
    /// Idle states that take longer to leave are forbidden while it is held, us; 0 allows only the shallowest one.
    #[serde(default)]
    pub max_exit_us: u32,
    /// Whether it is held now.
    pub held: bool,
    /// One wake-up without it, us (median), as measured at start; `None` if not measured.
    pub wake_us_without: Option<f64>,
    /// One wake-up with it, us (median).
    pub wake_us_with: Option<f64>,
    /// Whether it was measured to shorten wake-ups here.
    pub helps: bool,
    /// The conclusion, in a sentence.
    pub verdict: String,
}

/// CPU time used by a thread of this process, ns; 0 if the kernel does not report it (`/proc/PID/task/TID/schedstat`).
fn thread_cpu_ns(tid: u64) -> u64 {
    std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat"))
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
