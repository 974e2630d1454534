//! HyStart++ (RFC 9406): slow start ends before the first loss, when the round-trip time rises.
//!
//! A rise leads to Conservative Slow Start (CSS) first. If the round-trip time falls again, the rise was spurious and
//! slow start goes on; if not, congestion avoidance begins after some rounds.

use core::num::NonZeroU8;

use super::{Acked, Window};

/// No round-trip time is known.
const UNKNOWN_US: u32 = u32::MAX;
/// Bounds of the rise that counts (RFC 9406 section 4.3).
const MIN_RTT_THRESH_US: u32 = 4_000;
const MAX_RTT_THRESH_US: u32 = 16_000;
/// Between the bounds, the rise that counts is this fraction of the last round's minimum.
const MIN_RTT_DIVISOR: u32 = 8;
/// Round-trip times that a round needs before its minimum counts.
const N_RTT_SAMPLE: u8 = 8;
/// How much slower the window grows in CSS.
const CSS_GROWTH_DIVISOR: u32 = 4;
/// Rounds that CSS lasts; the one in which it begins is the first.
const CSS_ROUNDS: u8 = 5;

/// Bound on the segments that one ACK adds to the window (L of RFC 9406 section 4.3); `None`: no bound.
pub type Limit = Option<NonZeroU8>;

/// The bound for a sender that does not pace: 8, so that one ACK releases no long burst.
pub const UNPACED: Limit = NonZeroU8::new(8);
/// The bound for a sender that paces: none. Linux has none in either case, and expectations made with it assume so.
pub const PACED: Limit = None;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No round has begun.
    New,
    SlowStart,
    Conservative,
}

/// The state of the initial slow start.
#[derive(Clone, Debug)]
pub struct HyStart {
    /// The round ends when this sequence number is acknowledged.
    window_end: u32,
    last_round_min_us: u32,
    current_round_min_us: u32,
    /// The minimum of the round that led to CSS.
    css_baseline_us: u32,
    /// Round-trip times seen in this round.
    samples: u8,
    /// Rounds of CSS that have ended.
    css_rounds: u8,
    phase: Phase,
    limit: Limit,
}

impl HyStart {
    /// The state of a new connection.
    #[must_use]
    pub const fn new(limit: Limit) -> Self {
        Self {
            window_end: 0,
            last_round_min_us: UNKNOWN_US,
            current_round_min_us: UNKNOWN_US,
            css_baseline_us: UNKNOWN_US,
            samples: 0,
            css_rounds: 0,
            phase: Phase::New,
            limit,
        }
    }

    /// An acknowledgement in the initial slow start (RFC 9406 section 4.2): grows `window` if [`Acked::is_limited`].
    ///
    /// Sets the threshold to the window when slow start is over. Returns the segments that are left for congestion
    /// avoidance.
    pub fn on_ack(&mut self, window: &mut Window, acked: &Acked) -> u32 {
        if self.phase == Phase::New {
            self.phase = Phase::SlowStart;
            self.window_end = acked.next;
        }
        let left = if acked.is_limited { self.grow(window, acked.segments) } else { 0 };
        if let Some(rtt_us) = acked.rtt_us {
            self.sample(rtt_us);
        }
        if (acked.una.wrapping_sub(self.window_end) as i32) >= 0 {
            self.end_round(window, acked.next);
        }
        left
    }

    fn grow(&self, window: &mut Window, segments: u32) -> u32 {
        let counted = self.limit.map_or(segments, |limit| segments.min(u32::from(limit.get())));
        if self.phase == Phase::Conservative {
            window.grow(CSS_GROWTH_DIVISOR, counted);
            return 0;
        }
        window.slow_start(counted)
    }

    fn sample(&mut self, rtt_us: u32) {
        self.current_round_min_us = self.current_round_min_us.min(rtt_us);
        self.samples = self.samples.saturating_add(1);
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        let current_us = self.current_round_min_us;
        if self.phase == Phase::Conservative {
            if current_us < self.css_baseline_us {
                self.css_baseline_us = UNKNOWN_US;
                self.phase = Phase::SlowStart;
            }
            return;
        }
        let thresh_us =
            (self.last_round_min_us / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_US, MAX_RTT_THRESH_US);
        // An unknown minimum of the last round is larger than any time, so it does not lead to CSS.
        if current_us >= self.last_round_min_us.saturating_add(thresh_us) && current_us != UNKNOWN_US {
            self.css_baseline_us = current_us;
            self.css_rounds = 0;
            self.phase = Phase::Conservative;
        }
    }

    fn end_round(&mut self, window: &mut Window, next: u32) {
        self.window_end = next;
        self.last_round_min_us = self.current_round_min_us;
        self.current_round_min_us = UNKNOWN_US;
        self.samples = 0;
        if self.phase == Phase::Conservative {
            self.css_rounds += 1;
            if self.css_rounds >= CSS_ROUNDS {
                window.ssthresh = window.cwnd;
            }
        }
    }
}

#[cfg(test)]
mod tests;
