//! The round-trip time and the retransmission timeout (RFC 6298), and the smallest round-trip time of late.
//!
//! The estimator has the scaling and the refinements of Linux, so that timeouts are the kernel's to the microsecond.

use twinpath_time::Instant;

/// The timeout before the first round-trip time (RFC 6298 section 2.1).
const INITIAL_RTO_US: u32 = 1_000_000;
/// The same after a SYN was retransmitted (RFC 6298 section 5.7).
const FALLBACK_RTO_US: u32 = 3_000_000;
/// No timeout is longer.
const MAX_RTO_US: u32 = 120_000_000;
/// A longer round-trip time counts as this (268 s), so that eight times of it fit.
const MAX_RTT_US: u32 = (1 << 28) - 1;
/// The age at which a minimum expires.
const MIN_WINDOW_MS: u32 = 300_000;

/// What is known about the round-trip time of a connection.
///
/// It takes a sample as it is: not to measure what was retransmitted (Karn) is the caller's part. So is the number of
/// consecutive timeouts, each of which doubles the timeout (RFC 6298 section 5.5).
#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    /// Eight times the smoothed round-trip time; 0: none yet.
    srtt_x8_us: u32,
    /// Four times the smoothed mean deviation.
    mdev_x4_us: u32,
    /// The largest of `mdev_x4_us` in this round trip, not below `rto_min_us`.
    mdev_max_x4_us: u32,
    /// Four times RTTVAR: rises with the deviation at once, and falls once per round trip.
    rttvar_x4_us: u32,
    /// The round trip ends when this sequence number is acknowledged.
    round_end: u32,
    rto_min_us: u32,
    /// The timeout: of the last sample, or the one before the first.
    rto_us: u32,
    min: WindowedMin,
}

impl Rtt {
    /// Nothing is known; `rto_min_us`: what the timeout exceeds the round-trip time by at least, 200,000 in Linux.
    #[must_use]
    pub(crate) const fn new(rto_min_us: u32) -> Self {
        Self {
            srtt_x8_us: 0,
            mdev_x4_us: 0,
            mdev_max_x4_us: 0,
            rttvar_x4_us: 0,
            round_end: 0,
            rto_min_us,
            rto_us: INITIAL_RTO_US,
            min: WindowedMin([Minimum { at_ms: 0, rtt_us: u32::MAX }; 3]),
        }
    }

    /// A round-trip time of `rtt_us`, measured at `now`. `una` and `next` are SND.UNA and SND.NXT, after the
    /// acknowledgement.
    #[inline(always)]
    pub(crate) fn sample(&mut self, now: Instant, rtt_us: u32, una: u32, next: u32) {
        let rtt_us = rtt_us.min(MAX_RTT_US);
        self.min.sample((now.as_nanos() / 1_000_000) as u32, rtt_us);
        if self.srtt_x8_us == 0 {
            self.begin(rtt_us, next);
        } else {
            self.smooth(rtt_us);
            if self.mdev_x4_us > self.mdev_max_x4_us {
                self.mdev_max_x4_us = self.mdev_x4_us;
                self.rttvar_x4_us = self.rttvar_x4_us.max(self.mdev_max_x4_us);
            }
            if (una.wrapping_sub(self.round_end) as i32) > 0 {
                self.rttvar_x4_us -= self.rttvar_x4_us.saturating_sub(self.mdev_max_x4_us) >> 2;
                self.round_end = next;
                self.mdev_max_x4_us = self.rto_min_us;
            }
        }
        self.rto_us = self.srtt_us().saturating_add(self.rttvar_x4_us).min(MAX_RTO_US);
    }

    /// The first sample (RFC 6298 section 2.2).
    #[cold]
    fn begin(&mut self, rtt_us: u32, next: u32) {
        self.srtt_x8_us = (rtt_us << 3).max(1);
        self.mdev_x4_us = rtt_us << 1;
        self.rttvar_x4_us = self.mdev_x4_us.max(self.rto_min_us);
        self.mdev_max_x4_us = self.rttvar_x4_us;
        self.round_end = next;
    }

