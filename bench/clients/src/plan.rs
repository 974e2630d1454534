//! The parameters of one run.

use std::fmt;
use std::net::SocketAddr;

use twinpath_config::PathAsked;
use twinpath_load::{Framing, Limit, LoadConfig, NfsProcedure};
use twinpath_rpc::client::Auth;
use twinpath_socket_load::socket::Source;
use twinpath_worker::idle::Mode;

/// The transport of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// Streams.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        })
    }
}

/// The kind of requests.
#[derive(Clone, Debug)]
pub enum Requests {
    /// Every byte comes back.
    Echo {
        /// Bytes of a request.
        size: usize,
    },
    /// Calls of ONC RPC.
    Rpc {
        /// The procedures of the threads, in turn; at least one.
        asked: Vec<NfsProcedure>,
        /// The credential.
        auth: Auth,
        /// The framing of calls.
        framing: Framing,
    },
}

/// One run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The target.
    pub target: SocketAddr,
    /// The requests.
    pub requests: Requests,
    /// The seed of random parts of requests; each thread derives its own from it.
    pub seed: u64,
    /// The transport.
    pub transport: Transport,
    /// The interface of the fast path.
    pub interface: Option<String>,
    /// [`PathAsked::Kernel`]: over kernel sockets.
    pub path: PathAsked,
    /// How a client waits.
    pub mode: Mode,
    /// Clients, each on its own connection or flow.
    pub threads: u32,
    /// Several messages per system call.
    pub batch: bool,
    /// With `batch` over UDP: as one message, and replies as the kernel has coalesced them.
    pub segments: bool,
    /// Nagle's algorithm, on streams.
    pub nagle: bool,
    /// The port that clients on kernel sockets send from.
    pub source: Source,
    /// CPUs for the threads, in order; empty: not pinned.
    pub cpus: Vec<usize>,
    /// The load of all threads together.
    pub load: LoadConfig,
}

impl RunPlan {
    /// The load of thread `index`, from 0.
    #[must_use]
    pub fn thread_load(&self, index: u32) -> LoadConfig {
        let threads = u64::from(self.threads);
        let limit = match self.load.limit {
            // The first threads take the remainder; no thread has zero.
            Limit::Count(count) => {
                Limit::Count(count / threads + u64::from(u64::from(index) < count % threads))
            }
            duration @ Limit::Duration(_) => duration,
        };
        LoadConfig {
            limit,
            rate_per_s: self.load.rate_per_s.map(|rate| rate / f64::from(self.threads)),
            arrivals_seed: self.load.arrivals_seed.wrapping_add(u64::from(index)),
            ..self.load
        }
    }

    /// The CPU of thread `index`.
    #[must_use]
    pub fn thread_cpu(&self, index: u32) -> Option<usize> {
        self.cpus.iter().cycle().nth(index as usize).copied()
    }
}
