//! Urgent data (RFC 9293 section 3.8.5): how far into the stream the reader is to hurry. Its bytes stay in line, as
//! RFC 6093 section 2.1 has it.

use twinpath_wire::tcp::{self, Flags};

use super::{Connection, Events, State, flag};
use crate::segment::Segment;
use crate::seq::Seq;

impl Connection {
    /// The peer says where its urgent data ends (RFC 9293 section 3.10.7.4, sixth check). The program is told if that
    /// lies behind what it has read and behind what it was told before.
    #[cold]
    pub(super) fn take_urgent(&mut self, segment: &Segment<'_>) {
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            return;
        }
        let ahead = ((segment.seq + u32::from(segment.urgent)) - self.rcv_nxt) as i32;
        let arrived = self.totals.bytes_received;
        let end = arrived.saturating_add_signed(i64::from(ahead));
        let read = arrived - self.receive.len() as u64;
        if end > self.rare.urgent_end.max(read) {
            self.rare.urgent_end = end;
            self.tell(Events::URGENT);
        }
    }

    /// Bytes up to the end of urgent data, if the program has left the last `unread` of those that have arrived. What
    /// would lie behind the end of the stream does not count: it never comes.
    pub(crate) fn urgent_left(&self, unread: usize) -> u64 {
        let arrived = self.totals.bytes_received;
        let is_whole = self.is(flag::FIN_RECEIVED) || self.state == State::Closed;
        let end = if is_whole { self.rare.urgent_end.min(arrived) } else { self.rare.urgent_end };
        end.saturating_sub(arrived - unread as u64)
    }

    /// What was written so far is urgent. The peer hears of it although its window is closed (RFC 9293 section 3.4,
    /// MUST-66, has it listen then).
    #[cold]
    pub(super) fn urge(&mut self) {
        self.rare.urgent = self.send.len() as u32;
        self.set(flag::MARKED);
        if matches!(self.state, State::Established | State::CloseWait) && self.is_blocked_by_receiver() {
            self.set(flag::ACK_NOW);
        }
    }

    /// The number behind the last urgent byte, if there is one.
    #[inline]
    fn urgent_number(&self) -> Seq {
        self.data_start() + self.rare.urgent
    }

    /// Whether the byte at `seq`, or one behind it, is urgent.
    #[inline]
    pub(super) fn is_urgent_from(&self, seq: Seq) -> bool {
        self.rare.urgent > 0 && self.urgent_number().after(seq)
    }

    /// Says in a segment's header where urgent data ends, if that lies ahead of it. An end that is too far away is
    /// said as the largest distance (RFC 2675 section 5.2): later segments say more.
    #[cold]
    pub(super) fn point(&self, header: &mut tcp::Header) {
        let seq = Seq(header.sequence);
        if self.is_urgent_from(seq) {
            header.urgent = (self.urgent_number() - seq).min(u32::from(u16::MAX)) as u16;
            header.flags.0 |= Flags::URG;
        }
    }

    /// The peer has acknowledged the first `bytes` of the send buffer.
    #[cold]
    pub(super) fn urgent_was_acknowledged(&mut self, bytes: u32) {
        if let Some(rare) = self.rare.there() {
            rare.urgent = rare.urgent.saturating_sub(bytes);
        }
        self.note_marks();
    }
}
