//! Connections that are only records: half-open ones, and those in TIME_WAIT.

use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::{self, Flags, Timestamps, UserTimeout, Writer};

use crate::config::{Config, Ecn, Options};
use crate::handshake::Handshake;
use crate::segment::{Outgoing, Segment, Sink, Tuple};
use crate::seq::Seq;

/// Bits of [`HalfOpen::flags`].
const SACK: u8 = 1;
const TIMESTAMPS: u8 = 2;
const SCALED: u8 = 4;
const ECN: u8 = 8;

/// A peer's SYN that was answered: 48 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpen {
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
    pub(crate) ts_recent: u32,
    pub(crate) ts_offset: u32,
    /// When SYN-ACK was sent first.
    pub(crate) sent_at: Instant,
    pub(crate) listener: u32,
    peer_mss: u16,
    window: u16,
    user_timeout: Option<UserTimeout>,
    scale: u8,
    own_scale: u8,
    flags: u8,
    pub(crate) retries: u8,
    /// When a segment that was refused was answered.
    answered_at: Instant,
}

impl HalfOpen {
    pub(crate) fn new(
        handshake: &Handshake,
        ts_offset: u32,
        listener: u32,
        own_scale: u8,
        now: Instant,
    ) -> Self {
        let mut flags = 0;
        flags |= if handshake.sack { SACK } else { 0 };
        flags |= if handshake.timestamps.is_some() { TIMESTAMPS } else { 0 };
        flags |= if handshake.scale.is_some() { SCALED } else { 0 };
        flags |= if handshake.ecn { ECN } else { 0 };
        Self {
            iss: handshake.iss,
            irs: handshake.irs,
            ts_recent: handshake.timestamps.unwrap_or(0),
            ts_offset,
            sent_at: now,
            listener,
            peer_mss: handshake.peer_mss,
            window: handshake.window,
            user_timeout: handshake.user_timeout,
            scale: handshake.scale.unwrap_or(0),
            own_scale,
            flags,
            retries: 0,
            answered_at: Instant::ZERO,
        }
    }

    pub(crate) fn handshake(&self, config: &Config) -> Handshake {
        let has = |bit: u8| self.flags & bit != 0;
        Handshake {
            iss: self.iss,
            irs: self.irs,
            peer_mss: self.peer_mss,
            window: self.window,
            scale: has(SCALED).then_some(self.scale),
            own_scale: Some(self.own_scale),
            sack: has(SACK),
            timestamps: has(TIMESTAMPS).then_some(self.ts_recent),
            // The last answers did not offer it any more.
            ecn: has(ECN) && self.retries < config.ecn_syns,
            user_timeout: self.user_timeout,
        }
    }

