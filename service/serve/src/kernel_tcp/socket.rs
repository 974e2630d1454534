//! The kernel's TCP socket as a transport of connections.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use twinpath_stream::{Broken, Received, Transport};
use twinpath_sys::stream_stamp;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A connected TCP socket.
pub(crate) struct Socket {
    fd: OwnedFd,
    stamp: Stamp,
}

/// The kernel's receive time stamp (`CLOCK_REALTIME`, ns).
#[derive(Clone, Copy)]
enum Stamp {
    /// The kernel makes none. If any socket wants stamps, the kernel stamps each packet that this host
    /// receives. So a socket asks for them only once it has woken a worker.
    Off,
    On,
    /// The next bytes will be received with a stamp.
    Asked,
    Known(u64),
}

impl Socket {
    pub(crate) const fn new(fd: OwnedFd) -> Self {
        Self { fd, stamp: Stamp::Off }
    }

    /// The worker was woken by received bytes, and wants to know when they arrived.
    #[cold]
    pub(crate) fn ask_stamp(&mut self) {
        self.stamp = match self.stamp {
            // Bytes that have arrived already have no stamp.
            Stamp::Off if stream_stamp::stamp(&self.fd).is_ok() => Stamp::On,
            Stamp::Off => Stamp::Off,
            Stamp::On | Stamp::Asked | Stamp::Known(_) => Stamp::Asked,
        };
    }

    /// The stamp that was asked for, if it has arrived.
    #[cold]
    pub(crate) fn take_stamp(&mut self) -> Option<u64> {
        let Stamp::Known(stamp_ns) = self.stamp else { return None };
        self.stamp = Stamp::On;
        Some(stamp_ns)
    }

    #[cold]
    fn receive_stamped(&mut self, into: &mut Vec<u8>) -> Result<usize, Errno> {
        let (len, stamp_ns) = stream_stamp::receive(&self.fd, into)?;
        self.stamp = stamp_ns.map_or(Stamp::On, Stamp::Known);
        Ok(len)
    }

    /// Whether receiving would return bytes, an end or an error. Unlike receiving, this does not take the
    /// socket's lock, which the kernel needs while the peer sends.
    #[inline]
    pub(crate) fn has_something(&self) -> bool {
        // If the poll fails, the read will report the error.
        poll(&mut [PollFd::new(&self.fd, PollFlags::IN | PollFlags::RDHUP)], Some(&AT_ONCE)) != Ok(0)
    }

    /// Whether receiving would return bytes, and not just an end or an error.
    pub(crate) fn has_bytes(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::RDHUP)];
        poll(&mut fds, Some(&AT_ONCE)) == Ok(1) && fds[0].revents() == PollFlags::IN
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Transport for Socket {
    #[inline]
    fn receive(&mut self, into: &mut Vec<u8>) -> Result<Received, Broken> {
        let received = if matches!(self.stamp, Stamp::Asked) {
            self.receive_stamped(into)
        } else {
            let receive = || recv(&self.fd, spare_capacity(into), RecvFlags::DONTWAIT);
            retry_on_intr(receive).map(|(_, len)| len)
        };
        match received {
            Ok(0) => Ok(Received::End),
            Ok(len) => Ok(Received::Bytes(len)),
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(_) => Err(Broken),
        }
    }

    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        match retry_on_intr(|| send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN) => Ok(0),
            Err(_) => Err(Broken),
        }
    }

    fn finish(&mut self) -> Result<(), Broken> {
        shutdown(&self.fd, Shutdown::Write).map_err(|_| Broken)
    }
}
