//! What is sent: retransmissions, new data, acknowledgements, probes, resets.

use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::{self, Flags, Timestamps, Writer};

use super::{Connection, Limit, Network, Said, Shared, State, Timer, flag};
use crate::clock::minute;
use crate::config::Ecn;
use crate::congestion::Control as _;
use crate::flight::{Sent, flag as sent};
use crate::segment::{Outgoing, Sink};
use crate::seq::Seq;

/// How long a cork holds small segments back (Linux's man page tcp(7), TCP_CORK).
const CORK_TIME: Duration = Duration::from_millis(200);

/// A segment sent this long after one came is an answer to it (Linux's `TCP_ATO_MIN`, include/net/tcp.h), ns.
const REPLY_TIME_NS: u64 = 40_000_000;

/// A burst is over when nothing was sent for this long (Linux's `tcp_tso_should_defer`), ns.
const DEFER_TIME_NS: u64 = 1_000_000;

/// Bytes of the timestamps option with its padding.
const TIMESTAMPS_LEN: usize = 12;

/// Bytes of the user timeout option.
const USER_TIMEOUT_LEN: usize = 4;

/// The sink has no room; the rest is sent later.
#[derive(Debug)]
pub(super) struct Full;

/// What was offered and reported before a segment that may not leave.
#[derive(Clone, Copy, Debug)]
struct Offered {
    wup: Seq,
    wnd: u32,
    duplicate: Option<(Seq, Seq)>,
    timeout_due: u32,
}

impl Connection {
    /// Sends what is to be sent now. False if the sink has no room for all.
    #[inline(always)]
    pub(crate) fn output(&mut self, now: Instant, shared: &mut Shared, sink: &mut impl Sink) -> bool {
        let whole = match self.send_answer(now, shared, sink) {
            // The timer is set, and nothing waits.
            Some(true) => return true,
            Some(false) => false,
            None => self.output_all(now, shared, sink).is_ok(),
        };
        self.after_output(now, shared);
        whole
    }

    /// Sets the timer, and gives back what is not needed.
    fn after_output(&mut self, now: Instant, shared: &mut Shared) {
        if self.is(flag::REARM) {
            self.rearm(now, shared);
        }
        if self.send.is_empty() {
            // The last byte was acknowledged, or room was lent and nothing written.
            self.rest(now, shared);
        }
        if self.is(flag::ACK_LATER) {
            self.delay_ack(now, shared);
        }
    }

    #[inline(never)]
    fn output_all(&mut self, now: Instant, shared: &mut Shared, sink: &mut impl Sink) -> Result<(), Full> {
        if self.is(flag::SEND_RESET) {
            self.send_reset(now, shared, sink)?;
        }
        match self.state {
            State::Closed => {
                if self.is(flag::ACK_NOW) && self.ended == Some(super::Ended::Finished) {
                    return self.send_ack(now, shared, sink);
                }
                return Ok(());
            }
            State::SynSent | State::SynReceived => return self.send_syn(now, shared, sink),
            _ => {}
        }
        if self.flight.lost > self.flight.retransmitted || self.flight.lost > 0 {
            self.send_lost(now, shared, sink)?;
        }
        self.send_new(now, shared, sink)?;
        if self.flags & (flag::PROBE_DUE | flag::PERSIST | flag::KEEPALIVE_DUE) != 0 {
            self.send_probes(now, shared, sink)?;
        }
        if self.is(flag::ACK_NOW) {
            self.send_ack(now, shared, sink)?;
        }
        Ok(())
    }

    /// Gives back what a connection needs only while something is to be sent.
    #[inline]
    fn rest(&mut self, now: Instant, shared: &mut Shared) {
        self.note_limit(now, false);
        if self.send.memory() > 0 {
            self.send.release(&mut shared.pool);
        }
        if self.flight.is_empty() && self.flight.memory() > 0 {
            self.flight.release(&mut shared.flights);
        }
    }

