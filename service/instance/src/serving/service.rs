//! The services of workers: made for each worker, with the handles that control keeps.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use twinpath_claims::Answers;
use twinpath_host::StartError;
use twinpath_reflex::ports::ANSWERING_PORTS;
use twinpath_serve::fast_tcp::{FastTcpConfig, TcpClaims};
use twinpath_serve::{
    Demux, HandlerPool, KernelSide, Prototype, Routes, Sends, ServeConfig, ServeCounters, ServiceLimits,
    ServicePart, TcpTotals,
};
use twinpath_service::{Reflex, ServiceCounters};
use twinpath_sys::tcp_listener::Group;

use crate::hold::KernelSockets;
use crate::plan::ServicePlan;
use crate::serving::kept::{KeptPart, KeptStore};

/// Control's handle of one service on one worker.
pub struct ServiceHandle {
    /// Its part in the worker's demultiplexer.
    pub part: usize,
    /// Its name in reports.
    pub name: String,
    /// The worker's counters for it.
    pub serve: Arc<ServeCounters>,
    /// Counters of the service itself, if it has some.
    pub service: Option<Arc<ServiceCounters>>,
    /// Whether its replies could be answered again without end.
    pub(crate) may_loop: bool,
    /// The number of threads in its handler pool, if it has one.
    pub(crate) slow: Option<Arc<AtomicU32>>,
}

impl ServiceHandle {
    /// The number of threads in its handler pool.
    #[must_use]
    pub fn slow_threads(&self) -> u64 {
        self.slow.as_ref().map_or(0, |threads| threads.load(Ordering::Relaxed).into())
    }

    /// A sentence that names the source ports whose datagrams are not answered (stack/udp/src/admit.rs);
    /// empty: none. `any`: every port is to be answered.
    #[must_use]
    pub fn unanswered_ports(&self, any: bool) -> String {
        if any || !self.may_loop {
            return String::new();
        }
        let ports = ANSWERING_PORTS.map(|port| port.to_string()).join(", ");
        format!(
            "nothing that comes from port {ports} or the service's own is answered: what listens there could answer the reply, without \
             end (service_source_port in show drops; --any-source-port has it answered)"
        )
    }
}

/// A new service for one worker.
pub struct NewService {
    pub(crate) service: ServicePart,
    pub(crate) handle: ServiceHandle,
}

impl NewService {
    pub(crate) fn new(part: usize, name: &str, prototype: &dyn Prototype, config: ServeConfig) -> Self {
        let slow = config.kernel.handlers.as_ref().map(HandlerPool::threads);
        let (name, may_loop) = (name.to_owned(), prototype.may_loop());
        let (service, counted) = prototype.part(config);
        let serve = Arc::clone(service.counters());
        Self { service, handle: ServiceHandle { part, name, serve, service: counted, may_loop, slow } }
    }

    /// Splits it into the worker's part and control's handle.
    #[must_use]
    pub fn split(self) -> (ServicePart, ServiceHandle) {
        (self.service, self.handle)
    }
}

/// The engine of a worker with these services, and control's handles of them.
pub(crate) fn engine_with(
    routes: Routes,
    services: Vec<NewService>,
    claims: Option<Box<dyn TcpClaims>>,
) -> (Demux, Vec<ServiceHandle>) {
    let mut demux = Demux::new(routes).with_claims(claims);
    let mut handles = Vec::with_capacity(services.len());
    for new in services {
        let (service, handle) = new.split();
        demux = demux.with(handle.part, service);
        handles.push(handle);
    }
    (demux, handles)
}

/// Parameters that are the same for all services and workers of an instance.
pub struct ForWorkers<'a> {
    /// The number of workers.
    pub count: usize,
    /// The CPUs of the workers, in their order; empty: not pinned.
    pub cpus: &'a [usize],
    /// The addresses of the interface.
    pub addresses: Arc<[IpAddr]>,
    /// Whether the services leave the kernel's sockets alone until they get `Begin`.
    pub wait: bool,
    /// The memory for kept replies, if there is any.
    pub kept: Option<&'a KeptStore>,
}

