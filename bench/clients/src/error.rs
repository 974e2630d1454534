//! Errors of a run of clients.

use rustix::io::Errno;
use twinpath_attach::ClientError;
use twinpath_bpf::SteerError;
use twinpath_config::Path;
use twinpath_load::LoadError;
use twinpath_socket_load::SocketError;
use twinpath_sys::affinity::AffinityError;

/// The reason that a run did not start, or did not complete.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The fast path was requested without an interface.
    #[error("the fast path needs an interface: add --on IFACE")]
    NoInterface,
    /// A frame does not hold a request.
    #[error(
        "a request of {request_len} bytes does not leave {interface} in one frame (at most {most}): choose a smaller --size, or \
         leave out --on, as kernel sockets fragment"
    )]
    TooLong {
        /// Bytes of a request.
        request_len: usize,
        /// The interface.
        interface: String,
        /// Bytes that a frame holds.
        most: usize,
    },
    /// Each queue belongs to one worker.
    #[error(
        "{threads} threads can't share the queues of {interface} on the path {path}: choose --threads 1 or --path packet"
    )]
    SharedQueues {
        /// Threads asked for.
        threads: u32,
        /// The interface.
        interface: String,
        /// Its path.
        path: Path,
    },
    /// The fast path of a client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Kernel sockets.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The programs.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// A CPU to pin to.
    #[error(transparent)]
    Affinity(#[from] AffinityError),
    /// A descriptor.
    #[error(transparent)]
    System(#[from] Errno),
    /// The event loop that finds the egress.
    #[error(transparent)]
    Control(#[from] std::io::Error),
    /// It ended early without a request.
    #[error("the worker ended before its load")]
    EndedEarly,
}
