//! A datagram that is being served.
//!
//! Its reply is built in the buffer in which it arrived. A reply that is too long for it, or deferred, is
//! sent through the kernel's socket or the handler pool.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_reflex::{HOLD_MAX, Name, NotKept, Publication, Version};
use twinpath_time::Instant;

use crate::later::{Job, Later, Order, Work};
use crate::outbox::Outbox;
use crate::reflex::{Keep, Keeper};

/// The longest reply in bytes: an IPv6 packet's payload without the UDP header (RFC 8200, 3; RFC 768). The limit over
/// IPv4 is 65,507, which the kernel's socket enforces.
const REPLY_MAX: usize = 65_527;

/// The caller's resources that a datagram may need besides its buffer.
#[derive(Default)]
pub struct Beside {
    /// A reply that is longer than the buffer.
    pub reply: Vec<u8>,
    /// Work to be done later.
    pub later: Later,
    /// Messages to be sent besides the answer.
    pub outbox: Outbox,
    /// The store for kept replies, if the instance keeps any.
    pub keeper: Option<Box<dyn Keeper>>,
}

/// A request in a buffer in which its reply is built, so that bytes that are the same in both are not
/// copied.
pub struct Datagram<'a> {
    now: Instant,
    peer: SocketAddr,
    local: SocketAddr,
    buffer: &'a mut [u8],
    len: usize,
    /// The request may have been overwritten.
    changed: bool,
    beside: Option<&'a mut Beside>,
}

/// What the caller must do after a datagram or a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Send nothing; counted as `no_reply`.
    Nothing,
    /// Send nothing, and count this reason.
    Drop(Reason),
    /// Send the first `len` bytes of the buffer.
    Reply {
        /// Bytes; at most the buffer's length.
        len: usize,
    },
    /// Send the reply in [`Beside::reply`]; returned by [`Datagram::answer`].
    Long,
    /// The reply will come from work that was handed over; returned by [`Datagram::later`].
    Later,
}

impl<'a> Datagram<'a> {
    /// A request of `len` bytes at the start of `buffer`; `len` is limited to the buffer's length.
    #[inline]
    #[must_use]
    pub fn new(now: Instant, peer: SocketAddr, local: SocketAddr, buffer: &'a mut [u8], len: usize) -> Self {
        let len = len.min(buffer.len());
        Self { now, peer, local, buffer, len, changed: false, beside: None }
    }

    /// Adds room for a reply that is longer than the buffer, and for work that may block.
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

    /// The sender's address.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Our address that it was sent to.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The request.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The whole buffer: the request, followed by room for a longer reply. An answer after this call is not
    /// [kept](Self::answer_and_keep), because the request may have been overwritten.
    pub const fn buffer(&mut self) -> &mut [u8] {
        self.changed = true;
        self.buffer
    }

    /// Answers with the request itself.
    pub const fn echo(&self) -> Answer {
        Answer::Reply { len: self.len }
    }

    /// Answers with a copy of `reply`. A reply longer than the buffer is sent through the kernel's socket,
    /// in fragments. A reply longer than a datagram is not sent, and counted as `reply_too_large`.
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

    /// Sends a further datagram to the sender, from the address that the request was sent to. Datagrams
    /// leave in order and before the answer, except that a long one, which only the kernel can send, may be
    /// overtaken. Returns whether there was room: for 64 datagrams and 256 KiB. Unless the service [cannot
    /// loop](crate::Service::may_loop), each counts against the rate of replies to its source. Replies that
    /// are [kept](Self::answer_and_keep) are repeated without them.
    #[must_use]
    pub fn send(&mut self, datagram: &[u8]) -> bool {
        let (local, peer) = (self.local, self.peer);
        self.outbox().is_some_and(|outbox| outbox.send_from(local, peer, datagram))
    }

    /// Messages to be sent besides the answer: to other peers, and on connections of this worker. `None` if
    /// nothing can be sent, as in a test that calls the service directly.
    pub fn outbox(&mut self) -> Option<&mut Outbox> {
        self.beside.as_mut().map(|beside| &mut beside.outbox)
    }

    /// Whether [`Self::answer_and_keep`] keeps replies at this moment. A service need not check: if none
    /// are kept, the calls cost only a branch each.
    #[inline]
    #[must_use]
    pub fn keeps(&self) -> bool {
        let keeper = self.beside.as_ref().and_then(|beside| beside.keeper.as_ref());
        keeper.is_some_and(|keeper| !keeper.is_covered(self.now))
    }

    /// The present version of the state with this name, which is bytes or a `u64`. It must be taken before
    /// any of that state is read, and is valid only for the reply to this datagram.
    #[inline]
    #[must_use]
    pub fn version_of(&self, name: impl Into<Name>) -> Version {
        match self.beside.as_ref().and_then(|beside| beside.keeper.as_ref()) {
            Some(keeper) => keeper.version_of(name.into()),
            None => Version::NONE,
        }
    }