impl ForWorkers<'_> {
    /// Makes a service for each worker, as that part, on these sockets.
    ///
    /// # Errors
    ///
    /// There is no descriptor left for a handler pool.
    pub fn service(
        &self,
        plan: &ServicePlan,
        part: usize,
        service: &dyn Prototype,
        sockets: KernelSockets,
    ) -> Result<Vec<NewService>, StartError> {
        let KernelSockets { udp, listeners } = sockets;
        let served = Arc::new(plan.served());
        let totals = Arc::new(TcpTotals::new(plan.tcp_limits, self.count as u32));
        let mut new = Vec::with_capacity(self.count);
        let kept = self.kept_part(plan, service);
        let shared_out = share_out(listeners, self.count);
        let accepting = shared_out.iter().filter(|listeners| !listeners.is_empty()).count().max(1) as u32;
        for (number, listeners) in shared_out.into_iter().enumerate() {
            let cpu = cpu_of(self.cpus, number);
            let handlers =
                service.defers().then(|| HandlerPool::for_lanes(plan.pool, cpu, service.lanes())).transpose();
            let kernel = KernelSide {
                udp: Arc::clone(&udp),
                receives: number == 0,
                listeners,
                connections: part_of(plan.tcp_limits.connections, accepting, number as u32),
                handlers: handlers.map_err(|source| StartError::Descriptors { worker: number, source })?,
                totals: Arc::clone(&totals),
                sends: sends_of(service, number)?,
                worker: number as u32,
                waits: self.wait,
                guarded: plan.fast_tcp,
            };
            let config = ServeConfig {
                served: Arc::clone(&served),
                addresses: Arc::clone(&self.addresses),
                reply_rate: plan.reply_rate,
                any_source_port: plan.any_source_port,
                keeper: kept.as_ref().map(KeptPart::keeper),
                kernel,
                fast_tcp: plan.fast_tcp.then(|| FastTcpConfig::new(plan.fast_ends())),
            };
            new.push(NewService::new(part, &plan.name, service, config));
        }
        Ok(new)
    }

    /// The memory in which the service keeps replies, if it may keep any.
    fn kept_part(&self, plan: &ServicePlan, service: &dyn Prototype) -> Option<Arc<KeptPart>> {
        let reflex = plan.reflex.filter(|reflex| reflex.answers == Answers::Kept)?;
        let (store, Reflex::Kept(replies)) = (self.kept?, service.reflex()) else { return None };
        let refused =
            |error| tracing::warn!("workers give all replies that service {} keeps: {error}", plan.name);
        store.bind(reflex.number, &replies).map_err(refused).ok()
    }
}

/// The queue for messages from other threads to a service on worker `number`, if the service uses one.
pub(crate) fn sends_of(service: &dyn Prototype, number: usize) -> Result<Option<Sends>, StartError> {
    let sends = service.sends_later().then(Sends::new).transpose();
    sends.map_err(|source| StartError::Descriptors { worker: number, source })
}

/// The CPU of worker `number`; `None`: it is not pinned.
#[must_use]
pub fn cpu_of(cpus: &[usize], worker: usize) -> Option<usize> {
    (!cpus.is_empty()).then(|| cpus[worker % cpus.len()])
}

/// The limits of a service for each of `count` workers.
#[must_use]
pub fn limits_for(plan: &ServicePlan, service: &dyn Prototype, count: u32) -> Vec<ServiceLimits> {
    let totals = Arc::new(TcpTotals::new(plan.tcp_limits, count));
    let of = |number| {
        let connections = part_of(plan.tcp_limits.connections, count, number);
        let (rate, any) = (plan.reply_rate, plan.any_source_port);
        ServiceLimits::new(service.may_loop(), Arc::clone(&totals), connections, rate, any)
    };
    (0..count).map(of).collect()
}

/// Gives each worker one listener of each group. If there are fewer workers than planned, they also get the
/// listeners of the missing ones.
fn share_out(groups: Vec<(Option<IpAddr>, u16, Group)>, workers: usize) -> Vec<Vec<OwnedFd>> {
    let mut shares: Vec<_> = (0..workers).map(|_| Vec::new()).collect();
    for (_, _, Group { listeners, .. }) in groups {
        listeners.into_iter().enumerate().for_each(|(at, listener)| shares[at % workers].push(listener));
    }
    shares
}

/// The part of `connections` that worker `number` may have if `workers` workers accept; at least one.
pub(crate) fn part_of(connections: u32, workers: u32, number: u32) -> u32 {
    (connections / workers + u32::from(number < connections % workers)).max(1)
}
