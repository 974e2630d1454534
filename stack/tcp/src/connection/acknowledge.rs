//! What an acknowledgement says: the window, what has arrived, and how long it took.

use twinpath_time::Instant;
use twinpath_wire::tcp::Flags;

use super::receive::STAMP_AGE_MAX;
use super::{Connection, Events, Network, Shared, State, Timer, flag};
use crate::clock::micros;
use crate::congestion::{Acked, Control};
use crate::flight::{Delivered, Newest};
use crate::handshake::OpenedBy;
use crate::segment::Segment;
use crate::seq::Seq;

/// What one acknowledgement has changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// `snd_una`, segments in flight, and the end of the highest selectively acknowledged segment before.
    pub(super) una: Seq,
    pub(super) in_flight: u32,
    pub(super) highest: Seq,
    /// Segments taken for lost before.
    pub(super) lost: u32,
    pub(super) delivered: Delivered,
    /// It acknowledges new data cumulatively.
    pub(super) advances: bool,
    /// It acknowledges nothing new, holds no data and does not change the window.
    pub(super) duplicate: bool,
    /// It reports a duplicate at the receiver (RFC 2883).
    pub(super) dsack: bool,
    /// It echoes a congestion mark.
    pub(super) congestion: bool,
    /// A retransmission was found lost.
    pub(super) lost_again: bool,
}

impl Change {
    /// Segments delivered.
    pub(super) const fn segments(&self) -> u32 {
        self.delivered.acked - self.delivered.acked_sacked + self.delivered.sacked
    }
}

impl Connection {
    /// Takes the acknowledgement of a valid segment. False if the segment is to be dropped for it.
    pub(super) fn acknowledge(&mut self, now: Instant, segment: &Segment<'_>, shared: &mut Shared) -> bool {
        let old = segment.ack.before(self.snd_una);
        let too_old = old && segment.ack.before(self.snd_una - self.max_window.max(1));
        if too_old || segment.ack.after(self.snd_nxt) {
            // RFC 5961 section 5.2.
            shared.counters.ack_out_of_range += 1;
            self.challenge(now, shared);
            return false;
        }
        self.last_received = now;
        if self.options.keepalive != twinpath_time::Duration::MAX {
            self.keepalive_at = now + self.options.keepalive;
            self.keepalive_probes = 0;
        }
        self.note_stamp(now, segment);
        self.last_echo = segment.options.timestamps.map_or(0, |times| times.echo);
        let mut change = Change {
            una: self.snd_una,
            in_flight: self.flight.in_flight(),
            highest: if self.flight.sacked > 0 { self.flight.highest_sacked } else { self.snd_una },
            lost: self.flight.lost,
            delivered: Delivered::default(),
            advances: segment.ack.after(self.snd_una),
            duplicate: false,
            dsack: false,
            congestion: segment.has(Flags::ECE) && !segment.has(Flags::SYN) && self.is(flag::ECN),
            lost_again: false,
        };
        if old {
            self.selective(now, segment, &mut change, shared);
            if change.segments() > 0 || change.dsack {
                self.recover(now, &mut change, shared);
            }
            return true;
        }
        let updated = self.update_window(segment);
        self.probes = 0;
        if self.flight.is_empty() && !change.advances {
            if segment.options.has_sack_blocks() {
                self.selective(now, segment, &mut change, shared);
            }
            if change.dsack {
                self.recover(now, &mut change, shared);
            }
            // The copies of a probe, or of what was sent again, are answered when nothing is in flight any more.
            change.duplicate = segment.len() == 0 && !updated;
            self.take_probe_answer(now, segment.ack, &change, shared);
            if self.timer != Timer::None {
                self.set(flag::REARM);
            }
            return true;
        }
        if segment.options.has_sack_blocks() {
            self.selective(now, segment, &mut change, shared);
        }
        if change.advances {
            self.advance(now, segment, &mut change, shared);
        }
        change.duplicate = !change.advances && segment.len() == 0 && !updated;
        self.after_acknowledgement(now, segment, &mut change, shared);
        true
    }

