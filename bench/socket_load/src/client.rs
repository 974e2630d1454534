//! The common parts of the UDP and the TCP client: their configuration and their accounting.

use std::net::SocketAddr;
use std::num::NonZeroU64;

use twinpath_load::{Load, LoadConfig, Summary};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use crate::socket::Source;
use crate::{SocketError, Stop, Wait};

/// The configuration of one client thread.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// The server.
    pub target: SocketAddr,
    /// How to wait for replies.
    pub wait: Wait,
    /// The load to offer.
    pub load: LoadConfig,
    /// Whether requests that are due at the same time share a send call, and replies that have arrived
    /// share a receive call.
    pub batch: bool,
    /// With `batch` over UDP, whether such requests leave as one message, which the kernel or the device segments
    /// (`UDP_SEGMENT`), and replies are received as the kernel has coalesced them (`UDP_GRO`).
    pub segments: bool,
    /// Over TCP, whether the kernel may hold back a request while earlier ones are unacknowledged, so that
    /// several leave in one segment (Nagle's algorithm, RFC 9293, 3.7.4). If not, `TCP_NODELAY` is set.
    pub nagle: bool,
    /// The port it sends from.
    pub source: Source,
    /// The CPU to run on; anywhere if `None`.
    pub cpu: Option<usize>,
}

/// The result of one client thread.
#[derive(Debug)]
pub struct ClientOutcome {
    /// Counts and round-trip times.
    pub summary: Summary,
    /// CPU time this thread used from the end of the warm-up to the end of the load.
    pub cpu_time: Duration,
    /// System calls and bytes over the same time.
    pub transfers: Transfers,
    /// A description of the first reply that was refused or wrong.
    pub complaint: Option<String>,
    /// The error that ended it early, after some replies had arrived.
    pub broken: Option<SocketError>,
}

/// System calls on the socket, and what they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Send calls that moved bytes.
    pub sends: u64,
    /// Send calls for which the kernel had no room.
    pub sends_refused: u64,
    /// Receive calls that returned bytes.
    pub receives: u64,
    /// Receive calls that found nothing.
    pub receives_empty: u64,
    /// Bytes of requests.
    pub bytes_sent: u64,
    /// Bytes of replies.
    pub bytes_received: u64,
}

impl Transfers {
    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.sends += other.sends;
        self.sends_refused += other.sends_refused;
        self.receives += other.receives;
        self.receives_empty += other.receives_empty;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }

    fn since(&self, from: &Self) -> Self {
        Self {
            sends: self.sends - from.sends,
            sends_refused: self.sends_refused - from.sends_refused,
            receives: self.receives - from.receives,
            receives_empty: self.receives_empty - from.receives_empty,
            bytes_sent: self.bytes_sent - from.bytes_sent,
            bytes_received: self.bytes_received - from.bytes_received,
        }
    }

    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sends += 1;
        self.bytes_sent += bytes as u64;
    }

    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        self.receives += 1;
        self.bytes_received += bytes as u64;
    }
}

/// The readings at the end of the warm-up, where the accounting of CPU time and transfers starts.
#[derive(Debug, Default)]
pub(crate) struct Account {
    from: Option<(Duration, Transfers)>,
}

impl Account {
    /// Must be called every turn: takes the readings once, when the warm-up is over.
    #[inline]
    pub(crate) fn begin(&mut self, load: &Load, now: Instant, transfers: &Transfers) {
        if self.from.is_none() && load.is_measuring(now) {
            self.from = Some((clock::thread_cpu_time(), *transfers));
        }
    }

    /// The result. If the client failed after the first reply, the results until then are kept. A socket
    /// that `stop` has shut down has not failed.
    pub(crate) fn outcome(
        &self,
        load: &Load,
        transfers: Transfers,
        ended: Result<(), SocketError>,
        stop: &Stop,
    ) -> Result<ClientOutcome, SocketError> {
        let summary = load.summary();
        let broken = SocketError::after_replies(ended, summary.received, stop)?;
        let (cpu_from, transfers_from) = self.from.unwrap_or((clock::thread_cpu_time(), transfers));
        let cpu_time = clock::thread_cpu_time().saturating_sub(cpu_from);
        Ok(ClientOutcome {
            summary,
            cpu_time,
            transfers: transfers.since(&transfers_from),
            complaint: load.complaint(),
            broken,
        })
    }
}

/// Reduces the timer slack from the default of 50 us to a nanosecond, because an open loop sleeps until the
/// next request is due.
pub(crate) fn set_timer_slack() -> Result<(), SocketError> {
    rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN))
        .map_err(|source| SocketError::Option { option: "PR_SET_TIMERSLACK", source: source.into() })
}
