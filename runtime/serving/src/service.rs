//! The services of workers: made for each worker, and control's ends of them.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use twinpath_hold::KernelSockets;
use twinpath_host::StartError;
use twinpath_plan::ServicePlan;
use twinpath_serve::{
    Demux, HandlerPool, KernelSide, Limits, Prototype, Routes, ServeConfig, ServeCounters, Share, Slot,
};
use twinpath_service::ServiceCounters;
use twinpath_sys::tcp_listener::Group;

/// Control's end of one service on one worker.
pub struct ServiceHandle {
    /// Its slot in the worker's demultiplexer.
    pub slot: usize,
    /// Its name in reports.
    pub name: String,
    /// The worker's counters for it.
    pub serve: Arc<ServeCounters>,
    /// What the service counts by itself.
    pub service: Option<Arc<ServiceCounters>>,
    /// How many threads its pool has, if it has one.
    pub(crate) slow: Option<Arc<AtomicU32>>,
}

impl ServiceHandle {
    /// Threads for work that may block.
    #[must_use]
    pub fn slow_threads(&self) -> u64 {
        self.slow.as_ref().map_or(0, |threads| threads.load(Ordering::Relaxed).into())
    }
}

/// A service for one worker.
pub struct NewService {
    pub(crate) service: Slot,
    pub(crate) handle: ServiceHandle,
}

impl NewService {
    pub(crate) fn new(slot: usize, name: &str, prototype: &dyn Prototype, config: ServeConfig) -> Self {
        let slow = config.kernel.handlers.as_ref().map(HandlerPool::threads);
        let (service, counted) = prototype.slot(config);
        let serve = Arc::clone(service.counters());
        Self { service, handle: ServiceHandle { slot, name: name.to_owned(), serve, service: counted, slow } }
    }

    /// The service as its worker has it, and control's end of it.
    #[must_use]
    pub fn parts(self) -> (Slot, ServiceHandle) {
        (self.service, self.handle)
    }
}

/// The engine of a worker with those services, and control's ends of them.
pub(crate) fn engine_with(routes: Routes, services: Vec<NewService>) -> (Demux, Vec<ServiceHandle>) {
    let mut demux = Demux::new(routes);
    let mut handles = Vec::with_capacity(services.len());
    for new in services {
        let (service, handle) = new.parts();
        demux = demux.with(handle.slot, service);
        handles.push(handle);
    }
    (demux, handles)
}

/// What the workers of an instance have in common for each service that they are given.
pub struct ForWorkers<'a> {
    /// How many they are.
    pub count: usize,
    /// CPUs for them, in order; empty: not pinned.
    pub cpus: &'a [usize],
    /// Own addresses of the interface.
    pub addresses: Arc<[IpAddr]>,
    /// Whether the services leave what is in their sockets until they are told to begin.
    pub wait: bool,
}

impl ForWorkers<'_> {
    /// A service for each worker, in that slot, with these sockets.
    ///
    /// # Errors
    /// There is no descriptor left for the handler pool of one.
    pub fn service(
        &self,
        plan: &ServicePlan,
        slot: usize,
        service: &dyn Prototype,
        sockets: KernelSockets,
    ) -> Result<Vec<NewService>, StartError> {
        let KernelSockets { udp, listeners } = sockets;
        let served = Arc::new(plan.served());
        let share = Arc::new(Share::new(plan.tcp_limits, self.count as u32));
        let mut new = Vec::with_capacity(self.count);
        let shared_out = share_out(listeners, self.count);
        let accepting = shared_out.iter().filter(|listeners| !listeners.is_empty()).count().max(1) as u32;
        for (number, listeners) in shared_out.into_iter().enumerate() {
            let cpu = cpu_of(self.cpus, number);
            let handlers = service.defers().then(|| HandlerPool::new(plan.pool, cpu)).transpose();
            let kernel = KernelSide {
                udp: Arc::clone(&udp),
                receives: number == 0,
                listeners,
                connections: part_of(plan.tcp_limits.connections, accepting, number as u32),
                handlers: handlers.map_err(|source| StartError::Descriptors { worker: number, source })?,
                share: Arc::clone(&share),
                waits: self.wait,
            };
            let config = ServeConfig {
                served: Arc::clone(&served),
                addresses: Arc::clone(&self.addresses),
                reply_rate: plan.reply_rate,
                kernel,
            };
            new.push(NewService::new(slot, &plan.name, service, config));
        }
        Ok(new)
    }
}

/// The CPU for the worker of that number; `None`: it is not pinned.
#[must_use]
pub fn cpu_of(cpus: &[usize], worker: usize) -> Option<usize> {
    (!cpus.is_empty()).then(|| cpus[worker % cpus.len()])
}

/// The limits of a service for each of so many workers.
#[must_use]
pub fn limits_for(plan: &ServicePlan, service: &dyn Prototype, count: u32) -> Vec<Limits> {
    let share = Arc::new(Share::new(plan.tcp_limits, count));
    let of = |number| {
        let connections = part_of(plan.tcp_limits.connections, count, number);
        Limits::new(service.may_loop(), Arc::clone(&share), connections, plan.reply_rate)
    };
    (0..count).map(of).collect()
}

/// Gives each worker a listener of each group. A worker fewer than was asked for has the listeners of those that are not there.
fn share_out(groups: Vec<(Option<IpAddr>, u16, Group)>, workers: usize) -> Vec<Vec<OwnedFd>> {
    let mut shares: Vec<_> = (0..workers).map(|_| Vec::new()).collect();
    for (_, _, Group { listeners, .. }) in groups {
        listeners.into_iter().enumerate().for_each(|(at, listener)| shares[at % workers].push(listener));
    }
    shares
}

/// The part of `connections` that the worker of that number has, of so many that accept: one at least.
pub(crate) fn part_of(connections: u32, workers: u32, number: u32) -> u32 {
    (connections / workers + u32::from(number < connections % workers)).max(1)
}
