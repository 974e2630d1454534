//! Where what a program has written and not yet sent ends, as far as its segments have to show it.

use std::collections::VecDeque;

use crate::buffer::Pool;
use crate::seq::Seq;

/// Marks that are kept at a time. What would need one more, or memory that there is not, is not told apart.
const MARKS_MAX: usize = 1024;
/// Marks that there is memory for at the least, and that an empty list keeps.
const MARKS_MIN: usize = 16;

/// What the last byte of a write ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// A piece that the peer's program may have at once: PSH goes with it (RFC 9293 section 3.9.1.2).
    #[default]
    Piece,
    /// Nothing, as more is about to be written: only full-sized segments leave, until more is written or something is
    /// acknowledged, or for 200 ms (Linux's `MSG_MORE`).
    More,
    /// A record: what is written later leaves in other segments, as with Linux's `MSG_EOR`. For TCP, PSH marks no record
    /// (RFC 9293 section 3.9.1.2): the peer's program does not see it.
    Record,
    /// Urgent data: the peer's program is told to hurry up to here. Its bytes stay in line, and what is written later is
    /// not urgent by this (RFC 9293 section 3.8.5, which tells new programs not to use it, SHLD-13).
    Urgent,
}

/// A number behind a byte that ends something.
#[derive(Clone, Copy, Debug)]
struct Mark {
    end: Seq,
    is_record: bool,
}

/// The marks, in the order of their numbers: all lie behind what was sent.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    list: VecDeque<Mark>,
    /// The last write said [`End::More`].
    pub(crate) more: bool,
    /// PSH goes with the byte before this number. It has a meaning while there is more to come.
    pushed: Seq,
}

impl Marks {
    pub(crate) const NOTHING: Self = Self { list: VecDeque::new(), more: false, pushed: Seq(0) };

    /// The last byte ends a piece, and no other end matters.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.more && self.list.is_empty()
    }

    /// A write without an end begins at `start`.
    pub(crate) const fn begin_more(&mut self, start: Seq) {
        if !self.more {
            (self.more, self.pushed) = (true, start);
        }
    }

    /// More was written, up to `end`. PSH goes with each half of the largest window that the peer has offered: it may
    /// hand data up only then (Linux's `forced_push`).
    pub(crate) fn add_more(&mut self, end: Seq, max_window: u32, pool: &mut Pool) {
        if end.since(self.pushed) > max_window / 2 {
            self.pushed = end;
            self.add(Mark { end, is_record: false }, pool);
        }
    }

    /// A record ends before `end`.
    pub(crate) fn add_record(&mut self, end: Seq, pool: &mut Pool) {
        self.add(Mark { end, is_record: true }, pool);
    }

    fn add(&mut self, mark: Mark, pool: &mut Pool) {
        if self.list.len() < self.list.capacity() || self.grow(pool) {
            self.list.push_back(mark);
        }
    }

    /// Gets memory for twice as many marks. False if that is not to be had.
    #[cold]
    fn grow(&mut self, pool: &mut Pool) -> bool {
        let (before, memory) = (self.list.len(), self.memory());
        let wanted = (2 * before).clamp(MARKS_MIN, MARKS_MAX);
        if wanted <= before || !pool.has_bytes(wanted * size_of::<Mark>() - memory) {
            return false;
        }
        self.list.reserve_exact(wanted - before);
        pool.charge(self.memory() - memory);
        true
    }

    /// The memory that it holds, bytes. The pool counts it.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        self.list.capacity() * size_of::<Mark>()
    }

    /// Where the first record ends that was not sent.
    #[inline]
    pub(crate) fn record_end(&self) -> Option<Seq> {
        self.list.iter().find(|mark| mark.is_record).map(|mark| mark.end)
    }

    /// Where the first end lies, of whatever.
    #[inline]
    pub(crate) fn first(&self) -> Option<Seq> {
        self.list.front().map(|mark| mark.end)
    }

    /// Whether something ends before `next`.
    #[inline]
    pub(crate) fn has_end(&self, next: Seq) -> bool {
        self.list.front().is_some_and(|mark| !mark.end.after(next))
    }

    /// All before `next` was sent.
    #[inline]
    pub(crate) fn sent(&mut self, next: Seq, pool: &mut Pool) {
        while self.has_end(next) {
            self.list.pop_front();
        }
        if self.list.is_empty() && self.list.capacity() > MARKS_MIN {
            self.release(pool);
        }
    }

    /// Nothing is to be sent any more.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.release(pool);
        self.more = false;
    }

    fn release(&mut self, pool: &mut Pool) {
        pool.discharge(self.memory());
        self.list = VecDeque::new();
    }

    /// Checks that the marks lie within what is to be sent.
    pub(crate) fn check(&self, next: Seq, end: Seq) {
        let mut before = next;
        for mark in &self.list {
            assert!(mark.end.after(before) && !mark.end.after(end), "{before:?} {mark:?} {end:?}");
            before = mark.end;
        }
    }
}
