//! The rows that consist of a server and a client, with the parameters of both.

use super::LAB;
use crate::lab::model::RowSpec;

pub(super) const RATE: &str = "requests_per_s";
pub(super) const COST: &str = "cpu_us_per_call";

/// The server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// nfs-ganesha, started once for all of its rows.
    Ganesha,
    /// A bare server over TCP, in this mode.
    Tcp(&'static str),
    /// A bare server over UDP: its method of receiving and sending datagrams, and its mode.
    Udp(&'static str, &'static str),
    /// `twinpath serve rpc` in this mode.
    Twinpath(&'static str),
    /// The same, without ever holding a CPU latency request.
    Requestless(&'static str),
}

/// The client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Over TCP, on kernel sockets.
    Tcp,
    /// Over UDP, on kernel sockets.
    Udp,
    /// Over UDP, on the fast path.
    Fast,
}

/// The parameters of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientSpec {
    pub(super) client: Client,
    /// Its mode.
    pub(super) mode: &'static str,
    /// Calls in flight.
    pub(super) inflight: u32,
    /// Several calls may share a send, several replies a receive.
    pub(super) batch: bool,
    pub(super) getattr: bool,
    /// At half of the best bare server's rate, instead of as fast as replies come.
    pub(super) at_half: bool,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) server: Server,
    pub(super) asked: ClientSpec,
}

impl Case {
    fn of(row: &RowSpec) -> Option<Self> {
        let how = row.how;
        let mode = row.mode.unwrap_or_default();
        let server = match how.first() {
            ("ganesha", None) => Server::Ganesha,
            ("plain", None) => Server::Tcp(mode),
            ("plain", Some(method)) => Server::Udp(method, mode),
            ("twinpath", None) => Server::Twinpath(mode),
            ("twinpath", Some("requestless")) => Server::Requestless(mode),
            _ => return None,
        };
        let client = match how.get("client")? {
            "tcp" => Client::Tcp,
            "udp" => Client::Udp,
            "fast" => Client::Fast,
            _ => return None,
        };
        let asked = ClientSpec {
            client,
            mode: how.get("mode")?,
            inflight: how.get("inflight")?.parse().ok()?,
            batch: how.has("batch"),
            getattr: how.has("getattr"),
            at_half: how.has("half"),
        };
        Some(Self { server, asked })
    }
}

/// The case of a row.
pub(super) fn case_of(row: &str) -> Option<Case> {
    LAB.table.row(row).and_then(Case::of)
}

/// The bare servers under load, of which the best one's rate counts.
pub(super) fn plain_many() -> &'static [&'static str] {
    LAB.table.against("null-tcp-128-twinpath")
}

/// Whether a row's offered rate depends on rates measured before.
pub(super) fn needs_rates(row: &str) -> bool {
    case_of(row).is_some_and(|case| case.asked.at_half)
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
