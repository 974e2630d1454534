//! The socket.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use twinpath_rds_memory::PortMapsView;
use twinpath_sys::fd_passing;

use crate::message::{HEAD_LEN, Head, Kind};

/// Where the daemon of a host listens for programs.
#[must_use]
pub fn default_path() -> PathBuf {
    PathBuf::from("/run/twinpath/rds/programs")
}

/// Why a call of a socket failed.
#[derive(Debug, thiserror::Error)]
pub enum RdsError {
    /// There is no daemon.
    #[error("no daemon of Reliable Datagram Sockets listens at {}: {error}; start one with `twinpath rds --on INTERFACE`", path.display())]
    NoDaemon {
        /// Where it was looked for.
        path: PathBuf,
        /// Why.
        error: Errno,
    },
    /// The daemon has ended (ENETDOWN).
    #[error("the daemon of Reliable Datagram Sockets has ended")]
    DaemonEnded,
    /// It says something that is not known here: it has another version.
    #[error("the daemon of Reliable Datagram Sockets has another version")]
    Version,
    /// What the kernel returns, and EADDRINUSE, EADDRNOTAVAIL, EINVAL for a bind, ENOBUFS for a congested port, EMSGSIZE.
    #[error("{0}")]
    Call(#[from] Errno),
}

/// A message that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer.
    pub len: usize,
    /// The sender; port 0: the answer to a ping.
    pub from: SocketAddr,
    /// The buffer was too short for all of it.
    pub is_cut: bool,
}

/// A socket. Threads may use it at the same time, and it may be waited for by its descriptor; set that to non-blocking by
/// `fcntl(2)` (`rustix::io::ioctl_fionbio`).
#[derive(Debug)]
pub struct RdsSocket {
    socket: OwnedFd,
    ports: PortMapsView,
    local: Option<SocketAddr>,
}

