//! A datagram being served.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_time::Instant;

/// A request in the buffer that its reply is built in: where request and reply are alike, nothing is copied.
#[derive(Debug)]
pub struct Datagram<'a> {
    now: Instant,
    peer: SocketAddr,
    local: SocketAddr,
    buffer: &'a mut [u8],
    len: usize,
}

/// What to do after a datagram, or a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Nothing is sent; counted as `no_reply`.
    Nothing,
    /// Nothing is sent, for this reason, under which it is counted.
    Drop(Reason),
    /// The first `len` bytes of the buffer are the reply.
    Reply {
        /// Bytes; at most the buffer's length.
        len: usize,
    },
}

impl<'a> Datagram<'a> {
    /// A request of `len` bytes at the start of `buffer`; a `len` beyond it is cut to it.
    #[inline]
    #[must_use]
    pub fn new(now: Instant, peer: SocketAddr, local: SocketAddr, buffer: &'a mut [u8], len: usize) -> Self {
        let len = len.min(buffer.len());
        Self { now, peer, local, buffer, len }
    }

    /// The time of the turn in which it is served.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Who sent it.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Our address it was sent to.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The whole buffer: the request, and room for a longer reply behind it.
    pub fn buffer(&mut self) -> &mut [u8] {
        self.buffer
    }

    /// Answers with the request itself.
    pub const fn echo(&self) -> Answer {
        Answer::Reply { len: self.len }
    }

    /// Answers with a copy of `reply`, cut to the room there is.
    pub fn answer(&mut self, reply: &[u8]) -> Answer {
        let len = reply.len().min(self.buffer.len());
        self.buffer[..len].copy_from_slice(&reply[..len]);
        Answer::Reply { len }
    }
}
