//! What arrives: the checks of RFC 9293 section 3.10.7 with those of RFC 5961 and RFC 7323, then data and FIN.

use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::Flags;

use super::{Connection, Ended, Events, Fresh, Reply, Shared, State, Timer, flag};
use crate::config::{Acks, Ecn};
use crate::handshake::Handshake;
use crate::segment::Segment;
use crate::seq::Seq;

/// After this time the peer's clock may have wrapped: its timestamps are not compared any more (RFC 7323 section 5.5).
pub(super) const STAMP_AGE_MAX: Duration = Duration::from_secs(24 * 24 * 3600);

impl Connection {
    /// Takes a segment of this connection. [`Self::settle`] has to follow.
    pub(crate) fn segment(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        shared: &mut Shared,
    ) -> (Fresh, Reply) {
        self.totals.segments_in = self.totals.segments_in.wrapping_add(u32::from(self.units(segment)));
        match self.state {
            State::SynSent => {
                let reply = self.in_syn_sent(now, segment, shared);
                let is_open = matches!(self.state, State::Established | State::FinWait1);
                if is_open && segment.has(Flags::URG) {
                    self.take_urgent(segment);
                }
                if !is_open || segment.payload.is_empty() && !segment.has(Flags::FIN) {
                    return (Fresh::default(), reply);
                }
                // What comes with SYN-ACK follows SYN (RFC 9293 section 3.10.7.3).
                let flags = Flags(segment.flags.0 & !Flags::SYN);
                self.data(now, &Segment { seq: segment.seq + 1, flags, ..*segment }, shared)
            }
            State::Closed => {
                (Fresh::default(), if segment.has(Flags::RST) { Reply::None } else { Reply::Reset })
            }
            _ => self.synchronised(now, segment, shared),
        }
    }

    /// Segments that it was made of.
    pub(super) fn units(&self, segment: &Segment<'_>) -> u16 {
        if segment.unit == 0 {
            1
        } else {
            (segment.payload.len() as u32).div_ceil(u32::from(segment.unit)).max(1) as u16
        }
    }

    #[cold]
    fn in_syn_sent(&mut self, now: Instant, segment: &Segment<'_>, shared: &mut Shared) -> Reply {
        let acks = segment.has(Flags::ACK);
        if acks && (!segment.ack.after(self.iss) || segment.ack.after(self.snd_nxt)) {
            shared.counters.ack_out_of_range += 1;
            return if segment.has(Flags::RST) { Reply::None } else { Reply::Reset };
        }
        let echo = segment.options.timestamps.filter(|_| acks && shared.config.timestamps);
        if echo.is_some_and(|times| times.echo != 0 && self.is_stamp_foreign(times.echo, now)) {
            shared.counters.paws_rejected += 1;
            return if segment.has(Flags::RST) { Reply::None } else { Reply::Reset };
        }
        if segment.has(Flags::RST) {
            if acks {
                shared.counters.failed_opens += 1;
                self.end(Ended::Refused, shared);
            }
            return Reply::None;
        }
        if !segment.has(Flags::SYN) {
            shared.counters.bad_flags += 1;
            return Reply::None;
        }
        let mut handshake = Handshake::offered(self.iss, segment, &self.tuple, &shared.config);
        // The answer to our request is ECE without CWR; a peer that opens at the same time asks by both
        // (RFC 3168 section 6.1.1).
        let answer = segment.flags.0 & (Flags::ECE | Flags::CWR);
        handshake.ecn = if acks {
            self.is(flag::ECN) && answer == Flags::ECE
        } else {
            shared.config.ecn != Ecn::Off && answer == Flags::ECE | Flags::CWR
        };
        self.agree(&handshake, &shared.config, now);
        if !acks {
            // Both open at once: SYN-ACK is sent until ours is acknowledged.
            self.state = State::SynReceived;
            self.set(flag::SYN_DUE);
            self.keep_early(segment, shared);
            return Reply::None;
        }
        self.time_handshake(now, segment);
        self.establish(now, &shared.config);
        shared.counters.active_opens += 1;
        self.snd_wl1 = segment.seq;
        self.set(flag::ACK_NOW);
        Reply::None
    }

