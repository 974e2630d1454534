//! Figures worked by hand, figures that Linux gives, and a reference in floating point.

use proptest::prelude::*;

use super::super::hystart::PACED;
use super::super::tests::{acked, window};
use super::*;

const SECOND: u64 = 1 << 20;

/// CUBIC after a loss with a window of `cwnd`, and the window after it.
fn after_loss(cwnd: u32) -> (Cubic, Window) {
    let mut cubic = Cubic::new(PACED);
    let ssthresh = cubic.ssthresh(&window(cwnd, Window::INFINITE), Instant::ZERO);
    (cubic, window(ssthresh, ssthresh))
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

#[test]
fn the_function_and_its_inverse_are_those_of_section_4_2() {
    assert_eq!([1, 5, 10].map(|seconds| rise(seconds * SECOND)), [0, 50, 400]);
    // K = cbrt(30 / 0.4) s for a maximum of 100 and a window of 70.
    assert_eq!(inverse(30), (75_f64.cbrt() * SECOND as f64) as u32);
    assert_eq!((inverse(0), inverse(50)), (0, 5 << 20));
    // The largest values do not overflow.
    assert_eq!(rise(ticks(MAX_ELAPSED_NS)), Window::INFINITE);
    assert!(inverse(u32::MAX) > 2_000 << 20);
}

#[test]
fn a_loss_leaves_seven_tenths_and_fast_convergence_gives_way() {
    let mut cubic = Cubic::new(PACED);
    assert_eq!(cubic.ssthresh(&window(100, Window::INFINITE), Instant::ZERO), 70);
    assert_eq!(cubic.epoch.w_max, 100);
    // The window was not at 100 again: (1 + 0.7) / 2 of it is the next maximum.
    assert_eq!(cubic.ssthresh(&window(80, 70), Instant::ZERO), 56);
    assert_eq!(cubic.epoch.w_max, 68);
    assert_eq!(cubic.ssthresh(&window(2, 70), Instant::ZERO), 2);
}

#[test]
fn after_a_timeout_the_plateau_is_the_window_at_which_slow_start_ends() {
    let (mut cubic, _) = after_loss(100);
    cubic.on_timeout();
    let mut window = window(70, 70);
    cubic.on_ack(&mut window, &acked(0, 1));
    assert_eq!((cubic.epoch.k, cubic.epoch.origin), (0, 70));
}

#[test]
fn a_spurious_reduction_leaves_the_function_as_it_was() {
    let (mut cubic, mut window) = after_loss(100);
    for millis in 0..50 {
        cubic.on_ack(&mut window, &acked(millis * 20, 2));
    }
    let (before, cwnd) = (cubic.epoch, window.cwnd);
    window.cwnd = cubic.ssthresh(&window, at(1_000));
    cubic.on_timeout();
    assert_eq!(cubic.undo(&window), cwnd);
    let now = at(3_000);
    assert_eq!(cubic.epoch.window(now, 0), before.window(now, 0));
    assert_eq!(cubic.epoch.w_max, 100);
}

#[test]
fn after_a_timeout_with_a_window_of_ten_growth_is_that_of_linux() {
    let (mut cubic, mut window) = after_loss(10);
    cubic.on_timeout();
    for millis in [0, 98, 100, 102, 104, 106, 108, 110, 208, 211, 213, 215, 217, 219, 221] {
        cubic.on_ack(&mut window, &acked(millis, 1));
        assert_eq!(window.cwnd, 7, "{millis}");
    }
    cubic.on_ack(&mut window, &acked(319, 1));
    assert_eq!(window.cwnd, 8);
}

#[test]
fn before_any_loss_growth_is_that_of_linux() {
    // Slow start ended at 48; 2 segments are acknowledged every 100 ms.
    let mut cubic = Cubic::new(PACED);
    let mut window = window(48, 48);
    let mut cwnds = Vec::new();
    for ack in 0..61 {
        cubic.on_ack(&mut window, &acked(ack * 100, 2));
        cwnds.push(window.cwnd);
    }
    assert_eq!([10, 20, 30, 40, 50, 60].map(|ack| cwnds[ack]), [49, 50, 52, 58, 68, 78]);
}

#[test]
fn a_small_window_with_a_short_round_trip_grows_as_that_of_reno() {
    let (mut cubic, mut window) = after_loss(10);
    for round in 0..20 {
        for _ in 0..window.cwnd {
            cubic.on_ack(&mut window, &Acked { min_rtt_us: 50_000, ..acked(round * 50, 1) });
        }
    }
    // 5.7 round trips from 7 to 10, then 1 in each. The cubic function is below 10 in this second.
    assert!((22..=25).contains(&window.cwnd), "{}", window.cwnd);
}

#[test]
fn a_pause_of_the_application_does_not_count() {
    let (mut cubic, mut window) = after_loss(100);
    for ack in 0..20 {
        cubic.on_ack(&mut window, &acked(ack * 100, 2));
    }
    let expected = cubic.epoch.window(at(2_000), 0);
    let mut idle = cubic.clone();
    idle.on_idle_end(at(61_900), Duration::from_secs(70));
    assert_eq!(idle.epoch.window(at(62_000), 0), expected);
    let mut slow = cubic.clone();
    for second in 2..62 {
        slow.on_ack(&mut window, &Acked { is_limited: false, ..acked(second * 1_000 - 100, 1) });
    }
    assert_eq!(slow.epoch.window(at(61_000), 0), expected);
}

#[test]
fn the_time_may_end_and_windows_be_huge() {
    let (mut cubic, mut window) = after_loss(Window::INFINITE);
    cubic.on_ack(&mut window, &acked(0, 1));
    cubic.on_idle_end(Instant::NEVER, Duration::ZERO);
    let ack = Acked { now: Instant::NEVER, segments: u32::MAX, min_rtt_us: u32::MAX, ..acked(0, 1) };
    cubic.on_ack(&mut window, &ack);
    cubic.on_ack(&mut window, &ack);
    assert!(window.cwnd >= 1 << 30);
}

/// RFC 9438 in floating point, growing at each acknowledgement.
struct Reference {
    start_s: f64,
    k: f64,
    origin: f64,
    reno: f64,
    prior: f64,
    cwnd: f64,
}

impl Reference {
    fn after_loss(cwnd: f64) -> Self {
        let after = (cwnd * 7.0 / 10.0).floor();
        let k = ((cwnd - after) / 0.4).cbrt();
        Self { start_s: 0.0, k, origin: cwnd, reno: after, prior: cwnd, cwnd: after }
    }

    fn window(&self, at_s: f64) -> f64 {
        self.origin + 0.4 * (at_s - self.start_s - self.k).powi(3)
    }

    fn on_ack(&mut self, at_s: f64, rtt_s: f64, segments: f64) {
        let alpha = if self.reno < self.prior { 9.0 / 17.0 } else { 1.0 };
        self.reno += alpha * segments / self.cwnd;
        if self.window(at_s) < self.reno {
            self.cwnd = self.cwnd.max(self.reno);
            return;
        }
        let target = self.window(at_s + rtt_s).clamp(self.cwnd, self.cwnd * 1.5);
        self.cwnd += segments * (target - self.cwnd) / self.cwnd;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_function_is_within_one_segment_of_the_reference_for_60_s(
        w_max in 2..100_000_u32,
        millis in prop::collection::vec(0..60_000_u64, 100),
    ) {
        let (mut cubic, window) = after_loss(w_max);
        cubic.epoch.begin(window.cwnd, Instant::ZERO);
        let reference = Reference::after_loss(w_max.into());
        for millis in millis {
            let is = f64::from(cubic.epoch.window(at(millis), 0));
            let should = reference.window(millis as f64 / 1e3);
            prop_assert!((is - should).abs() < 1.05, "{is} {should} after {millis} ms");
        }
    }

    /// Until twice the time of the plateau. Growth is by whole segments, and the function is evaluated every 31 ms
    /// while the window stays, so the bound is larger than that of the function.
    #[test]
    fn the_window_follows_the_reference(w_max in 10..300_u32, rtt_ms in 20..300_u64, per_ack in 1..3_u32) {
        let (mut cubic, mut window) = after_loss(w_max);
        let mut reference = Reference::after_loss(w_max.into());
        let (rtt_us, end_us) = (rtt_ms * 1_000, (reference.k * 2e6) as u64);
        let mut round_us = 0;
        while round_us < end_us {
            let acks = u64::from((window.cwnd / per_ack).max(1));
            for ack in 0..acks {
                let now_us = round_us + rtt_us * ack / acks;
                let now = Instant::from_nanos(now_us * 1_000);
                cubic.on_ack(&mut window, &Acked { now, min_rtt_us: rtt_us as u32, ..acked(0, per_ack) });
                reference.on_ack(now_us as f64 / 1e6, rtt_us as f64 / 1e6, per_ack.into());
                let difference = f64::from(window.cwnd) - reference.cwnd;
                prop_assert!(difference.abs() < 3.0, "{} {} at {now_us} us", window.cwnd, reference.cwnd);
            }
            round_us += rtt_us;
        }
    }
}
