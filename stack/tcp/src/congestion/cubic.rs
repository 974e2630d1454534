//! CUBIC (RFC 9438): the window is a cubic function of the time since the last reduction.
//!
//! The arithmetic is integer. Where the RFC leaves the step from function to window open, this does as Linux does: the
//! function is evaluated when the window has changed, or 31 ms have passed, and says how many acknowledged segments
//! the next growth by one costs.

use twinpath_time::{Duration, Instant};

use super::hystart::{HyStart, Limit};
use super::{Acked, Control, Window};

/// The function is not evaluated again for the same window within this time.
const SAME_WINDOW_US: u32 = 31_250;
/// The function is not evaluated more often than this.
const MIN_EVALUATION_US: u32 = 1_000;
/// A growth by one costs at most so many segments while no loss has told the limit of the path. This is Linux's rule:
/// the function alone starts too flat when slow start ended without a loss.
const UNKNOWN_LIMIT_COST: u32 = 20;
/// A growth by one costs at least so many segments: the bound of 1.5 windows per round trip (section 4.2).
const MIN_COST: u32 = 2;
/// No time since the epoch counts for more than this (2.4 h), so that [`ticks`] does not overflow.
const MAX_ELAPSED_NS: u64 = 1 << 43;

/// A stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When it began, moved on by the time in which the application was the limit; [`Instant::NEVER`]: not yet.
    start: Instant,
    /// K: the time after which the function reaches `origin`, in ticks.
    k: u32,
    /// The window at the plateau of the function: W_max, or the window at the start if that is larger.
    origin: u32,
    /// W_max: the window before the last reduction, less with fast convergence; 0: not known.
    w_max: u32,
    /// W_est: the window that Reno would have (section 4.3).
    reno_window: u32,
}

/// The state of CUBIC.
#[derive(Clone, Debug)]
pub struct Cubic {
    epoch: Epoch,
    /// The epoch before the last reduction, in case that is undone (section 4.9).
    prior: Epoch,
    /// When the last acknowledgement arrived.
    seen: Instant,
    /// Segments acknowledged since `reno_window` last grew.
    reno_acks: u32,
    /// The window before the last reduction; 0: none yet.
    prior_cwnd: u32,
    /// The window for which the function was last evaluated.
    last_cwnd: u32,
    /// When the function was last evaluated, in us, modulo 2^32.
    evaluated_us: u32,
    /// Segments that a growth by one costs.
    cost: u32,
    hystart: HyStart,
}

impl Epoch {
    const NONE: Self = Self { start: Instant::NEVER, k: 0, origin: 0, w_max: 0, reno_window: 0 };

    /// Congestion avoidance begins with a window of `cwnd` (section 4.2).
    fn begin(&mut self, cwnd: u32, now: Instant) {
        self.start = now;
        self.reno_window = cwnd;
        self.origin = self.w_max.max(cwnd);
        self.k = inverse(self.origin - cwnd);
    }

    /// W_cubic at `now`, in segments; `ahead_us` is a time added.
    fn window(&self, now: Instant, ahead_us: u32) -> u32 {
        let elapsed_ns = now.nanos_since(self.start).saturating_add(u64::from(ahead_us) * 1_000);
        let t = ticks(elapsed_ns.min(MAX_ELAPSED_NS));
        let k = u64::from(self.k);
        if t < k { self.origin.saturating_sub(rise(k - t)) } else { self.origin.saturating_add(rise(t - k)) }
    }
}

/// The unit of the function's time: 2^-20 s.
const fn ticks(nanos: u64) -> u64 {
    (nanos << 20) / 1_000_000_000
}

/// C * t^3 with C = 0.4 (section 5), in segments, rounded down; `t` in ticks, below 2^34.
const fn rise(t: u64) -> u32 {
    let cube = (t as u128) * (t as u128) * (t as u128);
    // The cube is in units of 2^-60 s^3. 20 bits of fraction are enough to round down after C is applied.
    let segments = ((((cube >> 40) as u64) / 5) * 2) >> 20;
    if segments < Window::INFINITE as u64 { segments as u32 } else { Window::INFINITE }
}

/// The time in which the function rises by `segments`: the cube root of segments / C, in ticks, rounded down.
fn inverse(segments: u32) -> u32 {
    let cube = (u128::from(segments) * 5) << 59;
    let mut root = 0_u32;
    for bit in (0..u32::BITS).rev() {
        let larger = u128::from(root | 1 << bit);
        if larger * larger * larger <= cube {
            root |= 1 << bit;
        }
    }
    root
}

