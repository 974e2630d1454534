//! The report of a running instance: the answer to `twinpath show`, as tables for people and JSON for programs. Field
//! names are stable.

use serde::{Deserialize, Serialize};
use twinpath_idle::{Goal, Summary};
use twinpath_inspect::Counter;
use twinpath_sys::clock;
use twinpath_worker::WorkerCounters;
use twinpath_worker::idle::Mode;

pub use self::instance::{Capability, Configuration, Draining, Instance, Sandbox, Setting, StandingBy};
pub use self::switch::{Mac, Switch, SwitchPort};

mod instance;
mod switch;

/// The whole report. A topic (`interfaces`, `rules`, ...) is one field of it; an answer about one topic leaves out the
/// others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The program that answers.
    pub instance: Instance,
    /// The services, their paths, and the reasons for not using a faster one.
    pub services: Vec<Service>,
    /// One entry per interface served.
    pub interfaces: Vec<Interface>,
    /// The claims, and how often each verdict was given.
    pub rules: Rules,
    /// The cost of a wake-up on this machine, as measured last.
    pub machine: Option<twinpath_costs::Costs>,
    /// One entry per worker.
    pub workers: Vec<Worker>,
    /// Next hops in use, as mirrored from the kernel.
    pub neighbours: Vec<Neighbour>,
    /// All frames and requests dropped or refused, by reason; only counters that are not zero.
    pub drops: Vec<Drop>,
    /// Every configuration key with its value.
    pub config: Vec<Setting>,
    /// The switch, if the program is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
    /// Its ports.
    pub ports: Vec<SwitchPort>,
    /// The addresses that it knows: only in an answer about these.
    pub macs: Vec<Mac>,
}

/// One service, on all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Its name, e.g. `echo`.
    pub name: String,
    /// One entry per claim that it asks for.
    pub claims: Vec<ServiceClaim>,
    /// Requests served that came on the fast path.
    pub fast_requests: u64,
    /// Replies that left on the fast path.
    pub fast_replies: u64,
    /// Fast-path requests whose reply left through the kernel's socket, because its egress was not known or its MTU too
    /// small.
    pub fast_replies_by_kernel: u64,
    /// Requests served that came through the kernel's sockets.
    pub kernel_requests: u64,
    /// Replies sent through the kernel's sockets, to requests of both paths.
    pub kernel_replies: u64,
    /// The service's own counters, if it has any.
    pub requests: Option<ServiceRequests>,
    /// TCP connections open now.
    pub connections: u64,
    /// TCP connections accepted so far.
    pub accepted: u64,
    /// UDP peers that have a session.
    pub sessions: u64,
    /// Sessions ended because of their age.
    pub sessions_aged: u64,
    /// Sessions ended to make room for others.
    pub sessions_displaced: u64,
    /// Requests that handler threads work on, or that wait for one.
    pub deferred: u64,
    /// Requests answered by handler threads.
    pub deferred_done: u64,
    /// How often a connection waited for room there.
    pub deferred_waits: u64,
    /// The present number of handler threads.
    pub deferred_threads: u64,
    /// Bytes that TCP connections hold: incomplete requests, and replies that the peer has not taken.
    pub queued_bytes: u64,
    /// Bytes received on TCP connections.
    pub stream_bytes_in: u64,
    /// Bytes sent on TCP connections.
    pub stream_bytes_out: u64,
    /// Peers whose egress is known or being resolved.
    pub peers: u64,
}

/// A service's own counts of requests, over all transports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceRequests {
    /// Answered, refusals included.
    pub answered: u64,
    /// The answered requests that were refused, with the reason in the reply.
    pub refused: u64,
    /// The answered requests whose reply was a kept one, sent again.
    pub repeated: u64,
    /// Kept replies dropped before their age to make room for others.
    pub forgotten: u64,
}

/// A claim of a service, and the path of its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceClaim {
    /// As text: `udp port 7`.
    pub claim: String,
    /// The path used now: a fast one, or `kernel`.
    pub path: String,
    /// The reason for that path: one sentence.
    pub why: String,
    /// Requests for this claim that came on the fast path.
    pub fast_requests: u64,
    /// Requests for this claim that came through the kernel's UDP sockets.
    pub kernel_requests: u64,
}

/// Driver and device of an interface, as the kernel reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// The driver; empty if the kernel names none.
    pub driver: String,
    /// Location of the device, such as a PCI address; empty for a software device.
    pub bus: String,
    /// Version of its firmware; empty if there is none.
    pub firmware: String,
    /// Whether it has carrier.
    pub carrier: bool,
    /// Speed of the link, Mbit/s, if known.
    pub speed_mbps: Option<u32>,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// Offloads that matter to a packet path, by the names and in the order of `ethtool -k`, without those that the
    /// kernel does not report.
    pub offloads: Vec<Offload>,
    /// The driver's XDP features: `basic`, `redirect`, `transmit`, `zero-copy`, `multi-buffer`; `None` if the kernel
    /// does not report them.
    pub xdp_features: Option<Vec<String>>,
    /// A foreign XDP program on it, with its owner if known.
    pub foreign_xdp: Option<String>,
}

/// One offload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// Name, as in `ethtool -k`.
    pub name: String,
    /// Whether it is switched on.
    pub on: bool,
}

