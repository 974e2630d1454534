//! Statistics of two sets of measurements that were not taken in pairs: the factor by which one exceeds the
//! other, with a confidence interval.

/// Up to this product of the two sizes the exact distribution is computed; above, the normal distribution is a good
/// approximation.
const EXACT_MAX: usize = 2500;
/// The quantile of the standard normal distribution that is exceeded with a probability of 2.5 %.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// The ratio of the second set to the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median of all ratios of one value of the second set to one of the first (Hodges and Lehmann's estimator,
    /// on the logarithms).
    pub ratio: f64,
    /// Confidence interval of at least 95 %, assuming that the sets differ only by a factor; `None` if they
    /// are too small for one.
    pub interval95: Option<[f64; 2]>,
}

/// Compares `second` with `first`. The interval is that of Mann and Whitney's test: at either end, the
/// ratios are cut off that leave 95 % for any distribution of the values. `None` if a set is empty or has a
/// value that is not above zero.
#[must_use]
pub fn unpaired_ratio(first: &[f64], second: &[f64]) -> Option<Ratio> {
    let is_good =
        |values: &[f64]| !values.is_empty() && values.iter().all(|value| *value > 0.0 && value.is_finite());
    if !is_good(first) || !is_good(second) {
        return None;
    }
    let mut ratios: Vec<f64> =
        second.iter().flat_map(|above| first.iter().map(move |below| above / below)).collect();
    ratios.sort_by(f64::total_cmp);
    let last = ratios.len() - 1;
    // Between the two middle ratios: their geometric mean, so that swapping the sets inverts the result.
    let ratio = (ratios[last / 2] * ratios[last.div_ceil(2)]).sqrt();
    let cut = cut_off(first.len(), second.len());
    Some(Ratio { ratio, interval95: cut.map(|cut| [ratios[cut], ratios[last - cut]]) })
}

/// How many of all ratios to cut off at either end; `None` if not even all of them make a 95 % interval.
fn cut_off(first: usize, second: usize) -> Option<usize> {
    let product = first * second;
    if product > EXACT_MAX {
        let deviation = (product as f64 * (first + second + 1) as f64 / 12.0).sqrt();
        // The critical value of U, by the normal distribution with continuity correction.
        return Some((product as f64 / 2.0 - NORMAL_975 * deviation - 0.5).max(0.0) as usize);
    }
    let mut below = 0.0;
    for (cut, probability) in u_distribution(first, second).into_iter().enumerate() {
        below += probability;
        if below > 0.025 {
            return cut.checked_sub(1);
        }
    }
    None
}

/// The probability of each value of Mann and Whitney's U, from 0 on, if both sets have the same distribution.
///
/// The largest of all values is from the first set with probability i / (i + j), and then exceeds all j of
/// the second.
fn u_distribution(first: usize, second: usize) -> Vec<f64> {
    // For sets of i and 0..=second values, starting with i = 0.
    let mut rows: Vec<Vec<f64>> = vec![vec![1.0]; second + 1];
    for i in 1..=first {
        for j in 1..=second {
            let mut row = vec![0.0; i * j + 1];
            let share = i as f64 / (i + j) as f64;
            for (u, probability) in rows[j].iter().enumerate() {
                row[u + j] += share * probability;
            }
            for (u, probability) in rows[j - 1].iter().enumerate() {
                row[u] += (1.0 - share) * probability;
            }
            rows[j] = row;
        }
    }
    rows.swap_remove(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_ratios_are_cut_off_as_published_tables_say() {
        // The critical values of Mann and Whitney's U at 5 %, two-sided.
        for (first, second, critical) in [
            (4, 4, 0),
            (4, 6, 2),
            (5, 5, 2),
            (6, 6, 5),
            (7, 9, 12),
            (8, 8, 13),
            (10, 10, 23),
            (12, 8, 22),
            (20, 20, 127),
            (3, 5, 0),
        ] {
            assert_eq!(cut_off(first, second), Some(critical), "{first} and {second}");
            assert_eq!(cut_off(second, first), Some(critical), "{second} and {first}");
        }
        for (first, second) in [(1, 1), (3, 3), (3, 4), (1, 20)] {
            assert_eq!(cut_off(first, second), None, "{first} and {second}");
        }
    }

    #[test]
    fn the_normal_distribution_goes_on_where_counting_ends() {
        let normal = |n: usize| {
            let product = (n * n) as f64;
            (product / 2.0 - NORMAL_975 * (product * (2 * n + 1) as f64 / 12.0).sqrt() - 0.5) as usize
        };
        for n in [30, 40, 50] {
            assert!(cut_off(n, n).unwrap().abs_diff(normal(n)) <= 1, "{n}");
        }
        assert_eq!(cut_off(51, 51), Some(normal(51)));
    }

    #[test]
    fn probabilities_are_one_in_all_and_symmetric() {
        let distribution = u_distribution(7, 5);
        assert_eq!(distribution.len(), 36);
        assert!((distribution.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        // One of C(12, 5) orders.
        assert!((distribution[0] - 1.0 / 792.0).abs() < 1e-12);
        assert!(distribution.iter().zip(distribution.iter().rev()).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn a_known_ratio_is_estimated_and_swapping_the_sets_inverts_it() {
        let first: Vec<f64> = (0..9).map(|index| 100.0 + f64::from(index)).collect();
        let second: Vec<f64> = first.iter().map(|value| value * 0.5).collect();
        let found = unpaired_ratio(&first, &second).unwrap();
        assert!((found.ratio - 0.5).abs() < 1e-9);
        let [low, high] = found.interval95.unwrap();
        assert!(0.47 < low && low < 0.5 && 0.5 < high && high < 0.53, "{low} {high}");
        let swapped = unpaired_ratio(&second, &first).unwrap();
        assert!((swapped.ratio - 1.0 / found.ratio).abs() < 1e-9);
        assert!((swapped.interval95.unwrap()[0] - 1.0 / high).abs() < 1e-9);
    }

    #[test]
    fn too_few_values_have_no_interval() {
        assert_eq!(unpaired_ratio(&[2.0], &[3.0]), Some(Ratio { ratio: 1.5, interval95: None }));
        for (first, second) in [(&[][..], &[1.0][..]), (&[1.0], &[]), (&[0.0], &[1.0]), (&[f64::NAN], &[1.0])]
        {
            assert_eq!(unpaired_ratio(first, second), None);
        }
    }
}
