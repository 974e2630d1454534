//! The data model of labs: rows, ratios, and the JSON object of `--json`.
//!
//! A lab is two tables, of rows and of ratios, and a function that measures rows in rounds. Selection, statistics,
//! verdicts and output are common to all labs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::stats::Summary;

/// The definition of a row. Ids are stable and documented in docs/measuring.md.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSpec {
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    pub(crate) group: Group,
    pub(crate) path: Option<&'static str>,
    pub(crate) mode: Option<&'static str>,
    /// The row's main value: it is used in comparisons, and comes first in its line.
    pub(crate) main: &'static str,
    /// The rows that it is compared with in the table: with the best of them.
    pub(crate) base: &'static [&'static str],
}

/// A row without path and mode, compared with none.
pub(crate) const fn row(id: &'static str, group: Group, main: &'static str, label: &'static str) -> RowSpec {
    RowSpec { id, label, group, path: None, mode: None, main, base: &[] }
}

impl RowSpec {
    /// The row on that path and in that mode.
    pub(crate) const fn on(self, path: &'static str, mode: &'static str) -> Self {
        Self { path: Some(path), mode: Some(mode), ..self }
    }

    /// The row compared with the best of those.
    pub(crate) const fn beside(self, base: &'static [&'static str]) -> Self {
        Self { base, ..self }
    }
}

/// A group of similar rows, which are shown together in tables and plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Round trips, one request in flight.
    Rtt,
    /// Round trips of frames, one in flight.
    Frames,
    /// The same while the interface carries other traffic.
    FramesLoaded,
    /// Replies per second under load.
    Rate,
    /// Requests at a low rate, at random times.
    Paced,
    /// CPU at a fixed offered rate.
    Cpu,
    /// Services of the kernel beside the fast path.
    Beside,
    /// Kills under load, and fragmented datagrams.
    Trouble,
    /// An idle server.
    Idle,
    /// The results of the other paths.
    Other,
    /// Walks of a tree over NFS: calls, one outstanding.
    Walk,
    /// Transit times of a walk's frames from one end to the other.
    Transit,
    /// Waiting times of an end of a walk between frames.
    NextCall,
    Ack,
    /// Times that wait for a timer tick.
    Tick,
    /// Single packets: latency against CPU.
    Wake,
    /// The same while deep idle states are forbidden.
    Caps,
    /// The same at other paces.
    Paces,
    /// The same beside a process that always wants the CPU.
    Competing,
    /// While modes are switched.
    Switching,
    /// The policy on simulated traffic.
    Policy,
    /// RPC calls over TCP, one in flight and many.
    NullOne,
    NullMany,
    /// The same over UDP.
    NullUdp,
    /// Calls that ask for attributes.
    Getattr,
    /// A service beside clients that are a burden for it.
    Burden,
    /// Instruction counts.
    Instructions,
    /// Streams in one direction.
    Stream,
    /// Frames through a switch.
    SwitchRate,
    /// Round trips of kernel sockets through a switch: back to back, and paced.
    SwitchRtt,
    SwitchPaced,
    /// Paced frames through a switch, timed between the hosts' interfaces.
    SwitchOneWay,
    /// Kernel TCP through a switch.
    SwitchBulk,
    /// Look-ups in a switch's MAC table.
    SwitchTable,
    /// Frames through one loop, or a packet thread beside control's.
    SwitchLoop,
    /// Frames between memory ports of a switch.
    SwitchMemory,
    /// Frames through a switch, by the source's frames per call.
    SwitchBatch,
    /// Round trips through a switch at a given rate.
    SwitchLoad,
    /// Changes of a switch's flows by its controller.
    FlowMods,
    /// Packets after a barrier's reply.
    Barrier,
    /// Counters of flows, tables and ports.
    FlowCounters,
    /// Frames through OpenFlow's tables.
    Pipeline,
    /// Round trips while a controller keeps the switch busy.
    Stall,
    /// Builds of programs on the library.
    Build,
    /// Gets, one in flight.
    Memcached,
}

