//! Whether anything waits for a timer tick: shares of times near a multiple of 1/HZ. Pure.

use crate::lab::stats;

/// As near to a multiple counts, in percent of a tick.
const NEAR_PERCENT: u64 = 5;
/// A share up to this is strays, whatever the interval says: six calls of a walk.
const STRAYS: f64 = 1e-4;

/// The share of `times` (ns, count) within 5 % of a tick of a multiple of it.
pub(super) fn share(times: &[(u64, u64)], tick_ns: u64) -> f64 {
    let total: u64 = times.iter().map(|(_, count)| count).sum();
    let near = times.iter().filter(|(time, _)| is_near(*time, tick_ns)).map(|(_, count)| count);
    if total == 0 { 0.0 } else { near.sum::<u64>() as f64 / total as f64 }
}

fn is_near(time_ns: u64, tick_ns: u64) -> bool {
    let after = time_ns % tick_ns;
    let away = after.min(tick_ns - after);
    time_ns > tick_ns / 2 && away * 100 <= tick_ns * NEAR_PERCENT
}

/// How much of `shares` is beyond `plain`, measured in the same rounds: the median of the differences, or nothing where
/// their 95 % interval does not exclude nothing. A stray call of one round is no mode of a distribution.
pub(super) fn excess(pairs: &[(f64, f64)]) -> Option<f64> {
    let beyond: Vec<_> = pairs.iter().map(|(share, plain)| share - plain).collect();
    let ([low, _], summary) = (stats::interval95(&beyond)?, stats::summary(&beyond)?);
    Some(if low > STRAYS { summary.median } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_a_multiple_counts() {
        let tick = 4_000_000;
        let near = [(3_800_000, 1), (4_200_000, 2), (8_000_000, 4), (40_100_000, 8)];
        let far = [(0, 100), (100_000, 100), (3_799_000, 100), (4_201_000, 100), (6_000_000, 85)];
        assert_eq!(share(&[&near[..], &far[..]].concat(), tick), 15.0 / 500.0);
        assert_eq!(share(&[], tick), 0.0);
    }

    #[test]
    fn a_few_strays_in_every_round_are_no_excess_either() {
        assert_eq!(excess(&[(5e-5, 0.0), (9e-5, 0.0), (8e-5, 1e-5)]), Some(0.0));
        assert_eq!(excess(&[(2e-4, 0.0)]), Some(2e-4));
    }

    #[test]
    fn strays_are_no_excess_and_a_mode_is() {
        let strays: Vec<_> = (0..10).map(|round| (f64::from(round % 2) * 1e-4, 0.0)).collect();
        assert_eq!(excess(&strays), Some(0.0));
        let stalls: Vec<_> = (0..10).map(|round| (0.2 + f64::from(round) * 0.01, 0.0)).collect();
        assert!((excess(&stalls).unwrap() - 0.245).abs() < 1e-9);
        assert_eq!(excess(&[]), None);
    }
}