    /// The time of the clock of timestamps.
    fn stamp(&self, now: Instant) -> u32 {
        ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.ts_offset)
    }

    /// Whether a segment that is refused may be answered: the last one was long enough ago.
    pub(crate) fn may_answer(&mut self, now: Instant, each: Duration) -> bool {
        let too_soon = self.answered_at != Instant::ZERO && now.since(self.answered_at) < each;
        if !too_soon {
            self.answered_at = now;
        }
        !too_soon
    }

    /// Whether a segment is of the past (PAWS).
    pub(crate) fn is_old(&self, segment: &Segment<'_>) -> bool {
        self.flags & TIMESTAMPS != 0
            && segment.options.timestamps.is_some_and(|times| Seq(times.value).before(Seq(self.ts_recent)))
    }

    /// Sends SYN-ACK, as the listener's options say.
    pub(crate) fn answer(
        &self,
        now: Instant,
        tuple: &Tuple,
        listener: &Options,
        config: &Config,
        sink: &mut impl Sink,
    ) -> bool {
        let has = |bit: u8| self.flags & bit != 0;
        let path = config.mtu.saturating_sub(tuple.headers());
        let window = listener.receive_buffer.unwrap_or(config.receive_initial);
        let mut options = Writer::default();
        options.mss(if listener.mss > 0 { path.min(listener.mss) } else { path });
        if has(SACK) {
            options.sack_permitted(!has(TIMESTAMPS));
        }
        if has(TIMESTAMPS) {
            let times = Timestamps { value: self.stamp(now), echo: self.ts_recent };
            options.timestamps(times, !has(SACK));
        }
        if has(SCALED) {
            options.scale(self.own_scale);
        }
        if let Some(timeout) = listener.user_timeout_option() {
            options.user_timeout(timeout);
        }
        let mut flags = Flags::SYN | Flags::ACK;
        // A peer that does not answer may sit behind something that drops ECN (RFC 3168 section 6.1.1.1).
        if has(ECN) && self.retries < config.ecn_syns && config.ecn != Ecn::Off {
            flags |= Flags::ECE;
        }
        let header = header(tuple, self.iss, self.irs + 1, flags, window.min(65_535) as u16);
        let segment =
            Outgoing { header, options: options.bytes(), payload: &[], unit: 0, capable: false, id: None };
        sink.send(tuple, &segment)
    }

    /// Acknowledges what has arrived, without SYN.
    pub(crate) fn acknowledge(
        &self,
        now: Instant,
        tuple: &Tuple,
        window: u32,
        config: &Config,
        sink: &mut impl Sink,
    ) -> bool {
        // Only windows of SYNs are not scaled (RFC 7323 section 2.2).
        let window = window.min(65_535) >> if self.flags & SCALED != 0 { config.scale() } else { 0 };
        let mut options = Writer::default();
        if self.flags & TIMESTAMPS != 0 {
            options.timestamps(Timestamps { value: self.stamp(now), echo: self.ts_recent }, true);
        }
        let header = header(tuple, self.iss + 1, self.irs + 1, Flags::ACK, window as u16);
        let segment =
            Outgoing { header, options: options.bytes(), payload: &[], unit: 0, capable: false, id: None };
        sink.send(tuple, &segment)
    }
}

/// A connection in TIME_WAIT: 48 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeWait {
    pub(crate) snd_nxt: Seq,
    pub(crate) rcv_nxt: Seq,
    pub(crate) rcv_wnd: u32,
    /// The peer's clock; `None` without timestamps.
    pub(crate) ts_recent: Option<u32>,
    pub(crate) ts_offset: u32,
    pub(crate) scale: u8,
    /// When something that counts was heard or said last, ms, modulo 2^32.
    pub(crate) heard_ms: u32,
    pub(crate) until: Instant,
    pub(crate) acked_at: Instant,
}

/// A connection in TIME_WAIT makes room for one that this host opens after this time, ms: clocks of timestamps tick once
/// a second at least (RFC 7323 section 5.4; Linux's `tcp_tw_reuse_delay`).
const REUSE_AFTER_MS: u32 = 1000;

/// The clock of [`TimeWait::heard_ms`].
pub(crate) fn milliseconds(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

/// What a segment does to a record of TIME_WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InTimeWait {
    /// Nothing.
    Stay,
    /// It is acknowledged, and the time begins anew if so.
    Acknowledge { restart: bool },
    /// A new connection takes its place (RFC 6191); its sequence numbers begin above these.
    Replace,
    /// The peer is reset, and the record forgotten.
    Reset,
}

impl TimeWait {
    /// Whether this host may open the connection again: timestamps tell its segments from old ones, as both clocks have
    /// moved (RFC 6191, for the end that opens). Without timestamps nothing does: the peer chooses its numbers anew.
    pub(crate) fn may_be_opened(&self, now: Instant) -> bool {
        self.ts_recent.is_some() && milliseconds(now).wrapping_sub(self.heard_ms) >= REUSE_AFTER_MS
    }