impl Group {
    pub(crate) const ALL: [Self; 45] = [
        Self::Build,
        Self::Memcached,
        Self::Stall,
        Self::FlowMods,
        Self::Barrier,
        Self::FlowCounters,
        Self::Pipeline,
        Self::SwitchRate,
        Self::SwitchRtt,
        Self::SwitchPaced,
        Self::SwitchOneWay,
        Self::SwitchBulk,
        Self::SwitchLoop,
        Self::SwitchMemory,
        Self::SwitchTable,
        Self::SwitchBatch,
        Self::SwitchLoad,
        Self::NullOne,
        Self::NullMany,
        Self::NullUdp,
        Self::Getattr,
        Self::Stream,
        Self::Wake,
        Self::Caps,
        Self::Paces,
        Self::Competing,
        Self::Switching,
        Self::Policy,
        Self::Walk,
        Self::Transit,
        Self::NextCall,
        Self::Ack,
        Self::Tick,
        Self::Rtt,
        Self::Frames,
        Self::FramesLoaded,
        Self::Rate,
        Self::Paced,
        Self::Cpu,
        Self::Beside,
        Self::Trouble,
        Self::Idle,
        Self::Burden,
        Self::Instructions,
        Self::Other,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Rtt => "Round trips: UDP echo, 64 B",
            Self::Frames => "Round trips: reflected frames, 64 B",
            Self::FramesLoaded => "The same, beside kernel traffic on the interface",
            Self::Rate => "Rate: UDP echo, 64 in flight",
            Self::Paced => "UDP echo, 3,000 requests per second at random times",
            Self::Cpu => "CPU at the same offered rate",
            Self::Beside => "The kernel's own traffic beside a fast path",
            Self::Trouble => "A kill under load, and datagrams in pieces",
            Self::Idle => "Nothing to do",
            Self::Other => "What the other paths reach",
            Self::Walk => "NFS walk: latency of a call",
            Self::Transit => "Frames under way between both kernels",
            Self::NextCall => "From a reply to the next call",
            Self::Ack => "From a reply to its acknowledgement",
            Self::Tick => "Near a multiple of 1/HZ",
            Self::Wake => "One packet every 250 to 500 us",
            Self::Caps => "One packet every 250 to 500 us, deep idle states forbidden",
            Self::Paces => "Other paces",
            Self::Competing => "One packet every 250 to 500 us, beside a process that wants the CPU",
            Self::Switching => "Modes switched under load",
            Self::Policy => "The policy, replayed",
            Self::NullOne => "NULL over TCP, 1 in flight",
            Self::NullMany => "NULL over TCP, 128 in flight on 1 connection",
            Self::NullUdp => "NULL over UDP",
            Self::Getattr => "GETATTR over TCP",
            Self::Stream => "Streams in one direction: what arrives",
            Self::Burden => "Beside connections that are a burden",
            Self::Instructions => "Instructions of the pure part",
            Self::SwitchRate => "Frames of 64 bytes through a switch",
            Self::SwitchRtt => "Round trips through a switch: kernel UDP, 64 B",
            Self::SwitchPaced => "The same, one request every 250 to 500 us",
            Self::SwitchOneWay => {
                "One datagram every 250 to 500 us, from interface to interface beside a flood"
            }
            Self::SwitchBulk => "Kernel TCP through a switch",
            Self::SwitchLoop => "Packet sockets, 10 ports, 1,000 changes of control a second",
            Self::SwitchMemory => "Frames of 64 bytes between two memory ports, both directions together",
            Self::SwitchBatch => "Frames of 64 bytes through a switch, by the source's frames per call",
            Self::SwitchLoad => "Round trips through a switch at a rate: kernel UDP, 64 B",
            Self::FlowMods => "Flow-mods over one connection, acknowledged by a barrier",
            Self::Barrier => "Packets that the former rule took after the barrier's reply",
            Self::FlowCounters => "Packets by which counters of the switch and of the hosts differ",
            Self::Stall => "Round trips at a pace, beside bulk traffic",
            Self::Pipeline => "A frame in OpenFlow's tables",
            Self::Build => "Cold builds on the library",
            Self::Memcached => "memcached: get, one in flight",
            Self::SwitchTable => "Look-ups in the MAC table",
        }
    }
}

/// A plot of the HTML report: values of rows against each other, a line per series.
#[derive(Debug)]
pub(crate) struct PlotSpec {
    pub(crate) title: &'static str,
    pub(crate) across: AxisSpec,
    pub(crate) up: AxisSpec,
    /// The unit of the upward axis.
    pub(crate) unit: &'static str,
    /// A value on the upward axis to which each point has a thin line, such as a high percentile.
    pub(crate) up_to: Option<&'static str>,
    pub(crate) series: &'static [Series],
    pub(crate) caption: &'static str,
}

/// An axis: the value of the rows, and its title.
#[derive(Debug)]
pub(crate) struct AxisSpec {
    pub(crate) value: &'static str,
    pub(crate) title: &'static str,
}

/// A line of a plot.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    /// Whether it is twinpath's.
    pub(crate) ours: bool,
    /// In the order of the points.
    pub(crate) rows: &'static [&'static str],
}

/// A value of a row: the row's id, and the value's name.
pub(crate) type Cell = (&'static str, &'static str);

/// How a ratio is computed from rows, round by round.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Formula {
    /// The first divided by the sum of the others, measured in the same round.
    Over { top: Cell, bottom: &'static [Cell] },
    /// Divided by the best of several rows (by the median of `by`, the higher the better).
    OverBest { top: Cell, rows: &'static [&'static str], by: &'static str, value: &'static str },
    /// The best of `tops` divided by the best of `rows` (by the median of `by`, the higher the better).
    BestOverBest { tops: &'static [&'static str], rows: &'static [&'static str], by: &'static str },
    /// The first minus the second, measured in the same round.
    Difference { from: Cell, less: Cell },
    /// The row's value itself.
    Value(Cell),
}

