//! The random choices of a round: its period, the seeds of its gaps, and the order of its rows. Pure, so a seed repeats
//! a run.

use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use twinpath_load::Arrivals;

use crate::lab::paced::{Draw, JITTER, Load, PERIOD_US};

/// The mean in the compared document, for arrivals that are not drawn.
const MEAN_US: f64 = 350.0;
const BURST: Arrivals = Arrivals::Bursts { size: 16, gap: Duration::from_micros(8) };

/// The choices that all rows of one round share, so that both sides of a ratio have the same arrivals.
pub(super) fn draw(run_seed: u64, round: usize) -> Draw {
    Draw::of(&mut of(run_seed, round), PERIOD_US)
}

/// The load of a pace in this round.
///
/// # Errors
/// No such pace.
pub(super) fn load(draw: &Draw, pace: Option<&str>) -> anyhow::Result<Load> {
    let (period_us, arrivals) = match pace {
        None => return Ok(draw.load()),
        Some("poisson") => (MEAN_US, Arrivals::Poisson),
        Some("bursts") => (MEAN_US, BURST),
        Some(us) => {
            let us = us.parse().with_context(|| format!("no such pace: {us}"))?;
            (us, Arrivals::Jittered(JITTER))
        }
    };
    Ok(Load { rate_per_s: 1e6 / period_us, arrivals, seed: draw.seed })
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
        let draws: Vec<_> = (0..200).map(|round| draw(7, round)).collect();
        assert!(draws.iter().enumerate().all(|(round, drawn)| *drawn == draw(7, round)));
        assert!(draws.iter().all(|draw| PERIOD_US.contains(&draw.period_us)));
        assert!(draws.iter().any(|draw| draw.period_us < 270.0));
        assert!(draws.iter().any(|draw| draw.period_us > 480.0));
        assert_ne!(draws[0], draw(8, 0));
        let rows = vec!["a", "b", "c", "d", "e", "f"];
        let orders: Vec<_> = (0..20).map(|round| order(7, round, rows.clone())).collect();
        assert_eq!(orders[3], order(7, 3, rows.clone()));
        assert!(orders.iter().any(|other| *other != orders[0]));
    }

    #[test]
    fn a_pace_is_a_rate_with_gaps() {
        let of = |pace| load(&Draw { period_us: 400.0, seed: 5 }, Some(pace)).map(|load| load.options());
        assert_eq!(of("10").unwrap(), "--rate 100000 --arrivals jitter:3 --arrivals-seed 5");
        assert!(of("bursts").unwrap().contains("--arrivals bursts:16:8 "));
        assert!(of("often").is_err());
    }
}
