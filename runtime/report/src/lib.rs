//! What a running instance says of itself: the answer to `twinpath show`, as people (tables) and machines (JSON)
//! get it. Field names are stable.

use serde::{Deserialize, Serialize};
use twinpath_idle::{Goal, Summary};
use twinpath_inspect::Counter;
use twinpath_sys::clock;
use twinpath_worker::WorkerCounters;
use twinpath_worker::idle::Mode;

pub use self::instance::{Capability, Configuration, Draining, Instance, Sandbox, StandingBy};

mod instance;

/// Everything `show` can tell. A topic (`interfaces`, `rules`, ...) is one field of it; an answer about one topic
/// leaves out the others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Which program answers.
    pub instance: Instance,
    /// What is served, by which path, and why not a faster one.
    pub services: Vec<Service>,
    /// One entry per interface served.
    pub interfaces: Vec<Interface>,
    /// What is claimed, and how often each verdict was given.
    pub rules: Rules,
    /// What waking up costs on this machine, as measured last.
    pub machine: Option<twinpath_costs::Costs>,
    /// One entry per worker.
    pub workers: Vec<Worker>,
    /// Next hops in use, as mirrored from the kernel.
    pub neighbours: Vec<Neighbour>,
    /// Everything dropped or refused, by named reason; only non-zero counters.
    pub drops: Vec<Drop>,
}

/// One service, on all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Its name, e.g. `echo`.
    pub name: String,
    /// One entry per thing it asked to be given.
    pub claims: Vec<ServiceClaim>,
    /// Requests served that came on the fast path.
    pub fast_requests: u64,
    /// Replies that left on the fast path.
    pub fast_replies: u64,
    /// Fast-path requests whose reply left through the kernel's socket: its way out was not known, or too small.
    pub fast_replies_by_kernel: u64,
    /// Requests served that came through the kernel's sockets.
    pub kernel_requests: u64,
    /// Replies that left through the kernel's sockets, to whichever request.
    pub kernel_replies: u64,
    /// What the service counts by itself, if it does.
    pub requests: Option<ServiceRequests>,
    /// TCP connections open now.
    pub connections: u64,
    /// TCP connections accepted so far.
    pub accepted: u64,
    /// UDP peers that have a session.
    pub sessions: u64,
    /// Sessions ended for their age.
    pub sessions_aged: u64,
    /// Sessions ended to make room for others.
    pub sessions_displaced: u64,
    /// Requests that threads which may block work on, or will.
    pub deferred: u64,
    /// Requests so answered.
    pub deferred_done: u64,
    /// Times that a connection waited for room there.
    pub deferred_waits: u64,
    /// Such threads now.
    pub deferred_threads: u64,
    /// Bytes that TCP connections hold: parts of requests, and replies not taken yet.
    pub queued_bytes: u64,
    /// Bytes received on TCP connections.
    pub stream_bytes_in: u64,
    /// Bytes sent on TCP connections.
    pub stream_bytes_out: u64,
    /// Peers whose way out is known or asked for.
    pub peers: u64,
}

/// Requests as a service counts them by itself, over all transports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceRequests {
    /// Answered, refusals included.
    pub answered: u64,
    /// Of those: refused, and told why.
    pub refused: u64,
    /// Of those answered: again, with a reply that had been kept.
    pub repeated: u64,
    /// Kept replies that made room for others before their age.
    pub forgotten: u64,
}

/// Something a service asked to be given, and whether it comes by the fast path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceClaim {
    /// In words: `udp port 7`.
    pub claim: String,
    /// The path it comes by now: a fast one, or `kernel`.
    pub path: String,
    /// Why that path: one sentence.
    pub why: String,
    /// Requests of it that came on the fast path.
    pub fast_requests: u64,
    /// Requests of it that came through the kernel's UDP sockets.
    pub kernel_requests: u64,
}

