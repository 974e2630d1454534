//! How a connection begins.

use std::sync::Arc;

use twinpath_time::{Duration, Instant};

use super::{Connection, Events, Rack, Said, Shared, State, Timer, Tuning, flag};
use crate::clock::micros;
use crate::config::{Config, Options};
use crate::congestion::{Congestion, Window};
use crate::handshake::{Handshake, MSS_DEFAULT, MSS_MIN, OpenedBy};
use crate::rtt::Rtt;
use crate::segment::{Segment, Tuple};
use crate::seq::Seq;

/// Bytes of the timestamps option with its padding.
pub(super) const TIMESTAMPS_LEN: u16 = 12;

/// The longest idle acknowledgements that are sent at once when a connection is new (Linux's `TCP_MAX_QUICKACKS`).
const QUICK_MAX: u32 = 16;

impl Connection {
    /// A connection that sends a SYN.
    pub(crate) fn connect(
        tuple: Tuple,
        iss: Seq,
        ts_offset: u32,
        options: Arc<Options>,
        now: Instant,
        shared: &Shared,
    ) -> Self {
        let config = &shared.config;
        let mut connection = Self::new(tuple, iss, ts_offset, options, now, config);
        connection.set(flag::SYN_DUE);
        connection.snd_nxt = iss;
        connection.copy_options();
        connection
    }

    /// A connection whose handshake is complete, at the listener's end.
    pub(crate) fn accepted(
        tuple: Tuple,
        handshake: &Handshake,
        ts_offset: u32,
        options: Arc<Options>,
        listener: u32,
        now: Instant,
        shared: &mut Shared,
    ) -> Self {
        let mut connection = Self::new(tuple, handshake.iss, ts_offset, options, now, &shared.config);
        connection.opened_by = OpenedBy::Peer(listener);
        connection.copy_options();
        connection.state = State::Established;
        connection.agree(handshake, &shared.config, now);
        connection.snd_nxt = handshake.iss + 1;
        connection.establish(now, &shared.config);
        connection
    }

    fn new(
        tuple: Tuple,
        iss: Seq,
        ts_offset: u32,
        options: Arc<Options>,
        now: Instant,
        config: &Config,
    ) -> Self {
        let initial = options.receive_buffer.unwrap_or(config.receive_initial);
        let rto_min_us = u32::try_from(config.rto_min.as_micros()).unwrap_or(u32::MAX);
        let kind = options.congestion.unwrap_or(config.congestion);
        Self {
            snd_una: iss,
            snd_nxt: iss,
            rcv_wnd: initial.min(65_535),
            flags: flag::REARM,
            state: State::SynSent,
            mss: MSS_DEFAULT[usize::from(!tuple.is_ipv4())],
            rcv_mss: MSS_DEFAULT[0],
            ts_offset,
            window: Window {
                cwnd: config.initial_window,
                credit: 0,
                ssthresh: Window::INFINITE,
                clamp: u32::MAX,
            },
            timer_at: Instant::NEVER,
            ack_at: Instant::NEVER,
            last_received: now,
            data_at: now,
            last_sent: now,
            tuple,
            rtt: Rtt::new(rto_min_us),
            congestion: Congestion::new(kind),
            rack: Rack { end: iss, round: iss, steps: 1, ..Rack::default() },
            high_seq: iss,
            small_end: iss,
            reordering: config.reordering,
            ts_recent_at: now,
            iss,
            room_hint: super::ROOM_MIN,
            receive_limit: initial,
            send_limit: options.send_buffer.unwrap_or(config.send_initial.min(config.send_max)),
            tuning: Tuning { space: initial, since: now, edge_at: now, ..Tuning::default() },
            stalled_since: now,
            keepalive_at: Instant::NEVER,
            mtu: config.mtu,
            said: Said::Nothing,
            own_mss: config.mtu.saturating_sub(tuple.headers()),
            peer_mss: MSS_DEFAULT[usize::from(!tuple.is_ipv4())],
            options,
            window_used_end: iss,
            #[cfg(test)]
            straight: true,
            ..Self::default()
        }
    }

