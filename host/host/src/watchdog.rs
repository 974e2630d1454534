//! The service manager's watchdog (`WatchdogSec` of systemd.service(5)): the manager is told that an
//! instance is alive only while every worker is.
//!
//! A worker is alive if it has turned or gone to sleep since the last check. If it has not, it may sleep with
//! nothing to do, or be stuck: it is woken by an empty message. If it still has not turned at the next check,
//! the manager is not notified again until it has. Without a watchdog there are no checks.

use twinpath_sys::clock;
use twinpath_sys::event_loop::sleep_until;
use twinpath_time::{Duration, Instant};

use crate::notify;

/// Checks within the manager's time limit: one to notice that a worker has not turned, another to find that
/// it is stuck.
const LOOKS: u32 = 4;

/// When the next check is due, and the state of the workers at the last one.
pub(crate) struct Watchdog {
    interval: Option<Duration>,
    due: Instant,
    seen: Vec<Seen>,
}

/// The state of a worker at the last check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    turns: u64,
    /// Whether it was woken by a message, because it had not turned.
    asked: bool,
}

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerState {
    /// It has turned.
    Alive,
    /// It has not turned, and is woken by a message.
    Ask,
    /// It was woken, and has not turned since.
    Stuck,
}

impl Seen {
    fn look(&mut self, turns: u64) -> WorkerState {
        let found = match (turns == self.turns, self.asked) {
            (false, _) => WorkerState::Alive,
            (true, false) => WorkerState::Ask,
            (true, true) => WorkerState::Stuck,
        };
        *self = Self { turns, asked: found != WorkerState::Alive };
        found
    }
}

impl Watchdog {
    /// A watchdog with the service manager's parameters (sd_watchdog_enabled(3)).
    pub(crate) fn of_the_service_manager() -> Self {
        let interval = sd_notify::watchdog_enabled().map(|after| after / LOOKS);
        Self { interval, due: clock::now(), seen: Vec::new() }
    }

    /// No watchdog.
    pub(crate) fn nobodys() -> Self {
        Self { interval: None, due: clock::now(), seen: Vec::new() }
    }

    /// Waits for the next check; for ever without a watchdog.
    pub(crate) async fn is_due(&self) {
        match self.interval {
            Some(_) => sleep_until(self.due).await,
            None => std::future::pending().await,
        }
    }

    /// Checks the workers by their numbers of turns, and notifies the service manager if all are alive. Returns
    /// the numbers of the workers to be woken.
    pub(crate) fn feed(&mut self, turns: impl Iterator<Item = u64>) -> Vec<usize> {
        let found = self.look(turns);
        if !found.contains(&WorkerState::Stuck) {
            notify::alive();
        }
        let asked = found.iter().enumerate().filter(|(_, found)| **found == WorkerState::Ask);
        asked.map(|(number, _)| number).collect()
    }

    /// The state of each worker, by its number of turns. The next check is due an interval later.
    fn look(&mut self, turns: impl Iterator<Item = u64>) -> Vec<WorkerState> {
        self.due = clock::now() + self.interval.unwrap_or_default();
        let turns: Vec<_> = turns.collect();
        self.seen.resize(turns.len(), Seen::default());
        self.seen.iter_mut().zip(turns).map(|(seen, turns)| seen.look(turns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_does_not_turn_although_it_was_asked_is_stuck() {
        let mut seen = Seen::default();
        assert_eq!((seen.look(5), seen.look(9)), (WorkerState::Alive, WorkerState::Alive));
        assert_eq!(seen.look(9), WorkerState::Ask);
        assert_eq!(seen.look(10), WorkerState::Alive, "it was asleep");
        assert_eq!(
            (seen.look(10), seen.look(10), seen.look(10)),
            (WorkerState::Ask, WorkerState::Stuck, WorkerState::Stuck)
        );
        assert_eq!(seen.look(11), WorkerState::Alive, "it goes on");
    }
}
