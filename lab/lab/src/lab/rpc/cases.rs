//! The rows that consist of a server and a client, whose table says the parameters of both.

use super::LAB;
use crate::lab::model::How;

pub(crate) const RATE: &str = "requests_per_s";
pub(crate) const COST: &str = "cpu_us_per_call";

/// A row whose table names a server, with the server's mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// First the server: `ganesha`, which is started once for all of its rows; `plain`, a bare server over TCP, or over UDP by
    /// the method that it equals; `twinpath`, or `twinpath=requestless`, which never holds a CPU latency request. Then the
    /// client, as [`super::peers::bench`] takes it.
    pub(super) how: How,
    pub(super) mode: &'static str,
}

impl Case {
    /// Whether the client offers half of the best bare server's rate, instead of as much as is answered.
    pub(super) fn at_half(&self) -> bool {
        self.how.has("half")
    }
}

/// The case of a row.
pub(super) fn case_of(row: &str) -> Option<Case> {
    let row = LAB.table.row(row).filter(|row| !row.how.0.is_empty())?;
    Some(Case { how: row.how, mode: row.mode.unwrap_or_default() })
}

/// The bare servers under load, of which the best one's rate counts.
pub(super) fn plain_many() -> &'static [&'static str] {
    LAB.table.against("null-tcp-128-twinpath")
}

/// Whether a row's offered rate depends on rates measured before.
pub(super) fn needs_rates(row: &str) -> bool {
    case_of(row).is_some_and(|case| case.at_half())
}

/// Rows that are measured one after another, in this order or reversed: both sides of a ratio, with those that sleep
/// nearest to each other, because the cost of a wake-up changes within seconds on a virtual machine.
pub(super) const TOGETHER: &[&[&str]] = &[
    &["null-tcp-1-ganesha", "null-tcp-1-twinpath", "null-tcp-1-plain", "null-tcp-1-twinpath-interrupt"],
    SPIN_PAIR,
    &[
        "null-tcp-128-ganesha",
        "null-tcp-128-plain",
        "null-tcp-128-twinpath-interrupt",
        "null-tcp-128-twinpath",
        "null-tcp-128-spin",
        "getattr-128-twinpath",
    ],
    &[
        "null-tcp-128-batch-ganesha",
        "null-tcp-128-batch-plain",
        "null-tcp-128-batch-twinpath-interrupt",
        "null-tcp-128-batch-twinpath",
        "null-tcp-128-batch-spin",
    ],
    COSTS,
    &["null-udp-1-spin", "null-udp-1-twinpath"],
    &[
        "null-udp-128-single",
        "null-udp-128-batch",
        "null-udp-128-segments",
        "null-udp-128-twinpath",
        "null-udp-128-segments-spinning",
        "null-udp-128-batch-spinning",
        "null-udp-128-single-spinning",
    ],
    &["getattr-128-ganesha"],
    IDLE,
    &[NEVER_READS],
];

/// The pair of `null-tcp-1-vs-spin`.
pub(super) const SPIN_PAIR: &[&str] = &["null-tcp-1-spin", "null-tcp-1-twinpath-poll"];
/// Rows that need the rates of the bare servers.
pub(super) const COSTS: &[&str] = &["null-tcp-cpu-plain", "null-tcp-cpu-twinpath"];
/// Both rows use the same server.
pub(super) const IDLE: &[&str] = &["idle-10k-alone", "idle-10k-beside"];
pub(super) const NEVER_READS: &str = "never-reads";
