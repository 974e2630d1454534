//! `[limits]`: bounds of what peers may take.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use twinpath_serve::TcpLimits;
use twinpath_time::Duration;

/// Peers mirrored: the workers' tables hold no more (`twinpath_stack::egress::PEERS_MAX`).
const PEERS_MAX: u32 = 4096;
/// Two echo services on each other make some 100,000 rounds a second: half of that ends them, and is a tenth of a core.
const REPLY_RATE: u32 = 50_000;
/// A reply per 100 ns: more than any worker can make.
const REPLY_RATE_MAX: u32 = 10_000_000;
/// TCP connections: as many descriptors as Linux gives a process at most (`fs.nr_open`).
const CONNECTIONS_MAX: u32 = 1_048_576;
/// Bytes of one connection: below it a turn's worth of input would not fit; nobody sends larger requests.
const CONNECTION_BYTES: std::ops::RangeInclusive<u32> = 65_536..=67_108_864;
/// A day.
const SECONDS_MAX: u32 = 86_400;
/// Ten minutes.
const DRAIN_MS_MAX: u32 = 600_000;
/// From what a busy machine needs to what nobody waits for.
const TAKE_OVER_MS: RangeInclusive<u32> = 100..=600_000;

/// `[limits]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// TCP connections at once; for the next one the idlest is closed.
    pub connections: u32,
    /// Those of one source: an IPv4 address, or 64 bits of an IPv6 address.
    pub connections_per_source: u32,
    /// Bytes that one connection may hold of an incomplete request, and as many of replies not taken.
    pub connection_bytes: u32,
    /// Bytes that all connections may hold together.
    pub queued_bytes: u64,
    /// How long a connection may be idle, s; 0: for ever.
    pub idle_timeout_s: u32,
    /// How long a request may take to arrive, s; 0: for ever.
    pub request_timeout_s: u32,
    /// How long a peer may take nothing of its replies, s; 0: for ever.
    pub send_timeout_s: u32,
    /// How long connections may take to end when the instance stops, ms.
    pub drain_ms: u32,
    /// How long an instance that takes over from this one may be silent before it serves, ms.
    pub take_over_ms: u32,
    /// Peers answered on the fast path at once; more are answered through the kernel.
    pub peers: u32,
    /// Replies per second to one source by UDP that are as large as their requests, per worker; 0: no limit.
    pub reply_rate: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let tcp = TcpLimits::default();
        Self {
            connections: tcp.connections,
            connections_per_source: tcp.connections_per_source,
            connection_bytes: tcp.connection_bytes,
            queued_bytes: tcp.queued_bytes,
            idle_timeout_s: tcp.idle.as_secs() as u32,
            request_timeout_s: tcp.request.as_secs() as u32,
            send_timeout_s: tcp.send.as_secs() as u32,
            drain_ms: 5_000,
            take_over_ms: 30_000,
            peers: PEERS_MAX,
            reply_rate: REPLY_RATE,
        }
    }
}

/// Limits that are otherwise than `[limits]` says: on the command line, which wins over the file, or for one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitOverrides {
    /// `--connections`
    pub connections: Option<u32>,
    /// `--connections-per-source`
    pub connections_per_source: Option<u32>,
    /// `--connection-bytes`
    pub connection_bytes: Option<u32>,
    /// `--queued-bytes`
    pub queued_bytes: Option<u64>,
    /// `--idle-timeout-s`
    pub idle_timeout_s: Option<u32>,
    /// `--request-timeout-s`
    pub request_timeout_s: Option<u32>,
    /// `--send-timeout-s`
    pub send_timeout_s: Option<u32>,
    /// `--drain-ms`
    pub drain_ms: Option<u32>,
    /// `--take-over-ms`
    pub take_over_ms: Option<u32>,
    /// `--reply-rate`
    pub reply_rate: Option<u32>,
}