/// What driver and device of an interface do, as the kernel says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// The driver; empty if the kernel names none.
    pub driver: String,
    /// Where the device is: a PCI address, say; empty for a device made of software.
    pub bus: String,
    /// Version of its firmware; empty if there is none.
    pub firmware: String,
    /// It has carrier.
    pub carrier: bool,
    /// Speed of the link, Mbit/s, if known.
    pub speed_mbps: Option<u32>,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// Offloads that matter to a packet path, by the names of `ethtool -k`, in their order there; those that the kernel
    /// does not tell are missing.
    pub offloads: Vec<Offload>,
    /// What the driver can do with XDP: `basic`, `redirect`, `transmit`, `zero-copy`, `multi-buffer`; `None` if the
    /// kernel does not say.
    pub xdp_features: Option<Vec<String>>,
    /// The XDP program on it that is not ours, with its owner if known.
    pub foreign_xdp: Option<String>,
}

/// One offload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// Name, as `ethtool -k` says it.
    pub name: String,
    /// Switched on.
    pub on: bool,
}

/// Times taken, ns, as a histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their sum, ns.
    pub sum_ns: u64,
    /// Half of them took at most this, ns; to 1/16.
    pub p50_ns: Option<u64>,
    /// 99 % of them.
    pub p99_ns: Option<u64>,
    /// 99.9 % of them.
    pub p999_ns: Option<u64>,
    /// Upper bound of a bucket, ns (inclusive), and how many fell into it; ascending, empty buckets left out.
    pub buckets: Vec<(u64, u64)>,
}

impl From<twinpath_inspect::Times> for Times {
    fn from(times: twinpath_inspect::Times) -> Self {
        Self {
            count: times.count(),
            sum_ns: times.sum_ns,
            p50_ns: times.quantile(0.5),
            p99_ns: times.quantile(0.99),
            p999_ns: times.quantile(0.999),
            buckets: times.buckets,
        }
    }
}

impl From<&Times> for twinpath_inspect::Times {
    fn from(times: &Times) -> Self {
        Self { sum_ns: times.sum_ns, buckets: times.buckets.clone() }
    }
}

/// One interface.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Interface {
    /// Current name.
    pub name: String,
    /// Kernel index.
    pub ifindex: u32,
    /// Kind of device as the kernel or driver names it: `veth`, `virtio_net`, ...
    pub kind: String,
    /// `xdp-zerocopy`, `xdp-native`, `xdp-generic`, `packet` or `kernel`.
    pub path: String,
    /// How the packet path's program is attached at tc: `tcx` or `clsact`; empty on the other paths.
    #[serde(default)]
    pub attach: String,
    /// What instances that were killed have left on the interface; it does nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<LeftBehind>,
    /// Link state: `up`, `down` or `gone`.
    pub link: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Why this path.
    pub why: String,
    /// For every better-ranked or asked-for path not in use: its name and the reason.
    pub why_not: Vec<WhyNot>,
    /// Driver and device.
    #[serde(default)]
    pub device: Device,
    /// The queues we serve.
    pub queues: Vec<Queue>,
    /// What crosses within the kernel, past all queues; only an exception port has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossed: Option<Crossed>,
    /// What attaching costs the kernel's own traffic, for each path that was measured, in that order: the last one
    /// that is not `beyond` is in use. Empty if it was not asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<Fallback>,
}

/// A program at tc whose process was killed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftBehind {
    /// Its name.
    pub program: String,
    /// The process, as it was called in its own PID namespace.
    pub pid: u32,
}

/// What attaching a path costs the kernel's own traffic.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Fallback {
    /// The path.
    pub path: String,
    /// Where it was measured, and what `before` is.
    pub compared_with: String,
    /// The share that may be lost: `interface.fallback_loss_max`.
    pub loss_max: f64,
    /// Kernel sockets, without and with.
    pub measures: Vec<FallbackMeasure>,
    /// The programs on frames that stay the kernel's, by test runs.
    pub programs: Vec<FallbackProgram>,
    /// What lost more than that beyond noise, in a sentence.
    pub beyond: Option<String>,
    /// Why it could not be measured.
    pub not_measured: Option<String>,
}

/// One measure of kernel traffic.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FallbackMeasure {
    /// `kernel-rtt`, `kernel-bulk`, `kernel-rate`.
    pub name: String,
    /// Of `before` and `after`.
    pub unit: String,
    /// Median without twinpath.
    pub before: f64,
    /// Median with.
    pub after: f64,
    /// Median of the pairs' ratios of after to before.
    pub ratio: f64,
    /// Its 95 % interval.
    pub ratio_interval95: [f64; 2],
    /// Pairs.
    pub pairs: u32,
}

