//! A datagram being served.
//!
//! Its reply is built in the buffer it came in; one that does not fit there, or comes later, leaves another way.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_time::Instant;

use crate::later::{Job, Later, Order};

/// Bytes of the longest reply: what is left of an IPv6 packet without its UDP header (RFC 8200, 3; RFC 768). Over IPv4 it is
/// 65,507: the kernel's socket knows.
const REPLY_MAX: usize = 65_527;

/// What a datagram may need besides its buffer: lent by whoever calls the service.
#[derive(Default)]
pub struct Beside {
    /// A reply that is longer than the buffer.
    pub reply: Vec<u8>,
    /// What is to be done later.
    pub later: Later,
}

/// A request in the buffer that its reply is built in: where request and reply are alike, nothing is copied.
pub struct Datagram<'a> {
    now: Instant,
    peer: SocketAddr,
    local: SocketAddr,
    buffer: &'a mut [u8],
    len: usize,
    beside: Option<&'a mut Beside>,
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
    /// The reply stands in [`Beside::reply`]: [`Datagram::answer`] says so.
    Long,
    /// The reply comes from work that was handed over: [`Datagram::later`] says so.
    Later,
}

impl<'a> Datagram<'a> {
    /// A request of `len` bytes at the start of `buffer`; a `len` beyond it is cut to it.
    #[inline]
    #[must_use]
    pub fn new(now: Instant, peer: SocketAddr, local: SocketAddr, buffer: &'a mut [u8], len: usize) -> Self {
        let len = len.min(buffer.len());
        Self { now, peer, local, buffer, len, beside: None }
    }

    /// With room for a reply that is longer than the buffer, and somebody to do what may block.
    #[inline]
    #[must_use]
    pub const fn with(mut self, beside: &'a mut Beside) -> Self {
        self.beside = Some(beside);
        self
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

    /// Answers with a copy of `reply`. One that is longer than the buffer leaves through the kernel's socket, in fragments; one that
    /// is longer than a datagram is not sent, and counted as `reply_too_large`.
    #[inline]
    pub fn answer(&mut self, reply: &[u8]) -> Answer {
        let Some(room) = self.buffer.get_mut(..reply.len()) else { return self.answer_beside(reply) };
        room.copy_from_slice(reply);
        Answer::Reply { len: reply.len() }
    }

    #[cold]
    fn answer_beside(&mut self, reply: &[u8]) -> Answer {
        let Some(beside) = self.beside.as_mut().filter(|_| reply.len() <= REPLY_MAX) else {
            return Answer::Drop(Reason::ReplyTooLarge);
        };
        beside.reply.clear();
        beside.reply.extend_from_slice(reply);
        Answer::Long
    }

    /// Whether [`Self::later`] takes the work.
    #[must_use]
    pub fn may_defer(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.later.jobs.len() < beside.later.room)
    }

    /// Has `work` done by a thread that may block; what it returns is sent to the datagram's sender, by whichever path leads there then.
    /// A service that does so says so with [`Service::defers`](crate::Service::defers). A datagram for which there is no room is
    /// dropped, and counted as `handlers_busy`: its sender has to ask again anyway when a datagram is lost.
    pub fn later(&mut self, work: impl FnOnce() -> Vec<u8> + Send + 'static) -> Answer {
        self.later_as(0, work)
    }

    /// The same, by a number that the service is told again with the reply: see [`Service::late_reply`](crate::Service::late_reply).
    pub fn later_as(&mut self, number: u64, work: impl FnOnce() -> Vec<u8> + Send + 'static) -> Answer {
        if !self.may_defer() {
            return Answer::Drop(Reason::HandlersBusy);
        }
        if let Some(beside) = &mut self.beside {
            beside.later.jobs.push(Job { at: 0, order: Order::AsDone, number, work: Box::new(work) });
        }
        Answer::Later
    }
}
