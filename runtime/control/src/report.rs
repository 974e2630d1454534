//! What a running instance says of itself: the answer to `twinpath show`, as people (tables) and machines (JSON)
//! get it. Field names are stable.

use serde::{Deserialize, Serialize};

/// Everything `show` can tell. A topic (`interfaces`, `rules`, ...) is one field of it; an answer about one topic
/// leaves out the others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Which program answers.
    pub instance: Instance,
    /// One entry per interface served.
    pub interfaces: Vec<Interface>,
    /// What is claimed, and how often each verdict was given.
    pub rules: Rules,
    /// One entry per worker.
    pub workers: Vec<Worker>,
    /// Next hops in use, as mirrored from the kernel.
    pub neighbours: Vec<Neighbour>,
    /// Everything dropped or refused, by named reason; only non-zero counters.
    pub drops: Vec<Drop>,
}

/// The program that answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Instance {
    /// Process id.
    pub pid: u32,
    /// Version of twinpath.
    pub version: String,
    /// The service, e.g. `echo`.
    pub service: String,
    /// Ports of the service: `udp/7`, `tcp/7`.
    pub ports: Vec<String>,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Frame memory of all workers, MiB.
    pub pool_mib: f64,
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
    /// Link state: `up`, `down` or `gone`.
    pub link: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Why this path.
    pub why: String,
    /// For every better-ranked or asked-for path not in use: its name and the reason.
    pub why_not: Vec<WhyNot>,
    /// The queues we serve.
    pub queues: Vec<Queue>,
}

/// A path not taken.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WhyNot {
    /// The path.
    pub path: String,
    /// One sentence.
    pub reason: String,
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
    /// CPU time of the thread, ns.
    pub cpu_ns: u64,
    /// Frames received on the fast path.
    pub frames_in: u64,
    /// Frames sent on the fast path.
    pub frames_out: u64,
    /// Requests that came through kernel sockets.
    pub kernel_requests: u64,
    /// Replies that left through kernel sockets.
    pub kernel_replies: u64,
    /// Heap allocations made by the worker's thread since it started to serve.
    pub allocations: u64,
    /// Frame memory, MiB.
    pub pool_mib: f64,
    /// Frames in the pool, and how many are free.
    pub pool_frames: u32,
    /// Free frames.
    pub pool_free: u32,
}

/// A CPU latency request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LatencyRequest {
    /// `auto`, `always` or `never`.
    pub setting: String,
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