/// One program on one kind of frame.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FallbackProgram {
    /// `xdp`, `socket filter`, `tc ingress`.
    pub program: String,
    /// `tcp-segment`, `tcp-ack`, `udp`, and the same with `-v6`.
    pub frame: String,
    /// What the program adds to its hook, ns.
    pub added_ns: f64,
    /// One run, the test run's own work included, ns.
    pub run_ns: f64,
    /// One run of an empty program there, ns.
    pub empty_ns: f64,
}

/// A path not taken.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WhyNot {
    /// The path.
    pub path: String,
    /// One sentence.
    pub reason: String,
}

/// Frames that cross between two interfaces within the kernel, seen from one of them; a super-frame counts once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Crossed {
    /// Arrived here and gone to the other side.
    pub frames_in: u64,
    /// Come from the other side and sent here.
    pub frames_out: u64,
    /// Bytes arrived, from the Ethernet header.
    pub bytes_in: u64,
    /// Bytes sent, from the Ethernet header.
    pub bytes_out: u64,
}

/// One receive/transmit queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Queue {
    /// Queue number on the device.
    pub queue: u32,
    /// Worker that serves it.
    pub worker: u32,
    /// Path of this queue.
    pub path: String,
    /// Idle mode of its worker.
    pub mode: String,
    /// Frames received on it.
    pub frames_in: u64,
    /// Frames sent through it.
    pub frames_out: u64,
    /// Bytes received, from the Ethernet header.
    #[serde(default)]
    pub bytes_in: u64,
    /// Bytes sent, from the Ethernet header.
    #[serde(default)]
    pub bytes_out: u64,
    /// Of the frames sent, the ones that left within super-frames.
    #[serde(default)]
    pub frames_joined: u64,
    /// Super-frames that the kernel refused; after the first, every frame leaves by itself.
    #[serde(default)]
    pub super_frames_refused: u64,
    /// System calls made to send or to wake the kernel.
    #[serde(default)]
    pub kicks: u64,
    /// Frames that the kernel could not hand over because the ring was full.
    pub ring_full: u64,
}

/// Claims and verdicts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rules {
    /// The claims in force, as text: `udp port 7 to 10.0.0.1`.
    pub claims: Vec<String>,
    /// Verdicts given so far: name and count, summed over interfaces and CPUs.
    pub verdicts: Vec<Count>,
}

/// A named count.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Count {
    /// Stable name.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// One worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Worker {
    /// Number, from 0.
    pub worker: u32,
    /// CPU it is pinned to, if it is.
    pub cpu: Option<u32>,
    /// `poll`, `adaptive` or `interrupt`.
    pub mode: String,
    /// Priority of its thread, the one in force: `normal`, `slice:100`, `nice:-20`, `fifo:1`.
    #[serde(default)]
    pub priority: String,
    /// Why that one, in words.
    #[serde(default)]
    pub priority_why: String,
    /// What it may take of its CPU, where it keeps to a share.
    #[serde(default)]
    pub guard: Option<Guard>,
    /// The CPU latency request: its setting, and what was found here.
    pub latency_request: LatencyRequest,
    /// Turns that found work.
    pub turns_busy: u64,
    /// Turns that found none (spins).
    pub turns_empty: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Wake-ups, by any cause.
    pub wakeups: u64,
    /// How it idles, and why.
    #[serde(default)]
    pub idle: Idle,
    /// CPU time of the thread, ns.
    pub cpu_ns: u64,
    /// Frames received on the fast path.
    pub frames_in: u64,
    /// Frames sent on the fast path.
    pub frames_out: u64,
    /// It is stuck: for so long something has been waiting for it, and the kernel claims nothing for it, ms.
    #[serde(default)]
    pub stuck_ms: Option<u64>,
    /// How often that happened.
    #[serde(default)]
    pub times_stuck: u64,
    /// Requests that came through kernel sockets.
    pub kernel_requests: u64,
    /// Replies that left through kernel sockets.
    pub kernel_replies: u64,
    /// Time that frames which were answered spent inside: from the start of the turn that took them until the turn's
    /// replies had left. Waiting in the ring before that is not in it.
    #[serde(default)]
    pub service_time: Times,
    /// Heap allocations made by the worker's thread since it started to serve.
    pub allocations: u64,
    /// TCP connections open on it.
    pub connections: u64,
    /// Heap bytes that it holds beyond those at its start: connections, and what they queue.
    pub heap_bytes: u64,
    /// Frame memory, MiB.
    pub pool_mib: f64,
    /// Frames in the pool, and how many are free.
    pub pool_frames: u32,
    /// Free frames.
    pub pool_free: u32,
}