    /// Data on the SYN of a peer that opens at the same time waits for the end of the handshake (RFC 9293
    /// section 3.10.7.3).
    fn keep_early(&mut self, segment: &Segment<'_>, shared: &mut Shared) {
        let len = segment.payload.len().min(self.rcv_wnd as usize);
        if len > 0
            && !shared.pool.is_short()
            && self.receive.write_ahead(0, &segment.payload[..len], &mut shared.pool)
        {
            self.rare.reassembly.add(self.rcv_nxt, self.rcv_nxt + len as u32, &mut None);
        }
    }

    /// The handshake has ended: what came with the SYN has arrived. Nobody is to read it if the program has closed the
    /// connection: then it comes again, and is refused.
    #[cold]
    fn take_early(&mut self, now: Instant, shared: &mut Shared) {
        let end = self.rare.reassembly.advance(self.rcv_nxt).filter(|_| !self.is(flag::ORPHAN));
        let Some(end) = end else { return self.release(shared) };
        let len = end - self.rcv_nxt;
        self.receive.commit(len as usize);
        self.accept(now, len);
        self.tell(Events::READABLE);
    }

    /// Whether a timestamp was not sent by this connection.
    fn is_stamp_foreign(&self, echo: u32, now: Instant) -> bool {
        Seq(echo).after(Seq(self.stamp(now)))
    }

    /// The round trip of the handshake. A retransmitted SYN gives none, unless timestamps tell which was answered
    /// (Karn's rule, RFC 6298 section 3).
    pub(super) fn time_handshake(&mut self, now: Instant, segment: &Segment<'_>) {
        let times = segment.options.timestamps.filter(|_| self.is(flag::TIMESTAMPS));
        let rtt_us = match times {
            _ if !self.is(flag::SYN_AGAIN) => {
                u32::try_from(now.nanos_since(self.last_sent) / 1000).unwrap_or(u32::MAX)
            }
            Some(times) if times.echo != 0 => self.stamp(now).wrapping_sub(times.echo).saturating_mul(1000),
            _ => return,
        };
        self.rtt.sample(now, rtt_us.max(1), self.snd_una.0, self.snd_nxt.0);
    }

    /// The states from SYN-RECEIVED on (RFC 9293 section 3.10.7.4).
    fn synchronised(&mut self, now: Instant, segment: &Segment<'_>, shared: &mut Shared) -> (Fresh, Reply) {
        if !self.is_valid(now, segment, shared) {
            return (Fresh::default(), Reply::None);
        }
        if !segment.has(Flags::ACK) {
            shared.counters.bad_flags += 1;
            return (Fresh::default(), Reply::None);
        }
        if self.state == State::SynReceived {
            if segment.ack != self.iss + 1 {
                shared.counters.ack_out_of_range += 1;
                return (Fresh::default(), Reply::Reset);
            }
            self.time_handshake(now, segment);
            self.establish(now, &shared.config);
            shared.counters.active_opens += 1;
            self.snd_wl1 = segment.seq;
            if !self.rare.reassembly.is_empty() {
                self.take_early(now, shared);
            }
            if segment.has(Flags::SYN) {
                // Its window has no scale (RFC 7323 section 2.2), and data on it comes again.
                self.snd_wnd = u32::from(segment.window);
                self.set(flag::ACK_NOW);
                return (Fresh::default(), Reply::None);
            }
            self.snd_wnd = u32::from(segment.window) << self.snd_scale;
            self.max_window = self.max_window.max(self.snd_wnd);
        }
        if !self.acknowledge(now, segment, shared) {
            return (Fresh::default(), Reply::None);
        }
        if self.state == State::Closed {
            return (Fresh::default(), Reply::None);
        }
        if segment.options.user_timeout.is_some() {
            self.rare.peer_timeout = segment.options.user_timeout;
        }
        self.echo_congestion(segment);
        if segment.has(Flags::URG) {
            self.take_urgent(segment);
        }
        if segment.payload.is_empty() && !segment.has(Flags::FIN) {
            return (Fresh::default(), Reply::None);
        }
        self.data(now, segment, shared)
    }

