//! Whether a worker is stuck: it does not take what waits for it. How that is found differs by program; what control
//! remembers of it does not.

use twinpath_time::{Duration, Instant};

/// A worker that is stuck.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    /// Since when something has waited for it.
    since: Instant,
    /// Frames that it had dropped for this reason before.
    dropped_before: u64,
}

/// What is remembered of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StuckState {
    now: Option<Stuck>,
    /// How often it was found stuck.
    times: u64,
}

/// A worker was found stuck, or is not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StuckChange {
    /// It is, and something has waited for it for this long.
    Begun {
        /// The time.
        waited: Duration,
    },
    /// It moves on.
    Over {
        /// The time since something had begun to wait.
        after: Duration,
        /// Frames that it has dropped meanwhile, as they had waited for too long.
        dropped: u64,
    },
}

impl StuckState {
    /// Since when something has waited for it, if it is stuck.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.now.map(|stuck| stuck.since)
    }

    pub(crate) const fn times(&self) -> u64 {
        self.times
    }

    /// Something has waited since `since` for too long, or nothing has. `dropped`: frames that it has dropped so far, as it was
    /// stuck.
    pub(crate) fn look(&mut self, since: Option<Instant>, dropped: u64, now: Instant) -> Option<StuckChange> {
        match (self.now, since) {
            (None, Some(since)) => {
                self.now = Some(Stuck { since, dropped_before: dropped });
                self.times += 1;
                Some(StuckChange::Begun { waited: now.since(since) })
            }
            (Some(stuck), None) => {
                self.now = None;
                let dropped = dropped - stuck.dropped_before;
                Some(StuckChange::Over { after: now.since(stuck.since), dropped })
            }
            (None, None) | (Some(_), Some(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_with_what_was_dropped_meanwhile() {
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let mut state = StuckState::default();
        assert_eq!(state.look(None, 3, at(10)), None);
        let begun = StuckChange::Begun { waited: Duration::from_millis(15) };
        assert_eq!(state.look(Some(at(5)), 3, at(20)), Some(begun));
        assert_eq!((state.look(Some(at(5)), 7, at(30)), state.since()), (None, Some(at(5))));
        let over = StuckChange::Over { after: Duration::from_millis(35), dropped: 6 };
        assert_eq!((state.look(None, 9, at(40)), state.since()), (Some(over), None));
        assert_eq!((state.look(None, 9, at(50)), state.times()), (None, 1));
    }
}
