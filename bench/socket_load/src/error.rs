//! The errors of the servers and clients over kernel sockets.

use std::io;
use std::net::SocketAddr;

use twinpath_load::LoadError;
use twinpath_sys::affinity::AffinityError;

use crate::Stop;

/// Why a server or client over kernel sockets could not start or continue. One variant per step.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The address is in use or not a local one.
    #[error("cannot bind {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// From `bind(2)`.
        source: io::Error,
    },
    /// The connection failed, or there is no route.
    #[error("cannot connect to {target}: {source}")]
    Connect {
        /// The target's address.
        target: SocketAddr,
        /// From `connect(2)`.
        source: io::Error,
    },
    /// The target's host answers that the port is closed.
    #[error("nothing listens on {0}: does the service run, at that port and over that protocol?")]
    Refused(SocketAddr),
    /// A router, or the local neighbour table, reports that the target cannot be reached.
    #[error("cannot reach {target}: {source}")]
    Unreachable {
        /// The target's address.
        target: SocketAddr,
        /// The error that ICMP reported.
        source: io::Error,
    },
    /// The server closed the connection during the run.
    #[error("{0} closed the connection")]
    Closed(SocketAddr),
    /// The server closed the connection without a reply.
    #[error(
        "{0} closed the connection and answered nothing: does another service listen there, or has it no room for one more?"
    )]
    ClosedUnanswered(SocketAddr),
    /// The stream cannot be divided into replies.
    #[error(
        "what {0} sends is no reply, and where the next one begins can't be told: does another service listen there?"
    )]
    Unintelligible(SocketAddr),
    /// A socket option was refused.
    #[error("cannot set {option}: {source}")]
    Option {
        /// Its name.
        option: &'static str,
        /// From `setsockopt(2)`.
        source: io::Error,
    },
    /// Receiving failed with an error that is not temporary.
    #[error("cannot receive: {0}")]
    Receive(io::Error),
    /// Sending failed with an error that is not temporary.
    #[error("cannot send to {target}: {source}")]
    Send {
        /// The target's address.
        target: SocketAddr,
        /// From the send call.
        source: io::Error,
    },
    /// Waiting failed.
    #[error("cannot wait for the socket: {0}")]
    Poll(io::Error),
    /// Accepting failed with an error that is not temporary.
    #[error("cannot accept connections: {0}")]
    Accept(io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The thread could not be moved to its CPU.
    #[error(transparent)]
    Affinity(#[from] AffinityError),
    /// The load is not possible.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl SocketError {
    /// What the end of a client means after `received` right replies: the error that ended it early, so that the results
    /// until then are kept. A client that `stop` has ended has not failed.
    ///
    /// # Errors
    /// It failed before the first reply: there are no results.
    pub fn after_replies(ended: Result<(), Self>, received: u64, stop: &Stop) -> Result<Option<Self>, Self> {
        match ended {
            Ok(()) => Ok(None),
            Err(_) if stop.is_requested() => Ok(None),
            Err(Self::Closed(target)) if received == 0 => Err(Self::ClosedUnanswered(target)),
            Err(error) if received == 0 => Err(error),
            Err(error) => Ok(Some(error)),
        }
    }
}
