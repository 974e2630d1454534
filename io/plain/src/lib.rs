//! The plain kernel peers: servers and clients over ordinary sockets, as well tuned as ordinary sockets allow.
//!
//! Every lab compares twinpath with these, so they are written first, reviewed, and then left alone. They use
//! nothing that a program without privileges could not, and nothing of twinpath's own data path.
//! `docs/measuring.md` says how each was tuned and what was tried and rejected.

mod burst;
mod busy_poll;
mod client;
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
pub use client::{ClientConfig, ClientOutcome, Transfers};
pub use error::PlainError;
pub use paced_wake::{Pace, paced_wake};
pub use packet_reflect::PacketReflect;
pub use pingpong::eventfd_pingpong;
pub use stop::{Progress, Stop};
pub use tcp_bulk::{BulkCounts, TcpSink, tcp_bulk};
pub use tcp_client::{TcpClient, tcp_client};
pub use tcp_echo::TcpEcho;
pub use tcp_holder::{Held, Holding, tcp_hold};
pub use tcp_null::TcpNull;
pub use udp_client::{UdpClient, udp_client};
pub use udp_echo::{Echo, EchoCounts, EchoMethod, Null, Peers, Reply, UdpEcho, UdpNull, UdpServer};

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

#[cfg(test)]
mod tests;
