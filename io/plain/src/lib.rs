//! The plain kernel peers: servers and clients over ordinary sockets, as well tuned as ordinary sockets allow.
//!
//! Every lab compares twinpath with these, so they are written first, reviewed, and then left alone. They use
//! nothing that a program without privileges could not, and nothing of twinpath's own data path.
//! `docs/measuring.md` says how each was tuned and what was tried and rejected.

mod burst;
mod busy_poll;
mod error;
pub mod fragments;
pub mod kill_watch;
mod paced_wake;
mod packet_reflect;
mod pingpong;
mod rpc_null;
mod segments;
mod socket;
mod stop;
mod tcp_bulk;
mod tcp_client;
mod tcp_echo;
mod tcp_holder;
mod tcp_null;
mod udp_client;
mod udp_echo;

pub use busy_poll::BusyPollEcho;
pub use error::PlainError;
pub use paced_wake::{Pace, paced_wake};
pub use packet_reflect::PacketReflect;
pub use pingpong::eventfd_pingpong;
pub use stop::{Progress, Stop};
pub use tcp_bulk::{BulkCounts, TcpSink, tcp_bulk};
pub use tcp_client::tcp_client;
pub use tcp_echo::TcpEcho;
pub use tcp_holder::{Held, Holding, tcp_hold};
pub use tcp_null::TcpNull;
pub use udp_client::udp_client;
pub use udp_echo::{Echo, EchoCounts, EchoMethod, Null, Peers, Reply, UdpEcho, UdpNull, UdpServer};

use twinpath_load::{LoadConfig, Summary};
use twinpath_time::{Duration, Instant};

/// How a thread waits for its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In the system call, until the kernel wakes it.
    Sleep,
    /// Never: it asks again and again.
    Spin,
    /// Asks again and again for so long after the last packet, then sleeps.
    SpinThenSleep(Duration),
}

impl Wait {
    /// Whether to ask without sleeping, the last packet having come at `last`.
    #[inline]
    fn spins(self, last: Instant, now: Instant) -> bool {
        match self {
            Self::Sleep => false,
            Self::Spin => true,
            Self::SpinThenSleep(budget) => now.since(last) < budget,
        }
    }
}

/// A client that has had no answer at all for so many loss timeouts gives up: nobody is there.
const SILENT_TIMEOUTS: u32 = 3;

/// What one client thread does.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// The server.
    pub target: std::net::SocketAddr,
    /// How to wait for replies.
    pub wait: Wait,
    /// What to offer.
    pub load: LoadConfig,
    /// The CPU to run on; anywhere if `None`.
    pub cpu: Option<usize>,
}

/// What one client thread measured.
#[derive(Clone, Debug)]
pub struct ClientOutcome {
    /// Counts and round-trip times.
    pub summary: Summary,
    /// CPU time this thread used from the end of the warm-up to the end of the load.
    pub cpu_time: Duration,
}

#[cfg(test)]
mod tests;