    /// Takes over what the peer's SYN says.
    pub(super) fn agree(&mut self, handshake: &Handshake, config: &Config, now: Instant) {
        self.rcv_nxt = handshake.irs + 1;
        self.rcv_wup = self.rcv_nxt;
        self.snd_wl1 = handshake.irs;
        self.snd_wnd = u32::from(handshake.window);
        self.max_window = self.snd_wnd;
        self.peer_mss = handshake.peer_mss;
        self.clear(flag::SACK | flag::TIMESTAMPS | flag::SCALED | flag::ECN);
        let own_scale = handshake.own_scale.unwrap_or(self.rcv_scale);
        (self.snd_scale, self.rcv_scale) = (0, 0);
        if let Some(scale) = handshake.scale {
            self.set(flag::SCALED);
            (self.snd_scale, self.rcv_scale) = (scale, own_scale);
        }
        if handshake.sack {
            self.set(flag::SACK);
        }
        if let Some(stamp) = handshake.timestamps {
            self.set(flag::TIMESTAMPS);
            (self.ts_recent, self.ts_recent_at) = (stamp, now);
        }
        if handshake.ecn {
            self.set(flag::ECN);
        }
        if handshake.user_timeout.is_some() {
            self.rare.peer_timeout = handshake.user_timeout;
        }
        self.fit_segments(config);
        self.tuning.edge = self.rcv_nxt + self.rcv_wnd;
    }

    /// SYN-ACK was sent once, at `sent_at`, and has been acknowledged.
    pub(crate) fn handshake_took(&mut self, now: Instant, sent_at: Instant) {
        self.rtt.sample(now, micros(now, sent_at), self.snd_una.0, self.snd_nxt.0);
    }

    /// SYN-ACK was sent more than once: only timestamps tell which was answered.
    pub(crate) fn handshake_was_repeated(&mut self, now: Instant, segment: &Segment<'_>) {
        self.rtt.syn_was_retransmitted();
        self.set(flag::SYN_AGAIN);
        self.window.cwnd = 1;
        self.time_handshake(now, segment);
    }

    /// Computes the size of segments from what path, peer and program allow.
    pub(super) fn fit_segments(&mut self, _config: &Config) {
        let mut mss = self.mss_allowed();
        if self.is(flag::TIMESTAMPS) {
            mss = mss.saturating_sub(TIMESTAMPS_LEN);
        }
        self.mss = mss.max(MSS_MIN - TIMESTAMPS_LEN);
    }

    /// Bytes of the largest segment behind a header without options that path, peer and program allow.
    pub(super) fn mss_allowed(&self) -> u16 {
        let path = self.mtu.saturating_sub(self.tuple.headers());
        let mss = path.min(self.peer_mss);
        if self.options.mss > 0 { mss.min(self.options.mss) } else { mss }
    }

    /// What this end takes in a segment, for its SYN: that of the interface, whatever the path towards the peer carries
    /// (RFC 9293 section 3.7.1).
    pub(super) fn offered_mss(&self) -> u16 {
        if self.options.mss > 0 { self.own_mss.min(self.options.mss) } else { self.own_mss }
    }

    /// The handshake is complete: `snd_una` may still be that of the SYN.
    pub(super) fn establish(&mut self, now: Instant, config: &Config) {
        // A program may have finished before.
        self.state = if self.is(flag::FIN_QUEUED) { State::FinWait1 } else { State::Established };
        self.snd_una = self.iss + 1;
        self.snd_nxt = self.snd_nxt.max(self.snd_una);
        for seq in [&mut self.rack.end, &mut self.rack.round, &mut self.high_seq, &mut self.small_end] {
            *seq = self.snd_una;
        }
        self.window_used_end = self.snd_una;
        self.rcv_mss = self.mss.min(self.rcv_mss).max(MSS_DEFAULT[0].min(self.mss));
        let quick = self.rcv_wnd / (2 * u32::from(self.rcv_mss).max(1));
        self.quick = 0;
        self.quicken(quick.clamp(2, QUICK_MAX) as u8);
        (self.last_received, self.data_at, self.last_sent) = (now, now, now);
        (self.retries, self.backoff) = (0, 0);
        (self.timer, self.timer_at) = (Timer::None, Instant::NEVER);
        self.clear(flag::SYN_DUE);
        // A retransmitted SYN says that the path loses segments (RFC 5681 section 3.1).
        self.window.cwnd = if self.is(flag::SYN_AGAIN) { 1 } else { config.initial_window.max(1) };
        if self.options.keepalive != Duration::MAX {
            self.keepalive_at = now + self.options.keepalive;
        }
        // RFC 5482 section 2: SYN says it, and so does the first segment without SYN.
        self.advertise_timeout();
        self.tell(Events::CONNECTED | Events::WRITABLE);
    }
}
