//! The output of a service to a connection: collected, bounded, sent once per turn.

use std::ops::Range;

use twinpath_inspect::Reason;
use twinpath_time::Instant;

use crate::later::{Job, Later, Order, Work};
use crate::outbox::ConnectionId;

/// Bytes to send on a connection, up to a limit, and the fate of the connection afterwards.
///
/// They are written where the connection's transport sends them from, as long as its room lasts. The others are
/// written beside it, and copied later.
pub struct Output<'a> {
    /// The transport's room. Its first `filled` bytes are written.
    room: &'a mut [u8],
    filled: usize,
    /// The output after that in the room. While it has some, nothing is added to the room.
    beside: &'a mut Vec<u8>,
    limit: usize,
    later: Option<&'a mut Later>,
    next: Next,
    unfinished: bool,
    connection: ConnectionId,
    wake_at: Option<Instant>,
}

/// The service's decision on a connection after a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// The connection continues.
    #[default]
    Keep,
    /// It ends once the output has been sent.
    End,
    /// It is closed once the output has been sent, and counted under the reason.
    Refuse(Reason),
}

impl<'a> Output<'a> {
    /// Collects output in `bytes`, which may grow to `limit`.
    #[must_use]
    pub const fn new(bytes: &'a mut Vec<u8>, limit: usize) -> Self {
        Self {
            room: &mut [],
            filled: 0,
            beside: bytes,
            limit,
            later: None,
            next: Next::Keep,
            unfinished: false,
            connection: ConnectionId::new(0, 0),
            wake_at: None,
        }
    }

    /// Like [`Self::new`], with room for work that may block.
    #[must_use]
    pub const fn with_later(bytes: &'a mut Vec<u8>, limit: usize, later: &'a mut Later) -> Self {
        let mut output = Self::new(bytes, limit);
        output.later = Some(later);
        output
    }

    /// The same, with the room of a transport before its bytes. The first `filled` bytes of the room are output that
    /// was written before.
    #[inline]
    #[must_use]
    pub const fn into_room(mut self, room: &'a mut [u8], filled: usize) -> Self {
        self.room = room;
        self.filled = filled;
        self
    }

    /// Bytes of the room that are written, for the caller of the service.
    #[inline]
    #[must_use]
    pub const fn filled(&self) -> usize {
        self.filled
    }

    /// The same for the connection with this name.
    #[inline]
    #[must_use]
    pub const fn of(mut self, connection: ConnectionId) -> Self {
        self.connection = connection;
        self
    }

    /// The connection's name. With it the service, and other threads, can send on the connection later.
    #[must_use]
    pub const fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Has [`Service::woken`](crate::Service::woken) called for the connection at this time, replacing any
    /// time set before; [`Instant::NEVER`] cancels that. It does not prevent an idle connection from being
    /// closed.
    pub const fn wake_at(&mut self, at: Instant) {
        self.wake_at = Some(at);
    }

