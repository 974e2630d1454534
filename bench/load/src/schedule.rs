//! The due times of the requests of an open loop. They follow from a rate, a distribution and a seed, never
//! from the replies.

use fastrand::Rng;
use twinpath_time::{Duration, Instant};

use crate::arrivals::Arrivals;
use crate::config::LoadError;

/// The due times of an open loop's requests, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    started: Instant,
    mean_ns: f64,
    random: Rng,
    index: u64,
    offset_ns: f64,
}

impl Schedule {
    /// A schedule whose first request is due at `started`, with `rate_per_s` requests per second on average.
    ///
    /// # Errors
    /// The rate is impossible, or this distribution is at that rate.
    pub fn new(arrivals: Arrivals, rate_per_s: f64, seed: u64, started: Instant) -> Result<Self, LoadError> {
        if !(rate_per_s > 0.0 && rate_per_s <= 1e9) {
            return Err(LoadError::Rate(rate_per_s));
        }
        if !arrivals.is_possible(rate_per_s) {
            return Err(LoadError::Arrivals { arrivals, rate_per_s });
        }
        let random = Rng::with_seed(seed);
        Ok(Self { arrivals, started, mean_ns: 1e9 / rate_per_s, random, index: 0, offset_ns: 0.0 })
    }

    /// When the next request is due.
    #[inline]
    #[must_use]
    pub fn due(&self) -> Instant {
        self.started + Duration::from_nanos(self.offset_ns as u64)
    }

    /// Moves to the next request.
    #[inline]
    pub fn advance(&mut self) {
        self.offset_ns = if self.arrivals == Arrivals::Even {
            // Computed from the start each time, so that rounding errors do not add up.
            (self.index + 1) as f64 * self.mean_ns
        } else {
            self.offset_ns + self.arrivals.gap_ns(self.index, self.offset_ns, self.mean_ns, &mut self.random)
        };
        self.index += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first gaps at 1000 requests per second, us.
    fn gaps(arrivals: Arrivals, seed: u64, count: usize) -> Vec<f64> {
        let mut schedule = Schedule::new(arrivals, 1000.0, seed, Instant::from_nanos(5)).unwrap();
        assert_eq!(schedule.due(), Instant::from_nanos(5));
        let mut gap = || {
            let before = schedule.due();
            schedule.advance();
            schedule.due().nanos_since(before) as f64 / 1000.0
        };
        (0..count).map(|_| gap()).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn a_seed_is_a_schedule() {
        let steps = Arrivals::Steps { step: Duration::from_millis(7), low: 0.2 };
        for arrivals in [Arrivals::Jittered(0.03), Arrivals::Poisson, steps] {
            assert_eq!(gaps(arrivals, 7, 100), gaps(arrivals, 7, 100));
            assert_ne!(gaps(arrivals, 7, 100), gaps(arrivals, 8, 100));
        }
        assert!(gaps(Arrivals::Even, 7, 100).iter().all(|gap| (gap - 1000.0).abs() < 1e-6));
    }

    #[test]
    fn jitter_fills_its_range_and_leaves_the_mean() {
        let gaps = gaps(Arrivals::Jittered(0.03), 1, 20_000);
        assert!(gaps.iter().all(|gap| (969.99..1030.01).contains(gap)));
        assert!(gaps.iter().any(|gap| *gap < 971.0) && gaps.iter().any(|gap| *gap > 1029.0));
        assert!((mean(&gaps) - 1000.0).abs() < 1.0, "{}", mean(&gaps));
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let gaps = gaps(Arrivals::Poisson, 2, 100_000);
        assert!((mean(&gaps) - 1000.0).abs() < 15.0, "{}", mean(&gaps));
        // P(gap > t) = exp(-t / mean).
        for (us, share) in [(100.0, 0.905), (1000.0, 0.368), (3000.0, 0.0498)] {
            let longer = gaps.iter().filter(|gap| **gap > us).count() as f64 / gaps.len() as f64;
            assert!((longer - share).abs() < 0.006, "{us}: {longer}");
        }
    }

    #[test]
    fn bursts_keep_the_mean_rate_by_their_pauses() {
        let gap = Duration::from_micros(8);
        let gaps = gaps(Arrivals::Bursts { size: 4, gap }, 3, 40_000);
        for burst in gaps.chunks(4) {
            assert!(burst[..3].iter().all(|gap| (7.7..8.3).contains(gap)), "{burst:?}");
            assert!((3976.0 * 0.969..3976.0 * 1.031).contains(&burst[3]), "{burst:?}");
        }
        assert!((mean(&gaps) - 1000.0).abs() < 2.0, "{}", mean(&gaps));
    }

    /// Each millisecond has the requests of its rate, also the first and the last one of a step.
    #[test]
    fn a_rate_steps_up_and_down_at_once_and_keeps_its_mean() {
        let arrivals = Arrivals::Steps { step: Duration::from_millis(3), low: 0.2 };
        let mut schedule = Schedule::new(arrivals, 300_000.0, 4, Instant::ZERO).unwrap();
        let periods = 500;
        let mut by_ms = [0; 6];
        while schedule.due() < Instant::ZERO + Duration::from_millis(6 * periods) {
            by_ms[(schedule.due().as_nanos() / 1_000_000 % 6) as usize] += 1;
            schedule.advance();
        }
        let rates = by_ms.map(|count| f64::from(count) / periods as f64);
        for (rate, expected) in rates.into_iter().zip([100.0, 100.0, 100.0, 500.0, 500.0, 500.0]) {
            // Four standard deviations of the mean.
            let off = 4.0 * f64::sqrt(expected / periods as f64);
            assert!((expected - off..expected + off).contains(&rate), "{rates:?}");
        }
    }

    #[test]
    fn shapes_are_written_as_they_are_read() {
        for text in ["even", "jitter:3", "poisson", "bursts:16:8", "steps:2000:20"] {
            assert_eq!(text.parse::<Arrivals>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "jitter",
            "jitter:x",
            "bursts:4",
            "bursts:4:-1",
            "even:1",
            "poisson:1:2",
            "bursts:4:8:1",
            "steps:9",
            "steps:-9:5",
        ] {
            assert!(text.parse::<Arrivals>().unwrap_err().contains("jitter:PERCENT"), "{text}");
        }
        let impossible = [Arrivals::Jittered(1.5), Arrivals::Jittered(f64::NAN)];
        let overlapping = Arrivals::Bursts { size: 4, gap: Duration::from_millis(2) };
        let steps = |ms, low| Arrivals::Steps { step: Duration::from_millis(ms), low };
        let without = [steps(0, 0.5), steps(1, 0.0), steps(1, 1.1), steps(1, f64::NAN)];
        for arrivals in impossible.into_iter().chain([overlapping]).chain(without) {
            assert!(Schedule::new(arrivals, 1000.0, 0, Instant::ZERO).is_err(), "{arrivals}");
        }
    }
}
