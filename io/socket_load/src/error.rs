use std::io;
use std::net::SocketAddr;

use twinpath_load::LoadError;
use twinpath_sys::affinity::AffinityError;

/// Why a server or client over kernel sockets could not start or go on. One variant per step.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The address is not free or not ours.
    #[error("cannot bind {address}: {source}")]
    Bind {
        /// Where to.
        address: SocketAddr,
        /// From `bind(2)`.
        source: io::Error,
    },
    /// No connection, or no route.
    #[error("cannot connect to {target}: {source}")]
    Connect {
        /// Where to.
        target: SocketAddr,
        /// From `connect(2)`.
        source: io::Error,
    },
    /// The target's host answers that the port is closed.
    #[error("nothing listens on {0}: does the service run, at that port and over that protocol?")]
    Refused(SocketAddr),
    /// A router, or our own neighbour table, knows no way there.
    #[error("cannot reach {target}: {source}")]
    Unreachable {
        /// Where to.
        target: SocketAddr,
        /// From the ICMP error.
        source: io::Error,
    },
    /// The server ended the connection in mid-run.
    #[error("{0} closed the connection")]
    Closed(SocketAddr),
    /// The server ended the connection and had answered nothing.
    #[error(
        "{0} closed the connection and answered nothing: does another service listen there, or has it no room for one more?"
    )]
    ClosedUnanswered(SocketAddr),
    /// A stream in which replies can't be told apart.
    #[error(
        "what {0} sends is no reply, and where the next one begins can't be told: does another service listen there?"
    )]
    Unintelligible(SocketAddr),
    /// A socket option that the peers depend on was refused.
    #[error("cannot set {option}: {source}")]
    Option {
        /// Its name.
        option: &'static str,
        /// From `setsockopt(2)`.
        source: io::Error,
    },
    /// Receiving failed for good.
    #[error("cannot receive: {0}")]
    Receive(io::Error),
    /// Sending failed for good.
    #[error("cannot send to {target}: {source}")]
    Send {
        /// Where to.
        target: SocketAddr,
        /// From the send call.
        source: io::Error,
    },
    /// Waiting failed.
    #[error("cannot wait for the socket: {0}")]
    Poll(io::Error),
    /// Accepting failed for good.
    #[error("cannot accept connections: {0}")]
    Accept(io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The CPU is not ours.
    #[error(transparent)]
    Affinity(#[from] AffinityError),
    /// The load is not possible.
    #[error(transparent)]
    Load(#[from] LoadError),
}
