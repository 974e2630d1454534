//! The part of the report about Reliable Datagram Sockets.

use serde::{Deserialize, Serialize};
use twinpath_inspect::counts;

/// The daemon of Reliable Datagram Sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rds {
    /// Its life: another number when its state was lost.
    pub generation: u32,
    /// The addresses that it serves.
    pub addresses: Vec<String>,
    /// One entry per path to a peer.
    pub paths: Vec<RdsPath>,
    /// The sockets of programs.
    pub sockets: Vec<RdsSocket>,
}

counts! {
    /// A path to a peer.
    #[derive(PartialEq, Eq)]
    pub struct RdsPath {
        /// This host's address.
        pub local: String,
        /// The peer's.
        pub peer: String,
        /// Its number, from 0 on.
        pub path: u16,
        /// `up`, `down`, `connecting`, `calling` (the peer is to connect) or `ending`.
        pub link: String,
        /// The peer's life, if it says one.
        pub generation: Option<u32>,
        /// The peer's congested ports, the first ones, on path 0.
        pub congested: Vec<u16>,
    } and {
        /// The place of the next message to a peer.
        next_out: u64 => gauge("twinpath_rds_next_out"), column("next out");
        /// The place that the next message of a peer has.
        next_in: u64 => gauge("twinpath_rds_next_in"), column("next in");
        /// Messages to a peer that TCP has not acknowledged.
        queued: u64 => gauge("twinpath_rds_queued_messages"), column("queued");
        /// Bytes of these.
        queued_bytes: u64 => gauge("twinpath_rds_queued_bytes"), column("bytes");
        /// Connections to a peer that have ended after messages flowed.
        reconnects: u64 => counter("twinpath_rds_reconnects"), column("reconnects");
    }
}

counts! {
    /// A socket of a program.
    #[derive(PartialEq, Eq)]
    pub struct RdsSocket {
        /// The address and port that it is bound to, or `-`.
        pub local: String,
        /// The process that has opened it; 0 if it cannot be seen.
        pub pid: u32,
        /// Its user.
        pub user: u32,
        /// Its port is congested.
        pub congested: bool,
    } and {
        /// Messages that a socket has sent.
        sent: u64 => counter("twinpath_rds_socket_sent"), column("sent");
        /// Messages that a socket was given.
        received: u64 => counter("twinpath_rds_socket_received"), column("received");
        /// Bytes of a socket that no peer has acknowledged.
        unacknowledged: u64 => gauge("twinpath_rds_socket_unacknowledged_bytes"), column("unacknowledged");
        /// Bytes that wait for room in a socket.
        waiting: u64 => gauge("twinpath_rds_socket_waiting_bytes"), column("waiting");
    }
}
