//! Handshakes and connections in TIME_WAIT, as the path to their peers ends. No socket of the kernel can go on with them, and
//! the kernel's listener would answer their segments by a reset.
//!
//! A peer in a handshake may have had the answer to its SYN: then it has a connection. So the engine keeps the handshake, and
//! the listener's filter shows it what comes. Each SYN is answered once more, while there is a port: the acknowledgement of
//! the former answer may have been lost as the programs came off. If a peer sends its SYN again some time later, it has
//! had no answer: its next SYN is the kernel's.
//!
//! A peer of a connection in TIME_WAIT may repeat its last segments. The filter drops them until the peer begins anew: it gives
//! up in silence.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use twinpath_tcp::{Sink, Tcp, Tuple};
use twinpath_time::Instant;

use super::TcpClaims;

/// What the programs are to know of them, and what they know.
#[derive(Debug, Default)]
pub(crate) struct LeavingRecords {
    /// The numbers of half-open connections of which they are to be told.
    untold: Range<u32>,
    /// Those of the ones that have begun since.
    late: VecDeque<u32>,
    /// Those that are answered again, as they were told.
    unanswered: VecDeque<u32>,
    /// There is a path again: they are told so.
    is_back: bool,
    /// Whether they are to be told of those in TIME_WAIT.
    has_time_wait: bool,
    /// Those in TIME_WAIT of which they know, by the end of their time and by a number of their own.
    ended: BTreeMap<(Instant, u32), Tuple>,
    next_ended: u32,
}

impl LeavingRecords {
    /// The path ends.
    pub(crate) fn begin(&mut self, tcp: &Tcp) {
        self.tell_all(tcp, false);
        self.has_time_wait = tcp.count().2 > 0;
    }

    /// There is a path again: handshakes that are still under way go on by it.
    pub(crate) fn end(&mut self, tcp: &Tcp) {
        self.tell_all(tcp, true);
        self.has_time_wait = false;
    }

    fn tell_all(&mut self, tcp: &Tcp, is_back: bool) {
        (self.untold, self.is_back) = (0..tcp.half_open_numbers(), is_back);
        self.late.clear();
        self.unanswered.clear();
    }

    /// A handshake has begun since the path has ended, under this number.
    pub(crate) fn add_half_open(&mut self, number: u32) {
        if !self.untold.contains(&number) {
            self.late.push_back(number);
        }
    }

    /// Records that have begun since are to be told, too.
    pub(crate) fn add_time_wait(&mut self, tcp: &Tcp) {
        self.has_time_wait |= tcp.count().2 > 0;
    }

    /// Whether a port is needed, or the programs are to be told more.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.untold.is_empty() || !self.late.is_empty() || !self.unanswered.is_empty() || self.has_time_wait
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
            && let Some(number) = self.late.pop_front().or_else(|| self.untold.next())
        {
            if let Some(tuple) = tcp.half_open_at(number) {
                if self.is_back {
                    claims.reclaim(tuple.local(), tuple.remote());
                } else {
                    claims.half_open(tuple.local(), tuple.remote());
                    self.unanswered.push_back(number);
                }
                left -= 1;
            }
        }
        while left > 0 && self.has_time_wait {
            if let Some((tuple, until)) = tcp.leave_time_wait() {
                claims.end(tuple.local(), tuple.remote());
                self.ended.insert((until, self.next_ended), tuple);
                self.next_ended = self.next_ended.wrapping_add(1);
                left -= 1;
            } else {
                self.has_time_wait = false;
            }
        }
        while left > 0 && self.deadline() <= now {
            let Some((_, tuple)) = self.ended.pop_first() else { break };
            claims.release(tuple.local(), tuple.remote());
            left -= 1;
        }
        left
    }

    /// Answers again those SYNs of which the programs were told.
    pub(crate) fn answer(&mut self, now: Instant, tcp: &mut Tcp, sink: &mut impl Sink) {
        for number in self.unanswered.drain(..) {
            tcp.answer_again(now, number, sink);
        }
    }

    /// When a tuple is to be released.
    pub(crate) fn deadline(&self) -> Instant {
        self.ended.first_key_value().map_or(Instant::NEVER, |((until, _), _)| *until)
    }

    /// All of them may be claimed again.
    pub(crate) fn release_all(&mut self, claims: &mut dyn TcpClaims) {
        while let Some((_, tuple)) = self.ended.pop_first() {
            claims.release(tuple.local(), tuple.remote());
        }
    }
}
