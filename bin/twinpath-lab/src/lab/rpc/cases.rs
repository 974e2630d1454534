//! The rows that consist of a server and a client, with the parameters of both.

use crate::lab::model::{Group, RowSpec};

pub(super) const P50: &str = "p50_us";
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
    pub(super) row: RowSpec,
    pub(super) server: Server,
    pub(super) asked: ClientSpec,
}

const ONE: ClientSpec = ClientSpec {
    client: Client::Tcp,
    mode: "interrupt",
    inflight: 1,
    batch: false,
    getattr: false,
    at_half: false,
};
const ONE_SPINNING: ClientSpec = ClientSpec { mode: "poll", ..ONE };
/// The client spins, so that its wake-ups are not part of the measurement.
const MANY: ClientSpec = ClientSpec { inflight: 128, ..ONE_SPINNING };
const BATCH: ClientSpec = ClientSpec { batch: true, ..MANY };
const HALF: ClientSpec = ClientSpec { at_half: true, ..MANY };
const UDP_ONE: ClientSpec = ClientSpec { client: Client::Udp, ..ONE_SPINNING };
const FAST_ONE: ClientSpec = ClientSpec { client: Client::Fast, ..ONE_SPINNING };
const FAST_MANY: ClientSpec = ClientSpec { client: Client::Fast, ..MANY };

/// The bare servers under load: `null-tcp-128-vs-plain` compares with the best of them.
pub(super) const PLAIN_MANY: &[&str] = &["null-tcp-128-plain", "null-tcp-128-spin"];
/// The same with several calls per send.
pub(super) const PLAIN_BATCH: &[&str] = &["null-tcp-128-batch-plain", "null-tcp-128-batch-spin"];
/// twinpath under load, in its two modes: the better one is compared.
pub(super) const OUR_MANY: &[&str] = &["null-tcp-128-twinpath", "null-tcp-128-twinpath-interrupt"];
/// The same with several calls per send.
pub(super) const OUR_BATCH: &[&str] =
    &["null-tcp-128-batch-twinpath", "null-tcp-128-batch-twinpath-interrupt"];
/// The bare UDP servers under load.
pub(super) const PLAIN_UDP: &[&str] = &[
    "null-udp-128-single",
    "null-udp-128-batch",
    "null-udp-128-segments",
    "null-udp-128-single-spinning",
    "null-udp-128-batch-spinning",
    "null-udp-128-segments-spinning",
];

pub(super) const fn row(id: &'static str, group: Group, main: &'static str, label: &'static str) -> RowSpec {
    RowSpec { id, label, group, path: None, mode: None, main, base: &[] }
}

pub(super) const fn case(row: RowSpec, server: Server, asked: ClientSpec) -> Case {
    let (path, mode) = match server {
        Server::Ganesha => ("kernel", "interrupt"),
        Server::Tcp(mode) | Server::Udp(_, mode) => ("kernel", mode),
        Server::Twinpath(mode) | Server::Requestless(mode) => {
            (if matches!(asked.client, Client::Fast) { "auto" } else { "kernel" }, mode)
        }
    };
    Case { row: RowSpec { path: Some(path), mode: Some(mode), ..row }, server, asked }
}

impl Case {
    pub(super) const fn against(mut self, base: &'static [&'static str]) -> Self {
        self.row.base = base;
        self
    }
}

const fn one(id: &'static str, label: &'static str, server: Server, asked: ClientSpec) -> Case {
    case(row(id, Group::NullOne, P50, label), server, asked)
}

const fn many(id: &'static str, label: &'static str, server: Server, asked: ClientSpec) -> Case {
    case(row(id, Group::NullMany, RATE, label), server, asked)
}

const fn udp(id: &'static str, label: &'static str, method: &'static str, mode: &'static str) -> Case {
    case(row(id, Group::NullUdp, RATE, label), Server::Udp(method, mode), FAST_MANY)
}

const fn getattr(id: &'static str, label: &'static str, server: Server, asked: ClientSpec) -> Case {
    case(row(id, Group::Getattr, RATE, label), server, ClientSpec { getattr: true, ..asked })
}

use Server::{Ganesha, Requestless, Tcp, Twinpath, Udp};

