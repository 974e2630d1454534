//! The random choices of a round: its period, the seeds of its gaps, and the order of its rows. Pure, so a seed repeats
//! a run.

use std::time::Duration;

use fastrand::Rng;
use twinpath_load::Arrivals;

use super::cases::Pace;

/// The range of the period, us.
const PERIOD_US: std::ops::RangeInclusive<f64> = 250.0..=500.0;
/// Share by which each gap is longer or shorter.
const JITTER: f64 = 0.03;
/// The mean in the compared document, for arrivals that are not drawn.
const MEAN_US: f64 = 350.0;
const BURST: Arrivals = Arrivals::Bursts { size: 16, gap: Duration::from_micros(8) };

/// The choices that all rows of one round share, so that both sides of a ratio have the same arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Draw {
    pub(super) period_us: f64,
    /// The seed of the gaps.
    pub(super) seed: u64,
}

/// Arrivals at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) rate_per_s: f64,
    pub(super) arrivals: Arrivals,
    pub(super) seed: u64,
}

impl Draw {
    /// The choices of a round.
    pub(super) fn new(run_seed: u64, round: usize) -> Self {
        let mut random = of(run_seed, round);
        let (from, to) = PERIOD_US.into_inner();
        let period_us = from + (to - from) * random.f64();
        // Rounded for readers.
        Self { period_us: (period_us * 10.0).round() / 10.0, seed: random.u64(..1 << 32) }
    }

    /// The arrivals of `pace` in this round.
    pub(super) fn offer(&self, pace: Pace) -> Offer {
        let (period_us, arrivals) = match pace {
            Pace::Drawn => (self.period_us, Arrivals::Jittered(JITTER)),
            Pace::Every(us) => (us, Arrivals::Jittered(JITTER)),
            Pace::Poisson => (MEAN_US, Arrivals::Poisson),
            Pace::Bursts => (MEAN_US, BURST),
        };
        Offer { rate_per_s: 1e6 / period_us, arrivals, seed: self.seed }
    }
}

impl Offer {
    /// The arrivals as options of a client.
    pub(super) fn args(&self) -> [String; 6] {
        [
            "--rate".to_owned(),
            self.rate_per_s.to_string(),
            "--arrivals".to_owned(),
            self.arrivals.to_string(),
            "--arrivals-seed".to_owned(),
            self.seed.to_string(),
        ]
    }
}

/// The rows of a round, shuffled.
pub(super) fn order(run_seed: u64, round: usize, mut rows: Vec<&'static str>) -> Vec<&'static str> {
    let mut random = of(run_seed, round);
    random.fork().shuffle(&mut rows);
    rows
}

fn of(run_seed: u64, round: usize) -> Rng {
    // Adjacent seeds and adjacent rounds are independent of each other.
    Rng::with_seed(Rng::with_seed(run_seed).u64(..).wrapping_add(round as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_run_and_rounds_differ() {
        let draws: Vec<_> = (0..200).map(|round| Draw::new(7, round)).collect();
        assert!(draws.iter().enumerate().all(|(round, draw)| *draw == Draw::new(7, round)));
        assert!(draws.iter().all(|draw| PERIOD_US.contains(&draw.period_us)));
        assert!(draws.iter().any(|draw| draw.period_us < 270.0));
        assert!(draws.iter().any(|draw| draw.period_us > 480.0));
        assert_ne!(draws[0], Draw::new(8, 0));
        let rows = vec!["a", "b", "c", "d", "e", "f"];
        let orders: Vec<_> = (0..20).map(|round| order(7, round, rows.clone())).collect();
        assert_eq!(orders[3], order(7, 3, rows.clone()));
        assert!(orders.iter().any(|other| *other != orders[0]));
    }

    #[test]
    fn offers_are_what_the_client_understands() {
        let draw = Draw { period_us: 400.0, seed: 5 };
        let of = |pace| draw.offer(pace).args().join(" ");
        assert_eq!(of(Pace::Drawn), "--rate 2500 --arrivals jitter:3 --arrivals-seed 5");
        assert_eq!(of(Pace::Every(10.0)), "--rate 100000 --arrivals jitter:3 --arrivals-seed 5");
        assert!(of(Pace::Bursts).contains("--arrivals bursts:16:8 "));
        for pace in [Pace::Drawn, Pace::Poisson, Pace::Bursts] {
            let text = draw.offer(pace).arrivals.to_string();
            assert_eq!(text.parse::<Arrivals>(), Ok(draw.offer(pace).arrivals));
        }
    }
}
