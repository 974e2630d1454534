//! The errors of the plain peers.

use std::io;

use twinpath_load::LoadError;
use twinpath_socket_load::SocketError;
use twinpath_sys::affinity::AffinityError;

/// Why a plain peer could not start or continue. One variant per step.
#[derive(Debug, thiserror::Error)]
pub enum PlainError {
    /// The packet socket could not be opened.
    #[error("cannot open a packet socket on interface {ifindex} ({source}): this needs CAP_NET_RAW")]
    PacketSocket {
        /// Index of the interface.
        ifindex: u32,
        /// From `socket(2)` or `bind(2)`.
        source: io::Error,
    },
    /// The XDP program that joins two interfaces could not be loaded or attached.
    #[error("no XDP program on interface {ifindex}: {reason}")]
    XdpRedirect {
        /// Index of the interface.
        ifindex: u32,
        /// The loader's reason.
        reason: String,
    },
    /// The program at tc that joins two interfaces could not be loaded or attached.
    #[error("no program at tc of interface {ifindex}: {reason}")]
    TcRedirect {
        /// Index of the interface.
        ifindex: u32,
        /// The loader's reason.
        reason: String,
    },
    /// The program at tc that echoes could not be loaded or attached.
    #[error("no echo at tc of interface {ifindex}: {reason}")]
    TcMirror {
        /// Index of the interface.
        ifindex: u32,
        /// The loader's reason.
        reason: String,
    },
    /// The eventfd could not be made.
    #[error("cannot make an eventfd: {0}")]
    EventFd(io::Error),
    /// The timer could not be made.
    #[error("cannot make a timer: {0}")]
    Timer(io::Error),
    /// A datagram could not be sent or received with the kernel's time stamps.
    #[error("no datagram with a time stamp of the kernel: {0}")]
    Stamps(io::Error),
    /// The thread could not be moved to its CPU.
    #[error(transparent)]
    Affinity(#[from] AffinityError),
    /// The requested rate is not possible.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A step that all servers and clients over sockets share.
    #[error(transparent)]
    Socket(#[from] SocketError),
}
