//! Interfaces in a report: devices, paths, queues, and what attaching costs the kernel's own traffic.

use serde::{Deserialize, Serialize};
use twinpath_inspect::counts;
use twinpath_port::PortCounts;

use crate::report::Count;

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
    /// How our program is attached at tc: `tcx` or `clsact`; empty where there is none, on the kernel path and on XDP paths
    /// without replies by the kernel.
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
    /// Replies that the kernel's programs send themselves; only for an interface with services on a fast
    /// path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflexes: Option<Reflexes>,
    /// Frames that cross within the kernel, past all queues: at an exception port, and at a port of a
    /// switch once it has forwarded any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crossed: Option<Crossed>,
    /// The cost of attaching for the kernel's own traffic, for each measured path, in order: the last one
    /// without `beyond` is in use. Empty if it was not requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<Fallback>,
}

/// Replies that the kernel's programs send themselves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reflexes {
    /// Why they send none; empty if they do.
    pub off: String,
    /// Requests that a program could have answered, but left to a worker or dropped, by reason.
    pub not_replied: Vec<Count>,
    /// The memory of replies that services keep, if any do.
    pub kept: Option<KeptReplies>,
}

counts! {
    /// Replies that services keep for the kernel's programs.
    pub struct KeptReplies {
        /// Why the programs do not repeat them; empty if they do.
        pub off: String,
        /// Maximum number of entries.
        pub entries_max: u64,
        /// Memory of their maps, bytes, used or not.
        pub memory_bytes: u64,
    } and {
        /// Valid entries.
        entries: u64;
        /// Valid kept replies that made room for others.
        evictions: u64 => counter("twinpath_kept_replies_displaced");
    }
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

/// Frames that cross between interfaces within the kernel, as seen from one of them. At an exception port a super-frame
/// counts once; at a port of a switch each packet of it does.
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
    /// What it has counted.
    #[serde(flatten)]
    pub counts: PortCounts,
}
