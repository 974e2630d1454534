//! Figures worked by hand from RFC 6298, and naive models of the estimator and of the minimum.

use proptest::prelude::*;

use super::*;

const RTO_MIN_US: u32 = 200_000;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

#[test]
fn it_is_small() {
    assert!(size_of::<Rtt>() <= 64, "{}", size_of::<Rtt>());
}

#[test]
fn before_a_sample_the_timeout_is_one_second_and_three_after_a_lost_syn() {
    let mut rtt = Rtt::new(RTO_MIN_US);
    assert_eq!((rtt.rto_us(), rtt.srtt_us(), rtt.min_us()), (1_000_000, 0, 0));
    rtt.syn_was_retransmitted();
    assert_eq!(rtt.rto_us(), 3_000_000);
    rtt.sample(at(0), 100_000, 1, 1);
    assert_eq!(rtt.rto_us(), 300_000);
}

#[test]
fn the_first_sample_is_the_average_and_half_of_it_the_deviation() {
    let mut rtt = Rtt::new(RTO_MIN_US);
    rtt.sample(at(0), 200_000, 1, 1);
    assert_eq!((rtt.srtt_us(), rtt.rttvar_us(), rtt.min_us()), (200_000, 100_000, 200_000));
    // SRTT + 4 * RTTVAR.
    assert_eq!(rtt.rto_us(), 600_000);
}

#[test]
fn the_next_sample_moves_the_average_by_an_eighth_and_the_deviation_by_a_quarter() {
    let mut rtt = Rtt::new(RTO_MIN_US);
    rtt.sample(at(0), 100_000, 1, 1_001);
    rtt.sample(at(100), 140_000, 501, 1_501);
    // 7/8 * 100 ms + 1/8 * 140 ms; 3/4 * 50 ms + 1/4 * 40 ms.
    assert_eq!((rtt.srtt_us(), rtt.rttvar_us()), (105_000, 47_500));
    // The deviation in the timeout has not fallen in this round trip.
    assert_eq!(rtt.rto_us(), 305_000);
}

#[test]
fn a_rise_counts_at_once_and_is_forgotten_once_per_round_trip() {
    let mut rtt = Rtt::new(RTO_MIN_US);
    rtt.sample(at(0), 100_000, 1, 1_001);
    rtt.sample(at(100), 500_000, 501, 1_501);
    // The deviation is 3/4 * 50 ms + 1/4 * 400 ms = 137.5 ms, four times of it 550 ms.
    assert_eq!((rtt.srtt_us(), rtt.rto_us()), (150_000, 700_000));
    // The round trip goes on until more than 1001 is acknowledged.
    rtt.sample(at(200), 150_000, 1_001, 2_001);
    assert_eq!(rtt.rto_us(), 700_000);
    // It ends, with 550 ms as its maximum. Only the next one has a smaller maximum: 200 ms, the smallest there is.
    rtt.sample(at(300), 150_000, 1_002, 2_001);
    assert_eq!(rtt.rto_us(), 700_000);
    for una in [1_500, 2_001] {
        rtt.sample(at(400), 150_000, una, 3_001);
    }
    let before = rtt.rto_us();
    rtt.sample(at(500), 150_000, 2_002, 3_001);
    assert!(rtt.rto_us() < before);
}

#[test]
fn a_sudden_fall_raises_the_deviation_by_little() {
    let mut rtt = Rtt::new(RTO_MIN_US);
    for millis in 0..200 {
        rtt.sample(at(millis), 800_000, 1, 2);
    }
    let before = rtt.rttvar_us();
    rtt.sample(at(200), 80_000, 1, 2);
    // An eighth of a quarter of 720 ms.
    assert!(rtt.rttvar_us() - before <= 22_500, "{}", rtt.rttvar_us() - before);
}

#[test]
fn the_timeout_stays_above_the_average_by_the_minimum_and_below_two_minutes() {
    let mut rtt = Rtt::new(RTO_MIN_US);
    for sequence in 0..1_000 {
        rtt.sample(at(sequence.into()), 20, sequence + 1, sequence + 2);
    }
    assert_eq!((rtt.srtt_us(), rtt.rto_us()), (20, 200_020));
    let mut rtt = Rtt::new(RTO_MIN_US);
    rtt.sample(at(0), u32::MAX, 1, 1);
    assert_eq!(rtt.rto_us(), 120_000_000);
}

