//! The report of single TCP connections.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A list of TCP connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// They, by worker.
    pub connections: Vec<Connection>,
    /// There are others that are asked for, too.
    pub has_more: bool,
    /// Workers that have not answered in time, as they are stuck or busy: their connections are missing.
    pub silent_workers: Vec<usize>,
}

/// The path of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionPath {
    /// The fast path: the worker has it.
    Fast,
    /// The kernel has it.
    Kernel,
}

/// A TCP connection of a service. The figures are those of Linux's `struct tcp_info`, on both paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The service's name.
    pub service: String,
    /// The number of the worker that serves it.
    pub worker: usize,
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub peer: SocketAddr,
    /// Its path.
    pub path: ConnectionPath,
    /// Why it is on this path.
    pub why: String,
    /// `tcpi_state`: as RFC 9293 names it.
    pub state: String,
    /// `tcpi_rtt`, the smoothed round-trip time; 0: not measured yet.
    pub rtt_us: u32,
    /// `tcpi_snd_cwnd`, segments.
    pub snd_cwnd: u32,
    /// `tcpi_snd_mss`, bytes.
    pub snd_mss: u32,
    /// `tcpi_unacked`, segments.
    pub unacked: u32,
    /// `tcpi_total_retrans`, segments.
    pub total_retrans: u32,
    /// `tcpi_bytes_acked`.
    pub bytes_acked: u64,
    /// `tcpi_bytes_received`.
    pub bytes_received: u64,
}
