//! Versions of the tables on their way to workers: one at most to each.

use twinpath_time::{Duration, Instant};

/// A worker that has not taken a version after this time is late: usually it takes one between two frames.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// Maximum time that changes wait while a controller sends one after the other, and none waits for them. What many of
/// them change together is copied once, and not once per version.
const COLLECTED_FOR: Duration = Duration::from_millis(20);

/// Which version each worker judges by.
#[derive(Debug)]
pub(crate) struct Versions {
    workers: Vec<WorkerVersions>,
    /// The last one that was published.
    told: u64,
    /// Since when changes have been held back because more are expected.
    collected_since: Option<Instant>,
}

#[derive(Clone, Debug)]
struct WorkerVersions {
    adopted: u64,
    /// The last one that it was sent, and when.
    sent: u64,
    since: Instant,
    /// Its lateness was reported, and others go on without it.
    is_late: bool,
}

/// What follows for the others when a worker says that it judges by a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Adopted {
    /// It was late.
    pub(crate) was_late: bool,
    /// It is to be sent the last version: others have gone on without it.
    pub(crate) is_behind: bool,
}

impl Versions {
    /// All workers judge by version 0.
    pub(crate) fn new(workers: usize) -> Self {
        let worker = WorkerVersions { adopted: 0, sent: 0, since: Instant::ZERO, is_late: false };
        Self { workers: vec![worker; workers], told: 0, collected_since: None }
    }

    /// The last one that was published.
    pub(crate) const fn told(&self) -> u64 {
        self.told
    }

    /// The last one that every worker has, or a later one.
    pub(crate) fn oldest(&self) -> u64 {
        self.workers.iter().map(|worker| worker.adopted).min().unwrap_or(self.told)
    }

    /// Whether every worker that is not late has the last one: then there may be another.
    pub(crate) fn is_settled(&self) -> bool {
        self.workers.iter().all(|worker| worker.is_late || worker.adopted >= self.told)
    }

    /// There is another version. Returns the workers to send it to: one that is late has yet to take an earlier one.
    pub(crate) fn tell(&mut self, version: u64, now: Instant) -> Vec<usize> {
        (self.told, self.collected_since) = (version, None);
        let (all, mut to) = (0..self.workers.len(), Vec::new());
        to.extend(all.filter(|worker| !self.is_late(*worker)));
        to.iter().for_each(|worker| self.sent(*worker, now));
        to
    }

    /// Whether changes should wait, as more of them are coming and nobody waits for them.
    pub(crate) fn collects(&mut self, now: Instant) -> bool {
        now < *self.collected_since.get_or_insert(now) + COLLECTED_FOR
    }

    /// A worker was sent the last one.
    pub(crate) fn sent(&mut self, worker: usize, now: Instant) {
        if let Some(worker) = self.workers.get_mut(worker) {
            (worker.sent, worker.since) = (self.told, now);
        }
    }

    /// A worker judges by that one.
    pub(crate) fn adopted(&mut self, worker: usize, version: u64) -> Adopted {
        let Some(worker) = self.workers.get_mut(worker) else { return Adopted::default() };
        worker.adopted = version;
        let was_late = std::mem::take(&mut worker.is_late);
        Adopted { was_late, is_behind: worker.sent < self.told }
    }

    /// Whether that worker was reported as late.
    pub(crate) fn is_late(&self, worker: usize) -> bool {
        self.workers.get(worker).is_some_and(|worker| worker.is_late)
    }

    /// The workers that are late.
    pub(crate) fn late(&self) -> impl Iterator<Item = usize> {
        (0..self.workers.len()).filter(|worker| self.is_late(*worker))
    }

    /// When the next worker will be late.
    pub(crate) fn deadline(&self) -> Instant {
        let due =
            self.workers.iter().filter(|worker| worker.is_due()).map(|worker| worker.since + LATE_AFTER);
        due.min().unwrap_or(Instant::NEVER)
    }

    /// The workers that have become late, once each until they take a version.
    pub(crate) fn take_late(&mut self, now: Instant) -> Vec<usize> {
        let workers = self.workers.iter_mut().enumerate();
        let late = workers.filter(|(_, worker)| worker.is_due() && now >= worker.since + LATE_AFTER);
        late.map(|(number, worker)| {
            worker.is_late = true;
            number
        })
        .collect()
    }
}

impl WorkerVersions {
    /// Whether it has yet to take what it was sent, and may still do so in time.
    const fn is_due(&self) -> bool {
        !self.is_late && self.adopted < self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1 << 40);
    const LATE: Instant = Instant::from_nanos((1 << 40) + 1_000_000_000);

    #[test]
    fn a_version_is_settled_when_the_last_worker_has_it() {
        let mut versions = Versions::new(2);
        assert!(versions.is_settled() && versions.deadline() == Instant::NEVER);
        assert_eq!(versions.tell(1, NOW), [0, 1]);
        assert_eq!(versions.adopted(1, 1), Adopted::default());
        assert!(!versions.is_settled() && versions.oldest() == 0);
        assert_eq!(versions.deadline(), LATE);
        assert!(versions.take_late(NOW).is_empty());
        assert_eq!(versions.adopted(0, 1), Adopted::default());
        assert!(versions.is_settled() && versions.oldest() == 1 && versions.deadline() == Instant::NEVER);
    }

    #[test]
    fn the_others_go_on_without_a_late_worker_which_gets_the_last_version_when_it_is_back() {
        let mut versions = Versions::new(2);
        versions.tell(1, NOW);
        versions.adopted(1, 1);
        assert_eq!(versions.take_late(LATE), [0]);
        assert_eq!((versions.take_late(LATE), versions.deadline()), (vec![], Instant::NEVER), "said once");
        assert!(versions.is_settled() && versions.is_late(0) && versions.oldest() == 0);
        assert_eq!(versions.tell(2, LATE), [1], "it has one to take");
        assert_eq!(versions.adopted(1, 2), Adopted::default());
        assert!(versions.is_settled());
        assert_eq!(versions.adopted(0, 1), Adopted { was_late: true, is_behind: true });
        assert!(!versions.is_settled(), "the next one waits for it again");
        versions.sent(0, LATE);
        assert_eq!(versions.deadline(), LATE + LATE_AFTER);
        assert_eq!(versions.adopted(0, 2), Adopted::default());
        assert!(versions.is_settled() && versions.oldest() == 2 && versions.late().next().is_none());
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
