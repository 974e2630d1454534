//! Statistics of repeated measurements: medians and their confidence intervals.

/// Minimum number of values whose whole range is a 95 % confidence interval of the median: 1 - 2 / 2^6 =
/// 96.9 %.
pub const INTERVAL_PAIRS_MIN: usize = 6;

/// The median; `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

/// The exact confidence interval of the median, of at least 95 %: two of the measured values.
///
/// The number of values below the true median is binomial (n, 1/2) for any distribution, so the k-th lowest and k-th
/// highest enclose it with probability 1 - 2 P(Bin(n, 1/2) < k); k is the largest that still reaches 95 %. It needs
/// no assumption and no random numbers, and is used here instead of a bootstrap, whose intervals are too narrow for
/// ten or twenty values. Below [`INTERVAL_PAIRS_MIN`] values no pair of them reaches 95 %: then the whole range is
/// returned. `None` without values.
#[must_use]
pub fn interval95(values: &[f64]) -> Option<[f64; 2]> {
    let sorted = sorted(values);
    let k = interval_rank(sorted.len()).max(1);
    Some([*sorted.get(k - 1)?, sorted[sorted.len() - k]])
}

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
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
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
}
