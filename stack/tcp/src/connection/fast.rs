//! An established connection without loss: a segment with data, in order, and the answer to it.
//!
//! Both functions do what the general ones do, for the case that nothing is unusual, and leave every other case to
//! them. So they may be left out without a change in behaviour; a test compares both.

use twinpath_time::Instant;
use twinpath_wire::tcp::{Flags, OPTIONS_LEN_MAX, Timestamps, Writer};

use super::{Connection, Network, Said, Shared, State, Timer, flag};
use crate::clock::{after, micros};
use crate::congestion::{Acked, Control as _};
use crate::flight::{Sent, flag as sent};
use crate::segment::{Outgoing, Segment, Sink};
use crate::seq::Seq;

/// With one of these a segment is unusual.
const UNUSUAL_IN: u32 = flag::ECN
    | flag::FIN_QUEUED
    | flag::FIN_RECEIVED
    | flag::ORPHAN
    | flag::READ_CLOSED
    | flag::FRTO
    | flag::CORKED
    | flag::MARKED
    | flag::WANTS_ROOM;

/// With one of these more is to be sent than data and its acknowledgement.
const UNUSUAL_OUT: u32 = flag::ECN
    | flag::FIN_QUEUED
    | flag::SEND_RESET
    | flag::PROBE_DUE
    | flag::PERSIST
    | flag::KEEPALIVE_DUE
    | flag::CORKED
    | flag::UNCORK
    | flag::MARKED
    | flag::TIMEOUT_DUE
    | flag::SYN_DUE;

impl Connection {
    /// Takes a segment whose payload is the next in order, while nothing is queued, and which acknowledges all or
    /// nothing of what is in flight. False: it is left to [`Self::segment`].
    pub(crate) fn take_in_order(&mut self, now: Instant, segment: &Segment<'_>) -> bool {
        #[cfg(test)]
        if !self.straight {
            return false;
        }
        let len = segment.payload.len() as u32;
        let usual = segment.flags.0 & !Flags::PSH == Flags::ACK
            && segment.seq == self.rcv_nxt
            && len.wrapping_sub(1) < self.receive_window()
            && self.state == State::Established
            && self.network == Network::Open
            && self.flags & UNUSUAL_IN == 0
            && self.receive.is_empty()
            && (self.rare.is_none() || !self.rare.passes())
            && !segment.options.has_sack_blocks()
            && segment.options.user_timeout.is_none()
            && self.keepalive_at == Instant::NEVER;
        if !usual || !self.are_stamps_usual(segment) || !self.take_whole_flight(now, segment) {
            return false;
        }
        if let Some(times) = segment.options.timestamps {
            if self.rcv_wup == self.rcv_nxt {
                (self.ts_recent, self.ts_recent_at) = (times.value, now);
            }
            self.last_echo = times.echo;
        }
        (self.last_received, self.data_at) = (now, now);
        self.probes = 0;
        let units = if segment.unit == 0 { 1 } else { u32::from(self.units(segment)) };
        self.totals.segments_in = self.totals.segments_in.wrapping_add(units);
        self.totals.data_segments_in = self.totals.data_segments_in.wrapping_add(units);
        self.see_size(segment);
        self.accept(now, len);
        true
    }

    /// Whether the functions here are used at all.
    #[cfg(test)]
    pub(crate) const fn go_straight(&mut self, straight: bool) {
        self.straight = straight;
    }

    /// Timestamps are there if they were agreed on, and not older than the last.
    #[inline(always)]
    fn are_stamps_usual(&self, segment: &Segment<'_>) -> bool {
        match segment.options.timestamps {
            Some(times) => self.is(flag::TIMESTAMPS) && !Seq(times.value).before(Seq(self.ts_recent)),
            None => !self.is(flag::TIMESTAMPS),
        }
    }

    /// Takes an acknowledgement of nothing new, or of the only record in flight. False, and nothing is changed, if it
    /// is another one.
    #[inline(always)]
    fn take_whole_flight(&mut self, now: Instant, segment: &Segment<'_>) -> bool {
        let window = u32::from(segment.window) << self.snd_scale;
        if segment.ack == self.snd_una {
            // Of the last segment's number, only a larger window is a newer one.
            let shrinks = segment.seq == self.snd_wl1 && window < self.snd_wnd;
            if self.timer == Timer::Persist || shrinks {
                return false;
            }
        } else {
            let Some(record) = self.flight.only().filter(|record| record.end == segment.ack) else {
                return false;
            };
            if self.unsent() > 0
                || record.flags & !sent::PUSH != 0
                || self.probe_end.is_some()
                || self.dupacks > 0
            {
                return false;
            }
            self.take_record(now, segment.ack, &record);
        }
        self.snd_wl1 = segment.seq;
        self.snd_wnd = window;
        self.max_window = self.max_window.max(window);
        true
    }

