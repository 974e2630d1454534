//! Detects wake-ups that end at a timer tick: the share of latencies near a multiple of 1/HZ, beyond chance. Pure.

/// The distance from a multiple that counts as near, as a share of a tick.
const NEAR: f64 = 0.05;
/// The distance for comparison: in an even distribution, `NEAR / AROUND` of these would be near.
const AROUND: f64 = 0.25;
/// Two-sided 5 %.
const TAIL: f64 = 0.025;

/// Counts of a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ticks {
    /// All wake-ups.
    pub(super) total: u64,
    /// Those within 5 % of a tick from a multiple of it.
    pub(super) near: u64,
    /// Those within 25 %.
    pub(super) around: u64,
}

impl Ticks {
    /// Counts latencies, given as (ns, count).
    pub(super) fn of(histogram: &[(u64, u64)], tick_ns: u64) -> Self {
        let mut ticks = Self::default();
        for (time_ns, count) in histogram {
            let multiples = *time_ns as f64 / tick_ns as f64;
            let away = (multiples - multiples.round()).abs();
            ticks.total += count;
            if multiples.round() >= 1.0 && away <= AROUND {
                ticks.around += count;
                ticks.near += if away <= NEAR { *count } else { 0 };
            }
        }
        ticks
    }

    /// The share near a multiple, minus the share expected if those around it were evenly distributed; and the lower
    /// end of its 95 % interval (Clopper and Pearson's, of the near among those around). Zero without any around.
    pub(super) fn excess(self) -> (f64, f64) {
        if self.around == 0 {
            return (0.0, 0.0);
        }
        let weight = self.around as f64 / self.total as f64;
        let beyond = |share: f64| weight * (share - NEAR / AROUND);
        (beyond(self.near as f64 / self.around as f64), beyond(lower_end(self.near, self.around)))
    }
}

/// The share for which `near` or more of `of` occur with a probability of 2.5 %.
fn lower_end(near: u64, of: u64) -> f64 {
    if near == 0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_least(near, of, middle) < TAIL { low = middle } else { high = middle }
    }
    low
}

/// The probability of `near` or more of `of`, each with probability `share`.
fn at_least(near: u64, of: u64, share: f64) -> f64 {
    let (success, failure) = (share.ln(), (1.0 - share).ln());
    // Logarithms of the binomial coefficients, each computed from the last.
    let mut coefficient = 0.0;
    let mut sum = 0.0;
    for count in 0..=of {
        if count >= near {
            let (count, of) = (count as f64, of as f64);
            let failures = if of > count { (of - count) * failure } else { 0.0 };
            sum += (coefficient + count * success + failures).exp();
        }
        coefficient += ((of - count) as f64).ln() - ((count + 1) as f64).ln();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 4_000_000;

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Clopper-Pearson, 95 %: 1 of 1, 5 of 10, 8 of 10, 20 of 100.
        for (near, of, low) in [(1, 1, 0.025), (5, 10, 0.1871), (8, 10, 0.4439), (20, 100, 0.1267)] {
            assert!((lower_end(near, of) - low).abs() < 1e-4, "{near} of {of}: {}", lower_end(near, of));
        }
        assert_eq!(lower_end(0, 10), 0.0);
    }

    #[test]
    fn short_latencies_are_near_nothing() {
        let ticks = Ticks::of(&[(8_000, 100_000), (150_000, 500), (1_900_000, 3)], TICK);
        assert_eq!(ticks, Ticks { total: 100_503, near: 0, around: 0 });
        assert_eq!(ticks.excess(), (0.0, 0.0));
    }

    #[test]
    fn an_even_tail_is_chance_and_a_mode_is_not() {
        // From 3 to 13 ms in steps of 10 us, one each; and the same with 40 more at the second tick.
        let mut histogram: Vec<_> = (300..1300).map(|at| (at * 10_000, 1)).collect();
        histogram.push((20_000, 9_000));
        let (share, low) = Ticks::of(&histogram, TICK).excess();
        assert!(share.abs() < 1e-3 && low < 0.0, "{share} {low}");
        histogram.push((8_010_000, 40));
        let (share, low) = Ticks::of(&histogram, TICK).excess();
        assert!((share - 0.0032).abs() < 4e-4 && low > 0.0, "{share} {low}");
    }

    #[test]
    fn one_stray_or_two_are_no_mode() {
        for (strays, is_mode) in [(1, false), (2, false), (4, true)] {
            let low = Ticks::of(&[(10_000, 10_000), (4_000_000, strays)], TICK).excess().1;
            assert_eq!(low > 0.0, is_mode, "{strays}");
        }
    }
}