impl LimitOverrides {
    /// Forgets what `named` names: that wins, for all.
    pub(super) fn without(&mut self, named: &Self) {
        let of = |named: Option<u32>, own: &mut Option<u32>| *own = own.filter(|_| named.is_none());
        of(named.connections, &mut self.connections);
        of(named.connections_per_source, &mut self.connections_per_source);
        of(named.connection_bytes, &mut self.connection_bytes);
        of(named.idle_timeout_s, &mut self.idle_timeout_s);
        of(named.request_timeout_s, &mut self.request_timeout_s);
        of(named.send_timeout_s, &mut self.send_timeout_s);
        of(named.reply_rate, &mut self.reply_rate);
        self.queued_bytes = self.queued_bytes.filter(|_| named.queued_bytes.is_none());
    }
}

/// A key and what is wrong with it.
type Wrong = (&'static str, String);

impl Limits {
    /// Lets the command line win.
    pub(super) fn apply(&mut self, overrides: &LimitOverrides) {
        let of = |named: Option<u32>, former: &mut u32| *former = named.unwrap_or(*former);
        of(overrides.connections, &mut self.connections);
        of(overrides.connections_per_source, &mut self.connections_per_source);
        of(overrides.connection_bytes, &mut self.connection_bytes);
        of(overrides.idle_timeout_s, &mut self.idle_timeout_s);
        of(overrides.request_timeout_s, &mut self.request_timeout_s);
        of(overrides.send_timeout_s, &mut self.send_timeout_s);
        of(overrides.drain_ms, &mut self.drain_ms);
        of(overrides.take_over_ms, &mut self.take_over_ms);
        of(overrides.reply_rate, &mut self.reply_rate);
        self.queued_bytes = overrides.queued_bytes.unwrap_or(self.queued_bytes);
    }

    /// Everything that cannot work with so many workers.
    pub(super) fn faults(&self, workers: u32) -> Vec<Wrong> {
        let each = &CONNECTION_BYTES;
        let least = self.queued_bytes_min(workers);
        let outside = [
            (
                !(1..=CONNECTIONS_MAX).contains(&self.connections),
                "limits.connections",
                format!("{}: give 1 to {CONNECTIONS_MAX}", self.connections),
            ),
            (
                !(1..=CONNECTIONS_MAX).contains(&self.connections_per_source),
                "limits.connections_per_source",
                format!("{}: give 1 to {CONNECTIONS_MAX}", self.connections_per_source),
            ),
            (
                !each.contains(&self.connection_bytes),
                "limits.connection_bytes",
                format!("{}: give {} to {}", self.connection_bytes, each.start(), each.end()),
            ),
            (
                self.queued_bytes < least,
                "limits.queued_bytes",
                format!(
                    "{}: give {least} or more, four times limits.connection_bytes per worker",
                    self.queued_bytes
                ),
            ),
            (
                !TAKE_OVER_MS.contains(&self.take_over_ms),
                "limits.take_over_ms",
                format!("{}: give {} to {}", self.take_over_ms, TAKE_OVER_MS.start(), TAKE_OVER_MS.end()),
            ),
            (
                self.drain_ms > DRAIN_MS_MAX,
                "limits.drain_ms",
                format!("{}: give 0 to {DRAIN_MS_MAX}", self.drain_ms),
            ),
            (
                self.reply_rate > REPLY_RATE_MAX,
                "limits.reply_rate",
                format!("{}: give 1 to {REPLY_RATE_MAX}, or 0 for none", self.reply_rate),
            ),
            (
                !(1..=PEERS_MAX).contains(&self.peers),
                "limits.peers",
                format!("{}: give 1 to {PEERS_MAX}", self.peers),
            ),
        ];
        let times = [
            ("limits.idle_timeout_s", self.idle_timeout_s),
            ("limits.request_timeout_s", self.request_timeout_s),
            ("limits.send_timeout_s", self.send_timeout_s),
        ];
        let long = times.into_iter().filter(|(_, seconds)| *seconds > SECONDS_MAX);
        let long =
            long.map(|(key, seconds)| (key, format!("{seconds}: give 1 to {SECONDS_MAX}, or 0 for none")));
        let outside = outside.into_iter().filter(|(wrong, ..)| *wrong);
        outside.map(|(_, key, sentence)| (key, sentence)).chain(long).collect()
    }

    /// Twice what a connection of each worker may add before it is looked at: below that, connections would be closed that
    /// have done nothing.
    fn queued_bytes_min(&self, workers: u32) -> u64 {
        4 * u64::from(self.connection_bytes) * u64::from(workers)
    }

    /// Those of TCP connections.
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
