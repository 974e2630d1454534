//! The service manager's watchdog (`WatchdogSec` of systemd.service(5)): it is told that an instance lives only while every worker does.
//!
//! A worker that has turned or gone to sleep since the last look is alive. One that has done neither may be asleep with nothing to do,
//! or stuck: it is sent a message that asks for nothing, which wakes it, and if it has not turned by the next look, the manager is told
//! nothing more until it has. Without a watchdog nobody looks.

use tokio::time::Instant;
use twinpath_time::Duration;
use twinpath_worker::WorkerCounters;

use crate::notify;

/// Looks within the time after which the manager gives an instance up: one to miss a worker, one to find that it is stuck.
const LOOKS: u32 = 4;

/// When to look, and what was seen last.
pub(crate) struct Watchdog {
    interval: Option<Duration>,
    due: Instant,
    seen: Vec<Seen>,
}

/// A worker, as it was seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    turns: u64,
    /// It was sent a message, as it had not turned.
    asked: bool,
}

/// What is found of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerState {
    /// It has turned.
    Alive,
    /// It has not, and is to be asked.
    Ask,
    /// It was asked, and has not turned since.
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
    /// As the service manager wants it (sd_watchdog_enabled(3)).
    pub(crate) fn of_the_service_manager() -> Self {
        let interval = sd_notify::watchdog_enabled().map(|after| after / LOOKS);
        Self { interval, due: Instant::now(), seen: Vec::new() }
    }

    /// Waits until it is time to look; for ever without a watchdog.
    pub(crate) async fn is_due(&self) {
        match self.interval {
            Some(_) => tokio::time::sleep_until(self.due).await,
            None => std::future::pending().await,
        }
    }

    /// Tells the service manager that all is well, if it is, given what each worker counts. Returns the numbers of the workers that are to be sent
    /// a message.
    pub(crate) fn feed<'a>(&mut self, workers: impl Iterator<Item = &'a WorkerCounters>) -> Vec<usize> {
        let found = self.look(workers);
        if !found.contains(&WorkerState::Stuck) {
            notify::alive();
        }
        let asked = found.iter().enumerate().filter(|(_, found)| **found == WorkerState::Ask);
        asked.map(|(number, _)| number).collect()
    }

    /// What is found of each worker, given what it counts; the next look is due an interval later.
    fn look<'a>(&mut self, workers: impl Iterator<Item = &'a WorkerCounters>) -> Vec<WorkerState> {
        self.due = Instant::now() + self.interval.unwrap_or_default();
        let turns = workers.map(WorkerCounters::turns);
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
