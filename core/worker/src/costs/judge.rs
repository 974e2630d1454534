//! Evaluates samples: whether a request shortens a wake-up, and which limit on exit latency is best.

use super::{Cap, Pair, PairOfSets, Spread};

/// The result of one sample.
pub(super) struct Set {
    pub(super) wake_ns: Vec<u64>,
    pub(super) timer_ns: Vec<u64>,
}

/// A cap counts as good as the best one if its wake-ups take at most this much longer: 10 % and half a microsecond.
const AS_GOOD: (u64, u64) = (1100, 500);

/// The conclusion from all pairs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) wake: Pair,
    pub(super) timer: Pair,
    pub(super) max_exit_us: u32,
    pub(super) helps: bool,
    pub(super) tried: Vec<Cap>,
}

impl Judged {
    pub(super) fn of(pairs: &[PairOfSets]) -> Self {
        let caps: Vec<u32> =
            pairs.first().map_or_else(Vec::new, |pair| pair.with.iter().map(|with| with.0).collect());
        let tried: Vec<Cap> = caps
            .into_iter()
            .filter_map(|max_exit_us| {
                let wake = all(sets_with(pairs, max_exit_us), |set| &set.wake_ns)?;
                Some(Cap { max_exit_us, wake, helps: helps(&medians(pairs, max_exit_us)) })
            })
            .collect();
        let chosen = choose(&tried);
        let with = |of: fn(&Set) -> &Vec<u64>| all(sets_with(pairs, chosen?.max_exit_us), of);
        let without = |of: fn(&Set) -> &Vec<u64>| all(pairs.iter().map(|pair| &pair.without), of);
        Self {
            wake: Pair { without: without(|set| &set.wake_ns), with: with(|set| &set.wake_ns) },
            timer: Pair { without: without(|set| &set.timer_ns), with: with(|set| &set.timer_ns) },
            max_exit_us: chosen.map_or(0, |cap| cap.max_exit_us),
            helps: chosen.is_some_and(|cap| cap.helps),
            tried,
        }
    }
}

/// The deepest limit that is as good as the best one, because a deeper state saves power. If any limit helps, only
/// those that help count.
fn choose(tried: &[Cap]) -> Option<Cap> {
    let any_helps = tried.iter().any(|cap| cap.helps);
    if !any_helps {
        return tried.iter().min_by_key(|cap| cap.max_exit_us).copied();
    }
    let candidates = || tried.iter().filter(|cap| cap.helps);
    let best = candidates().map(|cap| cap.wake.p50_ns).min()?;
    let (permille, more_ns) = AS_GOOD;
    let as_good = |cap: &&Cap| cap.wake.p50_ns <= best * permille / 1000 + more_ns;
    candidates().filter(as_good).max_by_key(|cap| cap.max_exit_us).copied()
}

fn sets_with(pairs: &[PairOfSets], cap: u32) -> impl Iterator<Item = &Set> {
    pairs.iter().flat_map(move |pair| pair.with.iter().filter(move |with| with.0 == cap).map(|with| &with.1))
}

fn all<'a>(sets: impl Iterator<Item = &'a Set>, of: impl Fn(&'a Set) -> &'a Vec<u64>) -> Option<Spread> {
    Spread::of(sets.flat_map(|set| of(set).iter().copied()).collect())
}

/// The median wake-up of each pair, without and with this cap, ns.
fn medians(pairs: &[PairOfSets], cap: u32) -> Vec<(u64, u64)> {
    let median = |set: &Set| Spread::of(set.wake_ns.clone()).map(|spread| spread.p50_ns);
    pairs
        .iter()
        .filter_map(|pair| {
            let (_, with) = pair.with.iter().find(|with| with.0 == cap)?;
            Some((median(&pair.without)?, median(with)?))
        })
        .collect()
}

/// Whether a request is worth it, from the medians of paired samples, `(without, with)`, ns.
///
/// It is if it saves at least a fifth in most pairs. Other work on the machine hides the gain, because a CPU that
/// is never idle has no idle state to leave. So saving half in a quarter of the pairs is enough as well.
fn helps(pairs: &[(u64, u64)]) -> bool {
    let mut permille: Vec<u64> =
        pairs.iter().map(|(without, with)| with * 1000 / (*without).max(1)).collect();
    permille.sort_unstable();
    let at_most =
        |part: usize, limit: u64| permille.get(permille.len() / part).is_some_and(|ratio| *ratio <= limit);
    at_most(2, 800) || at_most(4, 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_off_is_worth_a_request_also_among_other_work() {
        assert!(helps(&[(40_000, 2_000); 8]));
        assert!(helps(&[(10, 8); 8]));
        assert!(!helps(&[(10, 9); 8]));
        // On a busy machine most samples find no idle CPU.
        assert!(helps(&[(16, 16), (16, 15), (40, 4), (16, 17), (15, 16), (42, 4), (16, 16), (41, 3)]));
        assert!(!helps(&[(16, 16), (16, 15), (40, 30), (16, 17), (15, 16), (30, 40), (16, 16), (16, 16)]));
        assert!(!helps(&[]));
    }

    /// A pair with these medians, us: without a request, and with each limit.
    fn pair(without: u64, with: &[(u32, u64)]) -> PairOfSets {
        let set = |us: u64| Set { wake_ns: vec![us * 1000; 3], timer_ns: vec![us * 2000; 3] };
        PairOfSets { without: set(without), with: with.iter().map(|(cap, us)| (*cap, set(*us))).collect() }
    }

    #[test]
    fn the_deepest_cap_that_costs_nothing_is_taken() {
        // A host where C1 (2 us) is nearly as good as polling in idle, and C1E (10 us) is not.
        let judged = Judged::of(&[(); 3].map(|()| pair(80, &[(10, 9), (2, 4), (0, 4)])));
        assert_eq!((judged.max_exit_us, judged.helps), (2, true));
        let (wake, timer) = (judged.wake, judged.timer);
        let p50 = |spread: Option<Spread>| spread.map(|spread| spread.p50_ns / 1000);
        assert_eq!((p50(wake.without), p50(wake.with)), (Some(80), Some(4)));
        assert_eq!((p50(timer.without), p50(timer.with)), (Some(160), Some(8)));
        assert_eq!(judged.tried.iter().map(|cap| cap.max_exit_us).collect::<Vec<_>>(), [10, 2, 0]);
        // Half a microsecond is not worth a CPU that polls in idle; three are.
        assert_eq!(Judged::of(&[(); 3].map(|()| pair(80, &[(2, 7), (0, 4)]))).max_exit_us, 0);
    }

    #[test]
    fn where_nothing_helps_nothing_is_chosen_but_told() {
        let judged = Judged::of(&[(); 3].map(|()| pair(5, &[(2, 5), (0, 5)])));
        assert_eq!((judged.max_exit_us, judged.helps, judged.tried.len()), (0, false, 2));
        assert!(judged.wake.with.is_some());
        // Requests are refused: no sample with one.
        let refused = Judged::of(&[(); 3].map(|()| pair(40, &[])));
        assert_eq!((refused.helps, refused.wake.with, refused.tried.len()), (false, None, 0));
        assert_eq!(Judged::of(&[]), Judged::default());
    }
}
