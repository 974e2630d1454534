//! A limit for each user on operations that cost the owner time, and the kernel memory that is freed late.

use twinpath_time::{Duration, Instant};

/// Users that are remembered. Of more, the one that has spent least is forgotten.
const USERS_MAX: usize = 256;

/// Each user may do something this many times at once, and then once in each interval.
#[derive(Debug)]
pub(crate) struct Budget {
    burst: u32,
    interval: Duration,
    /// Users that have spent something, and when they will have all of it again.
    spent: Vec<(u32, Instant)>,
}

impl Budget {
    pub(crate) const fn new(burst: u32, interval: Duration) -> Self {
        Self { burst, interval, spent: Vec::new() }
    }

    /// Whether the user may do it once more, which is counted then.
    pub(crate) fn spend(&mut self, user: u32, now: Instant) -> bool {
        self.spent.retain(|(_, whole_at)| *whole_at > now);
        let known = self.spent.iter().position(|(of, _)| *of == user);
        let whole_at = known.map_or(now, |at| self.spent[at].1);
        if whole_at.since(now) > self.interval * self.burst.saturating_sub(1) {
            return false;
        }
        let whole_at = whole_at + self.interval;
        match known {
            Some(at) => self.spent[at].1 = whole_at,
            None => {
                if self.spent.len() >= USERS_MAX
                    && let Some(least) = (0..self.spent.len()).min_by_key(|at| self.spent[*at].1)
                {
                    self.spent.swap_remove(least);
                }
                self.spent.push((user, whole_at));
            }
        }
        true
    }

    /// What the user has just spent has taken this long, which counts as well: on a slow machine it may take longer
    /// than the interval.
    pub(crate) fn charge(&mut self, user: u32, taken: Duration) {
        if let Some((_, whole_at)) = self.spent.iter_mut().find(|(of, _)| *of == user) {
            *whole_at += taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 * (100 + seconds))
    }

    #[test]
    fn a_user_has_a_burst_and_then_one_in_each_interval() {
        let mut budget = Budget::new(3, SECOND);
        let granted = |budget: &mut Budget, user, now| (0..10).filter(|_| budget.spend(user, now)).count();
        assert_eq!(granted(&mut budget, 1, at(0)), 3);
        assert_eq!(granted(&mut budget, 1, at(0)), 0);
        // Another user's is its own.
        assert_eq!(granted(&mut budget, 2, at(0)), 3);
        assert_eq!(granted(&mut budget, 1, at(1)), 1);
        assert_eq!(granted(&mut budget, 1, at(3)), 2);
        assert_eq!(granted(&mut budget, 1, at(100)), 3);
        // What takes long counts for more.
        budget.charge(1, 4 * SECOND);
        assert_eq!(granted(&mut budget, 1, at(104)), 0);
        assert_eq!(granted(&mut budget, 1, at(105)), 1);
    }

    #[test]
    fn users_without_end_take_no_memory_and_those_who_have_spent_most_are_remembered() {
        let mut budget = Budget::new(4, SECOND);
        (0..4).for_each(|_| assert!(budget.spend(7, at(0))));
        for user in 1_000..5_000 {
            assert!(budget.spend(user, at(0)));
        }
        assert_eq!(budget.spent.len(), USERS_MAX);
        assert!(!budget.spend(7, at(0)));
    }
}
