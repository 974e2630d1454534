//! Workers that leave what waits in the kernel's sockets: found by `runtime/stuck`, woken here, and replaced by the stand-in.

use std::sync::Arc;

use twinpath_stuck::{Found, Watched};

use super::Instance;

impl Instance {
    /// Watches the sockets as they are now, if they are this instance's to serve.
    pub(super) fn watch_sockets(&mut self) {
        self.unserved = None;
        if self.plan.fail_open.is_zero() || self.standing_by.is_some() || self.drain.is_some() {
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

    /// Does what follows from what was found of workers.
    pub(super) fn unserved(&mut self, found: Found) {
        match found {
            Found::Late(workers) => {
                for worker in workers {
                    if let Some(worker) = self.workers.get_mut(worker) {
                        worker.wake();
                    }
                }
            }
            Found::Stuck(found) => {
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