    /// RFC 7323 section 4.3: the echo is of the segment that the last acknowledgement was for.
    #[inline]
    pub(super) fn note_stamp(&mut self, now: Instant, segment: &Segment<'_>) {
        if let Some(times) = segment.options.timestamps
            && self.is(flag::TIMESTAMPS)
            && !segment.seq.after(self.rcv_wup)
            && (!Seq(times.value).before(Seq(self.ts_recent))
                || now.since(self.ts_recent_at) >= STAMP_AGE_MAX)
        {
            (self.ts_recent, self.ts_recent_at) = (times.value, now);
        }
    }

    /// RFC 9293 section 3.10.7.4. Returns whether the window has changed.
    fn update_window(&mut self, segment: &Segment<'_>) -> bool {
        let window = u32::from(segment.window) << self.snd_scale;
        let newer = segment.ack.after(self.snd_una)
            || segment.seq.after(self.snd_wl1)
            || segment.seq == self.snd_wl1 && (window > self.snd_wnd || window == 0);
        if !newer {
            return false;
        }
        self.snd_wl1 = segment.seq;
        if window == self.snd_wnd {
            return false;
        }
        let opened = window > self.snd_wnd;
        self.snd_wnd = window;
        self.max_window = self.max_window.max(window);
        if opened && self.timer_is(Timer::Persist) {
            self.backoff = 0;
            self.set(flag::REARM);
        }
        true
    }

    /// Takes what is acknowledged out of flight.
    fn advance(&mut self, now: Instant, segment: &Segment<'_>, change: &mut Change, shared: &mut Shared) {
        let ack = segment.ack;
        let Self { flight, rack, rtt, flags, .. } = self;
        let min_us = rtt.min_us();
        let mut delivered = flight.acknowledge(ack, self.high_seq, |newest| {
            advance_rack(rack, flags, newest, now, min_us);
        });
        delivered.sacked = change.delivered.sacked;
        delivered.original |= change.delivered.original;
        delivered.reordered = change.delivered.reordered;
        delivered.first_sacked_at = change.delivered.first_sacked_at;
        delivered.last_sacked_at = change.delivered.last_sacked_at;
        change.delivered = delivered;
        let fin_acked = self.is(flag::FIN_SENT) && ack == self.snd_nxt && ack == self.write_end() + 1;
        let bytes = (ack - self.snd_una).saturating_sub(u32::from(fin_acked));
        self.send.discard(bytes as usize);
        self.snd_una = ack;
        self.totals.bytes_acked += u64::from(bytes);
        (self.retries, self.backoff) = (0, 0);
        self.stalled_since = now;
        if self.rare.cwr_end.is_some_and(|end| !ack.before(end)) {
            self.rare.cwr_end = None;
        }
        self.set(flag::REARM);
        if self.is(flag::CORKED) {
            self.uncork();
        }
        if self.is(flag::MARKED) {
            self.urgent_was_acknowledged(bytes);
        }
        self.tell_room(shared);
        if fin_acked {
            self.fin_acknowledged(now, shared);
        }
    }

    /// Tells the program that there is room, once a third of the buffer is free after it was full. The buffer has
    /// grown with the window by then: a path is full if what is sent and what is written next both fit.
    pub(super) fn tell_room(&mut self, shared: &Shared) {
        if self.is(flag::WANTS_ROOM) && self.options.send_buffer.is_none() && !shared.pool.is_short() {
            let path = self.window.cwnd.saturating_mul(u32::from(self.mss)).saturating_mul(2);
            self.send_limit = self.send_limit.max(path.min(shared.config.send_max));
        }
        if self.is(flag::WANTS_ROOM)
            && self.send.len() as u32 <= self.send_limit / 3 * 2
            && self.unsent() <= self.options.unsent_low
        {
            self.clear(flag::WANTS_ROOM);
            self.tell(Events::WRITABLE);
        }
    }

