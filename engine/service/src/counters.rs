//! What a service counts by itself.

use std::sync::Mutex;

use twinpath_inspect::{Counter, Drops, Reason};

/// Counters of one clone of a service: its worker writes them, whoever asks reads them.
#[derive(Debug, Default)]
pub struct ServiceCounters {
    /// Requests answered, by whichever transport; refusals are answers too, and so is what is handed over to be answered later.
    pub answered: Counter,
    /// Of those: answered again, with a reply that had been kept.
    pub repeated: Counter,
    /// Kept replies that made room for others before their age.
    pub forgotten: Counter,
    /// Of those answered: told that they were refused, by reason.
    pub refused: Drops,
    /// UDP peers that have a session.
    pub sessions: Counter,
    /// Sessions made so far.
    pub sessions_opened: Counter,
    /// Of those, ended for their age.
    pub sessions_aged: Counter,
    /// Of those, ended to make room for others.
    pub sessions_displaced: Counter,
    /// As `refused`, of those answered later by other threads: [`Self::refuse_later`].
    pub refused_later: Drops,
    /// As `forgotten`, for replies kept by other threads: [`Self::forget_later`].
    pub forgotten_later: Counter,
    /// Whoever has it writes `refused_later` and `forgotten_later`.
    writer: Mutex<()>,
}

impl ServiceCounters {
    /// Counts a refusal by a thread other than the worker. It may wait for another such thread.
    pub fn refuse_later(&self, reason: Reason) {
        let _writing = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.refused_later.add(reason, 1);
    }

    /// Counts a kept reply that made room, by a thread other than the worker. It may wait for another such thread.
    pub fn forget_later(&self) {
        let _writing = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.forgotten_later.add(1);
    }

    /// Kept replies that made room for others before their age, by whichever thread.
    #[must_use]
    pub fn forgotten_in_all(&self) -> u64 {
        self.forgotten.get() + self.forgotten_later.get()
    }

    /// Requests refused so far, by reason and by whichever thread.
    pub fn refusals(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        let both = |reason| (reason, self.refused.get(reason) + self.refused_later.get(reason));
        Reason::ALL.into_iter().map(both).filter(|(_, count)| *count > 0)
    }
}