    /// The only record in flight has arrived.
    #[inline(always)]
    fn take_record(&mut self, now: Instant, ack: Seq, record: &Sent) {
        let rtt_us = micros(now, record.at);
        (self.rack.at, self.rack.end, self.rack.rtt_us) = (record.at, record.end, rtt_us);
        self.set(flag::RACK_ADVANCED | flag::REARM);
        self.flight.remove_only();
        let bytes = ack - self.snd_una;
        self.send.clear();
        self.snd_una = ack;
        self.rtt.sample(now, rtt_us, self.snd_una.0, self.snd_nxt.0);
        self.totals.bytes_acked += u64::from(bytes);
        self.totals.delivered = self.totals.delivered.wrapping_add(record.count);
        (self.retries, self.backoff) = (0, 0);
        self.stalled_since = now;
        if !self.is_window_limited() {
            self.set(flag::SKIPPED);
            return;
        }
        self.end_skipping(now);
        let acked = Acked {
            now,
            segments: record.count,
            rtt_us: Some(rtt_us),
            srtt_us: self.rtt.srtt_us(),
            min_rtt_us: self.rtt.min_us(),
            in_flight: record.count,
            una: self.snd_una.0,
            next: self.snd_nxt.0,
            is_limited: true,
        };
        self.congestion.on_ack(&mut self.window, &acked);
    }

    /// Sends what was written, if it fits into one segment and nothing else is to be sent: the acknowledgement goes
    /// with it. `None`: nothing was sent, and [`Self::output`] has to. False: the sink has no room.
    #[inline(always)]
    pub(super) fn send_answer(
        &mut self,
        now: Instant,
        shared: &mut Shared,
        sink: &mut impl Sink,
    ) -> Option<bool> {
        #[cfg(test)]
        if !self.straight {
            return None;
        }
        // Nothing is in flight, so all that was written is unsent.
        let len = self.send.len() as u32;
        let usual = len.wrapping_sub(1) < u32::from(self.mss)
            && len <= self.snd_wnd
            && self.state == State::Established
            && self.network == Network::Open
            && self.flags & UNUSUAL_OUT == 0
            && self.said == Said::Nothing
            && self.flight.is_empty()
            && self.window.cwnd > 0
            && (self.rare.is_none() || self.rare.duplicate.is_none() && self.rare.reassembly.is_empty())
            && now.nanos_since(self.last_sent) <= u64::from(self.rtt.rto_us()) * 1000;
        if !usual {
            return None;
        }
        debug_assert_eq!(len, self.unsent());
        let window = self.window_to_offer();
        let header = self.header_with(self.snd_nxt, Flags::ACK | Flags::PSH, window);
        let mut options = [0; OPTIONS_LEN_MAX];
        let options_len = if self.is(flag::TIMESTAMPS) {
            let times = Timestamps { value: self.stamp(now), echo: self.ts_recent };
            Writer::timestamps_alone(times, &mut options)
        } else {
            0
        };
        let segment = Outgoing {
            header,
            options: &options[..options_len],
            payload: self.send.bytes(),
            unit: 0,
            capable: false,
            id: self.packet_id(),
        };
        if !sink.send(&self.tuple, &segment) {
            return Some(false);
        }
        self.offer(window);
        self.note_answer(now, len, shared);
        Some(true)
    }

    fn note_answer(&mut self, now: Instant, len: u32, shared: &mut Shared) {
        let record = Sent {
            start: self.snd_nxt,
            end: self.snd_nxt + len,
            at: now,
            unit: self.mss,
            flags: sent::PUSH,
            count: 1,
            ..Sent::default()
        };
        self.flight.push(record, &mut shared.flights);
        self.snd_nxt = record.end;
        if len < u32::from(self.mss) {
            self.small_end = record.end;
        }
        self.note_interaction(now);
        self.clear(flag::UNCORK);
        (self.last_sent, self.stalled_since) = (now, now);
        self.acknowledged_now();
        self.window_used = self.window_used.max(1);
        self.note_window_use(false);
        self.note_limit(now, false);
        self.totals.bytes_sent += u64::from(len);
        self.totals.segments_out = self.totals.segments_out.wrapping_add(1);
        self.totals.data_segments_out = self.totals.data_segments_out.wrapping_add(1);
        shared.counters.segments_out += 1;
        self.arm_alone(now, shared);
    }

    /// As [`Self::rearm`] does it for a single segment that was just sent.
    #[inline(always)]
    fn arm_alone(&mut self, now: Instant, shared: &Shared) {
        self.clear(flag::REARM);
        let rto_us = self.backed_off_us(shared);
        let srtt_us = u64::from(self.rtt.srtt_us());
        let probes = shared.config.tail_loss_probe
            && self.is(flag::SACK)
            && self.probe_end.is_none()
            && self.backoff == 0;
        let (timer, wait_us) = if probes {
            let wait_us = if srtt_us == 0 { 1_000_000 } else { 2 * srtt_us + shared.rto_min_us };
            (Timer::Probe, wait_us.min(rto_us))
        } else {
            (Timer::Retransmit, rto_us)
        };
        self.timer = timer;
        self.timer_at = after(now, wait_us);
    }
}
