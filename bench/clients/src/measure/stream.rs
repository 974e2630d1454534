//! The results of `twinpath bench stream`: the object that `--json` prints and the labs read.
//!
//! Names and units of the fields are stable: fields are added, never renamed.

use serde::{Deserialize, Serialize};

use crate::measure::report::SystemCalls;

/// One measurement. Bits and bytes are those of payload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// `stream`.
    pub service: String,
    /// As the user named it: `HOST:PORT`.
    pub target: String,
    /// `udp` or `tcp`.
    pub transport: String,
    /// `to` the service, or `from` it.
    pub direction: String,
    /// The path that was used: `kernel`, `packet` or `xdp`; never `auto`.
    pub path: String,
    /// `adaptive`, `interrupt` or `poll`.
    pub mode: String,
    /// Bytes of a datagram; over TCP, of a system call.
    pub size: usize,
    /// Threads, each with its own stream.
    pub threads: u32,
    /// The offered rate, all streams together; null: unlimited.
    pub rate_bits_per_s: Option<f64>,
    /// How long it was sent or received; over TCP to a service, until the service had read everything.
    pub duration_s: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Bits that arrived, per second: by the receiver's clock, if it reports that.
    pub bits_per_s: f64,
    /// Bits that left here, per second; for a stream from a service, the bits that arrived.
    pub sent_bits_per_s: f64,
    /// Share of a core that the client's threads used (user and system), all together.
    pub cpu_client: f64,
    /// CPU time of these threads per byte that they sent or received.
    pub cpu_ns_per_byte: Option<f64>,
    /// Heap allocations per packet, where counted.
    pub allocations_per_packet: Option<f64>,
    /// Over UDP.
    pub datagrams: Option<DatagramCounts>,
    /// Over TCP.
    pub connections: Option<ConnectionCounts>,
    /// Results over time, all streams together.
    pub intervals: Vec<IntervalReport>,
    /// The streams, one by one.
    pub streams: Vec<FlowReport>,
    /// System calls, if over kernel sockets.
    pub system_calls: Option<SystemCalls>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The error that ended it early.
    pub broken: Option<String>,
    /// Whether it ended before it was done.
    pub partial: bool,
    /// Version of the program that measured.
    pub version: String,
}

/// Datagrams of all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramCounts {
    /// Left this host's port or socket.
    pub sent: u64,
    /// Arrived, as counted by the service.
    pub received: u64,
    /// Left and did not arrive.
    pub lost: u64,
    /// Did not leave: the port or the kernel had no room.
    pub lost_here: u64,
    /// Were due and not sent: the client was too slow.
    pub left_out: u64,
    /// Arrived after a later one of their stream.
    pub out_of_order: u64,
}

/// The TCP connections of all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// Segments retransmitted by this end; null for streams from a service, whose other end retransmits.
    pub retransmits: Option<u64>,
    /// Smoothed round-trip time at the end, us: the mean of the connections.
    pub rtt_us: f64,
    /// The shortest round-trip time.
    pub rtt_min_us: f64,
    /// Whether the service closed every stream to it after it had read everything.
    pub is_closed: bool,
}

/// A part of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IntervalReport {
    /// Since the beginning.
    pub from_s: f64,
    /// Since the beginning.
    pub to_s: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Bits that arrived, per second.
    pub bits_per_s: f64,
    /// Datagrams that left.
    pub sent: Option<u64>,
    /// Datagrams that arrived.
    pub received: Option<u64>,
    /// Datagrams that had no room here.
    pub lost_here: Option<u64>,
    /// Segments retransmitted.
    pub retransmits: Option<u64>,
}

/// One stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// How long it was sent or received.
    pub duration_s: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Bits that arrived, per second.
    pub bits_per_s: f64,
    /// Over UDP.
    pub datagrams: Option<DatagramCounts>,
    /// Over TCP.
    pub connection: Option<ConnectionCounts>,
}
