//! The handshake by which an application gets its end: it connects, states its version, and receives the memory and
//! two descriptors.
//!
//! Messages are whole (SOCK_SEQPACKET), 16 bytes each way: `MAGIC`, the sender's version, zero. The owner's answer
//! carries three descriptors, in this order: the memory; the one to wait on; the one to signal. An owner of another
//! version answers with that version and no descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recv,
    socket_with,
};
use twinpath_sys::{SocketFile, fd_passing};

/// The first bytes of every message and of the memory.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"twinpshm");

/// The version of messages and memory layout.
pub const VERSION: u32 = 3;

/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 16;

/// Backlog of the listener.
const BACKLOG: i32 = 16;

pub(crate) fn message(version: u32) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    bytes[8..12].copy_from_slice(&version.to_ne_bytes());
    bytes
}

/// The version in a message; `None` if the message is not of this protocol.
pub(crate) fn version_of(message: &[u8]) -> Option<u32> {
    let message: &[u8; MESSAGE_BYTES] = message.try_into().ok()?;
    let version = u32::from_ne_bytes(*message[8..].first_chunk()?);
    (message[..8] == MAGIC.to_ne_bytes()).then_some(version)
}

/// The other end of a port, to be given to one application. Dropping it closes that end.
#[derive(Debug)]
pub struct Offer {
    pub(crate) memfd: OwnedFd,
    pub(crate) waits_on: OwnedFd,
    pub(crate) signals: OwnedFd,
}

/// Why an application was not given its end.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    /// It has not sent its message yet: answer when its socket is readable.
    #[error("the application has not said its version yet")]
    Silent,
    /// It closed the connection.
    #[error("the application closed the connection before it was served")]
    Closed,
    /// Its message is not of this protocol.
    #[error("what connected is no twinpath application: its first message is {len} bytes of something else")]
    UnknownProtocol {
        /// Length of the message.
        len: usize,
    },
    /// It is from another release.
    #[error(
        "the application speaks version {theirs} of shared-memory ports and this process version {VERSION}: use the same release of twinpath for both"
    )]
    Version {
        /// The application's version.
        theirs: u32,
    },
    /// The answer could not be sent.
    #[error("cannot send the shared memory to the application: {0}")]
    Send(Errno),
}

impl Offer {
    /// Answers an application that has connected and sent its message. Keep the connection: it hangs up when the
    /// application dies.
    ///
    /// # Errors
    /// [`OfferError`]; the application receives nothing then, or our version if its own differs.
    pub fn answer(&self, connection: impl AsFd) -> Result<(), OfferError> {
        let mut hello = [0; MESSAGE_BYTES + 1];
        // Without room for descriptors, so any that come with the message are discarded.
        let (_, len) = match recv(&connection, &mut hello, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Err(OfferError::Silent),
            Err(_) => return Err(OfferError::Closed),
        };
        if len == 0 {
            return Err(OfferError::Closed);
        }
        let theirs = version_of(&hello[..len.min(hello.len())]).ok_or(OfferError::UnknownProtocol { len })?;
        if theirs != VERSION {
            let _ = fd_passing::send(connection, &message(VERSION), &[]);
            return Err(OfferError::Version { theirs });
        }
        let fds = [self.memfd.as_fd(), self.waits_on.as_fd(), self.signals.as_fd()];
        fd_passing::send(connection, &message(VERSION), &fds).map_err(OfferError::Send)
    }
}

/// The socket to which applications connect. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    _file: SocketFile,
}

impl Listener {
    /// Listens at `path`. A socket of a process that has died is replaced; any other file there is an error. The
    /// directory's permissions decide who may connect.
    ///
    /// # Errors
    /// What `socket(2)`, `bind(2)` or `listen(2)` returns.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, file) = SocketFile::bind(path, SocketType::SEQPACKET, |path| {
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            bind(&socket, &SocketAddrUnix::new(path)?)?;
            Ok(socket)
        })?;
        listen(&socket, BACKLOG)?;
        Ok(Self { socket, _file: file })
    }

    /// The next application; `None` when none is waiting.
    ///
    /// # Errors
    /// What `accept(2)` returns: most likely the limit of descriptors.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(connection) => Ok(Some(connection)),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    /// Readable when an application is waiting.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