/// How a worker idles: what it did, and what its policy decided.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Idle {
    /// What `adaptive` is to reach: `latency 20us`, `cpu 5%`, or both weighed.
    pub goal: String,
    /// What `adaptive` decided last and why, in a sentence; empty in the other modes.
    pub decided: String,
    /// Stretches of spinning, in `adaptive`.
    pub spins: u64,
    /// Wake-ups by packets.
    pub woken_by_packet: u64,
    /// Wake-ups by its own timer ahead of an expected packet.
    pub woken_by_prediction: u64,
    /// Wake-ups by anything else: commands, deadlines, letting go of a latency request.
    pub woken_by_other: u64,
    /// Time spent spinning, in `adaptive`, ns.
    pub spun_ns: u64,
    /// Time asleep, ns.
    pub slept_ns: u64,
    /// Of that, with a CPU latency request held, ns.
    pub held_ns: u64,
    /// Times it was made to sleep because it had been awake without a packet for too long, whatever its mode's policy said. More than 0
    /// is a fault worth reporting.
    pub spin_limit_sleeps: u64,
    /// From the kernel's stamp on a packet until the worker took it, for each wake-up by a packet; empty where packets have no
    /// stamps.
    pub wake_latency: Times,
}

impl Worker {
    /// What its counters say, and how it idles; the caller adds the rest.
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
            service_time: counters.service_time.read().into(),
            allocations: counters.allocations.get(),
            heap_bytes: counters.heap_bytes.get(),
            pool_free: counters.pool_free.get() as u32,
            ..Self::default()
        }
    }
}

/// CPU time a thread of this process has used, ns; 0 if the kernel does not say (`/proc/PID/task/TID/schedstat`).
fn thread_cpu_ns(tid: u64) -> u64 {
    std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat"))
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
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

/// What a worker may take of a CPU that it shares, where the scheduler would let it have everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Guard {
    /// The share of time that it spins at most.
    pub spin_share_max: f64,
    /// The share that it runs at most, work or not.
    pub run_share_max: f64,
    /// Times it slept because it had spun for its share; work wakes it.
    pub sleeps: u64,
    /// Times it paused because it had run for its share.
    pub pauses: u64,
    /// The priority that it has instead, where it does not sleep or pause for that.
    pub lower: Option<String>,
    /// Times it took the other of its two priorities.
    pub steps: u64,
}

/// A CPU latency request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LatencyRequest {
    /// `auto`, `always` or `never`.
    pub setting: String,
    /// Idle states that take longer to leave are forbidden while it is held, us; 0 allows only the shallowest.
    #[serde(default)]
    pub max_exit_us: u32,
    /// Held right now.
    pub held: bool,
    /// One wake-up without it, us (median), as measured at start; `None` if not measured.
    pub wake_us_without: Option<f64>,
    /// One wake-up with it, us (median).
    pub wake_us_with: Option<f64>,
    /// Whether it was found to shorten wake-ups here.
    pub helps: bool,
    /// What follows from that, in a sentence.
    pub verdict: String,
}

/// A next hop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Neighbour {
    /// The peer we answer.
    pub peer: String,
    /// The next hop towards it.
    pub next_hop: String,
    /// Interface it leaves by.
    pub interface: String,
    /// Link-layer address, if known.
    pub mac: Option<String>,
    /// `reachable`, `stale`, `incomplete`, ...
    pub state: String,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// `fast`, or why replies to it leave through the kernel.
    pub egress: String,
}

/// Something dropped or refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Drop {
    /// Where: `worker 0`, `port veth0`, ...
    pub place: String,
    /// Stable reason name.
    pub reason: String,
    /// How often.
    pub count: u64,
}
