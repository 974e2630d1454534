//! Load over the kernel's own sockets: the measuring clients of `bench`, and the servers of
//! `--measure-fallback` (a UDP echo server and a TCP sink).
//!
//! The labs also compare twinpath with these clients and servers. So they are tuned as well as ordinary
//! sockets allow, and use no part of twinpath's own data path. `docs/measuring.md` says how each was tuned,
//! and what was tried and rejected.

mod burst;
mod client;
mod counts;
mod error;
mod segments;
pub mod socket;
mod stop;
mod tcp_bulk;
mod tcp_client;
mod tcp_stream;
mod udp_client;
mod udp_echo;
mod udp_stream;

pub use client::{ClientConfig, ClientOutcome, Transfers};
pub use counts::EchoCounts;
pub use error::SocketError;
pub use stop::{Progress, Stop};
pub use tcp_bulk::{BulkCounts, TcpSink, tcp_bulk};
pub use tcp_client::{TcpClient, tcp_client};
pub use tcp_stream::{TcpSample, TcpStreamConfig, TcpStreamOutcome, TcpStreaming};
pub use udp_client::{UdpClient, udp_client};
pub use udp_echo::{DATAGRAM_BYTES, Echo, EchoMethod, Peers, Reply, UdpEcho, UdpServer};
pub use udp_stream::{UdpStream, UdpStreamOutcome};

use twinpath_time::{Duration, Instant};

/// How a thread waits for its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It sleeps in the system call until the kernel wakes it.
    Sleep,
    /// It never sleeps: it polls the socket.
    Spin,
    /// It polls the socket for this long after the last packet, then sleeps.
    SpinThenSleep(Duration),
}

impl Wait {
    /// Whether to poll without sleeping, if the last packet arrived at `last`.
    #[inline]
    #[must_use]
    pub fn spins(self, last: Instant, now: Instant) -> bool {
        match self {
            Self::Sleep => false,
            Self::Spin => true,
            Self::SpinThenSleep(budget) => now.since(last) < budget,
        }
    }
}

#[cfg(test)]
mod tests;