    /// Whether the segment may be from this connection's peer and is of the present: timestamps, sequence number, RST,
    /// SYN, in this order, as Linux checks them (RFC 5961 sections 3 to 5, RFC 7323 section 5.3).
    pub(super) fn is_valid(&mut self, now: Instant, segment: &Segment<'_>, shared: &mut Shared) -> bool {
        if self.is_old(now, segment) && !segment.has(Flags::RST) {
            shared.counters.paws_rejected += 1;
            self.refuse(now, segment, shared);
            return false;
        }
        if !self.is_in_window(segment) {
            shared.counters.out_of_window += 1;
            if !segment.has(Flags::RST) {
                self.refuse(now, segment, shared);
            }
            return false;
        }
        if segment.has(Flags::RST) {
            let last = self.rare.reassembly.end().filter(|_| self.is(flag::SACK));
            let is_exact = segment.seq == self.rcv_nxt || Some(segment.seq) == last;
            if is_exact || !shared.config.challenge_resets {
                self.reset(shared);
            } else {
                self.challenge(now, shared);
            }
            return false;
        }
        if segment.has(Flags::SYN) && !self.is_crossing(segment) {
            if shared.config.challenge_syns || segment.seq.before(self.rcv_nxt) {
                self.challenge(now, shared);
            } else {
                self.set(flag::SEND_RESET);
                self.reset(shared);
            }
            return false;
        }
        true
    }

    /// SYN-ACK of a peer that has opened at the same time (RFC 9293 figure 8).
    fn is_crossing(&self, segment: &Segment<'_>) -> bool {
        self.state == State::SynReceived
            && segment.has(Flags::ACK)
            && segment.seq + 1 == self.rcv_nxt
            && segment.ack == self.iss + 1
    }

    /// PAWS (RFC 7323 section 5.3, R1). A segment without the option is taken, as Linux takes it.
    fn is_old(&self, now: Instant, segment: &Segment<'_>) -> bool {
        if !self.is(flag::TIMESTAMPS) {
            return false;
        }
        let Some(times) = segment.options.timestamps else { return false };
        Seq(times.value).before(Seq(self.ts_recent))
            && now.since(self.ts_recent_at) < STAMP_AGE_MAX
            // Acknowledgements can overtake each other: an old one without data says nothing new.
            && !(segment.len() == 0
                && segment.seq == self.rcv_nxt
                && segment.ack == self.snd_una
                && self.ts_recent.wrapping_sub(times.value) <= self.rtt.rto_us() / 1000
                && segment.has(Flags::ACK)
                && u32::from(segment.window) << self.snd_scale == self.snd_wnd)
    }

    /// RFC 9293 section 3.10.7.4, first check, as Linux has it: a segment is old if it ends before the window that was
    /// last offered.
    #[inline]
    fn is_in_window(&self, segment: &Segment<'_>) -> bool {
        !segment.end().before(self.rcv_wup) && !segment.seq.after(self.rcv_nxt + self.receive_window())
    }

    /// What is left of the window that was last offered.
    #[inline]
    pub(super) fn receive_window(&self) -> u32 {
        (self.rcv_wup + self.rcv_wnd).since(self.rcv_nxt)
    }

    /// Answers a segment that is refused by an acknowledgement, and what it holds twice by DSACK. Linux limits the
    /// rate of answers to segments without data.
    #[cold]
    fn refuse(&mut self, now: Instant, segment: &Segment<'_>, shared: &mut Shared) {
        if segment.has(Flags::SYN) {
            self.challenge(now, shared);
            return;
        }
        if segment.payload.is_empty() && !segment.has(Flags::FIN) && !self.may_answer(now, shared) {
            return;
        }
        if segment.seq.before(self.rcv_nxt) && !segment.payload.is_empty() {
            shared.counters.duplicates_in += 1;
            let end = segment.end().min(self.rcv_nxt);
            self.report(segment.seq, end, shared);
        }
        self.set(flag::ACK_NOW);
    }

    /// RFC 5961 sections 3.2, 4.2 and 5.2, within the limits of section 7.
    #[cold]
    pub(super) fn challenge(&mut self, now: Instant, shared: &mut Shared) {
        if self.may_challenge(now, shared) {
            self.set(flag::ACK_NOW);
        }
    }

    /// Whether the last answer to a segment that was refused is long enough ago.
    fn may_answer(&mut self, now: Instant, shared: &Shared) -> bool {
        let each = shared.config.challenge_interval;
        let too_soon = self.rare.challenged_at != Instant::ZERO && now.since(self.rare.challenged_at) < each;
        if !too_soon {
            self.rare.challenged_at = now;
        }
        !too_soon
    }

