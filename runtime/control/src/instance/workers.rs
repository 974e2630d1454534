//! The workers of an instance: started here, told here, asked here.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use twinpath_host::{StartError, WorkerPlan, rows};
use twinpath_inspect::{Counter, Reason};
use twinpath_report as report;
use twinpath_serve::{
    Demux, DemuxCommand, HandlerPool, Prototype, Routes, ServeCommand, ServeConfig, ServeCounters, Slot,
};
use twinpath_service::ServiceCounters;
use twinpath_sys::clock;
use twinpath_worker::Command;
use twinpath_worker::idle::IdleConfig;
use twinpath_worker::place::Placement;

use super::stand_in::Stuck;
use super::unserved::Unserved;

/// Messages between control and one worker, each way. Control answers each question of a worker with one update, and a
/// worker asks about at most 4096 peers per ten seconds. What does not fit waits: on control's side with
/// its handle, on the worker's in room that only events that must arrive may use.
const MAILBOX_LEN: u32 = 1024;

/// Control's end of one service on one worker.
pub(super) struct ServiceHandle {
    /// What the worker knows it by.
    pub(super) slot: usize,
    /// What people know it by.
    pub(super) name: String,
    pub(super) serve: Arc<ServeCounters>,
    /// What the service counts by itself.
    pub(super) service: Option<Arc<ServiceCounters>>,
    /// How many threads its pool has, if it has one.
    slow: Option<Arc<AtomicU32>>,
}

impl ServiceHandle {
    /// Threads for work that may block.
    pub(super) fn slow_threads(&self) -> u64 {
        self.slow.as_ref().map_or(0, |threads| threads.load(Ordering::Relaxed).into())
    }
}

/// A service for one worker.
pub(super) struct NewService {
    service: Slot,
    handle: ServiceHandle,
}

impl NewService {
    pub(super) fn new(slot: usize, name: &str, prototype: &dyn Prototype, config: ServeConfig) -> Self {
        let slow = config.kernel.handlers.as_ref().map(HandlerPool::threads);
        let (service, counted) = prototype.slot(config);
        let serve = Arc::clone(service.counters());
        Self { service, handle: ServiceHandle { slot, name: name.to_owned(), serve, service: counted, slow } }
    }

    /// As its worker has it, and control's end of it.
    pub(super) fn parts(self) -> (Slot, ServiceHandle) {
        (self.service, self.handle)
    }
}

/// The engine of a worker with those services, and control's ends of them.
fn engine_with(routes: Routes, services: Vec<NewService>) -> (Demux, Vec<ServiceHandle>) {
    let mut demux = Demux::new(routes);
    let mut handles = Vec::with_capacity(services.len());
    for new in services {
        let (service, handle) = new.parts();
        demux = demux.with(handle.slot, service);
        handles.push(handle);
    }
    (demux, handles)
}

/// Control's end of one worker that serves.
pub(super) struct WorkerHandle {
    host: twinpath_host::WorkerHandle<Demux>,
    pub(super) services: Vec<ServiceHandle>,
    /// It is stuck.
    pub(super) stuck: Option<Stuck>,
    /// It was found to leave what waits in its sockets.
    pub(super) unserved: Option<Unserved>,
    pub(super) times_seen_stuck: u64,
}

impl Deref for WorkerHandle {
    type Target = twinpath_host::WorkerHandle<Demux>;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

impl DerefMut for WorkerHandle {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.host
    }
}

impl WorkerHandle {
    /// Starts worker `number` where `placement` says, with those services.
    pub(super) fn start(
        number: usize,
        placement: Placement,
        idle: IdleConfig,
        pool_frames: u32,
        routes: Routes,
        services: Vec<NewService>,
    ) -> Result<Self, StartError> {
        let (engine, services) = engine_with(routes, services);
        let plan = WorkerPlan { number, placement, idle, pool_frames, mailbox_len: MAILBOX_LEN };
        let host = twinpath_host::WorkerHandle::start(plan, engine)?;
        Ok(Self { host, services, stuck: None, unserved: None, times_seen_stuck: 0 })
    }

    /// Tells all its services.
    pub(super) fn tell_services(&mut self, command: ServeCommand) {
        self.tell(Command::Engine(DemuxCommand::Each(command)));
    }

    /// The service in that slot.
    pub(super) fn service(&self, slot: usize) -> Option<&ServiceHandle> {
        self.services.iter().find(|service| service.slot == slot)
    }

    /// How often something was dropped for a reason, by whichever service.
    pub(super) fn dropped(&self, reason: Reason) -> u64 {
        let own = self.services.iter().map(|service| service.serve.drops.get(reason)).sum::<u64>();
        own + self.counters.drops.get(reason)
    }

    /// Over all its services.
    fn sum(&self, count: fn(&ServeCounters) -> &Counter) -> u64 {
        self.services.iter().map(|service| count(&service.serve).get()).sum()
    }

    /// Ends it, waits for it, and closes what it leaves. One that is stuck is not waited for: it ends with the process.
    pub(super) fn stop(self) {
        if self.stuck.is_some() {
            tracing::error!("{} is stuck: it is left behind", self.name());
            return;
        }
        self.host.stop();
    }

    /// How often the kernel stopped claiming for it: what we saw or, if more, what one of its queues found when it moved on.
    fn times_stuck(&self) -> u64 {
        let found = self.queues().iter().map(|queue| queue.counters.times_stuck.get()).max();
        self.times_seen_stuck.max(found.unwrap_or(0))
    }

    /// What `show workers` says of it.
    pub(super) fn report(&self, request: report::LatencyRequest) -> report::Worker {
        report::Worker {
            stuck_ms: self.stuck.map(|stuck| clock::now().since(stuck.since).as_millis() as u64),
            times_stuck: self.times_stuck(),
            connections: self.sum(|serve| &serve.tcp.connections),
            kernel_requests: self.sum(|serve| &serve.kernel_requests),
            kernel_replies: self.sum(|serve| &serve.kernel_replies),
            ..self.host.report(request)
        }
    }

    /// Everything it and its ports dropped, by service where it has several.
    pub(super) fn drops(&self, interface: &str) -> Vec<report::Drop> {
        let mut drops = self.host.drops();
        for ServiceHandle { name, serve, service, .. } in &self.services {
            let place = match self.services.as_slice() {
                [_] => self.name(),
                _ => format!("{} {name}", self.name()),
            };
            let happened = serve.drops.happened().map(|(reason, count)| (reason.name(), count));
            let refusals = service.iter().flat_map(|service| service.refusals());
            let refusals = refusals.map(|(reason, count)| (reason.name(), count));
            let full = [("egress_table_full", serve.peers_overflow.get())];
            drops.extend(rows(&place, happened.chain(refusals).chain(full)));
        }
        drops.extend(self.drops_of_queues(|_| interface.to_owned()));
        drops
    }
}

#[cfg(test)]
mod tests;