    /// Bytes that were written and not sent.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        self.write_end().since(self.snd_nxt)
    }

    /// Of these, bytes that may leave in one segment: up to the end of a record.
    #[inline]
    fn piece(&self) -> u32 {
        let unsent = self.unsent();
        self.rare.marks.record_end().map_or(unsent, |end| unsent.min(end.since(self.snd_nxt)))
    }

    /// Of the next `len` bytes, those up to the segment that PSH goes with: it would come too late behind others.
    #[inline]
    fn with_push(&self, len: u32) -> u32 {
        match self.rare.marks.first() {
            Some(end) => len.min(end.since(self.snd_nxt).next_multiple_of(u32::from(self.mss))),
            None => len,
        }
    }

    /// New data, as far as windows and Nagle's rule allow, and FIN.
    fn send_new(&mut self, now: Instant, shared: &mut Shared, sink: &mut impl Sink) -> Result<(), Full> {
        if self.unsent() == 0 && (!self.is(flag::FIN_QUEUED) || self.is(flag::FIN_SENT)) {
            return Ok(());
        }
        if let Said::Less { until } | Said::Least { until } = self.said
            && (minute(now).wrapping_sub(until) as i8) >= 0
        {
            self.forget_path(shared);
        }
        // Where the peer's window is closed, nothing is sent that a pause could make too much.
        if self.window_end().after(self.snd_nxt) {
            self.restart_after_idle(now, shared);
        }
        let mut limited = false;
        let mut by_receiver = false;
        loop {
            let unsent = self.unsent();
            let fin = self.is(flag::FIN_QUEUED) && !self.is(flag::FIN_SENT);
            if unsent == 0 && !fin {
                break;
            }
            let in_flight = self.flight.in_flight() - self.dupacks.min(self.flight.in_flight());
            let room = self.window.cwnd.saturating_sub(in_flight);
            // A FIN alone has no octets, which is what the window counts (RFC 5681 section 2): one more may be in flight.
            let is_bare = unsent == 0 && in_flight <= self.window.cwnd;
            if room == 0 && !is_bare {
                limited = true;
                break;
            }
            // Nothing is added to a record that has ended, so it does not wait for more. Urgent data does not wait.
            let piece = self.piece();
            let ends = fin || piece < unsent || self.is_urgent_from(self.snd_nxt);
            let Some(len) = self.next_len(now, piece, ends, room, shared) else {
                by_receiver = self.is_blocked_by_receiver();
                break;
            };
            let len = self.with_push(len);
            if let Err(full) = self.send_data(now, len, shared, sink) {
                // There may never be room for as many segments as one. While something is in flight, its acknowledgement asks again:
                // very many connections would use up the room that is left for single segments.
                if len > u32::from(self.mss) && self.flight.is_empty() {
                    self.send_data(now, self.mss.into(), shared, sink)?;
                }
                return Err(full);
            }
        }
        if self.unsent() == 0 {
            self.clear(flag::UNCORK);
        }
        self.note_window_use(limited);
        self.note_limit(now, by_receiver);
        if self.flight.is_empty() {
            self.set(flag::REARM);
        }
        Ok(())
    }

    /// Bytes of the next segment, which may hold several full-sized ones; `None` if it waits. `room`: the segments
    /// that the congestion window has left. `ends`: nothing can be added to what is unsent.
    fn next_len(&mut self, now: Instant, unsent: u32, ends: bool, room: u32, shared: &Shared) -> Option<u32> {
        let mss = u32::from(self.mss);
        let window = self.window_end().since(self.snd_nxt);
        if unsent.wrapping_sub(1) < mss && unsent <= window {
            // The last segment of what was written, whole.
            let waits = unsent < mss && self.must_wait(ends, now);
            return (!waits).then_some(unsent);
        }
        // At least two leave in a window, so that the peer's acknowledgements keep coming (Linux's `tcp_cwnd_test`).
        let half = (self.window.cwnd / 2).max(1);
        let most = room.min(half).min(self.segments_at_once(shared)).saturating_mul(mss);
        if unsent == 0 {
            // A FIN needs a number of the window, as a byte does.
            return (ends && window > 0).then_some(0);
        }
        if window == 0 {
            return None;
        }
        let len = unsent.min(most).min(window);
        let whole = len / mss * mss;
        let partial = len % mss;
        if partial > 0 && (len < unsent || self.must_wait(ends, now)) {
            // The rest of a window, or a small segment that waits: only full-sized ones go.
            if len == window && len < unsent && whole == 0 {
                // Silly window avoidance (RFC 9293 section 3.8.6.2.1): half of the largest window is worth it.
                if window >= self.max_window / 2
                    && self.flight.is_empty()
                    && window >= mss.min(self.max_window / 2).max(1)
                {
                    return Some(len);
                }
                return None;
            }
            return (whole > 0)
                .then_some(whole)
                .filter(|whole| !self.defers(now, *whole, unsent, window, room, shared));
        }
        if self.defers(now, len, unsent, window, room, shared) {
            return None;
        }
        Some(len)
    }

    /// Nagle's rule as refined by Minshall: a small segment waits for the acknowledgement of a small one
    /// (RFC 9293 section 3.7.4). A cork holds it for 200 ms.
    fn must_wait(&mut self, ends: bool, now: Instant) -> bool {
        if ends || self.is(flag::UNCORK) {
            return false;
        }
        if self.is(flag::CORKED) {
            if self.rare.cork_at == Instant::NEVER {
                self.rare.cork_at = now + CORK_TIME;
            }
            return true;
        }
        !self.options.no_delay
            && !self.flight.is_empty()
            && self.small_end.after(self.snd_una)
            && !self.small_end.after(self.snd_nxt)
    }

    /// Whether it is better to wait for more of the window, so that several segments leave as one (Linux's
    /// `tcp_tso_should_defer`).
    fn defers(&self, now: Instant, len: u32, unsent: u32, window: u32, room: u32, shared: &Shared) -> bool {
        let mss = u32::from(self.mss);
        if shared.config.super_segment == 0 || self.network >= Network::Recovery || len == unsent {
            return false;
        }
        // Only while a burst lasts: after a pause nothing else makes it longer.
        if self.flight.is_empty() || now.nanos_since(self.last_sent) > DEFER_TIME_NS {
            return false;
        }
        let limit = window.min(room.saturating_mul(mss));
        if limit >= self.segments_at_once(shared).saturating_mul(mss) {
            return false;
        }
        let chunk = self.snd_wnd.min(self.window.cwnd.saturating_mul(mss)) / 3;
        if limit >= chunk {
            return false;
        }
        // If the next acknowledgement is far away, there is no use in waiting.
        let first = self.flight.first().map_or(now, |first| first.at);
        let age_us = u32::try_from(now.nanos_since(first) / 1000).unwrap_or(u32::MAX);
        age_us >= self.rtt.srtt_us() / 2
    }

    /// Full-sized segments that leave as one: what the path takes in a millisecond, at least two. On a path of below
    /// half a millisecond as many as there are. With urgent data each leaves alone: whoever cuts a longer one copies the
    /// pointer, which counts from the segment's own number.
    fn segments_at_once(&self, shared: &Shared) -> u32 {
        let most = shared.config.super_segment / u32::from(self.mss).max(1);
        if most <= 1 || self.is_urgent_from(self.snd_una) {
            return 1;
        }
        let srtt_us = u64::from(self.rtt.srtt_us()).max(1);
        let factor = if self.window.cwnd < self.window.ssthresh / 2 { 200 } else { 120 };
        let rate = u64::from(self.window.cwnd.max(self.flight.out)) * u64::from(self.mss) * factor * 10_000
            / srtt_us;
        let burst = u64::from(shared.config.super_segment) >> (self.rtt.min_us() / 512).min(63);
        let segments = (rate / 1000 + burst) / u64::from(self.mss).max(1);
        (segments.min(u64::from(most)) as u32).max(shared.config.segments_at_once.min(most))
    }

    /// Sends `len` bytes of new data, with FIN if nothing follows.
    fn send_data(
        &mut self,
        now: Instant,
        len: u32,
        shared: &mut Shared,
        sink: &mut impl Sink,
    ) -> Result<(), Full> {
        let start = self.snd_nxt;
        let unsent = self.unsent();
        let last = len == unsent;
        let ends = self.rare.marks.has_end(start + len) || last && !self.rare.marks.more;
        // FIN needs a number of the window, as a byte does.
        let fits = len < self.window_end().since(start);
        let fin = last && fits && self.is(flag::FIN_QUEUED) && !self.is(flag::FIN_SENT);
        let mss = u32::from(self.mss);
        let mut flags = 0;
        if fin {
            flags |= sent::FIN;
        }
        if ends && len > 0 {
            flags |= sent::PUSH;
        }
        let record = Sent {
            start,
            end: start + len + u32::from(fin),
            at: now,
            unit: self.mss,
            flags,
            count: len.div_ceil(mss).max(1),
            ..Sent::default()
        };
        self.send_record(now, &record, shared, sink)?;
        let first = self.flight.is_empty();
        self.flight.push(record, &mut shared.flights);
        if let Some(rare) = self.rare.there() {
            rare.prr.sent(record.count);
        }
        self.snd_nxt = record.end;
        if self.is(flag::MARKED) {
            self.marks_were_sent(start + len, shared);
        }
        if fin {
            self.set(flag::FIN_SENT);
        }
        if !len.is_multiple_of(mss) {
            self.small_end = record.end;
        }
        if first {
            self.stalled_since = now;
        }
        if first || self.timer == Timer::Probe || self.timer == Timer::None || self.timer == Timer::Persist {
            self.set(flag::REARM);
        }
        self.window_used = self.window_used.max(self.flight.out);
        self.totals.bytes_sent += u64::from(len);
        self.totals.data_segments_out = self.totals.data_segments_out.wrapping_add(record.count);
        Ok(())
    }

    /// After a pause of a retransmission time-out, the window that the path allowed then says little
    /// (RFC 5681 section 4.1).
    #[inline]
    fn restart_after_idle(&mut self, now: Instant, shared: &Shared) {
        let rto_ns = u64::from(self.rtt.rto_us()) * 1000;
        if self.flight.is_empty() && now.nanos_since(self.last_sent) > rto_ns {
            self.restart(now, rto_ns, shared);
        }
    }

    #[cold]
    fn restart(&mut self, now: Instant, rto_ns: u64, shared: &Shared) {
        let mut idle_ns = now.nanos_since(self.last_sent);
        self.congestion.on_idle_end(now, Duration::from_nanos(idle_ns));
        let restart = shared.config.initial_window.min(self.window.cwnd);
        if !shared.config.slow_start_after_idle || self.network != Network::Open {
            return;
        }
        self.window.ssthresh = self.window.ssthresh.max(self.window.cwnd / 4 * 3);
        while idle_ns > rto_ns && self.window.cwnd > restart {
            idle_ns -= rto_ns;
            self.window.cwnd /= 2;
        }
        self.window.cwnd = self.window.cwnd.max(restart);
        (self.window.credit, self.window_used) = (0, 0);
    }

    /// Notes once per round trip how much of the congestion window was used (RFC 7661).
    #[inline]
    pub(super) fn note_window_use(&mut self, limited: bool) {
        let out = self.flight.out;
        if !self.snd_una.before(self.window_used_end) {
            self.window_used = out;
            self.window_used_end = self.snd_nxt;
            self.clear(flag::WINDOW_LIMITED);
        }
        if limited {
            self.set(flag::WINDOW_LIMITED);
        }
    }

    /// Notes what the sender waits for.
    #[inline(always)]
    pub(super) fn note_limit(&mut self, now: Instant, by_receiver: bool) {
        let kind = if self.send.is_empty() {
            Limit::Idle
        } else if by_receiver {
            Limit::Receiver
        } else if self.is(flag::WANTS_ROOM) && self.unsent() == 0 {
            Limit::SendBuffer
        } else {
            Limit::Busy
        };
        self.limited.set(now, kind);
    }

    /// Sends again what is lost, as far as the congestion window allows.
    #[cold]
    fn send_lost(&mut self, now: Instant, shared: &mut Shared, sink: &mut impl Sink) -> Result<(), Full> {
        if self.is_new_data_first() {
            self.send_new(now, shared, sink)?;
            if self.snd_nxt.after(self.high_seq) {
                return Ok(());
            }
            self.clear(flag::FRTO);
        }
        while let Some(index) = self.flight.next_lost() {
            let room = self
                .window
                .cwnd
                .saturating_sub(self.flight.in_flight() - self.dupacks.min(self.flight.in_flight()));
            if room == 0 {
                break;
            }
            let segments = room.min(self.segments_at_once(shared));
            match self.send_again(now, index, segments, shared, sink) {
                Ok(true) => {}
                Ok(false) => break,
                Err(full) => {
                    // As in `send_new`: the others wait for the first one.
                    if index == 0 && self.flight.get(index).is_some_and(|record| record.count > 1) {
                        self.send_again(now, index, 1, shared, sink)?;
                    }
                    return Err(full);
                }
            }
        }
        Ok(())
    }

    /// Sends a record again, of at most `segments` segments; the rest is cut off. False if it has to wait for the peer's
    /// window.
    fn send_again(
        &mut self,
        now: Instant,
        index: usize,
        segments: u32,
        shared: &mut Shared,
        sink: &mut impl Sink,
    ) -> Result<bool, Full> {
        if let Some(first) = self.flight.get(index)
            && first.unit > self.mss
        {
            self.flight.resize(self.mss);
        }
        let Some(record) = self.flight.get(index).copied() else { return Ok(false) };
        if record.count > segments {
            let at = record.start + segments * u32::from(record.unit);
            self.flight.split(index, at, false);
        }
        let Some(record) = self.flight.get(index).copied() else { return Ok(false) };
        // What lies behind the peer's window would be dropped; the first segment probes it.
        let window_end = self.window_end();
        if record.end.after(window_end) && index > 0 {
            return Ok(false);
        }
        self.send_record(now, &record, shared, sink)?;
        if self.rare.undo.stamp.is_none() {
            self.rare.undo.stamp = Some(self.stamp(now));
        }
        let known = self.rare.undo.retransmissions.unwrap_or(0);
        self.rare.undo.retransmissions = Some(known + record.count);
        self.flight.sent_again(index, now);
        self.rare.prr.sent(record.count);
        shared.counters.retransmitted += u64::from(record.count);
        self.totals.retransmitted += record.count;
        self.totals.bytes_retransmitted += u64::from(record.end - record.start);
        if index == 0 && self.timer != Timer::Retransmit {
            self.set(flag::REARM);
        }
        Ok(true)
    }

    /// Probes: of a tail loss, of a closed window, of a silent peer.
    #[cold]
    fn send_probes(&mut self, now: Instant, shared: &mut Shared, sink: &mut impl Sink) -> Result<(), Full> {
        if self.is(flag::PROBE_DUE) {
            self.send_tail_probe(now, shared, sink)?;
            self.clear(flag::PROBE_DUE);
        }
        if self.is(flag::PERSIST) {
            shared.counters.window_probes += 1;
            let window = self.window_end().since(self.snd_nxt);
            let len = window.min(self.piece()).min(u32::from(self.mss));
            if len > 0 {
                self.send_data(now, len, shared, sink)?;
            } else {
                if self.is_urgent_from(self.snd_nxt) {
                    // The probe's number is an old one, so the peer does not look at its pointer.
                    self.send_empty(now, self.snd_nxt, shared, sink)?;
                }
                self.send_empty(now, self.snd_una - 1, shared, sink)?;
            }
            self.clear(flag::PERSIST);
        }
        if self.is(flag::KEEPALIVE_DUE) {
            self.send_empty(now, self.snd_una - 1, shared, sink)?;
            self.clear(flag::KEEPALIVE_DUE);
        }
        Ok(())
    }

    /// RFC 8985 section 7.3: a new segment if there is one, else the last one again.
    fn send_tail_probe(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        sink: &mut impl Sink,
    ) -> Result<(), Full> {
        if self.probe_end.is_some() || self.flight.is_empty() {
            self.timer = Timer::Probe;
            self.set(flag::REARM);
            return Ok(());
        }
        let mss = u32::from(self.mss);
        let window = self.window_end().since(self.snd_nxt);
        let len = self.piece().min(mss);
        if len > 0 && len <= window {
            self.send_data(now, len, shared, sink)?;
            self.clear(flag::PROBE_IS_OLD);
        } else if let Some(last) = self.flight.last().copied() {
            let mut index = self.flight.len() - 1;
            if last.has(sent::SACKED | sent::LOST) {
                self.timer = Timer::Probe;
                self.set(flag::REARM);
                return Ok(());
            }
            if last.count > 1 {
                let at = last.start + (last.count - 1) * u32::from(last.unit);
                self.flight.split(index, at, false);
                index += 1;
            }
            self.send_again(now, index, 1, shared, sink)?;
            self.set(flag::PROBE_IS_OLD);
        }
        shared.counters.probes += 1;
        self.probe_end = Some(self.snd_nxt);
        // The retransmission time-out begins with the probe (RFC 8985 section 7.3).
        self.timer = Timer::None;
        self.set(flag::REARM);
        Ok(())
    }

    /// The window to offer, bytes: what is free of the buffer, never less than was offered before, in whole units of the
    /// scale, and nothing before a full-sized segment fits (RFC 9293 section 3.8.6.2.2).
    #[inline(always)]
    pub(super) fn window_to_offer(&self) -> u32 {
        let held = self.receive.len() as u32;
        let free = self.receive_limit.saturating_sub(held);
        let offered = self.receive_window();
        let mut window = free;
        if window < self.receive_limit / 2 && self.is_silly(window, offered) {
            window = 0;
        }
        window = (window >> self.rcv_scale << self.rcv_scale).min(65_535 << self.rcv_scale);
        if window < offered {
            let unit = 1_u32 << self.rcv_scale;
            // What was offered is still taken. It is said rounded up only while there is room for the rest of a unit:
            // else the window of a program that does not read would grow with each segment.
            let up = offered.next_multiple_of(unit);
            window = if up < free.saturating_add(unit) { up } else { offered };
        }
        window
    }

    /// A segment leaves that acknowledges all that has arrived, and offers this window, bytes.
    #[inline(always)]
    pub(super) const fn offer(&mut self, window: u32) {
        (self.rcv_wup, self.rcv_wnd) = (self.rcv_nxt, window);
    }

    /// Whether less than half of the buffer is free, not even for a full-sized segment, and almost none is offered.
    #[cold]
    fn is_silly(&self, window: u32, offered: u32) -> bool {
        window < u32::from(self.rcv_mss) && window < offered + self.receive_limit / 2
    }

    /// The options of a segment of an established connection, with `len` bytes of payload: blocks of SACK are left out
    /// where they would make it longer than the path takes.
    #[inline]
    fn options(&mut self, now: Instant, len: u32) -> Writer {
        let mut options = Writer::default();
        if self.is(flag::TIMESTAMPS) {
            options.timestamps(Timestamps { value: self.stamp(now), echo: self.ts_recent }, true);
        }
        if self.rare.duplicate.is_some() || !self.rare.reassembly.is_empty() {
            let room = u32::from(self.mss).saturating_sub(len).saturating_sub(4) / 8;
            self.add_blocks(&mut options, room as usize);
        }
        options
    }

    /// What has arrived out of order, or twice.
    #[cold]
    fn add_blocks(&mut self, options: &mut Writer, most: usize) {
        if !self.is(flag::SACK) || most == 0 {
            return;
        }
        let mut blocks = [(0, 0); tcp::SACK_BLOCKS_MAX + 1];
        let mut count = 0;
        let duplicate = self.rare.duplicate.take();
        if let Some((start, end)) = duplicate {
            blocks[0] = (start.0, end.0);
            count = 1;
            // RFC 2883 section 4: the block that holds the duplicate follows.
            if let Some((from, to)) = self.rare.reassembly.around(start) {
                blocks[1] = (from.0, to.0);
                count = 2;
            }
        }
        let known = count;
        let mut ranges = [(0, 0); tcp::SACK_BLOCKS_MAX];
        let found = self.rare.reassembly.report(&mut ranges);
        for range in &ranges[..found] {
            if count < blocks.len() && !(known == 2 && blocks[1] == *range) {
                blocks[count] = *range;
                count += 1;
            }
        }
        options.sack(&blocks[..count.min(tcp::SACK_BLOCKS_MAX).min(most)]);
    }

    /// Adds the user timeout to the options of a segment with `len` bytes of payload, if there is room. The peer drops a
    /// segment that it has, with its options: so only segments with new numbers take it.
    #[cold]
    fn add_timeout(&mut self, options: &mut Writer, len: u32) {
        let plain = if self.is(flag::TIMESTAMPS) { TIMESTAMPS_LEN } else { 0 };
        let blocks = options.len().saturating_sub(plain);
        let fits = options.len() + USER_TIMEOUT_LEN <= tcp::OPTIONS_LEN_MAX
            && len as usize + blocks + USER_TIMEOUT_LEN <= usize::from(self.mss);
        if let Some(timeout) = self.options.user_timeout_option().filter(|_| fits) {
            options.user_timeout(timeout);
            self.clear(flag::TIMEOUT_DUE);
        }
    }

    /// What [`Self::header`], [`Self::options`] and [`Self::add_timeout`] change: the sink may have no room.
    #[inline]
    fn offered(&self) -> Offered {
        Offered {
            wup: self.rcv_wup,
            wnd: self.rcv_wnd,
            duplicate: self.rare.duplicate,
            timeout_due: self.flags & flag::TIMEOUT_DUE,
        }
    }

    /// The segment did not leave.
    #[cold]
    fn unsay(&mut self, offered: Offered) -> Full {
        (self.rcv_wup, self.rcv_wnd) = (offered.wup, offered.wnd);
        if offered.duplicate.is_some() {
            self.rare.duplicate = offered.duplicate;
        }
        self.flags |= offered.timeout_due;
        Full
    }

    #[inline]
    fn header(&mut self, seq: Seq, flags: u8) -> tcp::Header {
        let window = self.window_to_offer();
        self.offer(window);
        self.header_with(seq, flags, window)
    }

    /// A header that offers this window, bytes.
    #[inline(always)]
    pub(super) fn header_with(&self, seq: Seq, flags: u8, window: u32) -> tcp::Header {
        tcp::Header {
            source_port: self.tuple.local_port(),
            destination_port: self.tuple.remote_port(),
            sequence: seq.0,
            acknowledgement: self.rcv_nxt.0,
            flags: Flags(flags),
            window: (window >> self.rcv_scale).min(65_535) as u16,
            urgent: 0,
        }
    }

    /// Whether new data answers data that has just come.
    #[inline]
    pub(super) fn note_interaction(&mut self, now: Instant) {
        if self.totals.bytes_received > 0 && now.nanos_since(self.data_at) < REPLY_TIME_NS {
            self.set(flag::INTERACTIVE);
        }
    }

    /// An acknowledgement leaves with this segment.
    #[inline]
    pub(super) fn acknowledged_now(&mut self) {
        self.quick = self.quick.saturating_sub(1);
        self.clear(flag::ACK_NOW | flag::ACK_LATER);
        self.ack_at = Instant::NEVER;
    }

    /// Sends the bytes of a record.
    #[inline]
    fn send_record(
        &mut self,
        now: Instant,
        record: &Sent,
        shared: &mut Shared,
        sink: &mut impl Sink,
    ) -> Result<(), Full> {
        let fin = u32::from(record.has(sent::FIN));
        let len = (record.end - record.start) - fin;
        let offset = record.start - self.data_start();
        let again = record.start.before(self.snd_nxt);
        let mut flags = Flags::ACK;
        if record.has(sent::FIN) {
            flags |= Flags::FIN;
        }
        // What leaves as one goes up as one: whoever glues segments together ends with it, as Linux has it.
        if record.has(sent::PUSH) || record.count > 1 {
            flags |= Flags::PSH;
        }
        if self.is(flag::ECHO_CONGESTION) {
            flags |= Flags::ECE;
        }
        // RFC 3168 section 6.1.5: retransmissions are not capable, and CWR comes with new data.
        let capable = self.is(flag::ECN) && !again && len > 0;
        if capable && self.is(flag::SEND_CWR) {
            flags |= Flags::CWR;
        }
        let offered = self.offered();
        let mut header = self.header(record.start, flags);
        if self.is(flag::MARKED) {
            self.point(&mut header);
        }
        let gaps = self.rare.duplicate.is_some() || !self.rare.reassembly.is_empty();
        let mut options = self.options(now, len.min(u32::from(record.unit)));
        let (said, plain) = (options.len(), if self.is(flag::TIMESTAMPS) { TIMESTAMPS_LEN } else { 0 });
        if self.is(flag::TIMEOUT_DUE) && !again {
            self.add_timeout(&mut options, len.min(u32::from(record.unit)));
        }
        let unit = if record.count > 1 { record.unit } else { 0 };
        let segment = Outgoing {
            header,
            options: options.bytes(),
            payload: self.send.range(offset as usize, len as usize),
            unit,
            capable,
            id: self.packet_id(),
        };
        if !sink.send(&self.tuple, &segment) {
            return Err(self.unsay(offered));
        }
        if flags & Flags::CWR != 0 {
            self.clear(flag::SEND_CWR);
        }
        if !again {
            self.note_interaction(now);
        }
        self.last_sent = now;
        // Where blocks of SACK, or the user timeout, found no room, an acknowledgement of its own takes them.
        let untold = (gaps && self.is(flag::SACK) && said <= plain) && self.is(flag::ACK_NOW)
            || self.is(flag::TIMEOUT_DUE) && !again;
        self.acknowledged_now();
        if untold {
            self.set(flag::ACK_NOW);
        }
        self.totals.segments_out = self.totals.segments_out.wrapping_add(record.count);
        shared.counters.segments_out += u64::from(record.count);
        Ok(())
    }

    fn send_ack(&mut self, now: Instant, shared: &mut Shared, sink: &mut impl Sink) -> Result<(), Full> {
        self.send_empty(now, self.snd_nxt, shared, sink)?;
        self.acknowledged_now();
        Ok(())
    }

    /// An acknowledgement without data: as such, or as a probe by a number that the peer has already.
    fn send_empty(
        &mut self,
        now: Instant,
        seq: Seq,
        shared: &mut Shared,
        sink: &mut impl Sink,
    ) -> Result<(), Full> {
        let mut flags = Flags::ACK;
        if self.is(flag::ECHO_CONGESTION) {
            flags |= Flags::ECE;
        }
        let offered = self.offered();
        let mut header = self.header(seq, flags);
        if self.is(flag::MARKED) {
            self.point(&mut header);
        }
        let mut options = self.options(now, 0);
        if self.is(flag::TIMEOUT_DUE) && seq == self.snd_nxt {
            self.add_timeout(&mut options, 0);
        }
        let segment =
            Outgoing { header, options: options.bytes(), payload: &[], unit: 0, capable: false, id: None };
        if !sink.send(&self.tuple, &segment) {
            return Err(self.unsay(offered));
        }
        self.totals.segments_out = self.totals.segments_out.wrapping_add(1);
        shared.counters.segments_out += 1;
        Ok(())
    }

    #[cold]
    fn send_reset(&mut self, now: Instant, shared: &mut Shared, sink: &mut impl Sink) -> Result<(), Full> {
        let header = self.header(self.snd_nxt, Flags::RST | Flags::ACK);
        let options = self.options(now, 0);
        let segment =
            Outgoing { header, options: options.bytes(), payload: &[], unit: 0, capable: false, id: None };
        if !sink.send(&self.tuple, &segment) {
            return Err(Full);
        }
        self.clear(flag::SEND_RESET);
        shared.counters.resets_out += 1;
        shared.counters.segments_out += 1;
        Ok(())
    }

    /// SYN, or SYN-ACK of a crossing open.
    #[cold]
    fn send_syn(&mut self, now: Instant, shared: &mut Shared, sink: &mut impl Sink) -> Result<(), Full> {
        if !self.is(flag::SYN_DUE) {
            if self.is(flag::ACK_NOW) && self.state == State::SynReceived {
                return self.send_ack(now, shared, sink);
            }
            return Ok(());
        }
        let answers = self.state == State::SynReceived;
        let config = &shared.config;
        let mut options = Writer::default();
        options.mss(self.offered_mss());
        let sack = if answers { self.is(flag::SACK) } else { config.sack };
        let timestamps = if answers { self.is(flag::TIMESTAMPS) } else { config.timestamps };
        let scaled = if answers { self.is(flag::SCALED) } else { config.window_scale };
        if sack {
            options.sack_permitted(!timestamps);
        }
        if timestamps {
            let echo = if answers { self.ts_recent } else { 0 };
            options.timestamps(Timestamps { value: self.stamp(now), echo }, !sack);
        }
        if scaled {
            let scale = if answers { self.rcv_scale } else { config.scale() };
            options.scale(scale);
            self.rcv_scale = scale;
        }
        if let Some(timeout) = self.options.user_timeout_option() {
            options.user_timeout(timeout);
        }
        let mut flags = Flags::SYN;
        if answers {
            flags |= Flags::ACK;
            if self.is(flag::ECN) {
                flags |= Flags::ECE;
            }
        } else if config.ecn == Ecn::Request && self.retries < config.ecn_syns {
            flags |= Flags::ECE | Flags::CWR;
            self.set(flag::ECN);
        } else {
            self.clear(flag::ECN);
        }
        let header = tcp::Header {
            source_port: self.tuple.local_port(),
            destination_port: self.tuple.remote_port(),
            sequence: self.iss.0,
            acknowledgement: if answers { self.rcv_nxt.0 } else { 0 },
            flags: Flags(flags),
            window: self.rcv_wnd.min(65_535) as u16,
            urgent: 0,
        };
        let segment =
            Outgoing { header, options: options.bytes(), payload: &[], unit: 0, capable: false, id: None };
        if !sink.send(&self.tuple, &segment) {
            return Err(Full);
        }
        self.snd_nxt = self.iss + 1;
        self.last_sent = now;
        self.totals.segments_out += 1;
        shared.counters.segments_out += 1;
        if self.retries > 0 {
            shared.counters.retransmitted += 1;
            self.totals.retransmitted += 1;
        }
        self.clear(flag::SYN_DUE | flag::ACK_NOW);
        self.set(flag::REARM);
        Ok(())
    }
}
