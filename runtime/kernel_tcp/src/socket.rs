//! The kernel's TCP socket as a transport of connections.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use twinpath_stream::{Broken, Received, Transport};

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A connected TCP socket.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) const fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Whether receiving would return bytes, an end or an error. Unlike receiving, asking this does not take
    /// the socket's lock, which the kernel needs while the peer sends.
    #[inline]
    pub(crate) fn has_something(&self) -> bool {
        // If asking fails, the read will tell.
        poll(&mut [PollFd::new(&self.0, PollFlags::IN | PollFlags::RDHUP)], Some(&AT_ONCE)) != Ok(0)
    }

    /// Whether receiving would return bytes, and not just an end or an error.
    pub(crate) fn has_bytes(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN | PollFlags::RDHUP)];
        poll(&mut fds, Some(&AT_ONCE)) == Ok(1) && fds[0].revents() == PollFlags::IN
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Transport for Socket {
    #[inline]
    fn receive(&mut self, into: &mut Vec<u8>) -> Result<Received, Broken> {
        match retry_on_intr(|| recv(&self.0, spare_capacity(into), RecvFlags::DONTWAIT)) {
            Ok((_, 0)) => Ok(Received::End),
            Ok((_, len)) => Ok(Received::Bytes(len)),
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(_) => Err(Broken),
        }
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        match retry_on_intr(|| send(&self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN) => Ok(0),
            Err(_) => Err(Broken),
        }
    }

    fn finish(&mut self) -> Result<(), Broken> {
        shutdown(&self.0, Shutdown::Write).map_err(|_| Broken)
    }
}
