//! Stuck workers, and the stand-in that serves in their place.
//!
//! The programs in the kernel find a stuck worker (`stack/bpf/bpf/maps.h`): they stop claiming for it, and
//! report that once. From then on its frames reach the kernel's sockets. One additional worker, the stand-in,
//! has descriptors of all these sockets and sleeps. While a worker is stuck, the stand-in serves them beside
//! the other workers, and accepts connections that wait. Control checks at intervals only while a worker is
//! stuck.

use std::sync::Arc;

use twinpath_host::{StartError, readable_copy};
use twinpath_lifecycle::Event;
use twinpath_serve::Prototype;
use twinpath_sys::clock;
use twinpath_time::Duration;

use super::Instance;
use crate::serving::{StandIn, WorkerHandle};

/// How long to wait for a stand-in to end. Control does nothing else meanwhile, and others serve.
const END_PATIENCE: Duration = Duration::from_millis(900);

impl Instance {
    /// Makes a stand-in for the services of the plan; `None` if stuck workers are not detected.
    pub(super) fn new_stand_in(
        &self,
        services: &[Box<dyn Prototype>],
    ) -> Result<Option<StandIn>, StartError> {
        if self.plan.fail_open.is_zero() {
            return Ok(None);
        }
        let all = self.plan.services.iter().zip(&self.held).zip(services);
        let all = all.map(|((plan, held), service)| (plan, held, &**service));
        let addresses = Arc::from(self.addresses());
        StandIn::start(self.workers.len(), all, &addresses, self.routes()).map(Some)
    }

    /// The plan has changed: replaces the stand-in. Connections that the former one had accepted end.
    pub(super) fn renew_stand_in(&mut self, services: &[Box<dyn Prototype>]) {
        if let Some(StandIn { worker, .. }) = self.stand_in.take() {
            // An error has been logged already.
            let _ = worker.stop(END_PATIENCE);
        }
        self.stand_in = self.new_stand_in(services).unwrap_or_else(|error| {
            tracing::error!("nobody serves in place of a worker that is stuck: {error}");
            None
        });
    }
}

impl Instance {
    /// All workers, and the stand-in.
    pub(super) fn everyone(&self) -> impl Iterator<Item = &WorkerHandle> {
        self.workers.iter().chain(self.stand_in.iter().map(|stand_in| &stand_in.worker))
    }

    /// All workers, and the stand-in, mutable.
    pub(super) fn everyone_mut(&mut self) -> impl Iterator<Item = &mut WorkerHandle> {
        self.workers.iter_mut().chain(self.stand_in.iter_mut().map(|stand_in| &mut stand_in.worker))
    }

    /// Ends the stand-in if it has nothing to do, so that its listeners close before a client hears that they
    /// are closed.
    pub(super) fn dismiss_stand_in(&mut self) {
        if let Some(StandIn { worker, .. }) = self.stand_in.take_if(|stand_in| stand_in.is_idle()) {
            let _ = worker.stop(END_PATIENCE);
        }
    }

    /// Called when a fast path has been attached: waits for reports of stuck workers, and checks those found
    /// before.
    pub(super) fn watch_workers(&mut self) {
        let said =
            self.interface.attachment.as_ref().and_then(|it| it.stuck()).map(readable_copy).transpose();
        self.interface.stuck_said = said.unwrap_or_else(|error| {
            tracing::warn!("nobody serves in place of a worker that is stuck: {error}");
            None
        });
        self.stand_in.iter_mut().for_each(StandIn::look_soon);
    }

    /// Checks which workers are stuck, and lets the stand-in serve while one is.
    pub(super) fn look_at_stuck(&mut self) {
        self.take_events();
        let now = clock::now();
        if let Some(attachment) = &mut self.interface.attachment {
            attachment.read_stuck();
        }
        let attachment = self.interface.attachment.as_ref();
        for worker in &mut self.workers {
            worker.unserved = worker.unserved.filter(|unserved| unserved.is_stuck(&worker.counters));
            let queues = worker.queues().iter();
            let by_claims = queues.filter_map(|queue| attachment?.stuck_since(queue.id)).min();
            let by_sockets = worker.unserved.map(|unserved| unserved.since);
            worker.look_at_stuck(by_claims.or(by_sockets), by_claims.is_some(), now);
        }
        let is_stuck = self.workers.iter().any(|worker| worker.is_stuck());
        self.events.push_back(Event::Stuck(is_stuck));
        self.stand_in.iter_mut().for_each(StandIn::look_later);
    }
}