impl Formula {
    /// A value of a row over the sum of others.
    pub(crate) const fn over(row: &'static str, value: &'static str, bottom: &'static [Cell]) -> Self {
        Self::Over { top: (row, value), bottom }
    }

    /// The rows it needs.
    pub(crate) fn rows(&self) -> Vec<&'static str> {
        match self {
            Self::Over { top, bottom } => std::iter::once(top).chain(*bottom).map(|cell| cell.0).collect(),
            Self::OverBest { top, rows, .. } => std::iter::once(top.0).chain(rows.iter().copied()).collect(),
            Self::BestOverBest { tops, rows, .. } => tops.iter().chain(*rows).copied().collect(),
            Self::Difference { from, less } => vec![from.0, less.0],
            Self::Value(cell) => vec![cell.0],
        }
    }
}

/// The direction in which a ratio is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// The value that is compared with the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// The median.
    Median,
    /// The median; equal is not enough.
    MedianStrictly,
    /// The less favourable end of the 95 % interval.
    IntervalEnd,
    /// The more favourable end: a miss is certain then.
    IntervalBest,
}

/// The definition of a ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RatioSpec {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    pub(crate) formula: Formula,
    pub(crate) target: Option<f64>,
    pub(crate) better: Better,
    pub(crate) judged: Judged,
    /// Fewest pairs for a verdict under `--check`; with fewer, the ratio is undecided. It may be less than the six
    /// pairs that an interval of the median needs only if each value is a count, or sums up many trials or a long time.
    pub(crate) check_pairs: usize,
    /// Additional conditions: a row's value, and the limit for its median.
    pub(crate) also: &'static [(Cell, f64)],
    /// What two runs of the same make of each other; the ratio is undecided if the median is above that factor, or below its
    /// reciprocal.
    pub(crate) steady: Option<(Formula, f64)>,
}

impl RatioSpec {
    /// A ratio whose median is compared with `target`.
    pub(crate) const fn of_median(
        id: &'static str,
        formula: Formula,
        better: Better,
        target: f64,
        what: &'static str,
        check_pairs: usize,
    ) -> Self {
        let (target, judged) = (Some(target), Judged::Median);
        Self { id, what, formula, target, better, judged, check_pairs, also: &[], steady: None }
    }
}

/// A line of a lab's summary: the same measure for the kernel and for twinpath.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) what: &'static str,
    /// The kernel's rows: the one with the highest median stands for it. Empty if the kernel has no such thing.
    pub(crate) kernel: &'static [&'static str],
    pub(crate) twinpath: &'static str,
    /// The value of these rows.
    pub(crate) value: &'static str,
    pub(crate) better: Better,
}

/// The result of one measurement of a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) values: BTreeMap<&'static str, f64>,
    /// Round trips: highest value of a bucket in ns, and its count.
    pub(crate) histogram: Vec<(u64, u64)>,
    /// The path in use.
    pub(crate) path: Option<String>,
    /// Notes for the reader.
    pub(crate) notes: Vec<String>,
}

/// A row as reported.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) path: Option<String>,
    pub(crate) mode: Option<String>,
    /// Rounds that measured it.
    pub(crate) n: usize,
    pub(crate) values: BTreeMap<String, Summary>,
    /// The reason that it was not measured.
    pub(crate) skipped: Option<String>,
    #[serde(default)]
    pub(crate) notes: Vec<String>,
}

/// A ratio as reported.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) id: String,
    pub(crate) what: String,
    /// Median over the pairs.
    pub(crate) value: Option<f64>,
    /// Lowest and highest pair.
    pub(crate) spread: Option<[f64; 2]>,
    /// `None` with fewer pairs than an interval of the median needs.
    pub(crate) interval95: Option<[f64; 2]>,
    pub(crate) target: Option<f64>,
    pub(crate) better: Better,
    pub(crate) holds: Option<bool>,
    /// The reason that it could not be measured, or not be judged.
    pub(crate) skipped: Option<String>,
    /// It is undecided because two runs of the same differ.
    #[serde(default)]
    pub(crate) unsteady: bool,
    /// Pairs measured.
    pub(crate) pairs: usize,
    /// The pairs in the order they were measured.
    pub(crate) values: Vec<f64>,
    /// The value that is compared with the target: `median`, `median, strictly`, or an end of interval95.
    pub(crate) judged: String,
}

/// The results of a lab: the object of `--json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LabReport {
    pub(crate) lab: String,
    pub(crate) version: String,
    pub(crate) kernel: String,
    /// CPUs used: the client's, then the server's.
    pub(crate) cpus: Vec<usize>,
    pub(crate) rows: Vec<Row>,
    pub(crate) ratios: Vec<Ratio>,
    /// When it was measured, seconds since 1970.
    pub(crate) unix_time_s: u64,
    /// Duration.
    pub(crate) wall_s: f64,
    /// Rounds, each with both sides of every ratio.
    pub(crate) rounds: usize,
    /// Notes on the whole run.
    pub(crate) notes: Vec<String>,
}
