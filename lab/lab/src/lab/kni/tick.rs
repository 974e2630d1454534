//! Detects waiting for timer ticks: how many times are near a multiple of 1/HZ, beyond those with plain veth. Pure.
//!
//! Stalls of the machine are near multiples of a tick, too, and now and then they occur in one mode only. So the result
//! is the lower end of an interval: the excess that must exist even in an unlucky run.

/// The largest distance from a multiple that counts as near, in percent of a tick.
const NEAR_PERCENT: u64 = 5;
/// Half the width of each interval, in standard errors: each holds with 99.81 %, so all 24 of one run hold together
/// with 95 % (Bonferroni: 24 times 0.19 % is less than 5 %).
const STANDARD_ERRORS: f64 = 3.1;
/// From this many rounds on, one is left out.
const ROUNDS_TO_LEAVE_ONE: usize = 3;
/// Most distributions that are compared with plain veth in one run.
#[cfg(test)]
pub(super) const COMPARED_MAX: usize = 24;

/// The number of times near a multiple of a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Near {
    pub(super) near: f64,
    pub(super) all: f64,
}

impl Near {
    /// Counts them in `times` (ns, count).
    pub(super) fn of(times: &[(u64, u64)], tick_ns: u64) -> Self {
        let near = times.iter().filter(|(time, _)| is_near(*time, tick_ns)).map(|(_, count)| count);
        let all: u64 = times.iter().map(|(_, count)| count).sum();
        Self { near: near.sum::<u64>() as f64, all: all as f64 }
    }

    pub(super) fn share(self) -> f64 {
        if self.all > 0.0 { self.near / self.all } else { 0.0 }
    }

    fn sum(rounds: &[Self]) -> Self {
        let add = |sum: Self, one: &Self| Self { near: sum.near + one.near, all: sum.all + one.all };
        rounds.iter().fold(Self::default(), add)
    }

    /// Wilson's interval of the share, if times come in clumps of size `clump`.
    fn interval(self, clump: f64) -> [f64; 2] {
        let (p, n, z2) = (self.share(), self.all / clump, STANDARD_ERRORS.powi(2));
        let centre = p + z2 / (2.0 * n);
        let half = STANDARD_ERRORS * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
        [centre - half, centre + half].map(|end| end / (1.0 + z2 / n))
    }
}

fn is_near(time_ns: u64, tick_ns: u64) -> bool {
    let after = time_ns % tick_ns;
    let away = after.min(tick_ns - after);
    time_ns > tick_ns / 2 && away * 100 <= tick_ns * NEAR_PERCENT
}

/// The excess of one distribution over plain veth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Excess {
    /// Lower end of the interval of the difference of the shares, or 0 if it is negative.
    pub(super) at_least: f64,
    /// All rounds together, except the mode's worst.
    pub(super) mode: Near,
    pub(super) plain: Near,
    /// The smallest share of this distribution that would have been distinguished from none.
    pub(super) seen_from: f64,
    /// The worst round, if it alone would have changed the result.
    pub(super) once: Option<Near>,
}

/// Compares the rounds of a mode with those of plain veth; `None` without times on both sides.
///
/// The interval is Newcombe's for the difference of two shares (Statistics in Medicine 17, 1998, method 10), which is
/// made for rare events and sides of different size. It assumes independent times, which stalls of a machine are not:
/// so times count for less, by the factor by which those of *plain veth* vary more from round to round than independent
/// ones would. The mode's own variation is not used, because a mode of which only some walks wait for a tick is no
/// better for it. But of three rounds or more the one with the largest share is left out: by that one alone, a mode
/// that waits cannot be distinguished from a machine that was busy at that moment.
pub(super) fn excess(mode: &[Near], plain: &[Near]) -> Option<Excess> {
    let clump = clump(plain);
    let (all, plain) = (Near::sum(mode), Near::sum(plain));
    if all.all == 0.0 || plain.all == 0.0 {
        return None;
    }
    let worst = mode.iter().copied().max_by(|a, b| a.share().total_cmp(&b.share())).unwrap_or_default();
    let most = if mode.len() < ROUNDS_TO_LEAVE_ONE {
        all
    } else {
        Near { near: all.near - worst.near, all: all.all - worst.all }
    };
    let low = |mode| lower_end(mode, plain, clump);
    let seen = |near: &u64| low(Near { near: *near as f64, ..most }) > 0.0;
    let seen_from = (0..=most.all as u64).find(seen).map_or(1.0, |near| near as f64 / most.all);
    let at_least = low(most).max(0.0);
    let once = (at_least == 0.0 && low(all) > 0.0).then_some(worst);
    Some(Excess { at_least, mode: most, plain, seen_from, once })
}

