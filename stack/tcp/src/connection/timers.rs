//! Timers: one for what is in flight, and those of acknowledgements, keepalives and ends.

use twinpath_time::{Duration, Instant};

use super::{Connection, Ended, Network, Said, Shared, State, Timer, flag};
use crate::clock::after;
use crate::config::Config;

/// Time-outs in a row before which a path is trusted: Linux's `tcp_retries1`, and twice as many before the second step.
const TRUSTED: [u8; 2] = [2, 5];

/// The payload that a path is taken to carry then: that of RFC 4821 section 7.2, and that of the packet that every host
/// takes (RFC 1122 section 3.3.3).
const CARRIED: [u16; 2] = [1024, 512];

/// Every path of IPv6 carries packets of so many bytes (RFC 8200 section 5).
const LEAST_V6: u16 = 1280;

/// No silent peer is given up earlier, unless the program wants it (R2 of RFC 9293 section 3.8.3).
const SILENCE_MIN: Duration = Duration::from_secs(100);

impl Connection {
    /// How long data may stay unacknowledged: what the program has set, or what both ends say (RFC 5482);
    /// [`Duration::MAX`]: the number of retries decides.
    pub(super) fn user_timeout(&self, config: &Config) -> Duration {
        self.agreed_timeout(config).unwrap_or(self.options.user_timeout)
    }

    /// The time that follows from what both ends say (RFC 5482 section 3.1). `None` if the program does not use the
    /// option, or has set a time of its own, which the peer must not change (section 2). A handshake has no such time:
    /// it is given up by its number of retries, as RFC 9293 section 3.8.3 wants 3 minutes for it.
    fn agreed_timeout(&self, config: &Config) -> Option<Duration> {
        let own = self.options.advertised_timeout;
        let opens = matches!(self.state, State::SynSent | State::SynReceived);
        if own.is_zero() || self.options.user_timeout != Duration::MAX || opens {
            return None;
        }
        let peer = self.rare.peer_timeout.map_or(0, |timeout| timeout.seconds());
        // The lower limit has to leave time for a retransmission.
        let least = config.user_timeout_min.max(Duration::from_micros(2 * u64::from(self.rtt.rto_us())));
        let wanted = own.max(Duration::from_secs(u64::from(peer)));
        Some(wanted.max(least).min(config.user_timeout_max))
    }

    /// Idle time until the first keepalive probe. With the user timeout option it is longer than the user timeout, so
    /// that probes do not end what that would keep (RFC 5482 section 4.2).
    fn keepalive_idle(&self, config: &Config) -> Duration {
        if self.options.advertised_timeout.is_zero() {
            return self.options.keepalive;
        }
        self.options.keepalive.max(self.user_timeout(config).saturating_add(Duration::from_secs(1)))
    }

