use std::io;

use twinpath_load::LoadError;
use twinpath_socket_load::SocketError;
use twinpath_sys::affinity::AffinityError;

/// Why a plain peer could not start or go on. One variant per step.
#[derive(Debug, thiserror::Error)]
pub enum PlainError {
    /// No packet socket.
    #[error("cannot open a packet socket on interface {ifindex} ({source}): this needs CAP_NET_RAW")]
    PacketSocket {
        /// Index of the interface.
        ifindex: u32,
        /// From `socket(2)` or `bind(2)`.
        source: io::Error,
    },
    /// No eventfd to be had.
    #[error("cannot make an eventfd: {0}")]
    EventFd(io::Error),
    /// The CPU is not ours.
    #[error(transparent)]
    Affinity(#[from] AffinityError),
    /// The pace is not possible.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// As for every server and client over sockets.
    #[error(transparent)]
    Socket(#[from] SocketError),
}
