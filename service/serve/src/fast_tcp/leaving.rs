//! Handshakes and connections in TIME_WAIT, as the path to their peers ends. No socket of the kernel can go on with them, and
//! the kernel's listener would answer their segments by a reset.
//!
//! A peer in a handshake may have had the answer to its SYN: then it has a connection. So the engine keeps the handshake, and
//! the listener's filter shows it what comes. Each SYN is answered once more, while there is a port: the acknowledgement of
//! the former answer may have been lost as the programs came off. If a peer sends its SYN again, it has had no answer: its
//! next SYN is the kernel's.
//!
//! A peer of a connection in TIME_WAIT may repeat its last segments. The filter drops them until the peer begins anew: it gives
//! up in silence.

use std::collections::VecDeque;
use std::ops::Range;

use twinpath_tcp::{Sink, Tcp, Tuple};
use twinpath_time::Instant;

use super::TcpClaims;

/// What the programs are to know of them, and what they know.
#[derive(Debug, Default)]
pub(crate) struct LeavingRecords {
    /// The numbers of half-open connections of which they are to be told, and of those that are answered again then.
    untold: Range<u32>,
    unanswered: Range<u32>,
    /// There is a path again: they are told so.
    is_back: bool,
    /// Whether they are to be told of those in TIME_WAIT.
    has_time_wait: bool,
    /// Those in TIME_WAIT of which they know, in about the order in which their time ends.
    ended: VecDeque<(Instant, Tuple)>,
}

impl LeavingRecords {
    /// The path ends.
    pub(crate) fn begin(&mut self, tcp: &Tcp) {
        (self.untold, self.unanswered, self.is_back) = (0..tcp.half_open_numbers(), 0..0, false);
        self.has_time_wait = tcp.count().2 > 0;
    }

    /// There is a path again: handshakes that are still under way go on by it.
    pub(crate) fn end(&mut self, tcp: &Tcp) {
        (self.untold, self.unanswered, self.is_back) = (0..tcp.half_open_numbers(), 0..0, true);
        self.has_time_wait = false;
    }

    /// Records that have begun since are to be told, too.
    pub(crate) fn add_time_wait(&mut self, tcp: &Tcp) {
        self.has_time_wait |= tcp.count().2 > 0;
    }

    /// Whether a port is needed, or the programs are to be told more.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.untold.is_empty() || !self.unanswered.is_empty() || self.has_time_wait
    }

    /// Tells the programs, by `calls` calls at most. Returns how many are left.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        calls: u32,
        tcp: &mut Tcp,
        claims: &mut dyn TcpClaims,
    ) -> u32 {
        let mut left = calls;
        while left > 0
            && let Some(number) = self.untold.next()
        {
            if let Some(tuple) = tcp.half_open_at(number) {
                if self.is_back {
                    claims.reclaim(tuple.local(), tuple.remote());
                } else {
                    claims.half_open(tuple.local(), tuple.remote());
                }
                left -= 1;
            }
            if !self.is_back {
                self.unanswered.end = number + 1;
            }
        }
        while left > 0 && self.has_time_wait {
            if let Some((tuple, until)) = tcp.leave_time_wait() {
                claims.end(tuple.local(), tuple.remote());
                self.ended.push_back((until, tuple));
                left -= 1;
            } else {
                self.has_time_wait = false;
            }
        }
        while left > 0 && self.deadline() <= now {
            let Some((_, tuple)) = self.ended.pop_front() else { break };
            claims.release(tuple.local(), tuple.remote());
            left -= 1;
        }
        left
    }

    /// Answers again those SYNs of which the programs were told.
    pub(crate) fn answer(&mut self, now: Instant, tcp: &mut Tcp, sink: &mut impl Sink) {
        for number in self.unanswered.by_ref() {
            tcp.answer_again(now, number, sink);
        }
    }

    /// When a tuple is to be released.
    pub(crate) fn deadline(&self) -> Instant {
        self.ended.front().map_or(Instant::NEVER, |(until, _)| *until)
    }

    /// All of them may be claimed again.
    pub(crate) fn release_all(&mut self, claims: &mut dyn TcpClaims) {
        for (_, tuple) in self.ended.drain(..) {
            claims.release(tuple.local(), tuple.remote());
        }
    }
}
