//! What the labs say about repeated measurements: medians, spreads, and how sure a median is. Pure.

use serde::{Deserialize, Serialize};

/// A value over the rounds that measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Median, lowest and highest; `None` without values.
pub(crate) fn summary(values: &[f64]) -> Option<Summary> {
    let sorted = sorted(values);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    };
    Some(Summary { median, min, max })
}

/// The exact interval that holds the true median with at least 95 %: two of the measured values.
///
/// How many of n values lie below the true median is binomial (n, 1/2) whatever their distribution, so the k-th
/// lowest and k-th highest enclose it with probability 1 - 2 P(Bin(n, 1/2) < k); k is the largest that still
/// reaches 95 %. It needs no assumption and no random numbers, which is why it is used here instead of a bootstrap,
/// whose intervals are too narrow for ten or twenty values. Below [`INTERVAL_PAIRS_MIN`] values no pair of them
/// reaches 95 %: the whole spread is returned then. `None` without values.
pub(crate) fn interval95(values: &[f64]) -> Option<[f64; 2]> {
    let sorted = sorted(values);
    let k = interval_rank(sorted.len()).max(1);
    Some([*sorted.get(k - 1)?, sorted[sorted.len() - k]])
}

/// Fewest values whose whole spread is a 95 % interval of the median: 1 - 2 / 2^6 = 96.9 %.
pub(crate) const INTERVAL_PAIRS_MIN: usize = 6;

/// The largest k for which the k-th lowest and k-th highest of `n` values are a 95 % interval; 0 if none is.
fn interval_rank(n: usize) -> usize {
    let mut term = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for k in 0..=n / 2 {
        below += term;
        if 2.0 * below > 0.05 {
            return k;
        }
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    n / 2
}

/// Highest value of the histogram bucket below which the share `quantile` of all counts lies.
pub(crate) fn quantile_ns(histogram: &[(u64, u64)], quantile: f64) -> Option<u64> {
    let total: u64 = histogram.iter().map(|(_, count)| count).sum();
    let rank = ((total as f64 * quantile).ceil() as u64).clamp(1, total.max(1));
    let mut seen = 0;
    histogram.iter().find_map(|(value, count)| {
        seen += count;
        (seen >= rank).then_some(*value)
    })
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_counts() {
        assert_eq!(summary(&[3.0, 1.0, 2.0]), Some(Summary { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(summary(&[4.0, 1.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(summary(&[]), None);
        assert_eq!(interval95(&[]), None);
    }

    #[test]
    fn interval_ranks_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics, table of the sign test: ranks at 95 % for the median.
        let expected =
            [(5, 0), (6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (17, 5), (20, 6), (25, 8), (50, 18)];
        for (n, k) in expected {
            assert_eq!(interval_rank(n), k, "n = {n}");
        }
    }

    #[test]
    fn an_interval_is_two_of_the_values_and_the_spread_when_there_are_few() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(interval95(&values), Some([6.0, 15.0]));
        assert_eq!(interval95(&values[..9]), Some([13.0, 19.0]));
        assert_eq!(interval95(&[1.0, 5.0, 2.0]), Some([1.0, 5.0]));
        assert_eq!(interval95(&[7.0]), Some([7.0, 7.0]));
    }

    #[test]
    fn quantiles_are_bucket_ends() {
        let histogram = [(10, 50), (20, 49), (30, 1)];
        assert_eq!(quantile_ns(&histogram, 0.0), Some(10));
        assert_eq!(quantile_ns(&histogram, 0.5), Some(10));
        assert_eq!(quantile_ns(&histogram, 0.99), Some(20));
        assert_eq!(quantile_ns(&histogram, 1.0), Some(30));
        assert_eq!(quantile_ns(&[], 0.5), None);
    }
}