    fn may_challenge(&mut self, now: Instant, shared: &mut Shared) -> bool {
        if !self.may_answer(now, shared) || !shared.may_challenge(now) {
            shared.counters.challenges_suppressed += 1;
            return false;
        }
        shared.counters.challenges += 1;
        true
    }

    #[cold]
    fn reset(&mut self, shared: &mut Shared) {
        shared.counters.resets += 1;
        let why = match self.state {
            State::SynReceived => Ended::Refused,
            _ => Ended::Reset,
        };
        self.end(why, shared);
    }

    /// RFC 3168 section 6.1.3: a mark is echoed until the sender says CWR.
    #[inline]
    fn echo_congestion(&mut self, segment: &Segment<'_>) {
        if !self.is(flag::ECN) {
            return;
        }
        if segment.has(Flags::CWR) {
            self.clear(flag::ECHO_CONGESTION);
        }
        if segment.congestion {
            if !self.is(flag::ECHO_CONGESTION) {
                self.set(flag::ECHO_CONGESTION);
                self.quicken(2);
                self.set(flag::ACK_NOW);
            }
            self.totals.delivered_ce = self.totals.delivered_ce.wrapping_add(1);
        }
    }

    /// Takes payload and FIN.
    fn data(&mut self, now: Instant, segment: &Segment<'_>, shared: &mut Shared) -> (Fresh, Reply) {
        let none = (Fresh::default(), Reply::None);
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            // The peer has sent FIN: this is a copy of it.
            self.set(flag::ACK_NOW);
            return none;
        }
        if self.is(flag::ORPHAN)
            && segment.seq + segment.payload.len() as u32 != segment.seq
            && (segment.seq + segment.payload.len() as u32).after(self.rcv_nxt)
        {
            // Nobody will read it (RFC 2525 section 2.17).
            shared.counters.resets += 1;
            self.end(Ended::Aborted, shared);
            return (Fresh::default(), Reply::Reset);
        }
        let payload_end = segment.seq + segment.payload.len() as u32;
        let fin = segment.has(Flags::FIN);
        self.see_size(segment);
        let limit = self.rcv_nxt + self.receive_window();
        if !segment.end().after(self.rcv_nxt) {
            // A duplicate.
            shared.counters.duplicates_in += 1;
            self.report(segment.seq, segment.end(), shared);
            self.answer_at_once();
            return none;
        }
        if limit == self.rcv_nxt && !segment.payload.is_empty()
            || !segment.seq.before(limit.max(self.rcv_nxt + 1))
        {
            // It probes a closed window, or lies behind it.
            shared.counters.out_of_window += 1;
            self.answer_at_once();
            return none;
        }
        let start = segment.seq.max(self.rcv_nxt);
        let end = payload_end.min(limit.max(start));
        let fin = fin && end == payload_end;
        if segment.seq.before(self.rcv_nxt) {
            shared.counters.duplicates_in += 1;
            self.report(segment.seq, self.rcv_nxt, shared);
            // The sender waits for this: it may have reduced its window for nothing.
            self.set(flag::ACK_NOW);
        }
        let (skip, len) = ((start - segment.seq) as usize, (end - start) as usize);
        let units = u32::from(self.units(segment));
        self.totals.data_segments_in = self.totals.data_segments_in.wrapping_add(units);
        (self.last_received, self.data_at) = (now, now);
        if start == self.rcv_nxt && self.rare.reassembly.is_empty() && self.receive.is_empty() {
            self.accept(now, len as u32);
            let fin = fin || self.rare.fin == Some(self.rcv_nxt + 1);
            return (Fresh { start: skip, len, fin }, Reply::None);
        }
        self.queue(now, start, &segment.payload[skip..skip + len], fin, shared);
        none
    }

    /// Puts payload behind what is queued, in order or ahead of it.
    fn queue(&mut self, now: Instant, start: Seq, payload: &[u8], fin: bool, shared: &mut Shared) {
        let distance = start - self.rcv_nxt;
        if distance > 0 && payload.is_empty() {
            self.rare.fin = fin.then_some(start + 1);
            self.set(flag::ACK_NOW);
            return;
        }
        if distance > 0 && shared.pool.is_short() {
            // It comes again. What is in order, and what is sent, has the rest of the memory.
            shared.counters.no_memory += 1;
            self.set(flag::ACK_NOW);
            return;
        }
        if !self.receive.write_ahead(distance as usize, payload, &mut shared.pool) {
            shared.counters.no_memory += 1;
            self.set(flag::ACK_NOW);
            return;
        }
        let end = start + payload.len() as u32;
        if distance > 0 {
            shared.counters.out_of_order += 1;
            self.totals.out_of_order = self.totals.out_of_order.wrapping_add(1);
            if fin {
                self.rare.fin = Some(end + 1);
            }
            let mut duplicate = None;
            if !payload.is_empty() && !self.rare.reassembly.add(start, end, &mut duplicate) {
                shared.counters.no_memory += 1;
                self.release(shared);
            }
            if let Some((from, to)) = duplicate {
                self.report(from, to, shared);
            }
            self.set(flag::ACK_NOW);
            return;
        }
        let had_gap = !self.rare.reassembly.is_empty();
        // One duplicate is reported at a time: the first (RFC 2883 section 4).
        if self.rare.duplicate.is_none()
            && let Some((from, to)) = self.rare.reassembly.overlap(start, end)
        {
            self.report(from, to, shared);
        }
        let whole = self.rare.there().and_then(|rare| rare.reassembly.advance(end)).unwrap_or(end);
        let len = whole - self.rcv_nxt;
        self.receive.commit(len as usize);
        self.accept(now, len);
        self.tell(Events::READABLE);
        if had_gap {
            self.set(flag::ACK_NOW);
        }
        if fin && whole == end || self.rare.fin == Some(whole + 1) {
            self.take_fin(now, shared);
        }
    }

    /// In-order bytes have arrived.
    #[inline(always)]
    pub(super) fn accept(&mut self, now: Instant, len: u32) {
        self.rcv_nxt += len;
        self.totals.bytes_received += u64::from(len);
        self.ack_soon(len);
        if self.rcv_nxt.after(self.tuning.edge) {
            self.time_window(now);
        }
    }

    /// What the service has left of fresh payload is kept; FIN is taken. If there is no memory, what is not kept has
    /// not arrived: nothing has acknowledged it yet.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant, rest: &[u8], fin: bool, shared: &mut Shared) {
        if !rest.is_empty() {
            match self.receive.reserve(rest.len(), &mut shared.pool) {
                Some(room) => {
                    room.copy_from_slice(rest);
                    self.receive.commit(rest.len());
                    self.tell(Events::READABLE);
                }
                None => {
                    self.take_back(rest.len() as u32, shared);
                    return;
                }
            }
        }
        if fin {
            self.take_fin(now, shared);
        }
    }

    /// The last `len` bytes have not arrived: there is no memory to keep them, and nothing has acknowledged them.
    pub(crate) fn take_back(&mut self, len: u32, shared: &mut Shared) {
        shared.counters.no_memory += 1;
        self.rcv_nxt = self.rcv_nxt - len;
        self.totals.bytes_received -= u64::from(len);
        self.lent = self.lent.min(self.receive.len() as u32);
        self.set(flag::ACK_NOW);
    }

    /// The peer sends no more (RFC 9293 section 3.10.7.4, eighth check).
    fn take_fin(&mut self, now: Instant, shared: &mut Shared) {
        self.rcv_nxt += 1;
        self.set(flag::FIN_RECEIVED | flag::ACK_NOW);
        if let Some(rare) = self.rare.there() {
            rare.reassembly.clear();
            rare.fin = None;
        }
        self.tell(Events::READABLE);
        self.state = match self.state {
            State::FinWait1 => State::Closing,
            State::FinWait2 => {
                self.finish_both(now, shared);
                return;
            }
            State::Established => State::CloseWait,
            other => other,
        };
    }

    /// Both have sent FIN, ours is acknowledged: a record of TIME_WAIT takes over.
    pub(super) fn finish_both(&mut self, _now: Instant, shared: &mut Shared) {
        self.end(Ended::Finished, shared);
    }

    /// The peer asks, or has lost its state: it wants to know what has arrived.
    #[cold]
    fn answer_at_once(&mut self) {
        self.quicken(2);
        self.clear(flag::INTERACTIVE);
        self.set(flag::ACK_NOW);
    }

    /// Reports a duplicate with the next acknowledgement (RFC 2883).
    fn report(&mut self, start: Seq, end: Seq, shared: &Shared) {
        if self.is(flag::SACK) && shared.config.dsack && start.before(end) {
            self.rare.duplicate = Some((start, end));
        }
    }

    /// Learns the size of the peer's full segments, by which acknowledgements are counted: the largest seen, or a
    /// smaller one that comes twice in a row and does not end a write (Linux's `tcp_measure_rcv_mss`).
    #[inline(always)]
    pub(super) fn see_size(&mut self, segment: &Segment<'_>) {
        let len = if segment.unit == 0 { segment.payload.len() } else { usize::from(segment.unit) };
        let len = len.min(usize::from(u16::MAX)) as u16;
        if len >= self.rcv_mss {
            self.rcv_mss = if segment.unit == 0 { len.min(self.offered_mss()) } else { len };
        } else if len >= 536 && !segment.has(Flags::PSH | Flags::FIN) {
            if self.rcv_len == len {
                self.rcv_mss = len;
            }
            self.rcv_len = len;
        }
    }

    /// An acknowledgement of `len` new bytes: at once if more than one full-sized segment is unacknowledged, if the
    /// connection is new, or if there are gaps; otherwise it waits for the program's answer (RFC 9293 section 3.8.6.3,
    /// RFC 5681 section 4.2).
    #[inline(always)]
    pub(super) fn ack_soon(&mut self, len: u32) {
        if len == 0 || self.is(flag::ACK_NOW) {
            return;
        }
        let pending = self.rcv_nxt - self.rcv_wup;
        let is_second = self.options.acks == Acks::EverySecond && self.is(flag::ACK_LATER);
        if pending > u32::from(self.rcv_mss)
            || is_second
            || self.quick > 0 && !self.is(flag::INTERACTIVE)
            || !self.rare.reassembly.is_empty()
            || self.is(flag::QUICK_ACK)
        {
            self.set(flag::ACK_NOW);
            return;
        }
        self.set(flag::ACK_LATER);
    }

    /// The next acknowledgements do not wait.
    pub(super) fn quicken(&mut self, count: u8) {
        if self.options.acks == Acks::Adaptive {
            self.quick = self.quick.max(count);
        }
    }

    /// The acknowledgement that waits is sent when this time has come.
    pub(super) fn delay_ack(&mut self, now: Instant, shared: &Shared) {
        if self.ack_at == Instant::NEVER {
            self.ack_at = now + shared.config.delayed_ack;
        }
    }

    /// The receiver's view of a round trip: the time in which a window was filled. With timestamps the sender's echo
    /// is better, but costs more (dynamic right-sizing).
    #[cold]
    fn time_window(&mut self, now: Instant) {
        let elapsed_us = u32::try_from(now.since(self.tuning.edge_at).as_micros()).unwrap_or(u32::MAX).max(1);
        let known = self.tuning.rtt_us;
        self.tuning.rtt_us =
            if known == 0 { elapsed_us } else { elapsed_us.min(known - known / 8 + elapsed_us / 8) };
        self.tuning.edge = self.rcv_nxt + self.rcv_wnd;
        self.tuning.edge_at = now;
    }

    /// Whether a timer other than the given one runs.
    pub(super) fn timer_is(&self, timer: Timer) -> bool {
        self.timer == timer
    }
}

impl Shared {
    /// Takes one of the second's challenge acknowledgements (RFC 5961 section 7).
    pub(crate) fn may_challenge(&mut self, now: Instant) -> bool {
        if now.since(self.challenges_since) >= Duration::from_secs(1)
            || self.challenges_since == Instant::ZERO
        {
            self.challenges_since = now.max(Instant::from_nanos(1));
            // A peer that counts them must not learn how many others have caused (RFC 5961 section 7).
            let most = u64::from(self.config.challenges_per_second);
            self.salt =
                self.salt.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.challenges = (most / 2 + (self.salt >> 33) % (most / 2 + 1)) as u32;
        }
        let left = self.challenges > 0;
        self.challenges -= u32::from(left);
        left
    }
}