/// Rows in the order of the table.
pub(super) const CASES: &[Case] = &[
    one("null-tcp-1-ganesha", "nfs-ganesha", Ganesha, ONE),
    one("null-tcp-1-plain", "bare server, sleeping in epoll", Tcp("interrupt"), ONE)
        .against(&["null-tcp-1-ganesha"]),
    one("null-tcp-1-twinpath", "twinpath, adaptive", Twinpath("adaptive"), ONE)
        .against(&["null-tcp-1-ganesha"]),
    one("null-tcp-1-twinpath-interrupt", "twinpath, interrupt", Twinpath("interrupt"), ONE)
        .against(&["null-tcp-1-plain"]),
    one("null-tcp-1-spin", "bare server, spinning on epoll; client spins", Tcp("poll"), ONE_SPINNING),
    one("null-tcp-1-twinpath-poll", "twinpath, poll; client spins", Twinpath("poll"), ONE_SPINNING)
        .against(&["null-tcp-1-spin"]),
    many("null-tcp-128-ganesha", "nfs-ganesha", Ganesha, MANY),
    many("null-tcp-128-plain", "bare server, sleeping in epoll", Tcp("interrupt"), MANY),
    many("null-tcp-128-spin", "bare server, spinning on epoll", Tcp("poll"), MANY),
    many("null-tcp-128-twinpath", "twinpath, poll", Twinpath("poll"), MANY).against(PLAIN_MANY),
    many("null-tcp-128-twinpath-interrupt", "twinpath, interrupt", Twinpath("interrupt"), MANY)
        .against(PLAIN_MANY),
    many("null-tcp-128-batch-ganesha", "nfs-ganesha, --batch", Ganesha, BATCH),
    many("null-tcp-128-batch-plain", "bare server, sleeping in epoll, --batch", Tcp("interrupt"), BATCH),
    many("null-tcp-128-batch-spin", "bare server, spinning on epoll, --batch", Tcp("poll"), BATCH),
    many("null-tcp-128-batch-twinpath", "twinpath, poll, --batch", Twinpath("poll"), BATCH)
        .against(PLAIN_BATCH),
    many(
        "null-tcp-128-batch-twinpath-interrupt",
        "twinpath, interrupt, --batch",
        Twinpath("interrupt"),
        BATCH,
    )
    .against(PLAIN_BATCH),
    case(
        row("null-tcp-cpu-plain", Group::Cpu, COST, "bare server, sleeping in epoll"),
        Tcp("interrupt"),
        HALF,
    ),
    case(
        row("null-tcp-cpu-twinpath", Group::Cpu, COST, "twinpath, interrupt, no latency request"),
        Requestless("interrupt"),
        HALF,
    )
    .against(&["null-tcp-cpu-plain"]),
    case(
        row("null-udp-1-spin", Group::NullUdp, P50, "1 in flight: bare server and client, kernel, spinning"),
        Udp("connected", "poll"),
        UDP_ONE,
    ),
    case(
        row("null-udp-1-twinpath", Group::NullUdp, P50, "1 in flight: twinpath and client, fast path, poll"),
        Twinpath("poll"),
        FAST_ONE,
    )
    .against(&["null-udp-1-spin"]),
    udp("null-udp-128-single", "128 in flight: single calls, sleeping", "single", "interrupt"),
    udp("null-udp-128-batch", "128: recvmmsg, sleeping", "batch", "interrupt"),
    udp("null-udp-128-segments", "128: UDP_GRO and UDP_SEGMENT, sleeping", "segments", "interrupt"),
    udp("null-udp-128-single-spinning", "128: single calls, spinning", "single", "poll"),
    udp("null-udp-128-batch-spinning", "128: recvmmsg, spinning", "batch", "poll"),
    udp("null-udp-128-segments-spinning", "128: UDP_GRO and UDP_SEGMENT, spinning", "segments", "poll"),
    case(
        row("null-udp-128-twinpath", Group::NullUdp, RATE, "128: twinpath, poll"),
        Twinpath("poll"),
        FAST_MANY,
    )
    .against(PLAIN_UDP),
    getattr("getattr-1-ganesha", "1 in flight: nfs-ganesha", Ganesha, ONE),
    getattr("getattr-1-twinpath", "1 in flight: twinpath, adaptive", Twinpath("adaptive"), ONE)
        .against(&["getattr-1-ganesha"]),
    getattr("getattr-128-ganesha", "128: nfs-ganesha", Ganesha, MANY),
    getattr("getattr-128-twinpath", "128: twinpath, poll", Twinpath("poll"), MANY)
        .against(&["getattr-128-ganesha"]),
    getattr("getattr-128-batch-twinpath", "128: twinpath, poll, --batch", Twinpath("poll"), BATCH),
];

/// The case of a row.
pub(super) fn case_of(row: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.row.id == row)
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
        "getattr-128-batch-twinpath",
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
    &["getattr-1-ganesha", "getattr-1-twinpath"],
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
pub(super) const INSTRUCTIONS: &str = "rpc-instructions";
