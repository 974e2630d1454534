//! What an engine is told, and what it asks of its host.

use std::net::IpAddr;

use twinpath_rds_wire::CongestionMap;
use twinpath_time::Duration;

/// An address of this host and one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// This host's.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
}

impl Pair {
    /// Whether this host is the one that connects: it has the smaller address (`rds_addr_cmp`, net/rds/tcp_connect.c).
    #[must_use]
    pub fn connects(&self) -> bool {
        self.local < self.remote
    }
}

/// A TCP connection, until its host has reported that it is closed, or the engine has reset it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A message of a program until it is released; chosen by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A message to be sent. Its payload stays with the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// From where to where.
    pub pair: Pair,
    /// The sender's port.
    pub source: u16,
    /// The receiver's port; 0: a ping.
    pub destination: u16,
    /// Its name.
    pub token: Token,
    /// Bytes of payload, at most [`PAYLOAD_MAX`](twinpath_rds_wire::PAYLOAD_MAX).
    pub len: u32,
}

/// The place of a message among all that this host has sent to a peer. The host keeps it beside the message, so that
/// its next life sends it again at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The path, from 0 on.
    pub path: u16,
    /// The place on that path.
    pub sequence: u64,
}

/// How far a path has come. The host keeps it, so that its next life goes on from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The place of the next message to be sent.
    pub next_out: u64,
    /// The place that the next message of the peer has.
    pub next_in: u64,
    /// The peer's life; `None`: it has said none.
    pub peer_generation: Option<u32>,
    /// How many paths there are between both; 0: not known yet.
    pub paths: u16,
    /// The low bits of the peer's ports are the path.
    pub port_path: bool,
}

/// A message for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// To where, from where.
    pub pair: Pair,
    /// The receiver's port.
    pub port: u16,
    /// The sender's port; 0: the answer to a ping.
    pub source: u16,
    /// The payload.
    pub payload: &'a [u8],
}

/// What became of a message for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The program has it, or will have it.
    Yes,
    /// No program has the port.
    NoSocket,
    /// There is no room.
    Full,
}

/// The next bytes for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// These.
    Bytes(&'a [u8]),
    /// The payload of a program's message, from this byte on.
    Payload {
        /// The message.
        token: Token,
        /// The first byte.
        from: usize,
    },
}

/// What an engine asks of its host, within the engine's own calls. The host does not call the engine then.
pub trait Host {
    /// Connects to port 16385 of the peer, from a port whose low three bits are the path. Reports
    /// [`Rds::connected`](crate::Rds::connected) or [`Rds::closed`](crate::Rds::closed).
    fn connect(&mut self, conn: ConnId, pair: Pair, path: u16);

    /// Reads from the connection from now on, beginning with bytes that were not used before, and reports
    /// [`Rds::received`](crate::Rds::received) and, after the last byte, [`Rds::closed`](crate::Rds::closed).
    fn read(&mut self, conn: ConnId);

    /// Reads no more from the connection, until [`Self::read`].
    fn pause(&mut self, conn: ConnId);

    /// Has something to write: [`Rds::pieces`](crate::Rds::pieces).
    fn write(&mut self, conn: ConnId);

    /// Writes no more, ends this host's direction, and reads what the peer has sent until it ends its own.
    fn finish(&mut self, conn: ConnId);

    /// Resets the connection, which is not reported any more.
    fn reset(&mut self, conn: ConnId);

    /// The place of a message; to be noted before any of it is written.
    fn placed(&mut self, token: Token, stamp: Stamp);

    /// The position of a path has changed; to be noted before what follows, which is a message's
    /// [`Self::deliver`] or [`Self::placed`].
    fn moved(&mut self, pair: Pair, path: u16, position: Position);

    /// The position of a path that was noted before, of a peer that the engine has forgotten since.
    fn position(&self, _pair: Pair, _path: u16) -> Option<Position> {
        None
    }

    /// Hands a message to a program.
    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered;

    /// TCP has delivered the message to the peer: its memory is free.
    fn released(&mut self, token: Token);

    /// Other ports of the peer are congested than before.
    fn congestion(&mut self, pair: Pair, ports: &CongestionMap);
}

/// Why a message is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver's port is congested (ENOBUFS).
    #[error("the receiver's port is congested")]
    Congested,
    /// As much waits for this peer as may (EAGAIN).
    #[error("as many messages wait for this peer as may")]
    Full,
    /// The payload is too long (EMSGSIZE).
    #[error("the message is too long")]
    TooLong,
    /// There are as many peers as may be (EHOSTUNREACH).
    #[error("there are as many peers as may be")]
    TooManyPeers,
}

/// The settings of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The life of this host, not 0: another one after its state was lost.
    pub generation: u32,
    /// Paths to each peer: 1, 2, 4 or 8. More than one needs peers that name a connection's path by its port (Linux since
    /// 2026, and this engine).
    pub paths: u16,
    /// Maximum number of peers.
    pub peers_max: usize,
    /// Bytes of messages to a peer that are not acknowledged.
    pub peer_bytes_max: usize,
    /// Number of these messages.
    pub peer_messages_max: usize,
    /// Answers to pings that wait, of each path.
    pub answers_max: usize,
    /// Limits of the time to the next connection after one has failed (net/rds/sysctl.c: 1 ms and 1 s).
    pub retry: (Duration, Duration),
    /// For how long it is tried to connect again while nothing is to be sent.
    pub retry_for: Duration,
    /// How long a peer has to end a connection whose path has a newer one.
    pub end_within: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            generation: 1,
            paths: 1,
            peers_max: 256,
            peer_bytes_max: 8 << 20,
            peer_messages_max: 8192,
            answers_max: 64,
            retry: (Duration::from_millis(1), Duration::from_secs(1)),
            retry_for: Duration::from_secs(60),
            end_within: Duration::from_secs(5),
        }
    }
}
