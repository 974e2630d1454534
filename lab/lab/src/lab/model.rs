//! The data model of labs: rows, ratios, and the JSON object of `--json`.
//!
//! A lab is two tables, of rows and of ratios, and a function that measures rows in rounds. Selection, statistics,
//! verdicts and output are common to all labs.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::stats::Summary;

/// The definition of a row. Ids are stable and documented in docs/labs.
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
    /// Whether it is measured in a virtual machine only.
    pub(crate) in_guest: bool,
    /// How its lab measures it.
    pub(crate) how: How,
}

/// The words of a row that say how it is measured: flags, and `name=value`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How(pub(crate) &'static str);

impl How {
    pub(crate) fn has(self, flag: &str) -> bool {
        self.0.split(' ').any(|word| word == flag)
    }

    pub(crate) fn get(self, name: &str) -> Option<&'static str> {
        self.0.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// The first word, and what it equals.
    pub(crate) fn first(self) -> (&'static str, Option<&'static str>) {
        let word = self.0.split(' ').next().unwrap_or_default();
        word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)))
    }
}

macro_rules! groups {
    ($($group:ident $name:literal: $title:literal,)*) => {
        /// A group of similar rows, which are shown together in tables and plots.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Group {
            $(#[doc = $title] $group,)*
        }

        impl Group {
            /// In the order in which they are shown.
            pub(crate) const ALL: &[Self] = &[$(Self::$group),*];

            pub(crate) fn title(self) -> &'static str {
                match self {
                    $(Self::$group => $title,)*
                }
            }

            /// The group that a table names so.
            pub(crate) fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$group),)*
                    _ => None,
                }
            }
        }
    };
}

groups! {
    Build "build": "Cold builds on the library",
    Memcached "memcached": "memcached: get, one in flight",
    Stall "stall": "Round trips at a pace, beside bulk traffic",
    FlowMods "flow-mods": "Flow-mods over one connection, acknowledged by a barrier",
    Barrier "barrier": "Packets that the former rule took after the barrier's reply",
    FlowCounters "flow-counters": "Packets by which counters of the switch and of the hosts differ",
    Pipeline "pipeline": "A frame in OpenFlow's tables",
    SwitchRate "switch-rate": "Frames of 64 bytes through a switch",
    SwitchRtt "switch-rtt": "Round trips through a switch: kernel UDP, 64 B",
    SwitchPaced "switch-paced": "The same, one request every 250 to 500 us",
    SwitchOneWay "switch-one-way": "One datagram every 250 to 500 us, from interface to interface beside a flood",
    SwitchBulk "switch-bulk": "Kernel TCP through a switch",
    SwitchMemory "switch-memory": "Frames of 64 bytes between two memory ports, both directions together",
    SwitchTable "switch-table": "Look-ups in the MAC table",
    NullOne "null-one": "NULL over TCP, 1 in flight",
    NullMany "null-many": "NULL over TCP, 128 in flight on 1 connection",
    NullJ4 "null-j4": "NULL over TCP with AUTH_SYS, 128 in flight on each of 4 connections",
    NullUdp "null-udp": "NULL over UDP",
    TcpPaced "tcp-paced": "NULL over TCP, one call per 350 us",
    TcpConnect "tcp-connect": "Connect, one NULL call, close",
    TcpBulk "tcp-bulk": "TCP echo, calls of 128 KiB on one connection",
    TcpMany "tcp-many": "NULL over TCP, one call at a time, by turns on a tenth of the connections",
    TcpIdle "tcp-idle": "Connections over TCP that say nothing",
    TcpBusy "tcp-busy": "NULL over TCP, one call per 350 us, beside a process on each CPU that wants it",
    TcpOverload "tcp-overload": "NULL over TCP, several calls per send, at a rate and at twice that rate",
    TcpFlood "tcp-flood": "NULL over TCP, one call at a time on each of 100 connections, beside forged SYNs",
    TcpLoss "tcp-loss": "One TCP stream over a link that delays and loses frames",
    GetsOne "gets-one": "memcached over TCP: get, one in flight",
    GetsMany "gets-many": "memcached over TCP: get, 128 in flight",
    Getattr "getattr": "GETATTR over TCP",
    NfsData "nfs-data": "NFS over TCP: calls of 1 MiB, 4 in flight",
    NfsCalls "nfs-calls": "NFS over TCP: 64 in flight",
    NfsList "nfs-list": "NFS over TCP: ls -lR of 50,000 files",
    NfsMounted "nfs-mounted": "Files mounted by a kernel's own client",
    MessagesOne "messages-one": "Messages echoed by another program, one in flight, all asleep",
    MessagesMany "messages-many": "Messages echoed by another program, several in flight",
    Wake "wake": "One packet every 250 to 500 us",
    Paces "paces": "Other paces",
    Competing "competing": "One packet every 250 to 500 us, beside a process that wants the CPU",
    Switching "switching": "Modes switched under load",
    Policy "policy": "The policy, replayed",
    Walk "walk": "NFS walk: latency of a call",
    Transit "transit": "Frames under way between both kernels",
    NextCall "next-call": "From a reply to the next call",
    Ack "ack": "From a reply to its acknowledgement",
    Tick "tick": "Near a multiple of 1/HZ",
    Rtt "rtt": "Round trips: UDP echo, 64 B",
    Frames "frames": "Round trips: reflected frames, 64 B",
    Rate "rate": "Rate: UDP echo, 64 in flight",
    Paced "paced": "UDP echo, 3,000 requests per second at random times",
    Cpu "cpu": "CPU at the same offered rate",
    Beside "beside": "The kernel's own traffic beside a fast path",
    Trouble "trouble": "A kill under load, and datagrams in pieces",
    Idle "idle": "Nothing to do",
    Burden "burden": "Beside connections that are a burden",
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

impl Ratio {
    /// Whether it is undecided because two runs of the same differ.
    pub(crate) fn is_unsteady(&self) -> bool {
        matches!(self.undecided, Some(Undecided::Unsteady(_)))
    }
}

impl Formula {
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

/// Why a ratio has no verdict, in words that name nothing of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Undecided {
    /// This row failed; the report says how.
    NotMeasured(String),
    /// This row was not run.
    NotRun(String),
    /// No round measured both sides.
    NoPair,
    /// So many pairs of those that it needs.
    FewPairs(usize, usize),
    /// Two runs of the same differ by this factor.
    Unsteady(f64),
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMeasured(row) => write!(f, "{row} was not measured"),
            Self::NotRun(row) => write!(f, "{row}: not run"),
            Self::NoPair => f.write_str("no round measured both sides"),
            Self::FewPairs(pairs, needed) => write!(f, "only {pairs} of the {needed} pairs it needs"),
            Self::Unsteady(factor) => write!(f, "two runs of the same differ: {factor:.2}"),
        }
    }
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
    /// The same in short.
    #[serde(default)]
    pub(crate) undecided: Option<Undecided>,
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
