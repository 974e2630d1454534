//! Statistics of repeated measurements: medians, spreads, and confidence intervals of medians. Pure.

use serde::{Deserialize, Serialize};
pub(crate) use twinpath_load::{INTERVAL_PAIRS_MIN, interval95};

/// A value over the rounds that measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Median, lowest and highest; `None` without values.
pub(crate) fn summary(values: &[f64]) -> Option<Summary> {
    let (min, max) = values.iter().fold((f64::MAX, f64::MIN), |(min, max), v| (v.min(min), v.max(max)));
    Some(Summary { median: twinpath_load::median(values)?, min, max })
}

/// `1 round`, `6 rounds`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The highest value of the histogram bucket that contains the quantile.
pub(crate) fn quantile_ns(histogram: &[(u64, u64)], quantile: f64) -> Option<u64> {
    let total: u64 = histogram.iter().map(|(_, count)| count).sum();
    let rank = ((total as f64 * quantile).ceil() as u64).clamp(1, total.max(1));
    let mut seen = 0;
    histogram.iter().find_map(|(value, count)| {
        seen += count;
        (seen >= rank).then_some(*value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_counts() {
        assert_eq!(summary(&[3.0, 1.0, 2.0]), Some(Summary { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(summary(&[4.0, 1.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "round")), ["0 rounds", "1 round", "2 rounds"]);
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