    /// RFC 6298 section 2.3, with alpha = 1/8 and beta = 1/4.
    #[inline(always)]
    fn smooth(&mut self, rtt_us: u32) {
        let srtt_us = self.srtt_x8_us >> 3;
        let mdev_us = self.mdev_x4_us >> 2;
        // All are below 2^31.
        let error_us = rtt_us.cast_signed() - srtt_us.cast_signed();
        self.srtt_x8_us = self.srtt_x8_us.wrapping_add_signed(error_us).max(1);
        let mut change_us = error_us.abs() - mdev_us.cast_signed();
        if error_us < 0 && change_us > 0 {
            // A sudden fall of the round-trip time is no reason for a longer timeout: it counts for an eighth.
            change_us >>= 3;
        }
        self.mdev_x4_us = self.mdev_x4_us.wrapping_add_signed(change_us);
    }

    /// The SYN was retransmitted, so the handshake gives no sample without timestamps.
    pub(crate) fn syn_was_retransmitted(&mut self) {
        if self.srtt_x8_us == 0 {
            self.rto_us = FALLBACK_RTO_US;
        }
    }

    /// The smoothed round-trip time, as `tcpi_rtt`; 0: none yet.
    #[must_use]
    pub(crate) const fn srtt_us(&self) -> u32 {
        self.srtt_x8_us >> 3
    }

    /// The smoothed mean deviation, as `tcpi_rttvar`. The timeout has its maximum of late, not this.
    #[must_use]
    pub(crate) const fn rttvar_us(&self) -> u32 {
        self.mdev_x4_us >> 2
    }

    /// The smallest round-trip time of the last 300 s; 0: none yet.
    #[must_use]
    pub(crate) const fn min_us(&self) -> u32 {
        if self.srtt_x8_us == 0 { 0 } else { self.min.0[0].rtt_us }
    }

    /// The retransmission timeout, without backoff.
    #[must_use]
    #[inline]
    pub(crate) const fn rto_us(&self) -> u32 {
        self.rto_us
    }
}

impl Default for Rtt {
    fn default() -> Self {
        Self::new(0)
    }
}

/// A round-trip time and when it was measured, modulo 2^32 ms.
#[derive(Clone, Copy, Debug)]
struct Minimum {
    at_ms: u32,
    rtt_us: u32,
}

/// The minimum over a window of time, by Kathleen Nichols' algorithm, as in Linux's `lib/win_minmax.c`.
///
/// It holds the best, the second and the third best sample, each of them newer than the one before. When the best
/// expires, the second takes its place.
#[derive(Clone, Copy, Debug)]
struct WindowedMin([Minimum; 3]);

impl WindowedMin {
    #[inline(always)]
    fn sample(&mut self, at_ms: u32, rtt_us: u32) {
        let new = Minimum { at_ms, rtt_us };
        let best = &mut self.0;
        // Almost always: they are in the order of their times, and none of them is old enough to be replaced.
        if rtt_us > best[2].rtt_us && at_ms.wrapping_sub(best[0].at_ms) <= MIN_WINDOW_MS / 4 {
            return;
        }
        if rtt_us <= best[0].rtt_us || at_ms.wrapping_sub(best[2].at_ms) > MIN_WINDOW_MS {
            *best = [new; 3];
            return;
        }
        if rtt_us <= best[1].rtt_us {
            best[1] = new;
            best[2] = new;
        } else if rtt_us <= best[2].rtt_us {
            best[2] = new;
        }
        self.expire(new);
    }

    /// Keeps the second and the third from the first's part of the window, so that they are of use when it expires.
    fn expire(&mut self, new: Minimum) {
        let best = &mut self.0;
        let age_ms = |of: Minimum| new.at_ms.wrapping_sub(of.at_ms);
        if age_ms(best[0]) > MIN_WINDOW_MS {
            *best = [best[1], best[2], new];
            if age_ms(best[0]) > MIN_WINDOW_MS {
                *best = [best[1], best[2], new];
            }
        } else if best[1].at_ms == best[0].at_ms && age_ms(best[0]) > MIN_WINDOW_MS / 4 {
            best[1] = new;
            best[2] = new;
        } else if best[2].at_ms == best[1].at_ms && age_ms(best[0]) > MIN_WINDOW_MS / 2 {
            best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests;
