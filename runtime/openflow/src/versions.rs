//! Versions of the tables on their way to workers: one at most.

use twinpath_time::{Duration, Instant};

/// A worker that has not taken a version for so long is reported: it takes one between two frames.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// While a controller sends one change after the other, and none waits for them, changes wait for so long at most: what
/// many of them change together is copied once, and not once per version.
const COLLECTED_FOR: Duration = Duration::from_millis(20);

/// Which version each worker judges by.
#[derive(Debug)]
pub(crate) struct Versions {
    adopted: Vec<u64>,
    /// The last one that workers were told of.
    told: u64,
    since: Instant,
    /// Its lateness was reported.
    is_said: bool,
    /// Since when there are changes that workers were not told of, as far as more are expected.
    collected_since: Option<Instant>,
}

impl Versions {
    /// All workers judge by version 0.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            adopted: vec![0; workers],
            told: 0,
            since: Instant::ZERO,
            is_said: false,
            collected_since: None,
        }
    }

    /// The last one that workers were told of.
    pub(crate) const fn told(&self) -> u64 {
        self.told
    }

    /// Whether every worker has that one.
    pub(crate) fn is_settled(&self) -> bool {
        self.adopted.iter().all(|adopted| *adopted >= self.told)
    }

    /// Workers are told of another one.
    pub(crate) const fn tell(&mut self, version: u64, now: Instant) {
        (self.told, self.since, self.is_said) = (version, now, false);
        self.collected_since = None;
    }

    /// Whether changes should wait, as more of them are coming and nobody waits for them.
    pub(crate) fn collects(&mut self, now: Instant) -> bool {
        now < *self.collected_since.get_or_insert(now) + COLLECTED_FOR
    }

    /// A worker judges by that one. Whether every worker now has the last one.
    pub(crate) fn adopted(&mut self, worker: usize, version: u64) -> bool {
        if let Some(adopted) = self.adopted.get_mut(worker) {
            *adopted = version;
        }
        self.is_settled()
    }

    /// Whether that worker is late.
    pub(crate) fn is_late(&self, worker: usize, now: Instant) -> bool {
        let has_it = self.adopted.get(worker).is_none_or(|adopted| *adopted >= self.told);
        !has_it && now >= self.since + LATE_AFTER
    }

    /// The workers that are late, and since when they were told.
    pub(crate) fn late(&self, now: Instant) -> (Vec<usize>, Instant) {
        ((0..self.adopted.len()).filter(|worker| self.is_late(*worker, now)).collect(), self.since)
    }

    /// When lateness has to be reported.
    pub(crate) fn deadline(&self) -> Instant {
        if self.is_said || self.is_settled() { Instant::NEVER } else { self.since + LATE_AFTER }
    }

    /// The workers to report as late, once for each version.
    pub(crate) fn take_late(&mut self, now: Instant) -> Vec<usize> {
        if now < self.deadline() {
            return Vec::new();
        }
        self.is_said = true;
        self.late(now).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1 << 40);

    #[test]
    fn a_version_is_settled_when_the_last_worker_has_it_and_late_workers_are_said_once() {
        let mut versions = Versions::new(2);
        assert!(versions.is_settled() && versions.deadline() == Instant::NEVER);
        versions.tell(1, NOW);
        assert!(!versions.adopted(1, 1));
        assert_eq!(versions.deadline(), NOW + LATE_AFTER);
        assert_eq!(versions.take_late(NOW), [] as [usize; 0]);
        assert_eq!(versions.take_late(NOW + LATE_AFTER), [0]);
        assert_eq!(versions.deadline(), Instant::NEVER);
        assert_eq!(versions.late(NOW + LATE_AFTER).0, [0], "it still is");
        assert!(versions.adopted(0, 1) && versions.is_settled());
        versions.tell(2, NOW);
        assert_eq!(versions.deadline(), NOW + LATE_AFTER);
    }

    #[test]
    fn changes_wait_for_more_of_them_but_not_for_long() {
        let mut versions = Versions::new(1);
        assert!(versions.collects(NOW) && versions.collects(NOW + COLLECTED_FOR / 2));
        assert!(!versions.collects(NOW + COLLECTED_FOR));
        versions.tell(1, NOW + COLLECTED_FOR);
        assert!(versions.collects(NOW + COLLECTED_FOR), "later ones wait again");
    }
}