impl Cubic {
    /// The state of a new connection; `limit`: what one ACK may add to the window in the initial slow start.
    #[must_use]
    pub const fn new(limit: Limit) -> Self {
        Self {
            epoch: Epoch::NONE,
            prior: Epoch::NONE,
            seen: Instant::ZERO,
            reno_acks: 0,
            prior_cwnd: 0,
            last_cwnd: 0,
            evaluated_us: 0,
            cost: 0,
            hystart: HyStart::new(limit),
        }
    }

    /// Finds the cost of growth for a window of `cwnd`, of which `segments` were acknowledged.
    fn evaluate(&mut self, cwnd: u32, segments: u32, acked: &Acked) {
        let now_us = (acked.now.as_nanos() / 1_000) as u32;
        let since_us = now_us.wrapping_sub(self.evaluated_us);
        let begins = self.epoch.start == Instant::NEVER;
        self.reno_acks = if begins { segments } else { self.reno_acks.saturating_add(segments) };
        if !begins && cwnd == self.last_cwnd && since_us <= SAME_WINDOW_US {
            return;
        }
        if begins {
            self.epoch.begin(cwnd, acked.now);
        }
        if begins || since_us >= MIN_EVALUATION_US {
            self.last_cwnd = cwnd;
            self.evaluated_us = now_us;
            // The function is to be reached in one round trip. The smallest one is taken, as in Linux: a queue of our
            // own making would speed growth up.
            let target = self.epoch.window(acked.now, acked.min_rtt_us);
            self.cost = if target > cwnd { cwnd / (target - cwnd) } else { cwnd.saturating_mul(100) };
            if self.epoch.w_max == 0 {
                self.cost = self.cost.min(UNKNOWN_LIMIT_COST);
            }
        }
        self.be_no_slower_than_reno(cwnd);
        self.cost = self.cost.max(MIN_COST);
    }

    /// The Reno-friendly region (section 4.3): W_est grows by alpha for each window acknowledged.
    fn be_no_slower_than_reno(&mut self, cwnd: u32) {
        // alpha = 3 (1 - beta) / (1 + beta) = 9/17 until the window before the reduction is reached, and 1 then.
        let recovers = self.epoch.reno_window < self.prior_cwnd;
        let cost = if recovers { (u64::from(cwnd) * 17 / 9) as u32 } else { cwnd }.max(1);
        self.epoch.reno_window = self.epoch.reno_window.saturating_add(self.reno_acks / cost);
        self.reno_acks %= cost;
        if self.epoch.reno_window > cwnd {
            self.cost = self.cost.min(cwnd / (self.epoch.reno_window - cwnd));
        }
    }

    /// Leaves up to `pause`, which ends at `now`, out of the time that the function sees: the application was the
    /// limit in it (sections 4.2 and 5.8).
    fn skip(&mut self, now: Instant, pause: Duration) {
        if self.epoch.start != Instant::NEVER {
            self.epoch.start = (self.epoch.start + pause.min(now.since(self.seen))).min(now);
        }
        self.seen = now;
    }
}

impl Control for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        let mut segments = acked.segments;
        if window.is_slow_start() {
            // HyStart++ is for the initial slow start only (RFC 9406 section 4.3).
            segments = if window.ssthresh == Window::INFINITE {
                self.hystart.on_ack(window, acked)
            } else if acked.is_limited {
                window.slow_start(segments)
            } else {
                0
            };
        }
        if !acked.is_limited {
            self.skip(acked.now, Duration::MAX);
            return;
        }
        self.seen = acked.now;
        if segments > 0 {
            self.evaluate(window.cwnd, segments, acked);
            window.grow(self.cost, segments);
        }
    }

    /// Section 4.6, with beta = 0.7 and fast convergence (section 4.7).
    fn ssthresh(&mut self, window: &Window, _now: Instant) -> u32 {
        self.prior = self.epoch;
        self.prior_cwnd = window.cwnd;
        let cwnd = u64::from(window.cwnd);
        // A window that is reduced before it is at the last maximum again has to share the path with others.
        self.epoch.w_max = if window.cwnd < self.epoch.w_max { (cwnd * 17 / 20) as u32 } else { window.cwnd };
        self.epoch.start = Instant::NEVER;
        ((cwnd * 7 / 10) as u32).max(2)
    }

    /// Section 4.8: the next congestion avoidance starts at the plateau, whatever its window is.
    fn on_timeout(&mut self) {
        self.epoch = Epoch::NONE;
    }

    /// Section 4.9: the function goes on as if there had been no reduction.
    fn undo(&mut self, window: &Window) -> u32 {
        self.epoch = self.prior;
        window.cwnd.max(self.prior_cwnd)
    }

    fn on_idle_end(&mut self, now: Instant, idle: Duration) {
        self.skip(now, idle);
    }
}

#[cfg(test)]
mod tests;
