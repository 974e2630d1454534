//! The figures that Linux gives for the same losses, and bounds that hold whatever happens.

use proptest::prelude::*;

use super::*;

/// Acknowledges in turn, sends all that the window then allows, and compares what that is.
///
/// A step is (delivered, in flight before sending, safe, sent).
fn run(cwnd: u32, ssthresh: u32, steps: &[(u32, u32, bool, u32)]) {
    let mut prr = Prr::enter(cwnd, ssthresh);
    for (at, &(delivered, in_flight, safe, sent)) in steps.iter().enumerate() {
        let allowed = prr.allowed(delivered, in_flight, safe).expect("something was delivered");
        assert_eq!(allowed - in_flight, sent, "step {at} of {steps:?}");
        prr.sent(sent);
    }
}

#[test]
fn one_loss_of_ten_lets_a_segment_out_for_each_that_arrives() {
    // 3 of 10 are selectively acknowledged and 1 is lost, so 6 are in flight, with a threshold of 7.
    let mut steps = vec![(1, 6, false, 1); 7];
    // The retransmission arrives; it is cumulative.
    steps.push((1, 6, true, 1));
    run(10, 7, &steps);
}

#[test]
fn four_losses_are_sent_again_one_by_one_and_progress_speeds_the_rest_up() {
    // 12 are out, 4 of them lost. One segment for each that is selectively acknowledged.
    let conservative = [(1, 5, false, 1); 6];
    // One retransmission arrives: 1 more than was delivered. Then 2 arrive, but a retransmission was lost.
    let progress = [(1, 5, true, 2), (2, 4, false, 2), (1, 5, false, 1), (1, 5, false, 1)];
    run(10, 7, &[&conservative[..], &progress].concat());
}

#[test]
fn an_acknowledgement_that_is_old_still_says_what_was_delivered() {
    // 1 of 6 lost ones is sent again and arrives with another; then 2 that are selectively acknowledged.
    run(10, 7, &[(1, 1, false, 1), (2, 1, true, 3), (2, 2, false, 2)]);
}

#[test]
fn a_mark_with_little_in_flight_conserves_it() {
    // 4 are out of a window of 10; the ACK of the first has ECE, so it is not safe.
    let mut prr = Prr::enter(10, 7);
    assert_eq!(prr.allowed(1, 3, false), Some(4));
}

#[test]
fn a_loss_found_by_a_timer_with_nothing_in_flight_lets_one_segment_out() {
    let mut prr = Prr::enter(19, 13);
    assert_eq!(prr.allowed(1, 0, false), Some(1));
    assert_eq!(prr.allowed(0, 0, false), None);
}

#[test]
fn the_first_segment_goes_out_even_if_too_much_is_in_flight() {
    // RFC 9937: 1 of 100 lost, the threshold is 0.
    let mut prr = Prr::enter(100, 0);
    assert_eq!(prr.allowed(1, 98, false), Some(99));
    prr.sent(1);
    assert_eq!(prr.allowed(1, 98, false), Some(98));
}

#[test]
fn a_window_with_one_loss_falls_to_the_threshold_in_one_round() {
    let (mut prr, mut in_flight) = (Prr::enter(100, 70), 99);
    for at in 1..=100 {
        in_flight -= 1;
        let send = prr.allowed(1, in_flight, at == 100).expect("one was delivered") - in_flight;
        prr.sent(send);
        in_flight += send;
    }
    assert_eq!(in_flight, 70);
}

#[test]
fn extreme_counts_do_not_overflow() {
    let mut prr = Prr::enter(u32::MAX, u32::MAX);
    assert_eq!(prr.allowed(u32::MAX, u32::MAX, true), Some(u32::MAX));
    prr.sent(u32::MAX);
    assert_eq!(prr.allowed(u32::MAX, 0, true), Some(u32::MAX));
    assert_eq!(Prr::enter(0, 2).allowed(1, 5, false), Some(7));
}

proptest! {
    /// Recoveries with any losses, acknowledgements and lacks of data.
    #[test]
    fn no_more_is_sent_than_was_delivered_and_no_more_is_in_flight_than_the_threshold(
        cwnd in 2..400_u32,
        percent in 1..100_u32,
        lost in 0..400_u32,
        steps in prop::collection::vec((0..12_u32, 0..4_u32, any::<bool>(), 0..6_u32), 1..200),
    ) {
        let ssthresh = (cwnd * percent / 100).max(2);
        let mut prr = Prr::enter(cwnd, ssthresh);
        let mut in_flight = cwnd - lost.min(cwnd - 1);
        let (mut delivered, mut sent, mut safe_acks) = (0, 0, 0);
        for (arrive, lose, safe, have) in steps {
            let arrive = arrive.min(in_flight);
            let lose = lose.min(in_flight - arrive);
            in_flight -= arrive + lose;
            delivered += arrive;
            let Some(window) = prr.allowed(arrive, in_flight, safe && lose == 0) else { continue };
            safe_acks += u32::from(safe && lose == 0);
            prop_assert!(window >= in_flight);
            prop_assert!(window <= ssthresh.max(in_flight + 1) || in_flight > ssthresh);
            if in_flight > ssthresh {
                let share = (f64::from(ssthresh) * f64::from(delivered) / f64::from(cwnd)).ceil() as u32;
                prop_assert!(sent + window - in_flight <= share.max(sent).max(1));
            }
            let send = (window - in_flight).min(have);
            prr.sent(send);
            sent += send;
            in_flight += send;
            // One more than delivered is sent on entry, and one for each safe acknowledgement.
            prop_assert!(sent <= delivered + safe_acks + 1, "{sent} sent, {delivered} delivered");
        }
    }

    /// Recoveries in which only what was in flight on entry gets lost, and there is always data.
    #[test]
    fn the_flight_ends_at_the_threshold(
        cwnd in 4..400_u32,
        percent in 1..100_u32,
        lost in 1..400_u32,
        arrivals in prop::collection::vec(1..4_u32, 2_000),
    ) {
        let ssthresh = (cwnd * percent / 100).max(2);
        let mut prr = Prr::enter(cwnd, ssthresh);
        let mut in_flight = cwnd - lost.min(cwnd - 1);
        for arrive in arrivals {
            let arrive = arrive.min(in_flight);
            in_flight -= arrive;
            let window = prr.allowed(arrive, in_flight, true).expect("something was delivered");
            prr.sent(window - in_flight);
            in_flight = window;
        }
        prop_assert_eq!(in_flight, ssthresh);
    }
}
