//! The stand-in: one more worker, which serves the kernel's sockets in place of a worker that is stuck.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_host::{StartError, readable_copy, until};
use twinpath_serve::{HandlerPool, KernelSide, Prototype, Routes, ServeCommand, ServeConfig, TcpTotals};
use twinpath_sys::event_loop::Watched;
use twinpath_sys::{clock, race};
use twinpath_time::{Duration, Instant};
use twinpath_worker::idle::{IdleConfig, Mode};
use twinpath_worker::place::Placement;

use crate::hold::Held;
use crate::plan::ServicePlan;
use crate::serving::service::{NewService, part_of, sends_of};
use crate::serving::worker::WorkerHandle;

/// The interval at which control checks whether a stuck worker has continued.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The smallest pool of frames, as the stand-in has no ports.
const POOL_FRAMES: u32 = 1;

/// An additional worker, which serves the kernel's sockets while another worker is stuck, and sleeps otherwise.
pub struct StandIn {
    /// The handle of the worker.
    pub worker: WorkerHandle,
    /// Readable when the worker has sent an event.
    says: Watched<OwnedFd>,
    /// Whether it has been told to serve.
    serves: bool,
    /// When to check whether it is still needed.
    look_at: Option<Instant>,
}

impl StandIn {
    /// Starts a stand-in for these services, beside `workers` workers. Its limits are separate, and as high as
    /// those of one worker. It is not pinned to a CPU, because the stuck worker may occupy its own. Called
    /// within an event loop.
    ///
    /// # Errors
    ///
    /// [`StartError`]; no thread is left then.
    pub fn start<'a>(
        workers: usize,
        services: impl Iterator<Item = (&'a ServicePlan, &'a Held, &'a dyn Prototype)>,
        addresses: &Arc<[IpAddr]>,
        routes: Routes,
    ) -> Result<Self, StartError> {
        let descriptors = |source| StartError::Descriptors { worker: workers, source };
        let mut new = Vec::new();
        for (plan, held, service) in services {
            let (udp, listeners) = held.for_stand_in().map_err(descriptors)?;
            let handlers = service
                .defers()
                .then(|| HandlerPool::for_lanes(plan.pool, None, service.lanes()))
                .transpose();
            let kernel = KernelSide {
                udp,
                receives: true,
                listeners,
                connections: part_of(plan.tcp_limits.connections, workers as u32, 0),
                totals: Arc::new(TcpTotals::new(plan.tcp_limits, 1)),
                handlers: handlers.map_err(descriptors)?,
                sends: sends_of(service, workers)?,
                worker: workers as u32,
                waits: true,
                guarded: plan.fast_tcp,
            };
            let (served, addresses) = (Arc::new(plan.served()), Arc::clone(addresses));
            let ServicePlan { reply_rate, any_source_port, .. } = *plan;
            let config = ServeConfig {
                served,
                addresses,
                reply_rate,
                any_source_port,
                keeper: None,
                kernel,
                fast_tcp: None,
            };
            new.push(NewService::new(held.part, &plan.name, service, config));
        }
        let idle = IdleConfig { mode: Mode::Interrupt, ..IdleConfig::default() };
        let worker = WorkerHandle::start(workers, Placement::on(None), idle, POOL_FRAMES, routes, new, None)?;
        let says = readable_copy(worker.events.as_fd());
        let says = says.map_err(|error| descriptors(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(Self { worker, says, serves: false, look_at: None })
    }

    /// Waits for an event of the stand-in or, while a worker is stuck, for the next check.
    pub async fn is_due(&self) {
        race!(self.says.event(), until(self.look_at));
    }

    /// Whether it has nothing to do: no worker is stuck, and it has no open connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.serves && self.worker.services.iter().all(|service| service.serve.tcp.connections.get() == 0)
    }

    /// Makes the next check due now, if it serves: a worker has work that it may be stuck with.
    pub fn look_soon(&mut self) {
        if self.serves {
            self.look_at = Some(clock::now());
        }
    }

    /// Makes the next check due after a while, if it serves.
    pub fn look_later(&mut self) {
        self.look_at = self.serves.then(|| clock::now() + LOOK_INTERVAL);
    }

    /// Lets it serve, or step back.
    pub fn serve_if(&mut self, serves: bool) {
        self.serves = serves;
        self.look_later();
        let command = if serves { ServeCommand::Begin } else { ServeCommand::StepBack };
        self.worker.tell_services(command);
    }
}