fn lower_end(mode: Near, plain: Near, clump: f64) -> f64 {
    let ([low, _], [_, high]) = (mode.interval(clump), plain.interval(clump));
    let (over, under) = (mode.share() - low, high - plain.share());
    mode.share() - plain.share() - over.hypot(under)
}

/// Variance of the counts of `rounds` divided by that of independent times (Pearson's statistic over its degrees of
/// freedom); 1 if it is less, or cannot be computed.
fn clump(rounds: &[Near]) -> f64 {
    let share = Near::sum(rounds).share();
    let deviation = |round: &Near| {
        let expected = round.all * share;
        (round.near - expected).powi(2) / (expected * (1.0 - share))
    };
    if rounds.len() < 2 || !(f64::MIN_POSITIVE..1.0).contains(&share) {
        return 1.0;
    }
    (rounds.iter().map(deviation).sum::<f64>() / (rounds.len() - 1) as f64).max(1.0)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    const TICK_NS: u64 = 4_000_000;
    /// Number of calls of a walk, and of one with captures.
    const WALK: u64 = 61_819;
    const CAPTURED: u64 = 8_000;

    #[test]
    fn only_what_is_near_a_multiple_counts() {
        let near = [(3_800_000, 1), (4_200_000, 2), (8_000_000, 4), (40_100_000, 8)];
        let far = [(0, 100), (100_000, 100), (3_799_000, 100), (4_201_000, 100), (6_000_000, 85)];
        let counted = Near::of(&[&near[..], &far[..]].concat(), TICK_NS);
        assert_eq!(counted, Near { near: 15.0, all: 500.0 });
        assert_eq!((counted.share(), Near::of(&[], TICK_NS).share()), (0.03, 0.0));
    }

    /// Simulated rounds of a walk: calls of 20 to 200 us, stalls of up to 40 ms, `stalls` of them per walk on average,
    /// and `stuck` calls in a thousand that wait for the first or second tick.
    fn rounds(random: &mut Rng, rounds: usize, calls: u64, stalls: f64, stuck: u64) -> Vec<Near> {
        let one = |_| {
            let mut times = vec![(random.u64(20_000..200_000), calls)];
            times.extend((0..about(random, stalls)).map(|_| (random.u64(200_000..40_000_000), 1)));
            let ticks =
                (0..calls * stuck / 1000).map(|_| (random.u64(1..=2) * TICK_NS + random.u64(0..100_000), 1));
            times.extend(ticks);
            Near::of(&times, TICK_NS)
        };
        (0..rounds).map(one).collect()
    }

    /// A Poisson number with this mean: the number of exponential gaps that fit into it.
    fn about(random: &mut Rng, mean: f64) -> usize {
        let ends = std::iter::repeat_with(|| -(1.0 - random.f64()).ln()).scan(0.0, |at, gap| {
            *at += gap;
            Some(*at)
        });
        ends.take_while(|end| *end < mean).count()
    }

    /// How many of `runs` runs, each with as many distributions as possible, show any excess.
    fn alarms(runs: u64, mut run: impl FnMut(&mut Rng) -> [Vec<Near>; 2]) -> usize {
        let one = |seed: &u64| {
            let mut random = Rng::with_seed(*seed);
            (0..COMPARED_MAX).any(|_| {
                let [mode, plain] = run(&mut random);
                excess(&mode, &plain).unwrap().at_least > 0.0
            })
        };
        (0..runs).filter(one).count()
    }

    #[test]
    fn one_call_in_a_thousand_that_waits_for_a_tick_is_seen_in_one_walk_and_told_to_size() {
        for seed in 0..20 {
            let mut random = Rng::with_seed(seed);
            for (count, closeness) in [(1, 0.6), (10, 0.3)] {
                let mode = rounds(&mut random, count, WALK, 6.0, 1);
                let plain = rounds(&mut random, count, WALK, 6.0, 0);
                let found = excess(&mode, &plain).unwrap();
                assert!(found.at_least > 1e-3 * (1.0 - closeness) && found.at_least < 1e-3, "{found:?}");
            }
            // Three walks with captures give fewer times; the report states the share that would have been detected.
            let mode = rounds(&mut random, 3, CAPTURED, 1.0, 2);
            let found = excess(&mode, &rounds(&mut random, 3, CAPTURED, 1.0, 0)).unwrap();
            assert!(found.at_least > 0.0 && found.seen_from < 2e-3, "{found:?}");
        }
    }

    #[test]
    fn stalls_of_the_machine_are_no_excess_however_few_the_rounds() {
        for (count, calls, stalls) in
            [(10, WALK, 6.0), (6, WALK, 60.0), (3, CAPTURED, 2.0), (1, CAPTURED, 20.0)]
        {
            let found = alarms(100, |random| {
                [rounds(random, count, calls, stalls, 0), rounds(random, count, calls, stalls, 0)]
            });
            assert!(found <= 5, "{found} of 100 runs: {count} rounds, {stalls} stalls per walk");
        }
    }

    /// Now and then a walk meets a moment at which the machine is busy, and thirty of its calls end near a tick.
    #[test]
    fn a_machine_that_is_busy_now_and_then_is_seldom_taken_for_a_mode() {
        for (one_in, tolerated) in [(2, 5), (100, 10)] {
            let found = alarms(100, |random| {
                let mut walks = |count: usize| -> Vec<Near> {
                    let busy = |_| if random.usize(0..one_in) == 0 { 30.5 } else { 0.5 };
                    let means: Vec<f64> = (0..count).map(busy).collect();
                    means
                        .into_iter()
                        .map(|mean| Near { near: about(random, mean) as f64, all: WALK as f64 })
                        .collect()
                };
                [walks(10), walks(20)]
            });
            assert!(found <= tolerated, "{found} of 100 runs: one walk in {one_in}");
        }
    }

    #[test]
    fn stalls_that_come_in_clumps_count_once_and_a_mode_that_comes_and_goes_counts_in_full() {
        // Every third round of plain veth has a hundred near times, and the others none: some of a mode's may be the
        // same.
        let walk = |near: f64| Near { near, all: WALK as f64 };
        let plain: Vec<_> = (0..10).map(|round| walk(if round % 3 == 0 { 100.0 } else { 0.0 })).collect();
        assert!(clump(&plain) > 60.0);
        let mode: Vec<_> = (0..10).map(|round| walk(if round % 2 == 0 { 100.0 } else { 0.0 })).collect();
        assert_eq!(excess(&mode, &plain).unwrap().at_least, 0.0);
        // Two walks in ten in which every fifth call waits for a tick, beside quiet plain veth: one of them is enough.
        let mode: Vec<_> = (0..10).map(|round| walk(if round % 7 == 1 { 12_000.0 } else { 0.0 })).collect();
        let found = excess(&mode, &[walk(0.0); 10]).unwrap();
        assert!((0.02..0.022).contains(&found.at_least) && found.once.is_none(), "{found:?}");
        // A single one is reported separately.
        let once = excess(&[&mode[..2], &mode[2..8]].concat(), &[walk(0.0); 8]).unwrap();
        assert_eq!((once.at_least, once.once), (0.0, Some(walk(12_000.0))));
    }

    #[test]
    fn nothing_near_anywhere_is_none_and_nothing_measured_is_no_answer() {
        let none = Near { near: 0.0, all: WALK as f64 };
        let found = excess(&[none; 10], &[none; 10]).unwrap();
        assert_eq!(found.at_least, 0.0);
        // A dozen calls in ten walks.
        assert!((1e-5..2.5e-5).contains(&found.seen_from), "{found:?}");
        assert_eq!(excess(&[none], &[]), None);
        assert_eq!(excess(&[], &[none]), None);
    }
}
