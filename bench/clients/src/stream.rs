//! Streams in one direction, as fast as possible or at a given rate: to a service that discards them, or
//! from one that generates them.

mod fast;
mod kernel;

use std::net::SocketAddr;

use twinpath_config::PathAsked;
use twinpath_load::{DatagramsConfig, DatagramsSummary};
use twinpath_socket_load::{Progress, Stop, TcpStreamOutcome, Transfers};
use twinpath_time::Duration;
use twinpath_worker::idle::Mode;

use crate::error::RunError;
use crate::plan::Transport;

/// Default number of bytes of a system call on a byte stream; iperf3's is the same.
const CALL_BYTES: usize = 128 << 10;
/// Bytes of a datagram if the kernel does not report the path's MTU: Ethernet's, over IPv6.
const DATAGRAM_BYTES: usize = 1452;

/// One measurement of streams.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// The service.
    pub target: SocketAddr,
    /// Datagrams, or streams of bytes.
    pub transport: Transport,
    /// Whether the service sends.
    pub from_service: bool,
    /// The interface of the fast path.
    pub interface: Option<String>,
    /// [`PathAsked::Kernel`]: over kernel sockets.
    pub path: PathAsked,
    /// How a client with a rate waits.
    pub mode: Mode,
    /// Streams, each on its own connection or flow.
    pub threads: u32,
    /// CPUs for the threads, in order; empty: not pinned.
    pub cpus: Vec<usize>,
    /// Bytes of a datagram, or of a system call; `None`: as much as leaves in one piece, or [`CALL_BYTES`].
    pub size: Option<usize>,
    /// Payload bits due per second, all streams together; `None`: unlimited.
    pub rate_bits_per_s: Option<f64>,
    /// How long to send.
    pub duration: Duration,
    /// How long the service may take to answer.
    pub timeout: Duration,
    /// Distinguishes the datagrams of this measurement from those of others.
    pub session: u64,
}

impl StreamPlan {
    /// The CPU of thread `index`.
    fn thread_cpu(&self, index: u32) -> Option<usize> {
        self.cpus.iter().cycle().nth(index as usize).copied()
    }

    /// The datagrams of thread `index`, of `size` bytes.
    fn datagrams(&self, index: u32, size: usize) -> DatagramsConfig {
        let per_bit = 1.0 / (8.0 * size as f64 * f64::from(self.threads));
        DatagramsConfig {
            session: self.session.wrapping_add(index.into()),
            size,
            rate_per_s: self.rate_bits_per_s.map(|bits| bits * per_bit),
            duration: self.duration,
            timeout: self.timeout,
        }
    }
}

/// The results of a measurement of streams.
pub struct StreamMeasured {
    /// One per thread.
    pub flows: Vec<FlowMeasured>,
    /// The path that was used; never `auto`.
    pub path: String,
    /// Bytes of a datagram, or of a system call.
    pub size: usize,
    /// Heap allocations while it sent, where they are counted.
    pub allocations_per_packet: Option<f64>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The results of one stream.
pub struct FlowMeasured {
    /// What was sent, and what arrived.
    pub moved: Moved,
    /// CPU time of the thread.
    pub cpu_time: Duration,
    /// System calls, if over kernel sockets.
    pub transfers: Option<Transfers>,
    /// The error that ended it early.
    pub broken: Option<String>,
}

/// The traffic of a stream.
pub enum Moved {
    /// Datagrams.
    Datagrams(DatagramsSummary),
    /// Bytes.
    Bytes(Box<TcpStreamOutcome>),
}

/// Runs the plan once to its end, or until `stop` is requested. `progress` has one entry per thread.
///
/// # Errors
/// [`RunError`]
pub fn run_stream(plan: &StreamPlan, stop: &Stop, progress: &[Progress]) -> Result<StreamMeasured, RunError> {
    match (plan.transport, plan.path) {
        (Transport::Tcp, _) => kernel::run_bytes(plan, stop, progress),
        (Transport::Udp, PathAsked::Kernel) => kernel::run_datagrams(plan, stop, progress),
        (Transport::Udp, _) => fast::run(plan, stop, progress),
    }
}