    /// RFC 9293 section 3.10.7.4, RFC 1337, RFC 6191. `challenges_syns`: see [`Config::challenge_syns`].
    pub(crate) fn segment(&self, segment: &Segment<'_>, challenges_syns: bool) -> InTimeWait {
        let times = segment.options.timestamps.filter(|_| self.ts_recent.is_some());
        let newer = times.is_some_and(|times| Seq(times.value).after(Seq(self.ts_recent.unwrap_or(0))));
        let old = times.is_some_and(|times| Seq(times.value).before(Seq(self.ts_recent.unwrap_or(0))));
        if segment.has(Flags::RST) {
            // An acceptable reset would end TIME_WAIT too early (RFC 1337).
            return InTimeWait::Stay;
        }
        if segment.has(Flags::SYN) && !challenges_syns && self.is_in_window(segment) {
            return InTimeWait::Reset;
        }
        if segment.flags.opens() && !old {
            if segment.seq.after(self.rcv_nxt) || newer {
                return InTimeWait::Replace;
            }
            return InTimeWait::Acknowledge { restart: false };
        }
        if old {
            return InTimeWait::Acknowledge { restart: false };
        }
        let plain = segment.len() == 0 && segment.seq == self.rcv_nxt;
        if plain || !segment.has(Flags::ACK) && !segment.has(Flags::SYN) {
            return InTimeWait::Stay;
        }
        InTimeWait::Acknowledge { restart: segment.has(Flags::FIN) }
    }

    fn is_in_window(&self, segment: &Segment<'_>) -> bool {
        !segment.seq.before(self.rcv_nxt) && segment.seq.before(self.rcv_nxt + self.rcv_wnd)
    }

    /// Resets the peer.
    pub(crate) fn reset(&self, tuple: &Tuple, sink: &mut impl Sink) -> bool {
        let header = header(tuple, self.snd_nxt, self.rcv_nxt, Flags::RST | Flags::ACK, 0);
        sink.send(tuple, &Outgoing { header, options: &[], payload: &[], unit: 0, capable: false, id: None })
    }

    pub(crate) fn acknowledge(&self, now: Instant, tuple: &Tuple, sink: &mut impl Sink) -> bool {
        let mut options = Writer::default();
        if let Some(echo) = self.ts_recent {
            let value = ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.ts_offset);
            options.timestamps(Timestamps { value, echo }, true);
        }
        let window = (self.rcv_wnd >> self.scale).min(65_535) as u16;
        let header = header(tuple, self.snd_nxt, self.rcv_nxt, Flags::ACK, window);
        let segment =
            Outgoing { header, options: options.bytes(), payload: &[], unit: 0, capable: false, id: None };
        sink.send(tuple, &segment)
    }

    /// Whether an acknowledgement was sent so lately that another would only feed a loop.
    pub(crate) fn is_quiet(&self, now: Instant, interval: Duration) -> bool {
        self.acked_at != Instant::ZERO && now.since(self.acked_at) < interval
    }
}

/// Answers a segment of no connection by a reset (RFC 9293 section 3.10.7.1).
pub(crate) fn reset(tuple: &Tuple, segment: &Segment<'_>, sink: &mut impl Sink) -> bool {
    let header = if segment.has(Flags::ACK) {
        header(tuple, segment.ack, Seq(0), Flags::RST, 0)
    } else {
        header(tuple, Seq(0), segment.end(), Flags::RST | Flags::ACK, 0)
    };
    sink.send(tuple, &Outgoing { header, options: &[], payload: &[], unit: 0, capable: false, id: None })
}

fn header(tuple: &Tuple, seq: Seq, ack: Seq, flags: u8, window: u16) -> tcp::Header {
    tcp::Header {
        source_port: tuple.local_port(),
        destination_port: tuple.remote_port(),
        sequence: seq.0,
        acknowledgement: ack.0,
        flags: Flags(flags),
        window,
        urgent: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_small() {
        assert!(size_of::<HalfOpen>() <= 64, "{}", size_of::<HalfOpen>());
        assert!(size_of::<TimeWait>() <= 48, "{}", size_of::<TimeWait>());
    }
}