#[test]
fn a_larger_minimum_replaces_one_that_is_five_minutes_old() {
    let mut rtt = Rtt::new(RTO_MIN_US);
    rtt.sample(at(0), 10_000, 1, 1);
    for second in 1..=300 {
        rtt.sample(at(second * 1_000), 30_000, 1, 1);
        assert_eq!(rtt.min_us(), 10_000);
    }
    rtt.sample(at(301_000), 40_000, 1, 1);
    assert_eq!(rtt.min_us(), 30_000);
}

#[test]
fn a_pause_longer_than_the_window_leaves_the_newest_only() {
    let mut rtt = Rtt::new(RTO_MIN_US);
    rtt.sample(at(0), 10_000, 1, 1);
    rtt.sample(at(1_000_000), 40_000, 1, 1);
    assert_eq!(rtt.min_us(), 40_000);
}

/// The estimator in floating point, without scaling.
#[derive(Default)]
struct Model {
    srtt: f64,
    mdev: f64,
    mdev_max: f64,
    rttvar: f64,
    round_end: u32,
}

impl Model {
    fn sample(&mut self, rtt: f64, una: u32, next: u32) {
        let min = f64::from(RTO_MIN_US) / 4.0;
        if self.srtt == 0.0 {
            let mdev = rtt / 2.0;
            *self = Self { srtt: rtt, mdev, mdev_max: mdev.max(min), rttvar: mdev.max(min), round_end: next };
            return;
        }
        let error = rtt - self.srtt;
        let change = (error.abs() - self.mdev) / 4.0;
        self.mdev += if error < 0.0 && change > 0.0 { change / 8.0 } else { change };
        self.srtt += error / 8.0;
        self.mdev_max = self.mdev_max.max(self.mdev);
        self.rttvar = self.rttvar.max(self.mdev_max);
        if una > self.round_end {
            self.rttvar -= (self.rttvar - self.mdev_max) / 4.0;
            self.mdev_max = min;
            self.round_end = next;
        }
    }
}

proptest! {
    #[test]
    fn the_estimator_is_that_of_a_naive_model(
        samples in prop::collection::vec((1_000..2_000_000_u32, 0..3_000_u32), 1..300),
    ) {
        let (mut rtt, mut model) = (Rtt::new(RTO_MIN_US), Model::default());
        let mut una = 1;
        for (millis, &(rtt_us, advance)) in samples.iter().enumerate() {
            una += advance;
            rtt.sample(at(millis as u64), rtt_us, una, una + 10_000);
            model.sample(rtt_us.into(), una, una + 10_000);
            let (srtt, rttvar) = (f64::from(rtt.srtt_us()), f64::from(rtt.rttvar_us()));
            prop_assert!((srtt - model.srtt).abs() <= 2.0, "{} {}", srtt, model.srtt);
            prop_assert!((rttvar - model.mdev).abs() <= 8.0, "{} {}", rttvar, model.mdev);
            let rto = model.srtt + (4.0 * model.rttvar).max(RTO_MIN_US.into());
            prop_assert!((f64::from(rtt.rto_us()) - rto).abs() <= 40.0, "{} {}", rtt.rto_us(), rto);
        }
    }

    /// Three samples cannot hold every minimum, but what they give is a sample of the last 300 s, and none is smaller
    /// than the true minimum.
    #[test]
    fn the_minimum_is_a_sample_of_the_window(
        samples in prop::collection::vec((0..100_000_u64, 1_000..100_000_u32), 1..100),
    ) {
        let mut rtt = Rtt::new(RTO_MIN_US);
        let (mut now_ms, mut seen) = (u64::from(u32::MAX) - 1_000_000, Vec::new());
        for (pause_ms, rtt_us) in samples {
            now_ms += pause_ms;
            seen.push((now_ms, rtt_us));
            rtt.sample(at(now_ms), rtt_us, 1, 1);
            seen.retain(|&(then_ms, _)| now_ms - then_ms <= 300_000);
            prop_assert!(seen.iter().any(|&(_, seen_us)| seen_us == rtt.min_us()));
            prop_assert!(rtt.min_us() <= rtt_us);
        }
    }
}
