//! `[limits]`: limits on what peers may use.

use twinpath_reflex::{ENTRIES_DEFAULT, ENTRIES_MAX, SLOTS};
use twinpath_stream::TcpLimits;
use twinpath_time::Duration;

use super::key::{Change, section};
use super::{SERVE, Wrong};

/// The workers' tables hold no more peers (`twinpath_udp::egress::PEERS_MAX`).
const PEERS_MAX: u32 = 4096;
/// Two echo services that answer each other make about 100,000 rounds a second. Half of that ends the loop,
/// and costs a tenth of a core.
const REPLY_RATE: u32 = 50_000;
/// A reply takes half a microsecond of the kernel's time: an eighth of a core.
const REFLEX_RATE: u32 = 250_000;
/// A reply per 100 ns: more than any worker can make.
const REPLY_RATE_MAX: u64 = 10_000_000;
/// The maximum number of descriptors of a process in Linux (`fs.nr_open`).
const CONNECTIONS_MAX: u64 = 1_048_576;
/// Below this, a turn's worth of input would not fit.
const CONNECTION_BYTES_MIN: u64 = 65_536;
/// Nobody sends larger requests.
const CONNECTION_BYTES_MAX: u64 = 67_108_864;
/// A day.
const SECONDS_MAX: u64 = 86_400;
/// Ten minutes.
const DRAIN_MS_MAX: u64 = 600_000;
/// The minimum that a busy machine needs.
const TAKE_OVER_MS_MIN: u64 = 100;
/// Nobody waits for longer.
const TAKE_OVER_MS_MAX: u64 = 600_000;

section! {
    /// `[limits]`
    pub struct Limits, LimitOverrides in "limits" {
        /// Maximum number of TCP connections; a further one closes the one that is idle longest
        connections: u32 = TcpLimits::default().connections =>
            range(1, CONNECTIONS_MAX), unit("connections"), option("connections", "N", SERVE), change(Change::Reload);

        /// Maximum number of connections of one source, an IPv4 address or 64 bits of an IPv6 address; others are refused
        connections_per_source: u32 = TcpLimits::default().connections_per_source =>
            range(1, CONNECTIONS_MAX), unit("connections"), option("connections-per-source", "N", SERVE),
            change(Change::Reload);

        /// Bytes that a connection may hold of an incomplete request, and the same number of replies that its peer has
        /// not read
        connection_bytes: u32 = TcpLimits::default().connection_bytes =>
            range(CONNECTION_BYTES_MIN, CONNECTION_BYTES_MAX), unit("bytes"),
            option("connection-bytes", "BYTES", SERVE), change(Change::Reload);

        /// Bytes that all connections may hold together; beyond that, the one that has waited longest is closed
        queued_bytes: u64 = TcpLimits::default().queued_bytes =>
            values_are("four times `connection_bytes` per worker, or more"), unit("bytes"),
            option("queued-bytes", "BYTES", SERVE), change(Change::Reload);

        /// A connection is closed after this time without a byte
        idle_timeout_s: u32 = TcpLimits::default().idle.as_secs() as u32 =>
            range(1, SECONDS_MAX), unit("s"), zero("none"), option("idle-timeout-s", "S", SERVE),
            change(Change::Reload);

        /// A connection is closed if a request takes longer to arrive
        request_timeout_s: u32 = TcpLimits::default().request.as_secs() as u32 =>
            range(1, SECONDS_MAX), unit("s"), zero("none"), option("request-timeout-s", "S", SERVE),
            change(Change::Reload);

        /// A connection is closed if its peer reads none of its replies for this time
        send_timeout_s: u32 = TcpLimits::default().send.as_secs() as u32 =>
            range(1, SECONDS_MAX), unit("s"), zero("none"), option("send-timeout-s", "S", SERVE),
            change(Change::Reload);

        /// How long connections may take to end when the instance stops
        drain_ms: u32 = 5_000 =>
            range(0, DRAIN_MS_MAX), unit("ms"), option("drain-ms", "MS", SERVE), change(Change::Reload),
            of_instance("the whole instance stops at once");

        /// How long an instance that takes over from this one may be silent before it serves; then this one continues
        take_over_ms: u32 = 30_000 =>
            range(TAKE_OVER_MS_MIN, TAKE_OVER_MS_MAX), unit("ms"), option("take-over-ms", "MS", SERVE),
            change(Change::Reload), of_instance("an instance is taken over as a whole");

        /// Maximum number of peers on the fast path; others are answered through the kernel's sockets
        peers: u32 = PEERS_MAX =>
            range(1, PEERS_MAX as u64), unit("peers"), of_instance("the kernel's tables are mirrored for all services");

        /// UDP replies per second to one source, of those as large as their requests, per worker; others are dropped
        reply_rate: u32 = REPLY_RATE =>
            range(1, REPLY_RATE_MAX), unit("replies/s"), zero("none"), option("reply-rate", "N", SERVE),
            change(Change::Reload);

        /// Answer requests from every source port, including ports of services that would answer the reply (7, 53, 123, ...)
        any_source_port: bool = false => option("any-source-port", "", SERVE), change(Change::Reload);

        /// Replies per second by the kernel's programs, to all sources together; workers give the others
        reflex_rate: u32 = REFLEX_RATE =>
            range(1, REPLY_RATE_MAX), unit("replies/s"), zero("no replies"), option("reflex-rate", "N", SERVE),
            of_instance("the kernel's time is spent for all services");

        /// Replies that all services together keep for the kernel's programs; active ones displace others
        kept_replies: u32 = ENTRIES_DEFAULT =>
            range(SLOTS as u64, ENTRIES_MAX as u64), unit("replies"), zero("none"), option("kept-replies", "N", SERVE),
            of_instance("the memory for them is made once for all services");
    }
}

impl Limits {
    /// The faults of these limits with this number of workers.
    pub(super) fn faults(&self, workers: u32) -> Vec<Wrong> {
        let mut faults = self.range_faults();
        let least = self.queued_bytes_min(workers);
        if self.queued_bytes < least {
            let given = self.queued_bytes;
            let sentence =
                format!("{given}: give {least} or more, four times limits.connection_bytes per worker");
            faults.push(("limits.queued_bytes", sentence));
        }
        faults
    }

    /// Twice the bytes that a connection of each worker may add before they are checked. With a lower
    /// limit, connections could be closed that have done nothing.
    pub(super) fn queued_bytes_min(&self, workers: u32) -> u64 {
        4 * u64::from(self.connection_bytes) * u64::from(workers)
    }

    /// The limits of TCP connections.
    #[must_use]
    pub fn tcp(&self) -> TcpLimits {
        let time = |seconds: u32| match seconds {
            0 => Duration::MAX,
            some => Duration::from_secs(u64::from(some)),
        };
        TcpLimits {
            connections: self.connections,
            connections_per_source: self.connections_per_source,
            connection_bytes: self.connection_bytes,
            queued_bytes: self.queued_bytes,
            idle: time(self.idle_timeout_s),
            request: time(self.request_timeout_s),
            send: time(self.send_timeout_s),
        }
    }
}
