//! The kernel's TCP sockets as transports of connections.
//!
//! All sockets of a worker receive into one buffer, and send from one. A socket has a buffer of its own only while the
//! service has not used all that was received.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use twinpath_stream::{Broken, Lent, Received, Transport};
use twinpath_sys::{send_queue, stream_stamp};

use crate::streams::CHUNK;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Fewer bytes are copied sooner than a buffer is given away for them.
const MOVED_MIN: usize = 32 * 1024;

/// The minimum by which a buffer for an incomplete request grows.
const GROW_MIN: usize = 4096;

/// A connected TCP socket.
pub struct Socket {
    fd: OwnedFd,
    stamp: Stamp,
    /// Bytes that were received and not consumed.
    unread: Vec<u8>,
    /// How many bytes of that were consumed at a time when some were last. A longer request than fits the worker's buffer
    /// gets as much room at once: mostly it is as long as the one before.
    usual: usize,
    /// Bytes that the kernel has taken.
    sent: u64,
    finished: bool,
    /// What it has from the transport before it, until that is used.
    former: Option<Box<Former>>,
}

/// What a connection had received when it moved to a socket.
#[derive(Debug, Default)]
pub(crate) struct Former {
    /// Bytes that were received and not consumed; the socket's own follow.
    pub(crate) unread: Vec<u8>,
    /// Bytes behind them that had arrived.
    pub(crate) arrived: Vec<u8>,
    /// The peer had sent its last byte, which the socket does not know.
    pub(crate) is_ended: bool,
    /// Bytes that the peer had acknowledged or will acknowledge.
    pub(crate) sent: u64,
    /// Nothing more will be sent.
    pub(crate) is_finished: bool,
}

/// The buffers that the sockets of a worker use one after another.
#[derive(Debug)]
pub(crate) struct Buffers {
    input: Vec<u8>,
    output: Box<[u8]>,
}

impl Buffers {
    /// Buffers to receive up to [`CHUNK`] bytes, and to send up to `output` bytes, in one call.
    pub(crate) fn new(output: usize) -> Self {
        Self { input: Vec::with_capacity(CHUNK), output: vec![0; output].into_boxed_slice() }
    }
}

/// A socket with the worker's buffers: the transport of its connection for the duration of a call.
pub struct KernelStream<'a> {
    socket: &'a mut Socket,
    buffers: &'a mut Buffers,
    /// The bytes received and not consumed are in the worker's buffer.
    is_fresh: bool,
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
        Self { fd, stamp: Stamp::Off, unread: Vec::new(), usual: 0, sent: 0, finished: false, former: None }
    }

    /// A socket that goes on with the connection of another transport.
    pub(crate) fn going_on(fd: OwnedFd, mut former: Former) -> Self {
        let (unread, sent, finished) = (std::mem::take(&mut former.unread), former.sent, former.is_finished);
        let has_more = !former.arrived.is_empty() || former.is_ended;
        Self { unread, sent, finished, former: has_more.then(|| Box::new(former)), ..Self::new(fd) }
    }

    /// Receives what had arrived at the transport before it. `None`: that is used up, and the socket's bytes follow.
    #[cold]
    fn receive_former(&mut self, bytes_max: usize) -> Option<Received> {
        let former = self.former.as_deref_mut()?;
        let len = former.arrived.len().min(bytes_max.saturating_sub(self.unread.len()));
        if len > 0 {
            self.unread.extend(former.arrived.drain(..len));
            return Some(Received::Bytes { len, more: true });
        }
        if !former.arrived.is_empty() {
            // There is no room for more.
            return Some(Received::Nothing);
        }
        if former.is_ended {
            return Some(Received::End);
        }
        self.former = None;
        None
    }

    /// Bytes of memory that it holds besides itself.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.unread.capacity() + self.former.as_ref().map_or(0, |former| former.arrived.capacity())
    }

    #[cold]
    fn consume_unread(&mut self, bytes: usize) {
        self.unread.drain(..bytes);
        if bytes > 0 {
            self.usual = bytes;
        }
        if self.unread.is_empty() {
            self.unread = Vec::new();
        }
    }

    /// It as a transport, with the worker's buffers.
    #[inline]
    pub(crate) const fn with<'a>(&'a mut self, buffers: &'a mut Buffers) -> KernelStream<'a> {
        KernelStream { socket: self, buffers, is_fresh: false }
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

    /// Whether receiving would return bytes, an end or an error. Unlike receiving, this does not take the
    /// socket's lock, which the kernel needs while the peer sends.
    #[inline]
    pub(crate) fn has_something(&self) -> bool {
        // If the poll fails, the read will report the error.
        self.former.is_some()
            || poll(&mut [PollFd::new(&self.fd, PollFlags::IN | PollFlags::RDHUP)], Some(&AT_ONCE)) != Ok(0)
    }

    /// Whether receiving would return bytes, and not just an end or an error.
    pub(crate) fn has_bytes(&self) -> bool {
        if self.former.as_ref().is_some_and(|former| !former.arrived.is_empty()) {
            return true;
        }
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN | PollFlags::RDHUP)];
        poll(&mut fds, Some(&AT_ONCE)) == Ok(1) && fds[0].revents() == PollFlags::IN
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Appends received bytes to `into`, up to its capacity; returns their number, 0 at the end of the stream.
#[inline]
fn receive(fd: &OwnedFd, stamp: &mut Stamp, into: &mut Vec<u8>) -> Result<usize, Errno> {
    if matches!(stamp, Stamp::Asked) {
        return receive_stamped(fd, stamp, into);
    }
    retry_on_intr(|| recv(fd, spare_capacity(into), RecvFlags::DONTWAIT)).map(|(_, len)| len)
}