    /// The time that was set in this call, for the caller of the service.
    #[inline]
    #[must_use]
    pub const fn wakes_at(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Bytes that still fit. The rest may be written in [`Service::writable`](crate::Service::writable).
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.len())
    }

    /// Bytes that are written.
    #[inline]
    const fn len(&self) -> usize {
        self.filled + self.beside.len()
    }

    /// Adds `bytes`, all or nothing; returns whether they fitted.
    #[inline]
    #[must_use]
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.room();
        if fits {
            match self.next_in_room(bytes.len()) {
                Some(place) => {
                    place.copy_from_slice(bytes);
                    self.filled += bytes.len();
                }
                None => self.beside.extend_from_slice(bytes),
            }
        }
        fits
    }

    /// Adds the bytes that `write` writes to the front of a slice of `bytes_max` bytes, and of which it returns the
    /// number; nothing if that many do not fit. Returns whether they fitted: if not, `write` is not called. The slice
    /// is where the transport sends from, if that has as much room in one piece. Its former content is arbitrary.
    #[inline]
    #[must_use]
    pub fn write_in_place(&mut self, bytes_max: usize, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let fits = bytes_max <= self.room();
        if fits {
            if let Some(place) = self.next_in_room(bytes_max) {
                self.filled += write(place).min(bytes_max);
            } else {
                let before = self.beside.len();
                self.beside.resize(before + bytes_max, 0);
                let written = write(&mut self.beside[before..]).min(bytes_max);
                self.beside.truncate(before + written);
            }
        }
        fits
    }

    /// Adds the bytes that `write` appends to the buffer, all or nothing; returns whether they fitted. This is for
    /// replies whose length is not known before: `write` must only append. [`Self::write_in_place`] may save a copy.
    #[must_use]
    pub fn write_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = self.beside.len();
        write(self.beside);
        let fits = self.len() <= self.limit;
        if !fits {
            self.beside.truncate(before);
        } else if before == 0 && self.filled > 0 {
            self.move_into_room();
        }
        fits
    }

    /// The next `len` bytes of the room, if output may be added there.
    #[inline]
    fn next_in_room(&mut self, len: usize) -> Option<&mut [u8]> {
        if self.beside.is_empty() { self.room.get_mut(self.filled..self.filled + len) } else { None }
    }

    /// Moves the output beside the room behind that in the room, so that both are sent at once.
    fn move_into_room(&mut self) {
        let len = self.beside.len();
        if let Some(place) = self.room.get_mut(self.filled..self.filled + len) {
            place.copy_from_slice(self.beside);
            self.filled += len;
            self.beside.clear();
        }
    }

    /// Whether [`Self::later`] accepts another piece of work, for those that may not need it.
    #[must_use]
    pub fn has_room_for_work(&self) -> bool {
        self.later.as_ref().is_some_and(|later| later.jobs.len() < later.room)
    }

    /// Whether [`Self::later`] accepts another piece of work. If not, leave the request unused: it is
    /// passed again when there is room.
    #[must_use]
    pub fn may_defer(&mut self) -> bool {
        let has_room = self.has_room_for_work();
        if let Some(later) = &mut self.later {
            later.refused |= !has_room;
        }
        has_room
    }

    /// Hands over `work` to a thread that may block, and sends the returned bytes. A service that calls
    /// this must return true from [`Service::defers`](crate::Service::defers). Returns whether the work was
    /// accepted; call [`Self::may_defer`] first.
    #[must_use]
    pub fn later(&mut self, order: Order, work: impl FnOnce() -> Vec<u8> + Send + 'static) -> bool {
        self.later_in(0, order, work)
    }

    /// Like [`Self::later`], with work of a lane ([`Work`]).
    #[must_use]
    pub fn later_in(
        &mut self,
        lane: u32,
        order: Order,
        work: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> bool {
        self.hand_over(order, Work::new(lane, work))
    }

    /// Like [`Self::later_in`], for work that gets a part of the input of this call of
    /// [`Service::stream`](crate::Service::stream). The input need not be copied for it: a long part that ends where the
    /// used input ends is moved, if the transport has it in a buffer of its own.
    #[must_use]
    pub fn later_with(
        &mut self,
        lane: u32,
        order: Order,
        part: Range<usize>,
        work: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> bool {
        self.hand_over(order, Work::of_input(lane, part, work))
    }

    fn hand_over(&mut self, order: Order, work: Work) -> bool {
        let (taken, at) = (self.may_defer(), self.filled + self.beside.len());
        if let Some(later) = self.later.as_mut().filter(|_| taken) {
            later.jobs.push(Job { at, order, number: 0, work });
        }
        taken
    }

    /// Ends the connection once all output has been sent. No more of its input is read.
    pub const fn end(&mut self) {
        if matches!(self.next, Next::Keep) {
            self.next = Next::End;
        }
    }

    /// Like [`Self::end`], because of a fault of the peer: the close is counted under `reason`.
    pub const fn refuse(&mut self, reason: Reason) {
        self.next = Next::Refuse(reason);
    }

    /// Declares that the request is incomplete although its bytes were used: then the request time-out
    /// applies to the peer, not the idle time-out. It is not needed if bytes were left unused.
    pub const fn unfinished(&mut self) {
        self.unfinished = true;
    }

    /// The fate of the connection, for the caller of the service.
    #[must_use]
    pub const fn next(&self) -> Next {
        self.next
    }

    /// Whether the service waits for the rest of a request, for the caller of the service.
    #[must_use]
    pub const fn is_unfinished(&self) -> bool {
        self.unfinished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_handed_over_as_there_is_room_and_each_knows_its_place() {
        let (mut bytes, mut later) = (Vec::new(), Later::default());
        later.allow(2);
        let mut output = Output::with_later(&mut bytes, 100, &mut later);
        assert!(output.later(Order::AsAsked, || b"first".to_vec()));
        assert!(output.write(b"between"));
        assert!(output.later(Order::AsDone, || b"second".to_vec()));
        assert!(!output.later(Order::AsDone, Vec::new));
        assert!(later.is_refused());
        let jobs: Vec<_> = later.take().map(|job| (job.at, job.order, job.work.run())).collect();
        assert_eq!(jobs, [(0, Order::AsAsked, b"first".to_vec()), (7, Order::AsDone, b"second".to_vec())]);
        let mut nobody = Output::new(&mut bytes, 100);
        assert!(!nobody.may_defer() && !nobody.later(Order::AsDone, Vec::new));
    }

    #[test]
    fn it_knows_its_connection_and_when_that_is_to_be_woken() {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, 4).of(ConnectionId::new(3, 4));
        assert_eq!((output.connection(), output.wakes_at()), (ConnectionId::new(3, 4), None));
        output.wake_at(Instant::from_nanos(9));
        assert_eq!(output.wakes_at(), Some(Instant::from_nanos(9)));
    }

    #[test]
    fn what_does_not_fit_leaves_no_trace() {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, 4);
        assert!(output.write(b"ab"));
        assert!(!output.write_with(|bytes| bytes.extend_from_slice(b"cde")));
        assert!(!output.write(b"cde"));
        assert_eq!(output.room(), 2);
        assert!(output.write_with(|bytes| bytes.extend_from_slice(b"cd")));
        assert_eq!((output.room(), bytes.as_slice()), (0, &b"abcd"[..]));
    }

    #[test]
    fn output_goes_into_the_room_while_it_lasts_and_then_beside_it() {
        let (mut room, mut beside) = ([0; 6], vec![]);
        let mut output = Output::new(&mut beside, 16).into_room(&mut room, 1);
        assert_eq!((output.room(), output.filled()), (15, 1));
        assert!(output.write(b"ab") && output.write_with(|bytes| bytes.push(b'c')));
        assert_eq!(output.filled(), 4, "what was appended follows");
        assert!(!output.write_in_place(13, |_| unreachable!("it does not fit")));
        assert!(output.write_in_place(2, |place| {
            place[0] = b'd';
            1
        }));
        assert!(output.write(b"ef") && output.write(b"g"), "in order, though there is room for one of them");
        assert!(output.write_in_place(3, |place| {
            place.copy_from_slice(b"hi-");
            2
        }));
        assert_eq!((output.filled(), output.room()), (5, 6));
        assert!(!output.write_with(|bytes| bytes.extend([0; 7])));
        assert_eq!((&room, &beside[..]), (b"\0abcd\0", &b"efghi"[..]));
    }

    #[test]
    fn what_was_appended_stays_beside_a_room_that_has_nothing_or_too_little_space() {
        for (filled, expected) in [(0, 0), (3, 3)] {
            let (mut room, mut beside) = ([0; 4], vec![]);
            let mut output = Output::new(&mut beside, 16).into_room(&mut room, filled);
            assert!(output.write_with(|bytes| bytes.extend_from_slice(b"ab")) && output.write(b"c"));
            assert_eq!((output.filled(), &beside[..]), (expected, &b"abc"[..]));
        }
    }

    #[test]
    fn a_reason_outlasts_an_orderly_end() {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, 4);
        assert_eq!(output.next(), Next::Keep);
        output.end();
        assert_eq!(output.next(), Next::End);
        output.refuse(Reason::ProtocolError);
        output.end();
        assert_eq!(output.next(), Next::Refuse(Reason::ProtocolError));
    }

    #[test]
    fn a_request_is_unfinished_only_if_the_service_says_so() {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, 4);
        assert!(!output.is_unfinished());
        output.unfinished();
        assert!(output.is_unfinished());
    }

    #[test]
    fn room_that_was_refused_is_remembered_until_more_is_allowed() {
        let (mut bytes, mut later) = (Vec::new(), Later::default());
        for (room, refused) in [(0, true), (1, false), (0, true), (2, false)] {
            later.allow(room);
            assert!(!later.is_refused());
            assert_eq!(Output::with_later(&mut bytes, 4, &mut later).may_defer(), !refused);
            assert_eq!(later.is_refused(), refused);
            // What is there later does not undo it.
            later.room += 1;
            assert!(Output::with_later(&mut bytes, 4, &mut later).may_defer());
            assert_eq!(later.is_refused(), refused);
        }
    }
}
