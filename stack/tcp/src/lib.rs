//! A TCP engine as a value: (state, now, segment | call) -> segments, events.
//!
//! It reads no clock, owns no descriptor, and allocates nothing per segment: memory of buffers and records comes from
//! pools. [`Tcp`] holds the connections of one worker. [`Tcp::segment`] takes what arrives, [`Tcp::advance`] does what
//! is due, [`Tcp::output`] sends what calls have left; segments go to a [`Sink`], and [`Tcp::next_event`] says which
//! connections have changed. A program reads and writes by [`Stream`].
//!
//! The rules are those of RFC 9293 with RFC 7323 (timestamps, windows), RFC 2018 and 2883 (SACK), RFC 8985 (RACK-TLP),
//! RFC 9937 (PRR), RFC 9438 and 9406 (CUBIC), RFC 5682 (F-RTO), RFC 5961 (challenges), RFC 6528 (sequence numbers),
//! RFC 6191 (TIME_WAIT) and RFC 3168 (ECN). Where they leave a choice, it is Linux's.
//!
//! Checksums, addresses and next hops are not here, and neither is the path: frames are the business of the engine that
//! hosts this one.

mod buffer;
mod clock;
mod config;
pub mod congestion;
mod connection;
mod counters;
mod flight;
mod handshake;
mod info;
mod marks;
mod prr;
mod reassembly;
mod record;
mod rtt;
mod segment;
mod seq;
mod state;
mod stream;
mod table;
mod tcp;

pub use config::{Acks, Config, CongestionKind, Ecn, Options};
pub use connection::{Snapshot, Windows};
pub use counters::Counters;
pub use info::{Info, TcpState};
pub use marks::End;
pub use segment::{Outgoing, Segment, Sink, Tuple};
pub use seq::Seq;
pub use state::{Ended, Events, Network, State};
pub use stream::Stream;
pub use tcp::{ConnectError, ConnectionId, Host, IcmpError, Later, ListenerId, Tcp, Unknown, Verdict};
