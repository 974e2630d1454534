//! Workers in a report: how they idle, their priority and latency requests.

use serde::{Deserialize, Serialize};
use twinpath_idle::{Goal, Summary};
use twinpath_inspect::{Counter, counts};
use twinpath_sys::clock;
use twinpath_worker::idle::Mode;
use twinpath_worker::{GuardCounts, IdleCounts, WorkerCounters, WorkerCounts};

counts! {
    /// One worker.
    pub struct Worker {
        /// Number, from 0.
        pub worker: u32,
        /// CPU it is pinned to, if any.
        pub cpu: Option<u32>,
        /// `poll`, `adaptive` or `interrupt`.
        pub mode: String,
        /// Present priority of its thread: `normal`, `slice:100`, `nice:-20`, `fifo:1`.
        pub priority: String,
        /// The reason for that priority.
        pub priority_why: String,
        /// The limit on its use of the CPU, if it has one.
        pub guard: Option<Guard>,
        /// The CPU latency request: its setting, and its measured effect.
        pub latency_request: LatencyRequest,
        /// Its counters.
        #[serde(flatten)]
        pub counts: WorkerCounts,
        /// How it idles, and the reason.
        pub idle: Idle,
        /// If it is stuck: how long frames have been waiting for it, ms; meanwhile the kernel serves.
        pub stuck_ms: Option<u64>,
        /// TCP connections open on it.
        pub connections: u64,
        /// Frame memory, MiB.
        pub pool_mib: f64,
    } and {
        /// Frames received on the fast path.
        frames_in: u64 => column("frames in");
        /// Frames sent on the fast path.
        frames_out: u64 => column("frames out");
        /// Requests that came through kernel sockets.
        kernel_requests: u64 => column("kernel requests");
        /// Replies that left through kernel sockets.
        kernel_replies: u64 => column("kernel replies");
        /// Times that its claims were withdrawn because it was stuck.
        times_stuck: u64 => counter("twinpath_worker_times_stuck");
        /// Frames of its pool.
        pool_frames: u32 => gauge("twinpath_worker_pool_frames");
    }
}

/// How a worker idles: its behaviour, and its policy's decisions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Idle {
    /// The goal of `adaptive`: `latency 20us`, `cpu 5%`, or a weight of both.
    pub goal: String,
    /// The last decision of `adaptive` and its reason, in a sentence; empty in the other modes.
    pub decided: String,
    /// What it has counted.
    #[serde(flatten)]
    pub counts: IdleCounts,
}

impl Worker {
    /// Fills in the fields that the counters and the idle policy determine; the caller adds the others.
    pub fn of(counters: &WorkerCounters, mode: Mode, goal: Goal, mut request: LatencyRequest) -> Self {
        request.held = counters.request_held.get() != 0;
        if counters.request_refused.get() != 0 {
            request.verdict =
                "refused by the system: /dev/cpu_dma_latency cannot be opened for writing".to_owned();
        }
        let cpu_ns = thread_cpu_ns(counters.tid.get());
        Self {
            mode: mode.name().to_owned(),
            latency_request: request,
            counts: WorkerCounts { cpu_ns, ..counters.into() },
            idle: Idle::of(counters, mode, goal),
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
            counts: counters.into(),
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
    /// The lower priority that it takes instead of sleeping or pausing.
    pub lower: Option<String>,
    /// What it has counted.
    #[serde(flatten)]
    pub counts: GuardCounts,
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