    fn fin_acknowledged(&mut self, now: Instant, shared: &mut Shared) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.is(flag::ORPHAN) {
                    let wait = self.options.fin_wait.unwrap_or(shared.config.fin_wait_time);
                    self.rare.end_at = now + wait;
                }
            }
            State::Closing => self.finish_both(now, shared),
            State::LastAck => {
                self.opened_by = OpenedBy::Detached;
                self.end(super::Ended::Finished, shared);
            }
            _ => {}
        }
    }

    /// The SACK blocks (RFC 2018, RFC 2883): each is checked against what was sent.
    #[cold]
    pub(super) fn selective(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        change: &mut Change,
        shared: &mut Shared,
    ) {
        if !self.is(flag::SACK) {
            return;
        }
        let mut blocks = segment.options.sack_blocks().map(|(start, end)| (Seq(start), Seq(end)));
        let (first, second) = (blocks.next(), blocks.next());
        change.dsack = first.is_some_and(|first| self.is_dsack(first, second, segment.ack));
        if let Some((start, end)) = first.filter(|_| change.dsack) {
            shared.counters.dsacks_in += 1;
            self.take_dsack(start, end);
        }
        let una = self.snd_una.max(segment.ack);
        let Self { flight, rack, rtt, flags, .. } = self;
        let min_us = rtt.min_us();
        let reported = first.filter(|_| !change.dsack).into_iter().chain(second).chain(blocks);
        for (start, end) in reported {
            if !start.before(end) || end.after(self.snd_nxt) || !end.after(una) || start.before(self.snd_una)
            {
                continue;
            }
            flight.sack(start, end, self.high_seq, &mut change.delivered, |newest| {
                advance_rack(rack, flags, newest, now, min_us);
            });
        }
        if let Some(lowest) = change.delivered.reordered
            && self.network != Network::Loss
        {
            self.see_reordering(lowest, self.flight.highest_sacked);
        }
    }

    /// RFC 2883 section 4: the first block lies below the acknowledgement, or within the second.
    fn is_dsack(&self, first: (Seq, Seq), second: Option<(Seq, Seq)>, ack: Seq) -> bool {
        if first.0.before(ack) {
            return true;
        }
        second.is_some_and(|second| !first.1.after(second.1) && !first.0.before(second.0))
    }

    fn take_dsack(&mut self, start: Seq, end: Seq) {
        self.totals.duplicates = self.totals.duplicates.wrapping_add(1);
        let Some(marker) = self.rare.undo.marker else { return };
        if let Some(left) = self.rare.undo.retransmissions
            && left > 0
            && end.after(marker)
        {
            let segments = end.since(start).div_ceil(u32::from(self.mss).max(1)).max(1);
            self.rare.undo.retransmissions = Some(left.saturating_sub(segments));
        }
    }

    /// A segment was delivered behind a higher one that was sent later: the network reorders this far.
    pub(super) fn see_reordering(&mut self, lowest: Seq, highest: Seq) {
        if !highest.after(lowest) {
            return;
        }
        let segments = highest.since(lowest).div_ceil(u32::from(self.mss).max(1));
        self.reordering = self.reordering.max(segments.min(300));
        self.rack.reordering_seen = true;
        self.totals.reorderings = self.totals.reorderings.wrapping_add(1);
    }

    /// Round trips, loss recovery and the congestion window, in this order.
    fn after_acknowledgement(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        change: &mut Change,
        shared: &mut Shared,
    ) {
        self.time(now, segment, change);
        if change.advances && self.dupacks > 0 {
            // Without SACK, duplicates have counted segments that are acknowledged now.
            let counted = self.dupacks.min(change.delivered.acked.saturating_sub(1));
            change.delivered.acked_sacked = counted;
        }
        if change.advances
            && self.is(flag::SACK)
            && let Some(lowest) = change.delivered.lowest
            && lowest.before(change.highest)
        {
            self.see_reordering(lowest, change.highest);
        }
        let delivered = change.segments();
        self.totals.delivered = self.totals.delivered.wrapping_add(delivered);
        self.take_probe_answer(now, segment.ack, change, shared);
        if self.is(flag::PROBE_DUE) && delivered > 0 {
            // The probe found no room to leave, and the answer that it asks for has come.
            self.clear(flag::PROBE_DUE);
            self.set(flag::REARM);
        }
        let doubtful = change.duplicate
            || change.delivered.sacked > 0
            || change.dsack
            || change.congestion
            || self.network != Network::Open;
        if doubtful {
            self.recover(now, change, shared);
        }
        self.control(now, change, shared);
    }

    /// The congestion window after an acknowledgement.
    fn control(&mut self, now: Instant, change: &Change, _shared: &Shared) {
        let delivered = change.segments();
        if matches!(self.network, Network::Reduced | Network::Recovery) {
            let safe = change.advances && self.flight.lost <= change.lost && !change.congestion;
            if let Some(cwnd) = self.rare.prr.allowed(delivered, self.flight.in_flight(), safe) {
                self.window.cwnd = cwnd.max(1);
            }
            return;
        }
        let grows = if self.reordering > 3 { delivered > 0 } else { change.advances };
        if !grows || delivered == 0 {
            return;
        }
        let acked = Acked {
            now,
            segments: delivered,
            rtt_us: self.sample_us(now, change),
            srtt_us: self.rtt.srtt_us(),
            min_rtt_us: self.rtt.min_us(),
            in_flight: change.in_flight,
            una: self.snd_una.0,
            next: self.snd_nxt.0,
            is_limited: self.is_window_limited(),
        };
        self.end_skipping(now);
        self.congestion.on_ack(&mut self.window, &acked);
    }

    /// Congestion control was not told of acknowledgements while the program limited what was sent: as if that had been
    /// a pause.
    #[inline]
    pub(super) fn end_skipping(&mut self, now: Instant) {
        if self.is(flag::SKIPPED) {
            self.clear(flag::SKIPPED);
            self.congestion.on_idle_end(now, twinpath_time::Duration::MAX);
        }
    }

    /// Whether the congestion window limits what is sent (RFC 7661; Linux's `tcp_is_cwnd_limited`): in slow start,
    /// using half of it is enough.
    #[inline]
    pub(super) fn is_window_limited(&self) -> bool {
        if self.is(flag::WINDOW_LIMITED) {
            return true;
        }
        self.window.cwnd < self.window.ssthresh && self.window.cwnd < 2 * self.window_used
    }

    /// The round trip of the newest segment that was delivered and never retransmitted, us.
    fn sample_us(&self, now: Instant, change: &Change) -> Option<u32> {
        let at = match (change.delivered.last_at, change.delivered.retransmitted) {
            (Some(at), false) => Some(at),
            _ => change.delivered.last_sacked_at,
        };
        at.map(|at| micros(now, at))
    }

    /// RFC 6298, with Karn's rule; RFC 7323 section 4 if only a retransmission was acknowledged.
    fn time(&mut self, now: Instant, segment: &Segment<'_>, change: &Change) {
        let delivered = &change.delivered;
        let cumulative = delivered.first_at.filter(|_| !delivered.retransmitted);
        let echo = segment.options.timestamps.filter(|times| {
            self.is(flag::TIMESTAMPS) && times.echo != 0 && change.advances && delivered.acked > 0
        });
        let rtt_us = match (cumulative.or(delivered.first_sacked_at), echo) {
            (Some(at), _) => micros(now, at),
            (None, Some(times)) => {
                let elapsed_ms = self.stamp(now).wrapping_sub(times.echo);
                if elapsed_ms > i32::MAX as u32 / 1000 {
                    return;
                }
                elapsed_ms.max(1) * 1000
            }
            (None, None) => return,
        };
        self.rtt.sample(now, rtt_us, self.snd_una.0, self.snd_nxt.0);
    }
}

/// RFC 8985 section 6.2, step 2: the segment that was sent last among the delivered ones. A retransmission that was
/// acknowledged sooner than any round trip stands for its original.
fn advance_rack(rack: &mut super::Rack, flags: &mut u32, newest: &Newest, now: Instant, min_us: u32) {
    let rtt_us = micros(now, newest.at);
    if newest.retransmitted && rtt_us < min_us {
        return;
    }
    *flags |= flag::RACK_ADVANCED;
    rack.rtt_us = rtt_us;
    if newest.at > rack.at || newest.at == rack.at && newest.end.after(rack.end) {
        (rack.at, rack.end) = (newest.at, newest.end);
    }
}