    /// When [`Self::due`] is to be called.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        self.timer_at.min(self.ack_at).min(self.keepalive_at).min(self.rare.end_at).min(self.rare.cork_at)
    }

    /// Does what is due. The output follows.
    #[cold]
    pub(crate) fn due(&mut self, now: Instant, shared: &mut Shared) {
        if self.state == State::Closed {
            return;
        }
        if now >= self.rare.end_at {
            self.rare.end_at = Instant::NEVER;
            self.end(self.rare.soft_error.unwrap_or(Ended::TimedOut), shared);
            return;
        }
        if now >= self.ack_at {
            self.ack_at = Instant::NEVER;
            if self.is(flag::ACK_LATER) {
                shared.counters.delayed_acks += 1;
                self.clear(flag::INTERACTIVE);
                self.set(flag::ACK_NOW);
            }
        }
        if now >= self.rare.cork_at {
            self.rare.cork_at = Instant::NEVER;
            if self.unsent() > 0 {
                self.set(flag::UNCORK);
                self.ends_piece();
            }
        }
        if now >= self.keepalive_at {
            self.keep_alive(now, shared);
        }
        if now >= self.timer_at {
            self.timer_at = Instant::NEVER;
            match core::mem::replace(&mut self.timer, Timer::None) {
                Timer::None => {}
                Timer::Retransmit => self.retransmit_is_due(now, shared),
                Timer::Probe => self.probe_is_due(),
                Timer::Reordering => self.reordering_is_over(now, shared),
                Timer::Persist => self.persist_is_due(now, shared),
            }
        }
    }

    fn retransmit_is_due(&mut self, now: Instant, shared: &mut Shared) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.syn_is_due(now, shared);
            return;
        }
        if self.flight.is_empty() {
            return;
        }
        if self.snd_wnd == 0 && self.is_given_up_on_window(now, shared) {
            shared.counters.timed_out += 1;
            self.end(Ended::TimedOut, shared);
            return;
        }
        if self.is_given_up(now, shared) {
            shared.counters.timed_out += 1;
            self.end(self.rare.soft_error.unwrap_or(Ended::TimedOut), shared);
            return;
        }
        shared.counters.timeouts += 1;
        if shared.config.black_hole_detection {
            self.suspect_path(shared);
        }
        self.begin_loss(now, shared);
        // A peer that answers and keeps its window closed is not given up (RFC 9293 section 3.8.6.1), unless nobody
        // holds the connection.
        if self.snd_wnd > 0 || self.is(flag::ORPHAN) {
            self.retries = self.retries.saturating_add(1);
        }
        self.backoff = self.backoff.saturating_add(1);
        self.timer = Timer::Retransmit;
        self.timer_at = self.before_giving_up(after(now, self.backed_off_us(shared)), shared);
        self.clear(flag::REARM);
    }

    /// Shortens segments if the first in flight was long and has been lost several times in a row: shorter ones may
    /// arrive. The connection keeps the shorter size.
    fn suspect_path(&mut self, shared: &mut Shared) {
        let Some(step) = TRUSTED.iter().position(|count| *count == self.retries) else { return };
        let Some(first) = self.flight.first() else { return };
        let payload = u32::from(first.unit).min(first.end - first.start);
        let headers = self.tuple.headers();
        let least = if self.tuple.is_ipv4() { 0 } else { LEAST_V6 };
        let mtu = (CARRIED[step] + headers).max(least);
        if self.snd_wnd > 0 && payload > u32::from(mtu - headers) {
            shared.counters.black_holes += 1;
            self.path_carries(mtu, shared);
            self.said = Said::Nothing;
        }
    }

    /// Whether a peer that has closed its window before what is in flight has been silent for too long: one answer may
    /// be lost between two of the longest time-outs (Linux's `tcp_rtx_probe0_timed_out`), and 100 s are the least before
    /// a peer is given up (RFC 9293 section 3.8.3).
    fn is_given_up_on_window(&self, now: Instant, shared: &Shared) -> bool {
        let least = shared.config.rto_max.saturating_mul(2).max(SILENCE_MIN);
        now.since(self.last_received) > self.agreed_timeout(&shared.config).unwrap_or_default().max(least)
    }

    /// Whether the retries, or the program's time, are used up (RFC 9293 section 3.8.3, RFC 5482).
    fn is_given_up(&self, now: Instant, shared: &Shared) -> bool {
        let limit = if self.is(flag::ORPHAN) { shared.config.orphan_retries } else { shared.config.retries };
        match self.user_timeout(&shared.config) {
            Duration::MAX => self.retries >= limit,
            timeout => now.since(self.stalled_since) >= timeout,
        }
    }

    fn syn_is_due(&mut self, now: Instant, shared: &mut Shared) {
        let limit = self.options.syn_retries.unwrap_or(shared.config.syn_retries);
        let timeout = self.user_timeout(&shared.config);
        let over = timeout != Duration::MAX && now.since(self.stalled_since) >= timeout;
        if self.retries >= limit || over {
            shared.counters.failed_opens += 1;
            shared.counters.timed_out += 1;
            self.end(self.rare.soft_error.unwrap_or(Ended::TimedOut), shared);
            return;
        }
        self.retries += 1;
        self.backoff += 1;
        self.set(flag::SYN_DUE | flag::SYN_AGAIN);
    }

    fn probe_is_due(&mut self) {
        if self.probe_end.is_none() && !self.flight.is_empty() {
            self.set(flag::PROBE_DUE);
        } else {
            self.set(flag::REARM);
        }
    }

    fn persist_is_due(&mut self, now: Instant, shared: &mut Shared) {
        let limit = if self.is(flag::ORPHAN) { shared.config.orphan_retries } else { shared.config.retries };
        let timeout = self.user_timeout(&shared.config);
        let over = timeout != Duration::MAX && self.probes > 0 && now.since(self.stalled_since) >= timeout;
        // A time that both ends have said counts alone.
        let spent = self.probes >= limit && self.agreed_timeout(&shared.config).is_none();
        // A peer that keeps its window closed may answer for ever: for a connection that nobody holds it has a limit.
        let orphan = self.is(flag::ORPHAN) && self.backoff >= limit;
        if spent || over || orphan {
            shared.counters.timed_out += 1;
            self.end(Ended::TimedOut, shared);
            return;
        }
        if self.probes == 0 {
            self.stalled_since = now;
        }
        self.probes += 1;
        self.backoff = self.backoff.saturating_add(1);
        self.set(flag::PERSIST);
        self.timer = Timer::Persist;
        self.timer_at = self.before_giving_up(after(now, self.backed_off_us(shared)), shared);
    }

    /// RFC 9293 section 3.8.4.
    fn keep_alive(&mut self, now: Instant, shared: &mut Shared) {
        self.keepalive_at = Instant::NEVER;
        let open = matches!(
            self.state,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::FinWait2
                | State::Closing
                | State::LastAck
        );
        if self.options.keepalive == Duration::MAX || !open {
            return;
        }
        if !self.flight.is_empty() || self.unsent() > 0 {
            // Retransmissions find out.
            self.keepalive_at = now + self.options.keepalive;
            return;
        }
        let idle = now.since(self.last_received);
        let wait = self.keepalive_idle(&shared.config);
        if idle < wait {
            self.keepalive_at = self.last_received + wait;
            return;
        }
        // With the option the first probe comes later than that time: what counts are the probes.
        let timeout = self.options.user_timeout;
        let over = if timeout == Duration::MAX || !self.options.advertised_timeout.is_zero() {
            self.keepalive_probes >= self.options.keepalive_count
        } else {
            idle >= timeout && self.keepalive_probes > 0
        };
        if over {
            shared.counters.timed_out += 1;
            self.set(flag::SEND_RESET);
            self.end(self.rare.soft_error.unwrap_or(Ended::TimedOut), shared);
            return;
        }
        self.keepalive_probes = self.keepalive_probes.saturating_add(1);
        shared.counters.keepalives += 1;
        self.set(flag::KEEPALIVE_DUE);
        self.keepalive_at = now + self.options.keepalive_interval;
    }

    /// The retransmission time-out, doubled for each time it has passed (RFC 6298 section 5.5), us.
    #[inline]
    pub(super) fn backed_off_us(&self, shared: &Shared) -> u64 {
        (u64::from(self.rtt.rto_us()) << self.backoff.min(16)).min(shared.rto_max_us)
    }

    /// A time-out at `at`, or when the program's time is over (RFC 5482).
    fn before_giving_up(&self, at: Instant, shared: &Shared) -> Instant {
        match self.user_timeout(&shared.config) {
            Duration::MAX => at,
            limit => at.min(self.stalled_since + limit),
        }
    }

    /// Sets the timer after something was sent or acknowledged: a probe if one makes sense, else the retransmission,
    /// else a probe of the window.
    pub(super) fn rearm(&mut self, now: Instant, shared: &Shared) {
        self.clear(flag::REARM);
        if self.state == State::Closed {
            return;
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.timer = Timer::Retransmit;
            self.timer_at = self.before_giving_up(after(now, self.backed_off_us(shared)), shared);
            return;
        }
        if self.flight.is_empty() {
            let waits = self.unsent() > 0 || self.is(flag::FIN_QUEUED) && !self.is(flag::FIN_SENT);
            if waits && self.is_blocked_by_receiver() {
                if self.timer != Timer::Persist {
                    self.timer = Timer::Persist;
                    self.timer_at = after(now, self.backed_off_us(shared));
                }
            } else {
                (self.timer, self.timer_at) = (Timer::None, Instant::NEVER);
            }
            return;
        }
        if self.timer == Timer::Reordering && self.network >= Network::Recovery && self.timer_at > now {
            return;
        }
        if self.arm_probe(now, shared) {
            return;
        }
        let was_other = matches!(self.timer, Timer::Reordering | Timer::Probe);
        let rto_us = self.backed_off_us(shared);
        let first = self.flight.first().map_or(now, |first| first.at);
        self.timer = Timer::Retransmit;
        self.timer_at = if was_other { after(first, rto_us).max(after(now, 1)) } else { after(now, rto_us) };
    }

    /// RFC 8985 section 7.2: two round trips after the last segment.
    fn arm_probe(&mut self, now: Instant, shared: &Shared) -> bool {
        let allowed = shared.config.tail_loss_probe
            && self.is(flag::SACK)
            && matches!(self.network, Network::Open | Network::Reduced)
            && self.probe_end.is_none()
            && self.flight.sacked == 0
            // What an ICMP error has shown to be lost is sent again, and timed as such.
            && self.flight.lost == 0
            && self.backoff == 0;
        if !allowed {
            return false;
        }
        let srtt_us = self.rtt.srtt_us();
        let wait = if srtt_us == 0 {
            Duration::from_secs(1)
        } else {
            let twice = Duration::from_micros(2 * u64::from(srtt_us));
            // The peer may delay its acknowledgement of a single segment.
            if self.flight.out == 1 {
                twice + shared.config.rto_min
            } else {
                twice + Duration::from_millis(2)
            }
        };
        let first = self.flight.first().map_or(now, |first| first.at);
        let rto_at = first + Duration::from_micros(u64::from(self.rtt.rto_us()));
        self.timer = Timer::Probe;
        self.timer_at = (now + wait).min(rto_at.max(now));
        true
    }

    /// Whether nothing can be sent for the peer's window.
    #[inline(always)]
    pub(super) fn is_blocked_by_receiver(&self) -> bool {
        let room = self.window_end().since(self.snd_nxt);
        room == 0 || room < u32::from(self.mss).min(self.unsent())
    }
}
