//! The counters that a service keeps itself.

use std::sync::Mutex;

use crate::own_metrics::OwnMetrics;
use crate::{Counter, Drops, Live, Reason, counters};

counters! {
    /// Counters of one clone of a service: only its worker writes them, and any thread may read them.
    pub struct ServiceCounters {
        /// What a service has counted of its sessions, in a report.
        #[derive(Copy, PartialEq, Eq)]
        SessionCounts {
            /// UDP peers with a session.
            sessions: Counter => gauge("twinpath_service_sessions");
            /// Sessions ended for their age.
            sessions_aged: Counter => counter("twinpath_service_sessions_aged");
            /// Sessions ended to make room for others.
            sessions_displaced: Counter => counter("twinpath_service_sessions_displaced");
        }
        /// What a service has counted of its requests, over all transports, in a report.
        #[derive(Copy, PartialEq, Eq)]
        RequestCounts {
            /// Answered. Refusals are answers too, and so is work handed over for a later reply.
            answered: Counter;
            /// The answered requests that were refused, with the reason in the reply.
            refused: Drops;
            /// The answered requests whose reply was a kept one, sent again.
            repeated: Counter;
            /// Kept replies to calls that must run once, displaced before their age.
            forgotten: Counter => counter("twinpath_service_replies_forgotten");
        }
    } and {
        /// Sessions opened so far.
        pub sessions_opened: Counter,
        /// Like `refused`, for requests answered later by other threads: [`Self::refuse_later`].
        pub refused_later: Drops,
        /// Like `forgotten`, for replies kept by other threads: [`Self::forget_later`].
        pub forgotten_later: Counter,
        /// What the service defines itself.
        pub own: OwnMetrics,
        /// The same metrics, for what other threads count: [`Self::count_later`].
        pub own_later: OwnMetrics,
        /// Its holder may write `refused_later`, `forgotten_later` and `own_later`.
        writer: Mutex<()>,
    }
}

impl ServiceCounters {
    /// Counts a refusal by a thread other than the worker. The call may wait for another such thread.
    pub fn refuse_later(&self, reason: Reason) {
        let _writing = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.refused_later.add(reason, 1);
    }

    /// Counts a dropped reply by a thread other than the worker. The call may wait for another such thread.
    pub fn forget_later(&self) {
        let _writing = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.forgotten_later.add(1);
    }

    /// Counts metrics of the service by a thread other than the worker. The call may wait for another such thread.
    pub fn count_later(&self, count: impl FnOnce(&OwnMetrics)) {
        let _writing = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        count(&self.own_later);
    }

    /// What was counted of requests, by all threads.
    #[must_use]
    pub fn requests(&self) -> RequestCounts {
        let by_worker = RequestCounts::from(self);
        RequestCounts {
            refused: by_worker.refused + Live::read(&self.refused_later),
            forgotten: self.forgotten_in_all(),
            ..by_worker
        }
    }

    /// Kept replies dropped before their age, by all threads.
    #[must_use]
    pub fn forgotten_in_all(&self) -> u64 {
        self.forgotten.get() + self.forgotten_later.get()
    }

    /// Requests refused so far, by reason, by all threads.
    pub fn refusals(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        let both = |reason| (reason, self.refused.get(reason) + self.refused_later.get(reason));
        Reason::ALL.into_iter().map(both).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_worker_and_other_threads_count_is_added_up() {
        let counters = ServiceCounters::default();
        assert_eq!((counters.refusals().count(), counters.forgotten_in_all()), (0, 0));
        counters.refused.add(Reason::RpcAuth, 2);
        counters.refused.add(Reason::RpcFailed, 3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counters.refuse_later(Reason::RpcFailed);
                        counters.refuse_later(Reason::HandlerFailed);
                        counters.forget_later();
                    }
                });
            }
            counters.forgotten.add(5);
        });
        let mut refusals: Vec<_> = counters.refusals().collect();
        refusals.sort_by_key(|(_, count)| *count);
        let expected = [(Reason::RpcAuth, 2), (Reason::HandlerFailed, 400), (Reason::RpcFailed, 403)];
        assert_eq!((refusals.as_slice(), counters.forgotten_in_all()), (&expected[..], 405));
    }
}
