//! Handles workers that leave requests waiting in the kernel's sockets: `service/instance/src/stuck`
//! detects them, and the stand-in replaces them.

use std::sync::Arc;

use super::Instance;
use crate::stuck::{WatchEvent, Watched};

impl Instance {
    /// Watches the sockets of the workers, if this instance is the one that serves them.
    pub(super) fn watch_sockets(&mut self) {
        self.unserved = None;
        if self.plan.fail_open.is_zero() || self.lifecycle.standby().is_some() || self.lifecycle.is_draining()
        {
            return;
        }
        let workers = self.workers.iter().map(|worker| Arc::clone(&worker.counters));
        let watched = Watched::begin(&self.held, workers, self.plan.fail_open, self.tell.clone());
        self.unserved = watched.map_or_else(
            |error| {
                tracing::warn!("a worker that is stuck is found by claimed frames only: {error}");
                None
            },
            Some,
        );
    }

    /// Handles workers that leave requests waiting: wakes those that are late, and replaces those that are
    /// stuck.
    pub(super) fn unserved(&mut self, found: WatchEvent) {
        match found {
            WatchEvent::Late(workers) => {
                for worker in workers {
                    if let Some(worker) = self.workers.get_mut(worker) {
                        worker.wake();
                    }
                }
            }
            WatchEvent::Stuck(found) => {
                for unserved in found {
                    if let Some(worker) = self.workers.get_mut(unserved.worker) {
                        worker.unserved = Some(unserved);
                    }
                }
                self.look_at_stuck();
            }
        }
    }
}
