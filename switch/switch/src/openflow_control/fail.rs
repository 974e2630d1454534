//! What decides where frames go while no controller is connected (OpenFlow 1.3.5, 6.3.2).

use crate::engine::Forwarding;
use twinpath_config::FailMode;
use twinpath_time::{Duration, Instant};

/// How long a switch that may work without controllers waits for one, at its start and when the last one is lost.
const STANDALONE_AFTER: Duration = Duration::from_secs(5);

/// Whether controllers are there, and what follows.
#[derive(Debug)]
pub(crate) struct Fail {
    mode: FailMode,
    /// Since when no controller is connected.
    alone_since: Option<Instant>,
    forwarding: Forwarding,
}

impl Fail {
    /// At the start no controller is connected.
    pub(crate) const fn new(mode: FailMode, now: Instant) -> Self {
        Self { mode, alone_since: Some(now), forwarding: Forwarding::Tables }
    }

    pub(crate) const fn mode(&self) -> FailMode {
        self.mode
    }

    pub(crate) const fn set_mode(&mut self, mode: FailMode) {
        self.mode = mode;
    }

    /// What decides where frames go.
    pub(crate) const fn forwarding(&self) -> Forwarding {
        self.forwarding
    }

    /// When [`Self::follow`] has something to do, although controllers neither come nor go.
    pub(crate) fn deadline(&self) -> Instant {
        let may = self.mode == FailMode::Standalone && self.forwarding == Forwarding::Tables;
        self.alone_since.filter(|_| may).map_or(Instant::NEVER, |since| since + STANDALONE_AFTER)
    }

    /// What is to decide from now on, if that is another.
    pub(crate) fn follow(&mut self, now: Instant, has_controller: bool) -> Option<Forwarding> {
        self.alone_since = if has_controller { None } else { self.alone_since.or(Some(now)) };
        let is_alone = self.alone_since.is_some_and(|since| now >= since + STANDALONE_AFTER);
        let wanted = match self.mode {
            FailMode::Standalone if is_alone => Forwarding::Learning,
            FailMode::Standalone | FailMode::Secure => Forwarding::Tables,
        };
        let former = std::mem::replace(&mut self.forwarding, wanted);
        (former != wanted).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1 << 40);

    #[test]
    fn addresses_decide_once_no_controller_was_there_for_a_while_and_only_if_that_is_wanted() {
        let mut fail = Fail::new(FailMode::Standalone, START);
        assert_eq!(fail.deadline(), START + STANDALONE_AFTER);
        assert_eq!(fail.follow(START, false), None);
        let late = START + STANDALONE_AFTER;
        assert_eq!(fail.follow(late, false), Some(Forwarding::Learning));
        assert_eq!(fail.deadline(), Instant::NEVER);
        assert_eq!(fail.follow(late, true), Some(Forwarding::Tables));
        assert_eq!(fail.deadline(), Instant::NEVER);
        assert_eq!(fail.follow(late, false), None);
        assert_eq!(fail.deadline(), late + STANDALONE_AFTER);
        assert_eq!(fail.follow(late + STANDALONE_AFTER, false), Some(Forwarding::Learning));
        fail.set_mode(FailMode::Secure);
        assert_eq!(fail.follow(late + STANDALONE_AFTER, false), Some(Forwarding::Tables));
        assert_eq!(fail.deadline(), Instant::NEVER);
    }
}