/// A histogram of durations, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// Number of values.
    pub count: u64,
    /// Their sum, ns.
    pub sum_ns: u64,
    /// Median, ns, to 1/16.
    pub p50_ns: Option<u64>,
    /// 99th percentile, ns.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile, ns.
    pub p999_ns: Option<u64>,
    /// Upper bound of a bucket, ns (inclusive), and the number of values in it; ascending, without empty buckets.
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
    /// Kind of device, as the kernel or the driver names it: `veth`, `virtio_net`, ...
    pub kind: String,
    /// `xdp-zerocopy`, `xdp-native`, `xdp-generic`, `packet` or `kernel`.
    pub path: String,
    /// How the packet path's program is attached at tc: `tcx` or `clsact`; empty on the other paths.
    #[serde(default)]
    pub attach: String,
    /// Programs that killed instances have left on the interface; they have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<LeftBehind>,
    /// Link state: `up`, `down` or `gone`.
    pub link: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// The reason for this path.
    pub why: String,
    /// For every better-ranked or requested path that is not in use: its name and the reason.
    pub why_not: Vec<WhyNot>,
    /// Driver and device.
    #[serde(default)]
    pub device: Device,
    /// Its queues that we serve.
    pub queues: Vec<Queue>,
    /// Frames that cross within the kernel, past all queues; only for an exception port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossed: Option<Crossed>,
    /// The cost of attaching for the kernel's own traffic, for each path that was measured, in that order: the last one
    /// without `beyond` is in use. Empty if it was not requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<Fallback>,
}

/// A program at tc whose process was killed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftBehind {
    /// Its name.
    pub program: String,
    /// The process id, in the process's own PID namespace.
    pub pid: u32,
}

/// The cost of attaching a path for the kernel's own traffic.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Fallback {
    /// The path.
    pub path: String,
    /// Where it was measured, and the meaning of `before`.
    pub compared_with: String,
    /// The share that may be lost: `interface.fallback_loss_max`.
    pub loss_max: f64,
    /// Kernel sockets, without and with the path attached.
    pub measures: Vec<FallbackMeasure>,
    /// The run time of the programs on frames that stay with the kernel, from test runs.
    pub programs: Vec<FallbackProgram>,
    /// The measures that lost more than allowed beyond noise, in a sentence.
    pub beyond: Option<String>,
    /// The reason if it could not be measured.
    pub not_measured: Option<String>,
}

/// One measure of kernel traffic.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FallbackMeasure {
    /// `kernel-rtt`, `kernel-bulk`, `kernel-rate`.
    pub name: String,
    /// Unit of `before` and `after`.
    pub unit: String,
    /// Median without twinpath.
    pub before: f64,
    /// Median with.
    pub after: f64,
    /// Median of the pairs' ratios of after to before.
    pub ratio: f64,
    /// Its 95 % interval.
    pub ratio_interval95: [f64; 2],
    /// Number of pairs.
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
    /// Time that the program adds to its hook, ns.
    pub added_ns: f64,
    /// Time of one run, with the test run's own work, ns.
    pub run_ns: f64,
    /// Time of one run of an empty program there, ns.
    pub empty_ns: f64,
}

/// A path that is not used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WhyNot {
    /// The path.
    pub path: String,
    /// The reason: one sentence.
    pub reason: String,
}

/// Frames that cross between two interfaces within the kernel, as seen from one of them; a super-frame counts once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Crossed {
    /// Frames received here and sent to the other side.
    pub frames_in: u64,
    /// Frames received on the other side and sent here.
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
    /// The frames received that came through the direct ring.
    #[serde(default)]
    pub frames_direct: u64,
    /// How often the direct ring was opened again after a sleep of the worker.
    #[serde(default)]
    pub direct_opened: u64,
    /// The packets that the received frames are on a wire: a super-frame is several.
    #[serde(default)]
    pub packets_in: u64,
    /// The packets that the sent frames are on a wire.
    #[serde(default)]
    pub packets_out: u64,
    /// The frames that were sent as part of super-frames.
    #[serde(default)]
    pub frames_joined: u64,
    /// Super-frames that the kernel refused; after the first, every frame is sent singly.
    #[serde(default)]
    pub super_frames_refused: u64,
    /// System calls to send or to wake the kernel.
    #[serde(default)]
    pub kicks: u64,
    /// Frames that the kernel dropped because the ring was full.
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
    /// The count.
    pub count: u64,
}

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
            allocations: counters.allocations.get(),
            heap_bytes: counters.heap_bytes.get(),
            pool_free: counters.pool_free.get() as u32,
            ..Self::default()
        }
    }
}

/// CPU time used by a thread of this process, ns; 0 if the kernel does not report it (`/proc/PID/task/TID/schedstat`).
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

/// A next hop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Neighbour {
    /// The peer.
    pub peer: String,
    /// The next hop towards it.
    pub next_hop: String,
    /// The interface through which it is reached.
    pub interface: String,
    /// Link-layer address, if known.
    pub mac: Option<String>,
    /// `reachable`, `stale`, `incomplete`, ...
    pub state: String,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// `fast`, or the reason for sending replies through the kernel.
    pub egress: String,
}

/// Frames or requests dropped or refused for one reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Drop {
    /// The place: `worker 0`, `port veth0`, ...
    pub place: String,
    /// Stable reason name.
    pub reason: String,
    /// The count.
    pub count: u64,
}
