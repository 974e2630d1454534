//! What most connections never need: loss, disorder, ends of writes, urgent data. It lies apart from the connection, so
//! that an idle one has no memory for it.

use core::ops::{Deref, DerefMut};

use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::UserTimeout;

use super::Undo;
use crate::marks::Marks;
use crate::prr::Prr;
use crate::reassembly::Reassembly;
use crate::seq::Seq;
use crate::state::Ended;

/// See above.
#[derive(Debug)]
pub(super) struct Rare {
    pub(super) undo: Undo,
    /// It has a meaning while the window is being reduced.
    pub(super) prr: Prr,
    pub(super) reassembly: Reassembly,
    /// The peer's FIN, if it came out of order: the number behind it.
    pub(super) fin: Option<Seq>,
    /// A duplicate to be reported (RFC 2883).
    pub(super) duplicate: Option<(Seq, Seq)>,
    /// When ECN last reduced the window, what was sent then.
    pub(super) cwr_end: Option<Seq>,
    pub(super) marks: Marks,
    /// Urgent data ends behind so many bytes of the peer's stream; a count does not wrap, as a number would.
    pub(super) urgent_end: u64,
    /// Bytes of the send buffer up to the last urgent one (RFC 9293 section 3.3.1, SND.UP); 0 without urgent data.
    pub(super) urgent: u32,
    /// What the peer said last of its user timeout (RFC 5482).
    pub(super) peer_timeout: Option<UserTimeout>,
    pub(super) soft_error: Option<Ended>,
    /// When an orphan, FIN_WAIT_2 or a cork ends.
    pub(super) end_at: Instant,
    pub(super) cork_at: Instant,
    pub(super) challenged_at: Instant,
}

impl Rare {
    const NOTHING: Self = Self {
        undo: Undo { marker: None, retransmissions: None, stamp: None, ssthresh: 0 },
        prr: Prr::enter(0, 0),
        reassembly: Reassembly::NOTHING,
        fin: None,
        duplicate: None,
        cwr_end: None,
        marks: Marks::NOTHING,
        urgent_end: 0,
        urgent: 0,
        peer_timeout: None,
        soft_error: None,
        end_at: Instant::NEVER,
        cork_at: Instant::NEVER,
        challenged_at: Instant::ZERO,
    };

    /// Whether anything is there that passes with the segments that come.
    pub(super) fn passes(&self) -> bool {
        !self.reassembly.is_empty()
            || self.fin.is_some()
            || self.undo != Undo::default()
            || self.urgent_end != 0
            || self.challenged_at != Instant::ZERO
    }

    /// What has passed is as it was in the beginning. `read`: bytes of the peer's stream that the program has read; `is_behind`:
    /// something that was sent after the last reduction has begun is acknowledged, and nothing is in flight.
    pub(super) fn forget(&mut self, now: Instant, challenge_interval: Duration, read: u64, is_behind: bool) {
        if is_behind {
            self.undo = Undo::default();
        }
        if self.urgent_end <= read {
            self.urgent_end = 0;
        }
        if now.since(self.challenged_at) >= challenge_interval {
            self.challenged_at = Instant::ZERO;
        }
    }

    /// Whether all is as it was in the beginning, but for what has a meaning during a reduction alone.
    fn is_nothing(&self) -> bool {
        self.undo == Undo::default()
            && self.reassembly.is_empty()
            && self.marks.is_plain()
            && self.marks.memory() == 0
            && self.fin.is_none()
            && self.duplicate.is_none()
            && self.cwr_end.is_none()
            && (self.urgent_end, self.urgent) == (0, 0)
            && self.peer_timeout.is_none()
            && self.soft_error.is_none()
            && (self.end_at, self.cork_at) == (Instant::NEVER, Instant::NEVER)
            && self.challenged_at == Instant::ZERO
    }
}

/// What a connection has of it: nothing as long as it only reads.
#[derive(Debug, Default)]
pub(super) struct Apart(Option<Box<Rare>>);

impl Apart {
    /// What there is to be taken back, if there is anything: without memory for what is as in the beginning.
    #[inline]
    pub(super) fn there(&mut self) -> Option<&mut Rare> {
        self.0.as_deref_mut()
    }

    /// Whether there is nothing.
    #[inline]
    pub(super) const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Gives the memory back if all is as in the beginning.
    #[cold]
    pub(super) fn tidy(&mut self) {
        if self.0.as_ref().is_some_and(|rare| rare.is_nothing()) {
            self.0 = None;
        }
    }
}

impl Deref for Apart {
    type Target = Rare;

    #[inline]
    fn deref(&self) -> &Rare {
        static NOTHING: Rare = Rare::NOTHING;
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for Apart {
    #[inline]
    fn deref_mut(&mut self) -> &mut Rare {
        self.0.get_or_insert_with(|| Box::new(Rare::NOTHING))
    }
}