#[cold]
fn receive_stamped(fd: &OwnedFd, stamp: &mut Stamp, into: &mut Vec<u8>) -> Result<usize, Errno> {
    let (len, stamp_ns) = stream_stamp::receive(fd, into)?;
    *stamp = stamp_ns.map_or(Stamp::On, Stamp::Known);
    Ok(len)
}

/// Sends bytes; returns how many the kernel takes.
#[inline]
fn send_at_once(fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Broken> {
    match retry_on_intr(|| send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)) {
        Ok(sent) => Ok(sent),
        Err(Errno::AGAIN) => Ok(0),
        Err(_) => Err(Broken),
    }
}

impl Transport for KernelStream<'_> {
    #[inline]
    fn receive(&mut self, bytes_max: usize) -> Result<Received, Broken> {
        if self.socket.former.is_some()
            && let Some(received) = self.socket.receive_former(bytes_max)
        {
            return Ok(received);
        }
        let Socket { fd, stamp, unread, usual, .. } = &mut *self.socket;
        self.is_fresh = unread.is_empty() && bytes_max >= CHUNK;
        let into = if self.is_fresh {
            self.buffers.input.clear();
            &mut self.buffers.input
        } else {
            grow(unread, bytes_max, *usual);
            unread
        };
        let room = into.capacity() - into.len();
        match receive(fd, stamp, into) {
            Ok(0) => Ok(Received::End),
            Ok(len) => Ok(Received::Bytes { len, more: len == room }),
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(_) => Err(Broken),
        }
    }

    #[inline]
    fn lend(&mut self, room_max: usize) -> Lent<'_> {
        let Buffers { input, output } = &mut *self.buffers;
        let len = room_max.min(output.len());
        Lent { received: if self.is_fresh { input } else { &self.socket.unread }, room: &mut output[..len] }
    }

    #[inline]
    fn consume(&mut self, bytes: usize) {
        if !std::mem::take(&mut self.is_fresh) {
            self.socket.consume_unread(bytes);
        } else if bytes < self.buffers.input.len() {
            self.socket.unread = self.buffers.input[bytes..].to_vec();
        }
    }

    fn take(&mut self, from: usize, used: usize) -> (Vec<u8>, usize) {
        let unread = &self.socket.unread;
        let (len, rest) = (used.saturating_sub(from), unread.len().saturating_sub(used));
        // A buffer that is half empty at least does not stay, and what follows is copied.
        let is_moved = !self.is_fresh && len >= MOVED_MIN && rest < len && unread.capacity() / 2 <= used;
        if !is_moved {
            let bytes = self.received().get(from..used).unwrap_or_default().to_vec();
            self.consume(used);
            return (bytes, 0);
        }
        let rest = unread[used..].to_vec();
        let mut whole = std::mem::replace(&mut self.socket.unread, rest);
        whole.truncate(used);
        self.socket.usual = used;
        (whole, from)
    }

    #[inline]
    fn commit(&mut self, bytes: usize) -> Result<usize, Broken> {
        let sent = send_at_once(&self.socket.fd, &self.buffers.output[..bytes])?;
        self.socket.sent += sent as u64;
        Ok(sent)
    }

    /// The kernel copies the bytes from where they are.
    #[inline]
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let sent = send_at_once(&self.socket.fd, bytes)?;
        self.socket.sent += sent as u64;
        Ok(sent)
    }

    fn finish(&mut self) -> Result<(), Broken> {
        self.socket.finished = true;
        shutdown(&self.socket.fd, Shutdown::Write).map_err(|_| Broken)
    }

    fn acknowledged(&self) -> u64 {
        let Socket { fd, sent, finished, .. } = &*self.socket;
        // The end of the stream counts as a byte, the last one, until it is acknowledged.
        let waiting = send_queue::queued(fd).map(|bytes| bytes.saturating_sub(usize::from(*finished)) as u64);
        // The kernel always answers for a connected socket.
        sent.saturating_sub(waiting.unwrap_or(*sent))
    }
}

/// Makes room in the buffer of an incomplete request, which may have up to `bytes_max` bytes. It has at most twice what
/// arrived, or what the request before had.
fn grow(unread: &mut Vec<u8>, bytes_max: usize, usual: usize) {
    if unread.capacity() > bytes_max {
        // The limit was lowered.
        unread.shrink_to(bytes_max);
    }
    let room = bytes_max.saturating_sub(unread.len());
    if unread.capacity() - unread.len() < GROW_MIN.min(room) {
        let usual = usual.saturating_sub(unread.len());
        unread.reserve_exact(unread.len().max(GROW_MIN).max(usual).min(room));
    }
}

#[cfg(test)]
mod tests;