impl RdsSocket {
    /// A socket of the daemon that listens at `path`: [`default_path`]. It blocks.
    ///
    /// # Errors
    /// [`RdsError`].
    pub fn open(path: &Path) -> Result<Self, RdsError> {
        let no_daemon = |error| RdsError::NoDaemon { path: path.to_owned(), error };
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?).map_err(no_daemon)?;
        let mut bytes = [0; HEAD_LEN];
        let welcome = fd_passing::receive(&socket, &mut bytes)?;
        if welcome.len == 0 {
            return Err(RdsError::DaemonEnded);
        }
        let is_known = Head::parse(&bytes).is_some_and(|head| head.kind == Kind::Welcome);
        let fd = welcome.fds.into_iter().next().filter(|_| is_known).ok_or(RdsError::Version)?;
        Ok(Self { socket, ports: PortMapsView::of_fd(fd)?, local: None })
    }

    /// Binds it, once. Port 0: any that is free. Waits for the daemon.
    ///
    /// # Errors
    /// [`RdsError::Call`] with EADDRINUSE, EADDRNOTAVAIL if the daemon's interface has no such address, or EINVAL.
    pub fn bind(&mut self, local: SocketAddr) -> Result<(), RdsError> {
        if self.local.is_some() {
            return Err(Errno::INVAL.into());
        }
        self.tell(Kind::Bind, 0, local)?;
        let mut bytes = [0; HEAD_LEN];
        // Nothing else comes before it is bound.
        let head = loop {
            match fd_passing::receive(&self.socket, &mut bytes) {
                Ok(received) if received.len == HEAD_LEN => {
                    break Head::parse(&bytes).ok_or(RdsError::Version)?;
                }
                Ok(received) if received.len == 0 => return Err(RdsError::DaemonEnded),
                Ok(_) => return Err(RdsError::Version),
                Err(Errno::AGAIN) => {
                    let mut waited = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
                    rustix::event::poll(&mut waited, None)?;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        match (head.kind, head.value) {
            (Kind::Bound, 0) => self.local = Some(SocketAddr::new(head.address, head.port)),
            (Kind::Bound, error) => return Err(Errno::from_raw_os_error(error as i32).into()),
            _ => return Err(RdsError::Version),
        }
        Ok(())
    }

    /// The address that it is bound to.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// The receiver of [`Self::send`].
    ///
    /// # Errors
    /// [`RdsError`].
    pub fn connect(&self, to: SocketAddr) -> Result<(), RdsError> {
        self.tell(Kind::Connect, 0, to)
    }

    /// How many bytes of payload may wait to be received, before senders are told that the port is congested. The host
    /// bounds it (`net.core.wmem_max`).
    ///
    /// # Errors
    /// [`RdsError`].
    pub fn set_receive_max(&self, bytes: u32) -> Result<(), RdsError> {
        self.tell(Kind::Limit, bytes, SocketAddr::new(IpAddr::from([0; 4]), 0))
    }

    /// How many bytes of payload may be unacknowledged, before a send waits or is refused (EAGAIN); also the longest
    /// message. The host bounds it (`net.core.wmem_max`).
    ///
    /// # Errors
    /// [`RdsError`].
    pub fn set_send_max(&self, bytes: u32) -> Result<(), RdsError> {
        rustix::net::sockopt::set_socket_send_buffer_size(&self.socket, bytes as usize)?;
        self.tell(Kind::Limit, bytes, SocketAddr::new(IpAddr::from([0; 4]), 1))
    }

    /// Sends a message; waits for room if the descriptor blocks. Port 0: a ping, which the peer's host answers.
    ///
    /// # Errors
    /// [`RdsError::Call`] with ENOBUFS: the receiver's port is congested; EAGAIN; EMSGSIZE: it is longer than the send buffer;
    /// ENOTCONN: the socket is not bound.
    pub fn send_to(&self, payload: &[u8], to: SocketAddr) -> Result<(), RdsError> {
        if self.local.is_none() {
            return Err(Errno::NOTCONN.into());
        }
        let is_congested = to.port() != 0 && self.ports.is_congested(to.ip().to_canonical(), to.port());
        if is_congested && fcntl_getfl(&self.socket)?.contains(OFlags::NONBLOCK) {
            return Err(Errno::NOBUFS.into());
        }
        let value = payload.len() as u32;
        self.send_head(&Head { kind: Kind::Send, port: to.port(), value, address: to.ip() }, payload)
    }

    /// Sends a message to where the socket is connected.
    ///
    /// # Errors
    /// As [`Self::send_to`], but congestion is not told: the message waits.
    pub fn send(&self, payload: &[u8]) -> Result<(), RdsError> {
        self.send_head(&Head { value: payload.len() as u32, ..Head::new(Kind::Send) }, payload)
    }

    /// Receives a message; waits for one if the descriptor blocks.
    ///
    /// # Errors
    /// [`RdsError::Call`] with EAGAIN; [`RdsError::DaemonEnded`].
    pub fn receive(&self, into: &mut [u8]) -> Result<Received, RdsError> {
        let mut head = [0; HEAD_LEN];
        loop {
            let mut control = RecvAncillaryBuffer::default();
            let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(into)];
            let message = recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            let len = match message.bytes {
                0 => return Err(RdsError::DaemonEnded),
                len => len.checked_sub(HEAD_LEN).ok_or(RdsError::Version)?,
            };
            match Head::parse(&head) {
                Some(Head { kind: Kind::Message, address, port, .. }) => {
                    let is_cut = message.flags.contains(ReturnFlags::TRUNC);
                    return Ok(Received { len, from: SocketAddr::new(address, port), is_cut });
                }
                // What a later daemon may say.
                _ => continue,
            }
        }
    }

    fn tell(&self, kind: Kind, value: u32, address: SocketAddr) -> Result<(), RdsError> {
        self.send_head(&Head { kind, port: address.port(), value, address: address.ip() }, &[])
    }

    fn send_head(&self, head: &Head, payload: &[u8]) -> Result<(), RdsError> {
        let (head, mut control) = (head.to_bytes(), SendAncillaryBuffer::default());
        let parts = [IoSlice::new(&head), IoSlice::new(payload)];
        match sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(RdsError::DaemonEnded),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for RdsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