    /// Answers with a copy of `reply`, like [`Self::answer`], and allows repeating it without the service,
    /// for this request and others of the same [shape](Keep::shape), until it is withdrawn or too old.
    ///
    /// The reply must depend only on the relevant bytes of the request and on state of the version's name:
    /// not on the sender, on the address that the request was sent to, or on the time. A reply that cannot
    /// be kept is sent anyway, and counted, for example one longer than
    /// [`REPLY_MAX`](twinpath_reflex::REPLY_MAX), or one after a call of [`Self::buffer`].
    #[inline]
    pub fn answer_and_keep(&mut self, reply: &[u8], keep: &Keep<'_>) -> Answer {
        if let Some(keeper) = self.beside.as_mut().and_then(|beside| beside.keeper.as_mut()) {
            let Keep { shape, version, hold } = *keep;
            // Before the reply overwrites the request.
            let request = &self.buffer[..self.len];
            let until = self.now + hold.min(HOLD_MAX);
            match self.changed {
                true => keeper.not_kept(NotKept::RequestChanged),
                false => keeper.keep(self.now, &Publication { request, reply, shape, version, until }),
            }
        }
        self.answer(reply)
    }

    /// Whether [`Self::later`] accepts work.
    #[must_use]
    pub fn may_defer(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.later.jobs.len() < beside.later.room)
    }

    /// Hands over `work` to a thread that may block. The returned bytes are sent to the datagram's sender,
    /// by the path that leads there at that time. A service that calls this must return true from
    /// [`Service::defers`](crate::Service::defers). If there is no room, the datagram is dropped and
    /// counted as `handlers_busy`: its sender must handle lost datagrams anyway.
    pub fn later(&mut self, work: impl FnOnce() -> Vec<u8> + Send + 'static) -> Answer {
        self.later_as(0, work)
    }

    /// Like [`Self::later`], with a number that the service gets back with the reply: see
    /// [`Service::late_reply`](crate::Service::late_reply).
    pub fn later_as(&mut self, number: u64, work: impl FnOnce() -> Vec<u8> + Send + 'static) -> Answer {
        self.hand_over(number, Work::new(0, work))
    }

    /// Like [`Self::later`], with work of a lane ([`Work`]).
    pub fn later_in(&mut self, lane: u32, work: impl FnOnce() -> Vec<u8> + Send + 'static) -> Answer {
        self.hand_over(0, Work::new(lane, work))
    }

    fn hand_over(&mut self, number: u64, work: Work) -> Answer {
        if !self.may_defer() {
            return Answer::Drop(Reason::HandlersBusy);
        }
        if let Some(beside) = &mut self.beside {
            beside.later.jobs.push(Job { at: 0, order: Order::AsDone, number, work });
        }
        Answer::Later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_says_when_from_whom_and_to_where_it_came() {
        let (now, peer) = (Instant::from_nanos(7), SocketAddr::from(([192, 0, 2, 1], 9)));
        let local = SocketAddr::from(([192, 0, 2, 2], 7));
        let mut buffer = *b"request, and room";
        let mut datagram = Datagram::new(now, peer, local, &mut buffer, 7);
        assert_eq!((datagram.now(), datagram.peer(), datagram.local()), (now, peer, local));
        assert_eq!((datagram.request(), datagram.echo()), (&b"request"[..], Answer::Reply { len: 7 }));
        datagram.buffer()[..3].copy_from_slice(b"REQ");
        assert_eq!(datagram.buffer().len(), 17);
        assert_eq!(datagram.request(), b"REQuest");
        assert_eq!(Datagram::new(now, peer, local, &mut buffer, 99).request().len(), 17, "never beyond it");
    }

    #[test]
    fn further_datagrams_go_to_the_sender() {
        let (peer, local) = (SocketAddr::from(([192, 0, 2, 1], 9)), SocketAddr::from(([192, 0, 2, 2], 7)));
        let (mut buffer, mut beside) = ([0; 4], Beside::default());
        assert!(!Datagram::new(Instant::ZERO, peer, local, &mut buffer, 4).send(b"nowhere"));
        let mut datagram = Datagram::new(Instant::ZERO, peer, local, &mut buffer, 4).with(&mut beside);
        assert!(datagram.send(b"one"));
        let sent: Vec<_> = beside.outbox.sends().collect();
        assert_eq!(sent, [(crate::Recipient::Peer { local, peer }, &b"one"[..])]);
    }

    #[test]
    fn work_is_taken_while_there_is_room_and_keeps_its_number() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 9));
        let (mut buffer, mut beside) = ([0; 4], Beside::default());
        beside.later.allow(2);
        let mut datagram = Datagram::new(Instant::ZERO, peer, peer, &mut buffer, 4).with(&mut beside);
        let answers = [5, 6, 7].map(|number| datagram.later_as(number, move || vec![number as u8]));
        assert_eq!(answers, [Answer::Later, Answer::Later, Answer::Drop(Reason::HandlersBusy)]);
        assert!(!beside.later.is_empty());
        let jobs: Vec<_> = beside.later.take().map(|job| (job.number, job.work.run())).collect();
        assert_eq!(jobs, [(5, vec![5]), (6, vec![6])]);
        assert!(beside.later.is_empty());
    }
}
