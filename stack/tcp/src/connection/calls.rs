//! What a program calls.

use std::sync::Arc;

use twinpath_time::{Duration, Instant};

use super::{Connection, Ended, Network, ROOM_MAX, ROOM_MIN, Said, Shared, State, flag};
use crate::clock::minute;
use crate::config::{Acks, Options};
use crate::congestion::Congestion;
use crate::info::{Info, TcpState};
use crate::marks::End;
use crate::seq::Seq;

/// How long it is believed what somebody says of a path: ten minutes at least, as the first one may be about to end
/// (RFC 1191 section 6.3, RFC 8201 section 4; Linux's `mtu_expires`).
const SAID_FOR_MINUTES: u8 = 11;

impl Connection {
    /// Whether the program may write.
    pub(crate) const fn may_write(&self) -> bool {
        !self.is(flag::FIN_QUEUED | flag::ORPHAN)
            && matches!(
                self.state,
                State::SynSent | State::SynReceived | State::Established | State::CloseWait
            )
    }

    /// Bytes that may be written now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.send_limit.saturating_sub(self.send.len() as u32)
    }

    /// `count` bytes behind the end of the send buffer; `None` if there is no room, which is announced then.
    #[inline]
    pub(crate) fn reserve(&mut self, count: usize, shared: &mut Shared) -> Option<&mut [u8]> {
        // One write larger than the buffer is taken if the buffer is empty: it could never be sent otherwise.
        let room = self.room() as usize;
        if count > room && !(self.send.is_empty() && room > 0) {
            self.set(flag::WANTS_ROOM);
            return None;
        }
        let found = self.send.reserve(count, &mut shared.pool);
        if found.is_none() {
            self.flags |= flag::WANTS_ROOM;
            self.starves = true;
        }
        found
    }

    /// Sends the first `count` reserved bytes.
    #[inline]
    pub(crate) fn commit(&mut self, count: usize) {
        // A program that fills its room has more to write; one that does not needs less.
        let count_max = count as u32;
        if count_max >= self.room_hint {
            self.room_hint = self.room_hint.saturating_mul(4).min(ROOM_MAX);
        } else if count_max < self.room_hint / 16 {
            self.room_hint = (self.room_hint / 2).max(ROOM_MIN);
        }
        if self.flags & (flag::CORKED | flag::MARKED) != 0 {
            self.uncork();
            self.ends_piece();
        }
        self.send.commit(count);
    }

    /// What is written now has its usual end.
    #[cold]
    pub(super) fn ends_piece(&mut self) {
        if let Some(rare) = self.rare.there() {
            rare.marks.more = false;
        }
        self.note_marks();
    }

    /// To be called when marks have come or gone.
    pub(super) fn note_marks(&mut self) {
        if self.rare.marks.is_plain() && self.rare.urgent == 0 {
            self.clear(flag::MARKED);
        } else {
            self.set(flag::MARKED);
        }
    }

    /// The bytes up to `next` were sent.
    #[cold]
    pub(super) fn marks_were_sent(&mut self, next: Seq, shared: &mut Shared) {
        if let Some(rare) = self.rare.there() {
            rare.marks.sent(next, &mut shared.pool);
        }
        self.note_marks();
    }

    /// The same; `end` says what the last of the bytes ends.
    pub(crate) fn commit_as(&mut self, count: usize, end: End, shared: &mut Shared) {
        match end {
            End::More if count > 0 => {
                let start = self.write_end();
                self.rare.marks.begin_more(start);
                self.send.commit(count);
                let (end, max_window) = (self.write_end(), self.max_window);
                self.rare.marks.add_more(end, max_window, &mut shared.pool);
                self.set(flag::CORKED | flag::MARKED);
            }
            End::Record if count > 0 => {
                self.commit(count);
                let end = self.write_end();
                self.rare.marks.add_record(end, &mut shared.pool);
                self.note_marks();
            }
            End::Urgent if count > 0 => {
                self.commit(count);
                self.urge();
            }
            _ => self.commit(count),
        }
    }

    /// What was written with more to come waits no longer, unless the program has set a cork.
    #[cold]
    pub(super) fn uncork(&mut self) {
        if !self.options.cork {
            self.clear(flag::CORKED);
            self.forget_cork();
        }
    }

    fn forget_cork(&mut self) {
        if let Some(rare) = self.rare.there() {
            rare.cork_at = Instant::NEVER;
        }
    }

    /// What is queued to be read, and room to write of up to `room_max` bytes: less if less is free, or if the
    /// program has written little so far. Nothing if the program may not write.
    pub(crate) fn lend(&mut self, room_max: usize, shared: &mut Shared) -> (&[u8], &mut [u8]) {
        let free = if self.may_write() { self.room() as usize } else { 0 };
        let count = room_max.min(free).min(self.room_hint.max(self.send.spare() as u32) as usize);
        if room_max > 0 && count == 0 {
            self.set(flag::WANTS_ROOM);
        }
        let Self { receive, send, flags, starves, .. } = self;
        let room = if count == 0 { None } else { send.reserve(count, &mut shared.pool) };
        if count > 0 && room.is_none() {
            *flags |= flag::WANTS_ROOM;
            *starves = true;
        }
        (receive.bytes(), room.unwrap_or_default())
    }

    /// The program needs up to `bytes_max` bytes in one piece, and has used none of a buffer that is almost full: the
    /// window opens for them.
    pub(crate) fn make_room_to_read(&mut self, bytes_max: usize) {
        let held = self.receive.len() as u32;
        let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        if held < self.receive_limit / 4 * 3 || held >= bytes_max {
            return;
        }
        let wanted =
            bytes_max.min(self.receive_limit.saturating_mul(2)).saturating_add(u32::from(self.rcv_mss));
        self.receive_limit = self.receive_limit.max(wanted.min(65_535 << self.rcv_scale));
        self.set(flag::ACK_NOW);
    }

    /// Whether no more bytes move in either direction, and not because both ends have finished.
    pub(crate) fn is_broken(&self) -> bool {
        self.state == State::Closed && !matches!(self.ended, Some(Ended::Finished))
    }

    /// Whether the peer has sent its last byte, and all but `count` bytes have been read.
    pub(crate) fn has_all_but(&self, count: usize) -> bool {
        self.receive.len() <= count
            && (self.is(flag::FIN_RECEIVED | flag::READ_CLOSED) || self.state == State::Closed)
    }

    /// Wants to hear of room.
    pub(crate) const fn want_room(&mut self) {
        self.set(flag::WANTS_ROOM);
    }

    /// The program has read `count` bytes of the receive buffer, or of fresh payload.
    pub(crate) fn consumed(&mut self, now: Instant, count: usize, shared: &Shared) {
        self.tuning.copied = self.tuning.copied.saturating_add(count as u32);
        self.tune(now, shared);
        self.answer_reading(count);
    }

    /// The program has read the first `count` bytes of the receive buffer: [`Self::consumed`] follows.
    pub(crate) fn discard(&mut self, count: usize, shared: &mut Shared) {
        self.receive.discard(count);
        if self.receive.is_empty() && self.rare.reassembly.is_empty() {
            self.receive.release(&mut shared.pool);
        }
    }

    /// A window that has opened far enough is announced (RFC 9293 section 3.8.6.2.2), and so is a small segment that
    /// the program has read without answering, as Linux does it.
    #[inline]
    fn answer_reading(&mut self, count: usize) {
        if count == 0
            || self.is(flag::ACK_NOW)
            || matches!(self.state, State::Closed | State::SynSent)
            || !self.is_reading_worth_an_answer()
        {
            return;
        }
        // What was written takes the acknowledgement along, if it can be sent.
        let goes =
            self.unsent() > 0 && !self.is_blocked_by_receiver() && self.flight.in_flight() < self.window.cwnd;
        if !goes {
            self.set(flag::ACK_NOW);
        }
    }

    #[inline]
    fn is_reading_worth_an_answer(&self) -> bool {
        if self.is(flag::ACK_LATER) {
            let pending = self.rcv_nxt - self.rcv_wup;
            let small = !self.is(flag::INTERACTIVE)
                && self.options.acks == Acks::Adaptive
                && pending > 0
                && self.receive.is_empty();
            if pending > u32::from(self.rcv_mss) || small {
                return true;
            }
        }
        let offered = self.receive_window();
        if offered > self.receive_limit / 2 {
            return false;
        }
        let free = self.receive_limit.saturating_sub(self.receive.len() as u32);
        u64::from(free) >= 2 * u64::from(offered)
            && free >= u32::from(self.rcv_mss).min(self.receive_limit / 2)
    }

    /// Lets the receive window grow to twice what the program reads in a round trip.
    #[inline]
    fn tune(&mut self, now: Instant, shared: &Shared) {
        let rtt_us = if self.tuning.rtt_us > 0 { self.tuning.rtt_us } else { self.rtt.srtt_us() };
        if rtt_us == 0 || now.nanos_since(self.tuning.since) < u64::from(rtt_us) * 1000 {
            return;
        }
        let copied = self.tuning.copied;
        if copied > self.tuning.space && self.options.receive_buffer.is_none() && !shared.pool.is_short() {
            let wanted = copied.saturating_mul(2).saturating_add(16 * u32::from(self.rcv_mss));
            let limit = wanted.min(shared.config.receive_max).min(65_535 << self.rcv_scale);
            self.receive_limit = self.receive_limit.max(limit);
        }
        self.tuning.space = self.tuning.space.max(copied);
        (self.tuning.copied, self.tuning.since) = (0, now);
    }

    /// Whether the peer has sent its last byte and all is read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.receive.is_empty()
            && (self.is(flag::FIN_RECEIVED | flag::READ_CLOSED)
                || matches!(self.state, State::Closed) && matches!(self.ended, Some(Ended::Finished)))
    }

    /// Nothing more will be written.
    pub(crate) fn finish(&mut self, now: Instant, shared: &mut Shared) {
        if self.is(flag::FIN_QUEUED) && !(self.state == State::SynSent && self.is(flag::ORPHAN)) {
            return;
        }
        if self.is(flag::MARKED) {
            // A close implies a push (RFC 9293 section 3.8).
            self.ends_piece();
        }
        match self.state {
            State::SynSent => {
                // A shutdown before the handshake takes effect after it; a close gives up.
                self.set(flag::FIN_QUEUED);
                if self.is(flag::ORPHAN) {
                    self.end(Ended::Aborted, shared);
                }
                return;
            }
            State::SynReceived => self.set(flag::FIN_QUEUED),
            State::Established => {
                self.state = State::FinWait1;
                self.set(flag::FIN_QUEUED);
            }
            State::CloseWait => {
                self.state = State::LastAck;
                self.set(flag::FIN_QUEUED);
            }
            _ => {}
        }
        let _ = now;
    }

    /// The program reads no more.
    pub(crate) fn finish_reading(&mut self) {
        self.set(flag::READ_CLOSED);
        self.tell(super::Events::READABLE);
    }

    /// The program has closed it. What was written is still sent; what was not read is a reason to reset it
    /// (RFC 2525 section 2.17).
    pub(crate) fn close(&mut self, now: Instant, shared: &mut Shared) {
        if self.is(flag::ORPHAN) {
            return;
        }
        self.set(flag::ORPHAN);
        self.clear(flag::WANTS_ROOM);
        if self.state == State::Closed {
            self.drop_buffers(shared);
            return;
        }
        if !self.receive.is_empty() {
            self.abort(shared);
            return;
        }
        self.finish(now, shared);
        if self.state == State::FinWait2 {
            let wait = self.options.fin_wait.unwrap_or(shared.config.fin_wait_time);
            if wait.is_zero() {
                self.end(Ended::Aborted, shared);
            } else {
                self.rare.end_at = now + wait;
            }
        }
    }

    /// Resets it.
    pub(crate) fn abort(&mut self, shared: &mut Shared) {
        self.set(flag::ORPHAN);
        if matches!(self.state, State::Closed) {
            self.drop_buffers(shared);
            return;
        }
        if self.state != State::SynSent {
            self.set(flag::SEND_RESET);
        }
        self.end(Ended::Aborted, shared);
        self.drop_buffers(shared);
    }

    /// Ends it by a reset, which its program is told of.
    pub(crate) fn give_up(&mut self, shared: &mut Shared) {
        if self.state == State::Closed {
            return;
        }
        if self.state != State::SynSent {
            self.set(flag::SEND_RESET);
        }
        self.end(self.rare.soft_error.unwrap_or(Ended::Unreachable), shared);
    }

    /// Copies into the flags what each segment asks for.
    pub(super) fn copy_options(&mut self) {
        let waits = self.is(flag::CORKED) && self.rare.marks.more;
        self.clear(flag::CORKED | flag::QUICK_ACK);
        if self.options.cork || waits {
            self.set(flag::CORKED);
        }
        if self.options.quick_ack {
            self.set(flag::QUICK_ACK);
        }
    }

    /// The next segment tells the peer of the user timeout, if the program wants it (RFC 5482 section 2).
    pub(super) fn advertise_timeout(&mut self) {
        self.clear(flag::TIMEOUT_DUE);
        if self.options.user_timeout_option().is_some() && self.state != State::Closed {
            self.set(flag::TIMEOUT_DUE);
        }
    }

    /// Changes what the program has set.
    pub(crate) fn set_options(&mut self, now: Instant, options: Options, shared: &Shared) {
        let before = core::mem::replace(&mut self.options, Arc::new(options));
        if let Some(limit) = options.receive_buffer {
            self.receive_limit = limit;
        }
        if let Some(limit) = options.send_buffer {
            self.send_limit = limit;
        }
        if before.cork && !options.cork || !before.no_delay && options.no_delay {
            self.forget_cork();
            if self.unsent() > 0 {
                self.set(flag::UNCORK);
            }
        }
        if before.keepalive != options.keepalive || before.keepalive_interval != options.keepalive_interval {
            let open = !matches!(self.state, State::SynSent | State::SynReceived | State::Closed);
            self.keepalive_at = match options.keepalive {
                Duration::MAX => Instant::NEVER,
                _ if !open => Instant::NEVER,
                idle => (self.last_received + idle).max(now),
            };
            self.keepalive_probes = 0;
        }
        self.copy_options();
        if options.quick_ack && self.is(flag::ACK_LATER) {
            self.set(flag::ACK_NOW);
        }
        if before.congestion != options.congestion {
            self.congestion = Congestion::new(self.kind(&shared.config));
        }
        if before.advertised_timeout != options.advertised_timeout {
            self.advertise_timeout();
        }
        if before.mss != options.mss {
            self.fit_segments(&shared.config);
        }
    }

    /// The path carries packets of at most this many bytes, as somebody says who may be wrong, or right for a while: it is
    /// forgotten after some time. Nothing is shortened below what every host takes (RFC 1191 section 3). Where an IPv4
    /// path carries less, routers may cut what is sent, as Linux has it (`ip_dont_fragment`, include/net/ip.h).
    pub(crate) fn path_said(&mut self, now: Instant, mtu: u16, shared: &Shared) {
        let (least, before) = (self.tuple.mtu_min(), self.mss);
        let until = minute(now).wrapping_add(SAID_FOR_MINUTES);
        let could_be_cut = matches!(self.said, Said::Least { .. });
        if mtu.max(least) <= self.mtu {
            self.said = if could_be_cut { Said::Least { until } } else { Said::Less { until } };
        }
        self.path_carries(mtu.max(least), shared);
        // 0 says nothing of the size.
        if mtu > 0 && mtu < least && self.tuple.is_ipv4() && !could_be_cut {
            self.said = Said::Least { until };
            if self.mss == before {
                // It was as short as it gets, and lost all the same.
                self.lose_longer_than(mtu.saturating_sub(self.tuple.headers()));
            }
        }
    }

    /// The path carries packets of at most this many bytes (RFC 1191, RFC 8201).
    pub(crate) fn path_carries(&mut self, mtu: u16, shared: &Shared) {
        if mtu >= self.mtu {
            return;
        }
        self.mtu = mtu;
        let before = self.mss;
        self.fit_segments(&shared.config);
        if self.mss < before && !self.flight.is_empty() {
            self.lose_longer_than(self.mss);
            self.flight.resize(self.mss);
        }
    }

    /// Segments with more payload than this were lost, but not to congestion.
    fn lose_longer_than(&mut self, payload: u16) {
        for index in 0..self.flight.len() {
            let too_long = self.flight.get(index).is_some_and(|record| {
                record.unit > payload && record.end - record.start > u32::from(payload)
            });
            if too_long {
                self.flight.lose(index);
            }
        }
        if !self.flight.is_empty() && self.network < Network::Recovery {
            self.high_seq = self.snd_nxt;
        }
    }

    /// What was said of the path is too long ago to be believed: the interface says what is sent, until somebody says
    /// otherwise again.
    #[cold]
    pub(super) fn forget_path(&mut self, shared: &Shared) {
        self.said = Said::Nothing;
        self.mtu = shared.config.mtu.max(self.mtu);
        self.fit_segments(&shared.config);
    }

    /// The identification of the next IPv4 packet, if routers may cut it.
    #[inline]
    pub(super) fn packet_id(&self) -> Option<u16> {
        matches!(self.said, Said::Least { .. })
            .then(|| (self.totals.segments_out as u16).wrapping_add(self.iss.0 as u16))
    }

    /// An ICMP error that quotes `seq`, verified to be in flight. A hard one ends a handshake; later it only says why
    /// the connection ends, if it does (RFC 5927 section 4.1, RFC 1122 section 4.2.3.9).
    pub(crate) fn unreachable(&mut self, hard: bool, shared: &mut Shared) {
        if hard && matches!(self.state, State::SynSent | State::SynReceived) {
            shared.counters.failed_opens += 1;
            self.end(Ended::Refused, shared);
        } else {
            self.rare.soft_error = Some(if hard { Ended::Refused } else { Ended::Unreachable });
        }
    }

    /// Whether a number is in flight: what an ICMP error may quote (RFC 5927 section 4.1).
    pub(crate) fn is_in_flight(&self, seq: u32) -> bool {
        let seq = crate::seq::Seq(seq);
        !seq.before(self.snd_una) && seq.before(self.snd_nxt)
    }

    /// The state, by Linux's name.
    pub(crate) const fn tcp_state(&self) -> TcpState {
        match self.state {
            State::SynSent => TcpState::SynSent,
            State::SynReceived => TcpState::SynRecv,
            State::Established => TcpState::Established,
            State::FinWait1 => TcpState::FinWait1,
            State::FinWait2 => TcpState::FinWait2,
            State::CloseWait => TcpState::CloseWait,
            State::Closing => TcpState::Closing,
            State::LastAck => TcpState::LastAck,
            State::Closed => TcpState::Close,
        }
    }

    /// What operators and suites ask for.
    pub(crate) fn info(&self, now: Instant, shared: &Shared) -> Info {
        let totals = &self.totals;
        let [busy, receiver_limited, buffer_limited] = self.limited.totals(now);
        Info {
            busy,
            receiver_limited,
            buffer_limited,
            state: self.tcp_state(),
            network: self.network,
            ended: self.ended,
            has_timestamps: self.is(flag::TIMESTAMPS),
            has_sack: self.is(flag::SACK),
            has_scale: self.is(flag::SCALED),
            has_ecn: self.is(flag::ECN),
            send_scale: self.snd_scale,
            receive_scale: self.rcv_scale,
            retries: self.retries,
            probes: self.probes.max(self.keepalive_probes),
            backoff: self.backoff,
            rto_us: u32::try_from(self.backed_off_us(shared)).unwrap_or(u32::MAX),
            srtt_us: self.rtt.srtt_us(),
            rttvar_us: self.rtt.rttvar_us(),
            min_rtt_us: self.rtt.min_us(),
            receive_rtt_us: self.tuning.rtt_us,
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            mss: self.mss,
            receive_mss: self.rcv_mss,
            advertised_mss: self.offered_mss(),
            mtu: self.mtu,
            unacked: self.flight.out,
            sacked: if self.is(flag::SACK) { self.flight.sacked } else { self.dupacks },
            lost: self.flight.lost,
            retransmitting: self.flight.retransmitted,
            retransmitted: totals.retransmitted,
            reordering: self.reordering,
            reorderings: totals.reorderings,
            delivered: totals.delivered,
            delivered_ce: totals.delivered_ce,
            duplicates: totals.duplicates,
            out_of_order: totals.out_of_order,
            segments_in: totals.segments_in,
            segments_out: totals.segments_out,
            data_segments_in: totals.data_segments_in,
            data_segments_out: totals.data_segments_out,
            bytes_acked: totals.bytes_acked,
            bytes_received: totals.bytes_received,
            bytes_sent: totals.bytes_sent,
            bytes_retransmitted: totals.bytes_retransmitted,
            unsent: self.unsent(),
            queued: self.receive.len() as u32,
            unacknowledged: self.send.len() as u32,
            send_window: self.snd_wnd,
            peak_window: self.max_window,
            receive_window: self.receive_window(),
            user_timeout: self.user_timeout(&shared.config),
            since_sent: now.since(self.last_sent),
            since_received: now.since(self.data_at),
            memory: (size_of::<Self>() + self.memory()) as u64,
        }
    }
}
