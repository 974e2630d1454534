//! Rounds of acknowledgements with chosen round-trip times (RFC 9406 section 4.2).

use super::super::tests::{acked, window};
use super::*;

/// A sender with 10 segments in flight.
struct Sender {
    hystart: HyStart,
    window: Window,
    next: u32,
}

impl Sender {
    fn new(limit: Limit) -> Self {
        // The rounds cross the wrap of sequence numbers.
        Self { hystart: HyStart::new(limit), window: window(10, Window::INFINITE), next: u32::MAX - 25 }
    }

    /// A round of `acks` acknowledgements of one segment each. Returns by how much the window grew.
    fn round(&mut self, acks: u32, rtt_us: u32) -> u32 {
        self.mixed_round(&vec![rtt_us; acks as usize])
    }

    fn mixed_round(&mut self, rtts_us: &[u32]) -> u32 {
        let (before, end) = (self.window.cwnd, self.next);
        for (left, &rtt_us) in (0..rtts_us.len() as u32).rev().zip(rtts_us) {
            let una = end.wrapping_sub(left);
            let ack = Acked { rtt_us: Some(rtt_us), una, next: self.next, ..acked(0, 1) };
            assert_eq!(self.hystart.on_ack(&mut self.window, &ack), 0);
            // What the next round is about is sent after the first acknowledgement of this one.
            self.next = end.wrapping_add(100);
        }
        self.window.cwnd - before
    }

    fn is_over(&self) -> bool {
        !self.window.is_slow_start()
    }
}

#[test]
fn a_steady_time_lets_the_window_double_on() {
    let mut sender = Sender::new(UNPACED);
    for acks in [10, 20, 40, 80] {
        assert_eq!(sender.round(acks, 100_000), acks);
    }
    assert!(!sender.is_over());
}

#[test]
fn one_acknowledgement_adds_eight_segments_unless_the_sender_paces() {
    for (limit, cwnd) in [(UNPACED, 18), (PACED, 30)] {
        let mut sender = Sender::new(limit);
        assert_eq!(sender.hystart.on_ack(&mut sender.window, &acked(0, 20)), 0);
        assert_eq!(sender.window.cwnd, cwnd);
    }
}

#[test]
fn a_rise_slows_growth_to_a_quarter_and_ends_slow_start_after_five_rounds() {
    let mut sender = Sender::new(UNPACED);
    sender.round(10, 100_000);
    // An eighth of 100 ms more. The eighth acknowledgement tells; the 12 after it count for a quarter.
    assert_eq!(sender.round(20, 112_500), 8 + 3);
    for _ in 0..3 {
        assert_eq!(sender.round(20, 112_500), 5);
        assert!(!sender.is_over());
    }
    assert_eq!(sender.round(20, 112_500), 5);
    assert!(sender.is_over());
    assert_eq!(sender.window.ssthresh, sender.window.cwnd);
}

#[test]
fn a_rise_that_passes_lets_slow_start_go_on() {
    let mut sender = Sender::new(UNPACED);
    sender.round(10, 100_000);
    sender.round(20, 120_000);
    // The 120 ms that led to Conservative Slow Start are undercut from the eighth sample on.
    assert_eq!(sender.round(20, 119_000), 2 + 12);
    for _ in 0..6 {
        assert_eq!(sender.round(20, 119_000), 20);
    }
    assert!(!sender.is_over());
}

#[test]
fn the_rise_that_counts_is_between_4_and_16_ms() {
    for (before_us, rise_us) in [(1_000, 4_000), (32_000, 4_000), (64_000, 8_000), (400_000, 16_000)] {
        let mut sender = Sender::new(UNPACED);
        sender.round(10, before_us);
        assert_eq!(sender.round(20, before_us + rise_us - 1), 20, "{before_us}");
        let mut sender = Sender::new(UNPACED);
        sender.round(10, before_us);
        assert_eq!(sender.round(20, before_us + rise_us), 11, "{before_us}");
    }
}

#[test]
fn seven_samples_are_too_few() {
    let mut sender = Sender::new(UNPACED);
    sender.round(10, 100_000);
    assert_eq!(sender.round(7, 300_000), 7);
}

#[test]
fn one_small_time_in_the_round_is_enough_to_go_on() {
    let mut sender = Sender::new(UNPACED);
    sender.round(10, 200_000);
    let mut rtts_us = [230_000; 20];
    rtts_us[7] = 29_000;
    assert_eq!(sender.mixed_round(&rtts_us), 20);
}

#[test]
fn rounds_go_on_while_the_application_is_the_limit() {
    let mut sender = Sender::new(UNPACED);
    for una in 1..=9 {
        let ack = Acked { rtt_us: Some(100_000), una, next: 10, is_limited: false, ..acked(0, 1) };
        sender.hystart.on_ack(&mut sender.window, &ack);
    }
    assert_eq!((sender.window.cwnd, sender.hystart.samples), (10, 9));
}
