//! What both algorithms share, and the figures that RFC 5681 gives.

use super::*;

/// A window of `cwnd` with the threshold `ssthresh`.
pub(super) const fn window(cwnd: u32, ssthresh: u32) -> Window {
    Window { cwnd, credit: 0, ssthresh, clamp: u32::MAX }
}

/// An acknowledgement of `segments` at `millis`, with a round-trip time of 100 ms, by a sender that the window limits.
pub(super) const fn acked(millis: u64, segments: u32) -> Acked {
    Acked {
        now: Instant::from_nanos(millis * 1_000_000),
        segments,
        rtt_us: None,
        srtt_us: 100_000,
        min_rtt_us: 100_000,
        in_flight: 0,
        una: 0,
        next: 0,
        is_limited: true,
    }
}

#[test]
fn the_state_of_a_connection_is_small() {
    assert!(size_of::<Congestion>() <= 96, "{}", size_of::<Congestion>());
}

#[test]
fn slow_start_ends_at_the_threshold_and_leaves_the_rest() {
    let mut window = window(6, 8);
    assert_eq!(window.slow_start(5), 3);
    assert_eq!(window.cwnd, 8);
    assert!(!window.is_slow_start());
}

#[test]
fn no_growth_passes_the_clamp() {
    let mut window = Window { clamp: 12, ..window(10, Window::INFINITE) };
    assert_eq!(window.slow_start(5), 0);
    assert_eq!(window.cwnd, 12);
    window.grow(1, 100);
    assert_eq!(window.cwnd, 12);
}

#[test]
fn credit_from_a_larger_cost_buys_one_segment_only() {
    let mut window = window(100, 50);
    window.grow(1_000, 900);
    window.grow(10, 1);
    assert_eq!((window.cwnd, window.credit), (101, 1));
}

#[test]
fn new_reno_doubles_in_a_round_of_slow_start_and_adds_one_in_a_round_of_avoidance() {
    let mut reno = Congestion::NewReno(NewReno::new());
    let mut window = window(10, 20);
    for at in 0..5 {
        reno.on_ack(&mut window, &acked(at, 2));
    }
    assert_eq!(window.cwnd, 20);
    for at in 0..9 {
        reno.on_ack(&mut window, &acked(100 + at, 2));
    }
    assert_eq!((window.cwnd, window.credit), (20, 18));
    reno.on_ack(&mut window, &acked(110, 2));
    assert_eq!((window.cwnd, window.credit), (21, 0));
}

#[test]
fn new_reno_counts_every_segment_of_a_large_acknowledgement() {
    let mut reno = NewReno::new();
    let mut window = window(10, Window::INFINITE);
    reno.on_ack(&mut window, &acked(0, 10));
    assert_eq!(window.cwnd, 20);
}

#[test]
fn new_reno_halves_not_below_two_and_takes_it_back() {
    let mut reno = NewReno::new();
    assert_eq!(reno.ssthresh(&window(21, Window::INFINITE), Instant::ZERO), 10);
    assert_eq!(reno.undo(&window(12, 10)), 21);
    assert_eq!(reno.ssthresh(&window(3, 10), Instant::ZERO), 2);
    assert_eq!(reno.undo(&window(5, 2)), 5);
}

#[test]
fn an_application_that_leaves_the_window_unused_does_not_widen_it() {
    for mut control in [Congestion::NewReno(NewReno::new()), Congestion::Cubic(Cubic::new(hystart::PACED))] {
        for ssthresh in [Window::INFINITE, 20, 5] {
            let mut window = window(10, ssthresh);
            for at in 0..1_000 {
                control.on_ack(&mut window, &Acked { is_limited: false, ..acked(at, 2) });
            }
            assert_eq!(window.cwnd, 10, "{} {ssthresh}", control.name());
        }
    }
}
